package storagewire

import (
	"fmt"
	"math"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
)

// putReadRequest and readReadRequest carry storage.ReadRequest.
func putReadRequest(b []byte, r *storage.ReadRequest) []byte {
	b = data.PutString(b, r.Queue.Topic)
	b = data.PutInt(b, r.Queue.ID)
	b = data.PutInt(b, r.Offset)
	b = data.PutInt(b, r.Hot.Count)
	b = data.PutInt(b, r.Hot.Bytes)
	b = data.PutInt(b, r.Cold.Count)
	b = data.PutInt(b, r.Cold.Bytes)
	b = data.PutInt(b, r.Scan)
	b = data.PutUint(b, uint64(len(r.Tags)))
	for _, t := range r.Tags {
		b = data.PutInt(b, t)
	}
	return b
}

// readReadRequest uses the memory of the request that was in r before.
func readReadRequest(body []byte, r *storage.ReadRequest) error {
	d := data.Decoder{B: body}
	r.Queue = message.Queue{Topic: sameString(d.Bytes(), r.Queue.Topic), ID: d.Int32()}
	r.Offset = d.Int()
	r.Hot = storage.Limit{Count: d.Int32(), Bytes: d.Int32()}
	r.Cold = storage.Limit{Count: d.Int32(), Bytes: d.Int32()}
	r.Scan = d.Int32()
	r.Tags = r.Tags[:0]
	for range d.Count(1) {
		r.Tags = append(r.Tags, d.Int())
	}
	return d.Done("Read")
}

// sameString is b; s when that is equal.
func sameString(b []byte, s string) string {
	if string(b) == s {
		return s
	}
	return string(b)
}

func putPositions(b []byte, at []message.Position) []byte {
	b = data.PutUint(b, uint64(len(at)))
	for _, p := range at {
		b = data.PutInt(b, p)
	}
	return b
}

// readPositions appends to at.
func readPositions(body []byte, at []message.Position) ([]message.Position, error) {
	d := data.Decoder{B: body}
	for range d.Count(1) {
		at = append(at, message.Position(d.Int()))
	}
	return at, d.Done("Get")
}

// putChunk appends everything of a chunk but its bytes, which follow it.
func putChunk(b []byte, topic string, c *storage.Chunk) []byte {
	b = append(b, byte(c.Status))
	b = data.PutInt(b, c.Next)
	b = data.PutInt(b, c.Min)
	b = data.PutInt(b, c.Max)
	b = data.PutBool(b, c.Cold)
	b = data.PutInt(b, c.Skipped)
	return data.PutUnits(b, topic, c.Units)
}

// readChunk fills c from an answer; c.Frags alias it.
func readChunk(body []byte, topic string, c *storage.Chunk) error {
	d := data.Decoder{B: body}
	if len(d.B) == 0 {
		return fmt.Errorf("%w: an empty chunk", data.ErrFrame)
	}
	c.Status = storage.ReadStatus(d.B[0])
	d.B = d.B[1:]
	c.Next, c.Min, c.Max = d.Int(), d.Int(), d.Int()
	c.Cold = d.Uint() != 0
	c.Skipped = d.Int32()
	c.Units = data.ReadUnits(&d, topic, c.Units)
	if len(d.B) > 0 {
		c.Frags = append(c.Frags, d.B)
		d.B = nil
	}
	return d.Done("a chunk")
}

func putQueries(b []byte, q []storage.OffsetQuery) []byte {
	b = data.PutUint(b, uint64(len(q)))
	for i := range q {
		b = data.PutString(b, q[i].Queue.Topic)
		b = data.PutInt(b, q[i].Queue.ID)
		b = append(b, byte(q[i].Kind))
		b = data.PutInt(b, q[i].Time)
	}
	return b
}

// readQueries appends to q, whose memory it uses.
func readQueries(body []byte, q []storage.OffsetQuery) ([]storage.OffsetQuery, error) {
	d := data.Decoder{B: body}
	topic := ""
	for i := range d.Count(4) {
		if i < cap(q) {
			topic = q[:i+1][i].Queue.Topic
		}
		topic = sameString(d.Bytes(), topic)
		q = append(q, storage.OffsetQuery{
			Queue: message.Queue{Topic: topic, ID: d.Int32()},
			Kind:  storage.OffsetKind(min(d.Uint(), math.MaxUint8)), Time: d.Int(),
		})
	}
	return q, d.Done("Offsets")
}

// putAnswers omits the queues when they are those of the queries.
func putAnswers(b []byte, named bool, a *storage.OffsetAnswers) []byte {
	b = data.PutInt(b, a.Published)
	b = data.PutBool(b, named)
	b = data.PutUint(b, uint64(len(a.Answers)))
	for i := range a.Answers {
		x := &a.Answers[i]
		if named {
			b = data.PutString(b, x.Queue.Topic)
			b = data.PutInt(b, x.Queue.ID)
		}
		b = data.PutBool(b, x.Known)
		b = data.PutInt(b, x.Min)
		b = data.PutInt(b, x.Max)
		b = data.PutInt(b, x.Offset)
	}
	return b
}

func readAnswers(body []byte, q []storage.OffsetQuery, a *storage.OffsetAnswers) error {
	d := data.Decoder{B: body}
	a.Answers = a.Answers[:0]
	a.Published = message.Position(d.Int())
	named := d.Uint() != 0
	n := d.Count(4)
	if !d.Fault && !named && n != len(q) {
		return fmt.Errorf("%w: %d answers to %d queries", data.ErrFrame, n, len(q))
	}
	topic := ""
	for i := range n {
		var x storage.OffsetAnswer
		if named {
			if s := d.Bytes(); string(s) != topic {
				topic = string(s)
			}
			x.Queue = message.Queue{Topic: topic, ID: d.Int32()}
		} else {
			x.Queue = q[i].Queue
		}
		x.Known = d.Uint() != 0
		x.Min, x.Max, x.Offset = d.Int(), d.Int(), d.Int()
		a.Answers = append(a.Answers, x)
	}
	return d.Done("answers")
}
