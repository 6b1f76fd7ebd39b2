package storagewire

import (
	"fmt"
	"math"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
)

// A frame whose bytes are in order may still say what cannot be. The host relies on
// what a store says: it slices records by their sizes, goes on reading where it is
// told to, and acknowledges. So what it can hold against the contract it does, and
// whoever says such a thing is ended like one that does not speak the protocol.

func lie(what string, args ...any) error {
	return fmt.Errorf("%w: %s", data.ErrLie, fmt.Sprintf(what, args...))
}

// checkUnits holds the sizes against the bytes that came. Units with none are legal
// in the answer to Get.
func checkUnits(c *storage.Chunk, least int32) error {
	var units, bytes int64
	for i := range c.Units {
		u := &c.Units[i]
		if u.Size < least || u.At < 0 && u.Size > 0 {
			return lie("a record of %d bytes at %d", u.Size, u.At)
		}
		units += int64(u.Size)
	}
	for _, f := range c.Frags {
		bytes += int64(len(f))
	}
	if units != bytes {
		return lie("%d records of %d bytes, and %d bytes with them", len(c.Units), units, bytes)
	}
	return nil
}

func checkEnds(q message.Queue, low, high int64) error {
	if low < 0 || low > high || high == math.MaxInt64 {
		return lie("queue %v begins at %d and ends at %d", q, low, high)
	}
	return nil
}

// checkRead is of the answer to Read. Whoever reads on from it gets on.
func checkRead(r *storage.ReadRequest, c *storage.Chunk) error {
	if err := checkEnds(r.Queue, c.Min, c.Max); err != nil {
		return err
	}
	if err := checkUnits(c, 1); err != nil {
		return err
	}
	next := r.Offset
	for i := range c.Units {
		u := &c.Units[i]
		if u.Queue != r.Queue || u.Offset < next || u.Offset == math.MaxInt64 {
			return lie("offset %d of queue %v in an answer to Read of %v from %d on", u.Offset, u.Queue, r.Queue, next)
		}
		next = u.Offset + 1
	}
	found := c.Status == storage.Found
	switch {
	case c.Status > storage.NoMessageInQueue:
		return lie("status %d of a read", c.Status)
	case found != (len(c.Units) > 0):
		return lie("%v with %d records", c.Status, len(c.Units))
	case c.Next < 0,
		found && c.Next < next,
		c.Status == storage.OffsetTooSmall && r.Offset >= c.Min,
		c.Status == storage.OffsetOverflowBadly && r.Offset <= c.Max:
		return lie("%v and %d as the next offset after a Read of queue %v from %d on, which begins at %d and ends at %d",
			c.Status, c.Next, r.Queue, r.Offset, c.Min, c.Max)
	}
	return nil
}

// checkGet is of the answer to Get.
func checkGet(at []message.Position, c *storage.Chunk) error {
	if len(c.Units) != len(at) {
		return lie("%d records in an answer to Get of %d positions", len(c.Units), len(at))
	}
	for i := range at {
		if c.Units[i].Size != 0 && c.Units[i].At != at[i] {
			return lie("the record at %d in an answer to Get of %d", c.Units[i].At, at[i])
		}
	}
	return checkUnits(c, 0)
}

// checkReadLog is of the answer to ReadLog.
func checkReadLog(from message.Position, most int, c *storage.Chunk) error {
	n := 0
	for _, f := range c.Frags {
		n += len(f)
	}
	if n > max(most, 0) || c.Next != int64(from)+int64(n) {
		return lie("%d bytes up to %d in an answer to ReadLog of at most %d from %d on", n, c.Next, most, from)
	}
	return nil
}

// checkOffsets is of the answer to Offsets.
func checkOffsets(a *storage.OffsetAnswers) error {
	if a.Published < 0 {
		return lie("the ends of queues up to position %d", a.Published)
	}
	for i := range a.Answers {
		x := &a.Answers[i]
		if err := checkEnds(x.Queue, x.Min, x.Max); err != nil {
			return err
		}
		if x.Offset < 0 || x.Offset > x.Max {
			return lie("offset %d of queue %v, which begins at %d and ends at %d", x.Offset, x.Queue, x.Min, x.Max)
		}
	}
	return nil
}

// mostLog bounds positions: what is computed from them does not overflow.
const mostLog = math.MaxInt64 / 2

func (m *marks) check() error {
	if m.first < 0 || m.published < 0 || m.durable < 0 || m.published > m.tail || m.durable > m.tail || m.tail > mostLog {
		return lie("a log that begins at %d, is published up to %d, durable up to %d, and ends at %d", m.first, m.published, m.durable, m.tail)
	}
	return nil
}

// checkState is of a log that was just opened.
func checkState(st *storage.State) error {
	m := marksOf(0, st)
	if err := m.check(); err != nil {
		return err
	}
	if st.First > st.Published || st.Segment < 1 || st.First%message.Position(st.Segment) != 0 {
		return lie("a log that begins at %d, is published up to %d, and has segments of %d bytes", st.First, st.Published, st.Segment)
	}
	return nil
}

// checkIdentity is of a log that was opened for the first time.
func checkIdentity(st *storage.State, p *storage.Params) error {
	switch {
	case st.LogID == "":
		return lie("it opened a log without an id")
	case p.LogID != "" && st.LogID != p.LogID:
		return lie("it opened the log %q, asked for was %q", st.LogID, p.LogID)
	}
	return nil
}

// promise is what the log has to be like when a call that changes it succeeded.
type promise struct {
	least, most message.Position // of its end
	published   message.Position // at least, and told
}

// anything is the promise of a call that does not say where the log ends.
var anything = promise{most: mostLog}

func (p *promise) kept(k data.Kind, m *marks) error {
	if err := m.check(); err != nil {
		return err
	}
	switch {
	case m.tail < p.least:
		return lie("%s was done, and the log ends at %d, not at %d", names[k], m.tail, p.least)
	case m.tail > p.most:
		return lie("%s was done, and the log ends at %d, above %d", names[k], m.tail, p.most)
	case m.published < p.published:
		return lie("%s was done, and the log is published up to %d, not up to %d", names[k], m.published, p.published)
	}
	return nil
}

// checkPublished is of an event; written is the end of all that the host ever wrote.
func checkPublished(at, written message.Position, units []message.Unit) error {
	if at < 0 || at > written {
		return lie("the log is published up to %d, and ends at %d", at, written)
	}
	last := message.Position(0)
	for i := range units {
		u := &units[i]
		if u.At < last || u.Size < 1 || u.At+message.Position(u.Size) > at {
			return lie("a record of %d bytes at %d, after one at %d, is published, and the log is up to %d", u.Size, u.At, last, at)
		}
		last = u.At
	}
	return nil
}

// checkSegments is of the answer to Segments.
func checkSegments(segs []storage.Segment) error {
	last := message.Position(-1)
	for i := range segs {
		g := &segs[i]
		if g.At <= last || g.At > mostLog || g.Bytes < 0 || g.Leases < 0 {
			return lie("a segment at %d, after one at %d, with %d bytes and %d leases", g.At, last, g.Bytes, g.Leases)
		}
		last = g.At
	}
	return nil
}
