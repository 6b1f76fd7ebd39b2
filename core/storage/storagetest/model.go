package storagetest

import (
	"cmp"
	"slices"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// entry is a record of the model's log.
type entry struct {
	at    message.Position
	rec   []byte
	units []message.Unit
	keys  []message.Key
	time  int64
}

func (e *entry) end() message.Position { return e.at + message.Position(len(e.rec)) }

// ends is a queue of the model.
type ends struct{ min, max int64 }

// model is what a store should be: the log as a slice of records.
type model struct {
	segment                int64
	first, published, tail message.Position
	log                    []entry
	// base holds the ends of queues that do not follow from the log: given by
	// Reset or left by Expire. dropped holds the position from which on a
	// dropped queue counts again.
	base    map[message.Queue]int64
	dropped map[message.Queue]message.Position
}

func newModel(segment int64) *model {
	return &model{segment: segment, base: map[message.Queue]int64{}, dropped: map[message.Queue]message.Position{}}
}

// add takes a placed batch; its bytes are copied.
func (m *model) add(b *storage.Batch) {
	u, k := 0, 0
	for off := 0; off < len(b.Buf); {
		n := int(message.Size(b.Buf[off:]))
		e := entry{at: b.At + message.Position(off), rec: slices.Clone(b.Buf[off : off+n])}
		e.time = message.StoreTime(e.rec)
		for ; u < len(b.Units) && b.Units[u].At == e.at; u++ {
			e.units = append(e.units, b.Units[u])
		}
		for ; k < len(b.Keys) && b.Keys[k].At == e.at; k++ {
			e.keys = append(e.keys, b.Keys[k])
		}
		m.log = append(m.log, e)
		off += n
	}
	m.tail = b.End()
}

func (m *model) find(at message.Position) (*entry, bool) {
	i, ok := slices.BinarySearchFunc(m.log, at, func(e entry, p message.Position) int { return cmp.Compare(e.at, p) })
	if !ok {
		return nil, false
	}
	return &m.log[i], true
}

// truncate cuts at a record edge.
func (m *model) truncate(at message.Position) {
	i, _ := slices.BinarySearchFunc(m.log, at, func(e entry, p message.Position) int { return cmp.Compare(e.at, p) })
	m.log = m.log[:i]
	m.tail = at
	m.published = min(m.published, at)
	for q, p := range m.dropped {
		m.dropped[q] = min(p, at)
	}
}

func (m *model) expire(first message.Position) {
	for q, e := range m.queues() {
		m.base[q] = e.max
	}
	i, _ := slices.BinarySearchFunc(m.log, first, func(e entry, p message.Position) int { return cmp.Compare(e.at, p) })
	m.log = m.log[i:]
	m.first = first
	for q, e := range m.queues() {
		m.base[q] = e.min // a later Truncate may take the rest away
	}
}

func (m *model) reset(first message.Position, units []message.Unit) {
	*m = *newModel(m.segment)
	m.first, m.published, m.tail = first, first, first
	for _, u := range units {
		m.base[u.Queue] = u.Offset
	}
}

func (m *model) drop(q message.Queue) {
	delete(m.base, q)
	m.dropped[q] = m.tail
}

// unitsOf lists the published units of a queue.
func (m *model) unitsOf(q message.Queue) []message.Unit {
	var out []message.Unit
	for i := range m.log {
		if m.log[i].end() > m.published {
			break
		}
		for _, u := range m.log[i].units {
			if u.Queue == q && u.At >= m.dropped[q] {
				out = append(out, u)
			}
		}
	}
	return out
}

// queues gives the published ends of all queues.
func (m *model) queues() map[message.Queue]ends {
	out := map[message.Queue]ends{}
	for q, n := range m.base {
		out[q] = ends{n, n}
	}
	seen := map[message.Queue]bool{}
	for i := range m.log {
		if m.log[i].end() > m.published {
			break
		}
		for _, u := range m.log[i].units {
			if u.At < m.dropped[u.Queue] {
				continue
			}
			e := out[u.Queue]
			if !seen[u.Queue] {
				e.min, seen[u.Queue] = u.Offset, true
			}
			e.max = u.Offset + 1
			out[u.Queue] = e
		}
	}
	return out
}

// raw gives the bytes of [from, to), blanks included.
func (m *model) raw(from, to message.Position) []byte {
	out := make([]byte, to-from)
	put := func(at message.Position, b []byte) {
		if at < from {
			skip := min(int(from-at), len(b))
			b, at = b[skip:], from
		}
		if at < to {
			copy(out[at-from:], b)
		}
	}
	pos := m.first
	for i := range m.log {
		e := &m.log[i]
		if e.at != pos {
			put(pos, blank(e.at-pos))
		}
		put(e.at, e.rec)
		pos = e.end()
	}
	if m.tail > pos {
		put(pos, blank(m.tail-pos))
	}
	return out
}

func blank(n message.Position) []byte {
	b := make([]byte, n)
	message.PutBlank(b, int32(n))
	return b
}

// edges lists every position at which the log may be cut.
func (m *model) edges() []message.Position {
	out := []message.Position{m.first}
	for i := range m.log {
		out = append(out, m.log[i].at, m.log[i].end())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// firstAt and lastAt are the two boundaries of a search by time.
func (m *model) firstAt(q message.Queue, e ends, time int64) int64 {
	for _, u := range m.unitsOf(q) {
		if u.StoreTime >= time {
			return u.Offset
		}
	}
	return e.max
}

func (m *model) lastAt(q message.Queue, e ends, time int64) int64 {
	out := e.min
	for _, u := range m.unitsOf(q) {
		if u.StoreTime <= time {
			out = u.Offset
		}
	}
	return out
}

// keyed lists the published records under a hash, newest first.
func (m *model) keyed(hash int32) []message.Key {
	var out []message.Key
	for i := range m.log {
		if m.log[i].end() > m.published {
			break
		}
		for _, k := range m.log[i].keys {
			if k.Hash == hash {
				out = append(out, k)
			}
		}
	}
	slices.Reverse(out)
	return slices.CompactFunc(out, func(a, b message.Key) bool { return a.At == b.At })
}
