package storagewire

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// decoder reads a body. After the first fault every value is zero and fault is
// set.
type decoder struct {
	b     []byte
	fault bool
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fault, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.fault, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

// int32 refuses what does not fit.
func (d *decoder) int32() int32 {
	v := d.int()
	if v < math.MinInt32 || v > math.MaxInt32 {
		d.fault, d.b = true, nil
		return 0
	}
	return int32(v)
}

// count reads how many elements follow, each of at least size bytes.
func (d *decoder) count(size int) int {
	n := d.uint()
	if n > uint64(len(d.b)/size) {
		d.fault, d.b = true, nil
		return 0
	}
	return int(n)
}

func (d *decoder) bytes() []byte {
	n := d.count(1)
	b := d.b[:n:n]
	d.b = d.b[n:]
	return b
}

// done is the error of a body that is read whole.
func (d *decoder) done(what string) error {
	if d.fault {
		return fmt.Errorf("%w: a body of %s ends early or holds a number out of range", errFrame, what)
	}
	if len(d.b) > 0 {
		return fmt.Errorf("%w: %d bytes behind the end of %s", errFrame, len(d.b), what)
	}
	return nil
}

func putUint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }
func putInt[T ~int64 | ~int32](b []byte, v T) []byte {
	return binary.AppendVarint(b, int64(v))
}

func putString[T ~string | ~[]byte](b []byte, s T) []byte {
	return append(putUint(b, uint64(len(s))), s...)
}

func putBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// maxTopics bounds a dictionary; then it begins anew.
const maxTopics = 1 << 16

// topicWriter numbers the topics of the units that one connection carries.
type topicWriter struct {
	ids   map[string]uint64
	fresh []string // to be announced in this frame
	last  string
	id    uint64
}

func (t *topicWriter) of(topic string) uint64 {
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

// topicReader is the other end's.
type topicReader struct{ names []string }

// putBatch appends everything of a batch but its bytes, which follow it:
//
//	term, at, number of bytes, reset (1: the dictionary begins anew),
//	new topics: count, names
//	units: count, {topic, queue, at−batch, size, offset, tags code, store time−previous}
//	keys: count, {hash, at−batch, store time−previous}
//	groups: count, {bytes, units, keys, flags}
func putBatch(b []byte, t *topicWriter, x *storage.Batch) []byte {
	b = putUint(b, x.Term)
	b = putInt(b, x.At)
	b = putUint(b, uint64(len(x.Buf)))
	reset := len(t.ids) > maxTopics
	if reset {
		*t = topicWriter{}
	}
	b = putBool(b, reset)
	t.fresh = t.fresh[:0]
	for i := range x.Units {
		t.of(x.Units[i].Queue.Topic)
	}
	b = putUint(b, uint64(len(t.fresh)))
	for _, s := range t.fresh {
		b = putString(b, s)
	}
	b = putUint(b, uint64(len(x.Units)))
	last := int64(0)
	for i := range x.Units {
		u := &x.Units[i]
		b = putUint(b, t.of(u.Queue.Topic))
		b = putInt(b, u.Queue.ID)
		b = putInt(b, u.At-x.At)
		b = putInt(b, u.Size)
		b = putInt(b, u.Offset)
		b = putInt(b, u.TagsCode)
		b = putInt(b, u.StoreTime-last)
		last = u.StoreTime
	}
	b = putUint(b, uint64(len(x.Keys)))
	last = 0
	for i := range x.Keys {
		k := &x.Keys[i]
		b = putInt(b, k.Hash)
		b = putInt(b, k.At-x.At)
		b = putInt(b, k.StoreTime-last)
		last = k.StoreTime
	}
	b = putUint(b, uint64(len(x.Groups)))
	for i := range x.Groups {
		g := &x.Groups[i]
		b = putInt(b, g.Len)
		b = putInt(b, g.Units)
		b = putInt(b, g.Keys)
		f := uint64(0)
		if g.NoWait {
			f |= 1
		}
		if g.Edge {
			f |= 2
		}
		b = putUint(b, f)
	}
	return b
}

// readBatch fills x from a body; x.Buf aliases it.
func readBatch(body []byte, t *topicReader, x *storage.Batch) error {
	d := decoder{b: body}
	x.Term = d.uint()
	x.At = message.Position(d.int())
	size := d.uint()
	if d.uint() != 0 {
		t.names = nil
	}
	for range d.count(1) {
		t.names = append(t.names, string(d.bytes()))
	}
	if len(t.names) > 2*maxTopics {
		return fmt.Errorf("%w: a dictionary of %d topics", errFrame, len(t.names))
	}
	last := int64(0)
	for range d.count(7) {
		id := d.uint()
		if id >= uint64(len(t.names)) {
			return fmt.Errorf("%w: topic %d of %d", errFrame, id, len(t.names))
		}
		u := message.Unit{Queue: message.Queue{Topic: t.names[id], ID: d.int32()}}
		u.At = x.At + message.Position(d.int())
		u.Size = d.int32()
		u.Offset, u.TagsCode = d.int(), d.int()
		u.StoreTime = last + d.int()
		last = u.StoreTime
		x.Units = append(x.Units, u)
	}
	last = 0
	for range d.count(3) {
		k := message.Key{Hash: d.int32()}
		k.At = x.At + message.Position(d.int())
		k.StoreTime = last + d.int()
		last = k.StoreTime
		x.Keys = append(x.Keys, k)
	}
	if err := readGroups(&d, x, size); err != nil {
		return err
	}
	x.Buf, d.b = d.b, nil
	return d.done("Append")
}

// readGroups checks that the groups cover the batch: a store indexes by them.
func readGroups(d *decoder, x *storage.Batch, size uint64) error {
	var bytes, units, keys int64
	for range d.count(4) {
		g := storage.Group{
			Off: int32(bytes), Unit: int32(units), Key: int32(keys),
			Len: d.int32(), Units: d.int32(), Keys: d.int32(),
		}
		f := d.uint()
		g.NoWait, g.Edge = f&1 != 0, f&2 != 0
		bytes, units, keys = bytes+int64(g.Len), units+int64(g.Units), keys+int64(g.Keys)
		if g.Len < 0 || g.Units < 0 || g.Keys < 0 || bytes > math.MaxInt32 || units > math.MaxInt32 || keys > math.MaxInt32 {
			d.fault, d.b = true, nil
		}
		x.Groups = append(x.Groups, g)
	}
	if d.fault || uint64(len(d.b)) != size ||
		len(x.Groups) > 0 && (uint64(bytes) != size || units != int64(len(x.Units)) || keys != int64(len(x.Keys))) {
		return fmt.Errorf("%w: a batch of %d bytes, %d units, %d keys, whose %d groups have %d bytes, %d units, %d keys",
			errFrame, len(d.b), len(x.Units), len(x.Keys), len(x.Groups), bytes, units, keys)
	}
	return nil
}

// putUnits appends units that name their queues in full: where a topic is that
// of the unit before, it is empty.
func putUnits(b []byte, topic string, units []message.Unit) []byte {
	b = putUint(b, uint64(len(units)))
	for i := range units {
		u := &units[i]
		if same := u.Queue.Topic == topic; same {
			b = append(b, 0)
		} else {
			topic = u.Queue.Topic
			b = putString(append(b, 1), topic)
		}
		b = putInt(b, u.Queue.ID)
		b = putInt(b, u.At)
		b = putInt(b, u.Size)
		b = putInt(b, u.Offset)
		b = putInt(b, u.TagsCode)
		b = putInt(b, u.StoreTime)
	}
	return b
}

func readUnits(d *decoder, topic string, units []message.Unit) []message.Unit {
	for range d.count(7) {
		if d.uint() != 0 {
			topic = string(d.bytes())
		}
		u := message.Unit{Queue: message.Queue{Topic: topic, ID: d.int32()}}
		u.At = message.Position(d.int())
		u.Size = d.int32()
		u.Offset, u.TagsCode, u.StoreTime = d.int(), d.int(), d.int()
		units = append(units, u)
	}
	return units
}

// putReadRequest and readReadRequest carry storage.ReadRequest.
func putReadRequest(b []byte, r *storage.ReadRequest) []byte {
	b = putString(b, r.Queue.Topic)
	b = putInt(b, r.Queue.ID)
	b = putInt(b, r.Offset)
	b = putInt(b, r.Hot.Count)
	b = putInt(b, r.Hot.Bytes)
	b = putInt(b, r.Cold.Count)
	b = putInt(b, r.Cold.Bytes)
	b = putInt(b, r.Scan)
	b = putUint(b, uint64(len(r.Tags)))
	for _, t := range r.Tags {
		b = putInt(b, t)
	}
	return b
}

func readReadRequest(body []byte) (r storage.ReadRequest, err error) {
	d := decoder{b: body}
	r.Queue = message.Queue{Topic: string(d.bytes()), ID: d.int32()}
	r.Offset = d.int()
	r.Hot = storage.Limit{Count: d.int32(), Bytes: d.int32()}
	r.Cold = storage.Limit{Count: d.int32(), Bytes: d.int32()}
	r.Scan = d.int32()
	for range d.count(1) {
		r.Tags = append(r.Tags, d.int())
	}
	return r, d.done("Read")
}

func putPositions(b []byte, at []message.Position) []byte {
	b = putUint(b, uint64(len(at)))
	for _, p := range at {
		b = putInt(b, p)
	}
	return b
}

func readPositions(body []byte) (at []message.Position, err error) {
	d := decoder{b: body}
	for range d.count(1) {
		at = append(at, message.Position(d.int()))
	}
	return at, d.done("Get")
}

// putChunk appends everything of a chunk but its bytes, which follow it.
func putChunk(b []byte, topic string, c *storage.Chunk) []byte {
	b = append(b, byte(c.Status))
	b = putInt(b, c.Next)
	b = putInt(b, c.Min)
	b = putInt(b, c.Max)
	b = putBool(b, c.Cold)
	b = putInt(b, c.Skipped)
	return putUnits(b, topic, c.Units)
}

// readChunk fills c from an answer; c.Frags alias it.
func readChunk(body []byte, topic string, c *storage.Chunk) error {
	d := decoder{b: body}
	if len(d.b) == 0 {
		return fmt.Errorf("%w: an empty chunk", errFrame)
	}
	c.Status = storage.ReadStatus(d.b[0])
	d.b = d.b[1:]
	c.Next, c.Min, c.Max = d.int(), d.int(), d.int()
	c.Cold = d.uint() != 0
	c.Skipped = d.int32()
	c.Units = readUnits(&d, topic, c.Units)
	if len(d.b) > 0 {
		c.Frags = append(c.Frags, d.b)
		d.b = nil
	}
	return d.done("a chunk")
}

func putQueries(b []byte, q []storage.OffsetQuery) []byte {
	b = putUint(b, uint64(len(q)))
	for i := range q {
		b = putString(b, q[i].Queue.Topic)
		b = putInt(b, q[i].Queue.ID)
		b = append(b, byte(q[i].Kind))
		b = putInt(b, q[i].Time)
	}
	return b
}

func readQueries(body []byte) (q []storage.OffsetQuery, err error) {
	d := decoder{b: body}
	for range d.count(4) {
		q = append(q, storage.OffsetQuery{
			Queue: message.Queue{Topic: string(d.bytes()), ID: d.int32()},
			Kind:  storage.OffsetKind(min(d.uint(), math.MaxUint8)), Time: d.int(),
		})
	}
	return q, d.done("Offsets")
}

// putAnswers omits the queues when they are those of the queries.
func putAnswers(b []byte, named bool, a *storage.OffsetAnswers) []byte {
	b = putInt(b, a.Published)
	b = putBool(b, named)
	b = putUint(b, uint64(len(a.Answers)))
	for i := range a.Answers {
		x := &a.Answers[i]
		if named {
			b = putString(b, x.Queue.Topic)
			b = putInt(b, x.Queue.ID)
		}
		b = putBool(b, x.Known)
		b = putInt(b, x.Min)
		b = putInt(b, x.Max)
		b = putInt(b, x.Offset)
	}
	return b
}

func readAnswers(body []byte, q []storage.OffsetQuery, a *storage.OffsetAnswers) error {
	d := decoder{b: body}
	a.Answers = a.Answers[:0]
	a.Published = message.Position(d.int())
	named := d.uint() != 0
	n := d.count(4)
	if !d.fault && !named && n != len(q) {
		return fmt.Errorf("%w: %d answers to %d queries", errFrame, n, len(q))
	}
	topic := ""
	for i := range n {
		var x storage.OffsetAnswer
		if named {
			if s := d.bytes(); string(s) != topic {
				topic = string(s)
			}
			x.Queue = message.Queue{Topic: topic, ID: d.int32()}
		} else {
			x.Queue = q[i].Queue
		}
		x.Known = d.uint() != 0
		x.Min, x.Max, x.Offset = d.int(), d.int(), d.int()
		a.Answers = append(a.Answers, x)
	}
	return d.done("answers")
}

// putEnds and readEnds carry the units of Reset, of which a store looks at queue
// and offset; and the queues of Drop.
func putEnds(b []byte, ends []message.Unit) []byte {
	b = putUint(b, uint64(len(ends)))
	for i := range ends {
		b = putString(b, ends[i].Queue.Topic)
		b = putInt(b, ends[i].Queue.ID)
		b = putInt(b, ends[i].Offset)
	}
	return b
}

func readEnds(d *decoder) (ends []message.Unit) {
	for range d.count(3) {
		ends = append(ends, message.Unit{
			Queue:  message.Queue{Topic: string(d.bytes()), ID: d.int32()},
			Offset: d.int(),
		})
	}
	return ends
}
