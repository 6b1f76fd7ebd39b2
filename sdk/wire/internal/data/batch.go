package data

import (
	"fmt"
	"math"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// maxTopics bounds a dictionary; then it begins anew.
const maxTopics = 1 << 16

// TopicWriter numbers the topics of the units that one connection carries.
type TopicWriter struct {
	ids   map[string]uint64
	fresh []string // to be announced in this frame
	last  string
	id    uint64
}

func (t *TopicWriter) of(topic string) uint64 {
	if t.last == topic && t.ids != nil {
		return t.id
	}
	id, ok := t.ids[topic]
	if !ok {
		if t.ids == nil {
			t.ids = map[string]uint64{}
		}
		id = uint64(len(t.ids))
		t.ids[topic] = id
		t.fresh = append(t.fresh, topic)
	}
	t.last, t.id = topic, id
	return id
}

// TopicReader is the other end's.
type TopicReader struct{ names []string }

// PutBatch appends everything of a batch but its bytes, which follow it:
//
//	term, at, number of bytes, reset (1: the dictionary begins anew),
//	new topics: count, names
//	units: count, {topic, queue, at−batch, size, offset, tags code, store time−previous}
//	keys: count, {hash, at−batch, store time−previous}
//	groups: count, {bytes, units, keys, flags}
func PutBatch(b []byte, t *TopicWriter, x *storage.Batch) []byte {
	b = PutUint(b, x.Term)
	b = PutInt(b, x.At)
	b = PutUint(b, uint64(len(x.Buf)))
	reset := len(t.ids) > maxTopics
	if reset {
		*t = TopicWriter{}
	}
	b = PutBool(b, reset)
	t.fresh = t.fresh[:0]
	for i := range x.Units {
		t.of(x.Units[i].Queue.Topic)
	}
	b = PutUint(b, uint64(len(t.fresh)))
	for _, s := range t.fresh {
		b = PutString(b, s)
	}
	b = PutUint(b, uint64(len(x.Units)))
	last := int64(0)
	for i := range x.Units {
		u := &x.Units[i]
		b = PutUint(b, t.of(u.Queue.Topic))
		b = PutInt(b, u.Queue.ID)
		b = PutInt(b, u.At-x.At)
		b = PutInt(b, u.Size)
		b = PutInt(b, u.Offset)
		b = PutInt(b, u.TagsCode)
		b = PutInt(b, u.StoreTime-last)
		last = u.StoreTime
	}
	b = PutUint(b, uint64(len(x.Keys)))
	last = 0
	for i := range x.Keys {
		k := &x.Keys[i]
		b = PutInt(b, k.Hash)
		b = PutInt(b, k.At-x.At)
		b = PutInt(b, k.StoreTime-last)
		last = k.StoreTime
	}
	b = PutUint(b, uint64(len(x.Groups)))
	for i := range x.Groups {
		g := &x.Groups[i]
		b = PutInt(b, g.Len)
		b = PutInt(b, g.Units)
		b = PutInt(b, g.Keys)
		f := uint64(0)
		if g.NoWait {
			f |= 1
		}
		if g.Edge {
			f |= 2
		}
		b = PutUint(b, f)
	}
	return b
}

// ReadBatch fills x from a body; x.Buf aliases it. What it points at lies within: a
// store goes by that, and one that was told nonsense could have to stop. Where the
// batch goes is the store's to judge.
func ReadBatch(body []byte, t *TopicReader, x *storage.Batch) error {
	d := Decoder{B: body}
	x.Term = d.Uint()
	x.At = message.Position(d.Int())
	size := d.Uint()
	if d.Uint() != 0 {
		t.names = nil
	}
	for range d.Count(1) {
		t.names = append(t.names, string(d.Bytes()))
	}
	if len(t.names) > 2*maxTopics {
		return fmt.Errorf("%w: a dictionary of %d topics", ErrFrame, len(t.names))
	}
	last := int64(0)
	for range d.Count(7) {
		id := d.Uint()
		if id >= uint64(len(t.names)) {
			return fmt.Errorf("%w: topic %d of %d", ErrFrame, id, len(t.names))
		}
		u := message.Unit{Queue: message.Queue{Topic: t.names[id], ID: d.Int32()}}
		at := d.Int()
		u.At = x.At + message.Position(at)
		u.Size = d.Int32()
		u.Offset, u.TagsCode = d.Int(), d.Int()
		u.StoreTime = last + d.Int()
		last = u.StoreTime
		if !d.Fault && (at < 0 || u.Size < 0 || uint64(at)+uint64(u.Size) > size || u.Offset < 0 || u.Offset == math.MaxInt64) {
			return fmt.Errorf("%w: unit %d of a batch of %d bytes: record at byte %d with %d bytes, offset %d in %s/%d",
				ErrFrame, len(x.Units), size, at, u.Size, u.Offset, u.Queue.Topic, u.Queue.ID)
		}
		x.Units = append(x.Units, u)
	}
	last = 0
	for range d.Count(3) {
		k := message.Key{Hash: d.Int32()}
		at := d.Int()
		k.At = x.At + message.Position(at)
		k.StoreTime = last + d.Int()
		last = k.StoreTime
		if !d.Fault && (at < 0 || uint64(at) >= size) {
			return fmt.Errorf("%w: key %d of a batch of %d bytes: record at byte %d", ErrFrame, len(x.Keys), size, at)
		}
		x.Keys = append(x.Keys, k)
	}
	if err := readGroups(&d, x, size); err != nil {
		return err
	}
	x.Buf, d.B = d.B, nil
	return d.Done("Append")
}

// readGroups checks that the groups cover the batch: a store indexes by them.
func readGroups(d *Decoder, x *storage.Batch, size uint64) error {
	var bytes, units, keys int64
	for range d.Count(4) {
		g := storage.Group{
			Off: int32(bytes), Unit: int32(units), Key: int32(keys),
			Len: d.Int32(), Units: d.Int32(), Keys: d.Int32(),
		}
		f := d.Uint()
		g.NoWait, g.Edge = f&1 != 0, f&2 != 0
		bytes, units, keys = bytes+int64(g.Len), units+int64(g.Units), keys+int64(g.Keys)
		if g.Len < 0 || g.Units < 0 || g.Keys < 0 || bytes > math.MaxInt32 || units > math.MaxInt32 || keys > math.MaxInt32 {
			d.Fault, d.B = true, nil
		}
		x.Groups = append(x.Groups, g)
	}
	if d.Fault || uint64(len(d.B)) != size ||
		len(x.Groups) > 0 && (uint64(bytes) != size || units != int64(len(x.Units)) || keys != int64(len(x.Keys))) {
		return fmt.Errorf("%w: a batch of %d bytes, %d units, %d keys, whose %d groups have %d bytes, %d units, %d keys",
			ErrFrame, len(d.B), len(x.Units), len(x.Keys), len(x.Groups), bytes, units, keys)
	}
	return nil
}

// PutUnits appends units that name their queues in full: where a topic is that
// of the unit before, it is empty.
func PutUnits(b []byte, topic string, units []message.Unit) []byte {
	b = PutUint(b, uint64(len(units)))
	for i := range units {
		u := &units[i]
		if same := u.Queue.Topic == topic; same {
			b = append(b, 0)
		} else {
			topic = u.Queue.Topic
			b = PutString(append(b, 1), topic)
		}
		b = PutInt(b, u.Queue.ID)
		b = PutInt(b, u.At)
		b = PutInt(b, u.Size)
		b = PutInt(b, u.Offset)
		b = PutInt(b, u.TagsCode)
		b = PutInt(b, u.StoreTime)
	}
	return b
}

// ReadUnits appends what PutUnits wrote.
func ReadUnits(d *Decoder, topic string, units []message.Unit) []message.Unit {
	for range d.Count(7) {
		if d.Uint() != 0 {
			topic = string(d.Bytes())
		}
		u := message.Unit{Queue: message.Queue{Topic: topic, ID: d.Int32()}}
		u.At = message.Position(d.Int())
		u.Size = d.Int32()
		u.Offset, u.TagsCode, u.StoreTime = d.Int(), d.Int(), d.Int()
		units = append(units, u)
	}
	return units
}

// PutEnds appends the units of Reset, of which a store looks at queue
// and offset; and the queues of Drop.
func PutEnds(b []byte, ends []message.Unit) []byte {
	b = PutUint(b, uint64(len(ends)))
	for i := range ends {
		b = PutString(b, ends[i].Queue.Topic)
		b = PutInt(b, ends[i].Queue.ID)
		b = PutInt(b, ends[i].Offset)
	}
	return b
}

// ReadEnds reads what PutEnds wrote.
func ReadEnds(d *Decoder) (ends []message.Unit) {
	for range d.Count(3) {
		ends = append(ends, message.Unit{
			Queue:  message.Queue{Topic: string(d.Bytes()), ID: d.Int32()},
			Offset: d.Int(),
		})
	}
	return ends
}
