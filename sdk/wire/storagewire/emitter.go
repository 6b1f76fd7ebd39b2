package storagewire

import (
	"sync"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
)

// emitter numbers the events of a store, so that the host delivers them in
// order whichever connection brings them. What happens inside a call that
// changes the log goes before the call's answer; publishing what came through
// the connection is part of the answer itself. All else goes over the read
// connection.
type emitter struct {
	mu       sync.Mutex
	i        *instance
	starting bool
	inside   bool
	seq      uint64
	out      []byte // frames that go before the answer
	// mark is what the host knows as published; from own on the log came through
	// the connection.
	mark, own message.Position
	ownSeq    uint64
	ownUpTo   message.Position
	expired   uint64 // number of the last one that told of Expired
}

// begin is called before a call that changes the log, or Start.
func (e *emitter) begin(i *instance, starting bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.i, e.starting, e.inside = i, starting, !starting
	e.ownSeq = 0
}

// end appends the frames that go before the answer.
func (e *emitter) end(out []byte, o *outcome) []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inside = false
	o.own, o.upTo = e.ownSeq, e.ownUpTo
	out = append(out, e.out...)
	e.out = e.out[:0]
	return out
}

func (e *emitter) started(st *storage.State) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.starting = false
	e.mark, e.own = st.Published, st.Tail
}

// cut: what follows at will come through the connection.
func (e *emitter) cut(done bool, at message.Position) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if done {
		e.mark, e.own = min(e.mark, at), min(e.own, at)
	}
}

func (e *emitter) reset(done bool, first message.Position) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if done {
		e.mark, e.own = first, first
	}
}

// send numbers an event that is a frame; mu is held.
func (e *emitter) send(x *event) {
	e.seq++
	x.marks = e.i.marks()
	if e.inside {
		n := len(e.out)
		e.out = putEvent(data.Begin(e.out), x)
		data.Finish(e.out, n, kindEvent, e.seq, 0, 0)
		return
	}
	b := putEvent(data.Begin(nil), x)
	data.Finish(b, 0, kindEvent, e.seq, 0, 0)
	_ = e.i.read.Send(b) // a broken connection ends its reader, too
}

// events are what the store is given.
func (i *instance) events() storage.Events {
	e := &i.ev
	return storage.Events{
		Published: func(upTo message.Position, units []message.Unit) {
			e.mu.Lock()
			defer e.mu.Unlock()
			switch {
			case e.starting:
			case e.inside && e.mark >= e.own:
				if e.ownSeq == 0 {
					e.seq++
					e.ownSeq = e.seq
				}
				e.ownUpTo = upTo
			default:
				e.send(&event{kind: eventPublished, at: upTo, units: units})
			}
			e.mark = max(e.mark, upTo)
		},
		Truncated: func(to message.Position) { e.tell(event{kind: eventTruncated, at: to}) },
		Expired:   func(first message.Position) { e.tell(event{kind: eventExpired, at: first}) },
		Failed:    func(err error) { e.tell(event{kind: eventFailed, err: err}) },
	}
}

func (e *emitter) tell(x event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.starting {
		return
	}
	e.send(&x)
	if x.kind == eventExpired {
		e.expired = e.seq
	}
}

func (e *emitter) lastExpired() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.expired
}
