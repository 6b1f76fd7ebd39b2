package storagetest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

var modelCases = []testCase{
	{"immediate", func(t *testing.T, h Harness) { metamorphic(t, h, storage.Immediate) }},
	{"explicit", func(t *testing.T, h Harness) { needsRawLog(t, h); metamorphic(t, h, storage.Explicit) }},
}

// metamorphic does random operations and compares with the model.
func metamorphic(t *testing.T, h Harness, mode storage.PublishMode) {
	seed := envInt(t, "HARDPOINT_TEST_SEED", 0)
	n := h.rounds(t)
	if seed != 0 {
		n = 1
	} else {
		seed = time.Now().UnixNano()
	}
	for i := range n {
		s := seed + int64(i)
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Logf("repeat with HARDPOINT_TEST_SEED=%d", s)
			rnd := rand.New(rand.NewPCG(uint64(s), 0))
			h := h
			if h.Segment == 0 {
				h.Segment = 8 << 10 << rnd.IntN(4)
			}
			r := &random{world: newWorld(t, h, mode), rnd: rnd}
			for step := range 120 {
				r.step()
				if step%10 == 9 {
					r.verify()
				}
				if t.Failed() {
					return
				}
			}
			r.verify()
		})
	}
}

// random is a world that acts at random.
type random struct {
	*world
	rnd *rand.Rand
}

func (r *random) queue() message.Queue {
	topics := []string{"T", "T", "U", "%RETRY%group", "a-topic-with-a-longer-name", message.ScheduleTopic}
	return queue(topics[r.rnd.IntN(len(topics))], int32(r.rnd.IntN(4)))
}

func (r *random) message() Message {
	m := Message{Queue: r.queue(), Body: body(r.rnd.IntN(300), "body")}
	if r.rnd.IntN(40) == 0 {
		m.Body = body(r.rnd.IntN(int(r.h.segment()/2)), "large")
	}
	if m.Queue.Topic == message.ScheduleTopic {
		m.Delay = 1 + r.rnd.IntN(20)
	} else if r.rnd.IntN(2) == 0 {
		m.Tags = fmt.Sprint("Tag", r.rnd.IntN(5))
	}
	if r.rnd.IntN(3) == 0 {
		m.Keys = fmt.Sprintf("k%d k%d", r.rnd.IntN(20), r.rnd.IntN(20))
	}
	if r.rnd.IntN(3) == 0 {
		m.UniqueKey = fmt.Sprint("u", r.rnd.IntN(1000))
	}
	if r.rnd.IntN(10) == 0 {
		m.SysFlag = []int32{message.SysTxPrepared, message.SysTxRollback, message.SysTxCommit}[r.rnd.IntN(3)]
	}
	return m
}

func (r *random) write() {
	if r.seq == nil {
		// A term begins when the log is published whole.
		if r.rnd.IntN(2) == 0 {
			r.truncate(r.model.published)
		} else {
			r.publish(r.model.tail)
			r.open()
		}
	}
	var groups [][]Message
	for range 1 + r.rnd.IntN(12) {
		var g []Message
		for range 1 + r.rnd.IntN(4) {
			g = append(g, r.message())
		}
		size := 0
		for _, m := range g {
			size += r.w.Size(m)
		}
		if size+message.BlankSize <= int(r.h.segment()) {
			groups = append(groups, g)
		}
	}
	r.clock.Add(int64(r.rnd.IntN(4000)) - 500) // the clock steps back at times
	r.append(groups...)
	if r.mode == storage.Explicit && r.rnd.IntN(4) > 0 {
		r.publish(r.model.tail)
	}
}

func (r *random) step() {
	r.t.Helper()
	switch n := r.rnd.IntN(100); {
	case n < 50:
		r.write()
	case n < 60:
		end := message.Position(r.rnd.Int64N(int64(r.model.tail) + 1))
		must(r.t, r.store.Sync(r.t.Context(), end), "Sync")
		if d := r.store.State().Durable; d < end {
			r.t.Fatalf("synced up to %d, State says %d", end, d)
		}
	case n < 68:
		if r.mode == storage.Explicit && len(r.model.log) > 0 {
			e := &r.model.log[r.rnd.IntN(len(r.model.log))]
			r.publish(e.end())
		}
	case n < 76:
		if r.mode == storage.Explicit {
			edges := r.model.edges()
			i := len(edges) - 1 - min(r.rnd.IntN(len(edges)), r.rnd.IntN(40))
			if i >= 0 && edges[i] <= r.model.tail {
				r.truncate(edges[i])
			}
		}
	case n < 80:
		if !r.h.Lacks.Retention {
			seg := message.Position(r.h.segment())
			first := r.model.published - r.model.published%seg
			if keep := seg * message.Position(r.rnd.IntN(4)); first-keep > r.model.first {
				r.expire(first - keep)
			}
		}
	case n < 84:
		r.again()
	case n < 92:
		q := r.queue()
		if _, ok := r.model.queues()[q]; ok {
			r.verifyTimes(q)
		}
	case n < 96:
		if !r.h.Lacks.KeyIndex {
			from := int64(epoch + r.rnd.IntN(100_000))
			r.findKey(storage.KeyQuery{
				Topic: r.queue().Topic, Key: fmt.Sprint("k", r.rnd.IntN(20)),
				From: from, To: from + int64(r.rnd.IntN(50_000)), Max: int32(1 + r.rnd.IntN(64)),
			})
		}
	default:
		r.readSomewhere()
	}
}

// again opens the store again, at times in the other mode.
func (r *random) again() {
	r.t.Helper()
	if r.h.Lacks.Reopen {
		return
	}
	r.shutdown()
	if !r.h.Lacks.RawLog && r.rnd.IntN(4) == 0 {
		if r.mode == storage.Explicit {
			r.mode = storage.Immediate
			r.model.published = r.model.tail
		} else {
			r.mode = storage.Explicit
		}
	}
	r.start()
	r.verify()
}

// readSomewhere reads a queue at an offset that may lie outside of it.
func (r *random) readSomewhere() {
	r.t.Helper()
	q := r.queue()
	e, ok := r.model.queues()[q]
	if !ok || e.max == 0 {
		return
	}
	off := e.min - 2 + r.rnd.Int64N(e.max-e.min+5)
	req := storage.ReadRequest{Queue: q, Offset: off, Hot: storage.Limit{Count: 5}, Cold: storage.Limit{Count: 5}}
	switch {
	case off < e.min:
		r.read(req, storage.OffsetTooSmall, e.min)
	case off == e.max:
		r.read(req, storage.OffsetOverflowOne, e.max)
	case off > e.max:
		r.read(req, storage.OffsetOverflowBadly, e.max)
	default:
		end := min(off+5, e.max)
		c := r.read(req, storage.Found, end)
		r.compareChunk(c, r.model.unitsOf(q)[off-e.min:end-e.min])
	}
}
