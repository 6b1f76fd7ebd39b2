package retention

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// askWait bounds one call of a holder.
const askWait = 5 * time.Second

// holder is a kernel.Holder with what it did.
type holder struct {
	kernel.Holder
	held atomic.Int64 // segments

	// What follows is of the goroutine of Retention.
	answer chan answer // of a call that has not returned; nil: there is none
	at     message.Position
	since  time.Time // when it began to hold back the segment at
	holds  bool
	said   bool // that it holds back
	passed bool // said that it is passed over
}

type answer struct {
	hold kernel.Hold
	err  error
}

// free: it holds back nothing.
func (h *holder) free() {
	h.held.Store(0)
	h.holds, h.said, h.passed = false, false, false
}

// ask asks all holders and returns how many of the planned segments may go.
func (r *Retention) ask(ctx context.Context, segs []storage.Segment, p plan) int {
	role := r.k.Role()
	e := kernel.Expiry{
		First: segs[p.n].At, Segments: segs,
		Leading: role.Kind == replication.RoleLeader && role.ReadOnly == "",
	}
	allowed := p.n
	for _, h := range r.holders {
		hold := r.call(ctx, h, e)
		n := p.n
		if hold.Back {
			n = 0
			for n < p.n && segs[n+1].At <= hold.From {
				n++
			}
		}
		if n == p.n {
			h.free()
			continue
		}
		h.held.Store(int64(p.n - n))
		if r.passOver(h, segs[n].At, p, hold, p.n-n) {
			continue
		}
		allowed = min(allowed, n)
	}
	return allowed
}

// call asks one holder. One that does not return in time is left alone, and asked
// again when it has returned.
func (r *Retention) call(ctx context.Context, h *holder, e kernel.Expiry) kernel.Hold {
	all := kernel.Hold{Back: true, From: e.Segments[0].At}
	one, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	if h.answer == nil {
		c := make(chan answer, 1)
		h.answer = c
		r.over.Go(func() {
			hold, err := h.Ask(one, e)
			c <- answer{hold, err}
		})
	} else {
		select { // an answer to an old question is not one to this
		case <-h.answer:
			h.answer = nil
			return r.call(ctx, h, e)
		default:
			all.Why = "it has not answered for long"
			return all
		}
	}
	var a answer
	select {
	case a = <-h.answer:
	case <-one.Done():
		select { // it may have answered just then
		case a = <-h.answer:
		default:
			all.Why = "it does not answer"
			return all
		}
	}
	h.answer = nil
	if a.err != nil {
		all.Why = a.err.Error()
		return all
	}
	return a.hold
}

// passOver says who holds back the segment at, and tells whether it goes all the
// same.
func (r *Retention) passOver(h *holder, at message.Position, p plan, hold kernel.Hold, segments int) bool {
	now := r.k.Clock.Now()
	if !h.holds || h.at != at {
		h.free()
		h.held.Store(int64(segments))
		h.holds, h.at, h.since = true, at, now
	}
	d := now.Sub(h.since)
	late := d >= r.k.Config().HoldMost
	if !h.Always && (p.forced || late) {
		if !h.passed {
			h.passed = true
			why := "the disk is too full to wait longer"
			if late {
				why = "expiryHoldMost is over"
			}
			r.k.Log.Error("what a part of the broker still needs is deleted", "holder", h.Name, "needs", hold.Why, "segment", at, "for", d.Round(time.Second), "because", why)
		}
		return true
	}
	if !h.said {
		h.said = true
		r.k.Log.Warn("old segments of the log are held back", "holder", h.Name, "because", hold.Why, "segment", at, "segments", segments, "always", h.Always)
	}
	return false
}
