package solo

import (
	"context"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
)

// commitLoop is the group commit of SYNC_FLUSH: one flush for all that wait,
// then Publish, then the outcomes.
func (s *Solo) commitLoop(o office, watch plugin.Timer) {
	defer close(o.over)
	defer watch.Stop()
	every := s.watch()
	flushed := make(chan error, 1)
	grace := s.p.Clock.NewTimer(every)
	grace.Stop()
	defer grace.Stop()
	for {
		last := false
		select {
		case <-s.work:
			s.gather(o, grace)
		case <-o.quit:
			last = true // after it nothing is appended
		}
		// The flush runs beside this goroutine, which meanwhile tells those
		// whose time is over.
		watch.Reset(every)
		go func() { flushed <- s.flushWaiting() }()
		for busy := true; busy; {
			select {
			case err := <-flushed:
				s.settle(err)
				busy = false
			case <-watch.C():
				s.expire()
				watch.Reset(every)
			}
		}
		if last {
			return
		}
	}
}

// gather waits for those who are about to come back: clients answered by the last
// flush send again within a fraction of what a flush takes. Without it they and
// those who waited meanwhile would take turns, each flush for one half. It ends
// when as many wait as were in line at the last flush, or after a quarter of a
// flush's time.
func (s *Solo) gather(o office, grace plugin.Timer) {
	s.mu.Lock()
	d := s.flushTime / gatherPart
	s.mu.Unlock()
	if d <= 0 {
		return
	}
	grace.Reset(min(d, s.watch()))
	defer grace.Stop()
	for {
		s.mu.Lock()
		all := s.inLine >= s.expected
		s.mu.Unlock()
		if all {
			return
		}
		select {
		case <-s.work:
		case <-grace.C():
			return
		case <-o.quit:
			return
		}
	}
}

// gatherPart is the part of a flush's time that gather waits at most.
const gatherPart = 4

// watch is how often waiters are looked at whose time may be over.
func (s *Solo) watch() time.Duration { return max(s.timeout/4, 1) }

// flushWaiting flushes and publishes everything that waited when it began. After
// a failure it does neither again in this office: a second flush may succeed
// although the first one's bytes are lost.
func (s *Solo) flushWaiting() error {
	s.mu.Lock()
	n, failed := len(s.waiting), s.failed
	end := message.Position(0)
	if n > 0 {
		end = s.waiting[n-1].end
	}
	s.mu.Unlock()
	if failed != nil {
		return failed
	}
	if n == 0 || end <= s.p.Store.State().Published {
		return nil
	}
	ctx := context.Background()
	began := s.p.Clock.Now()
	if err := s.p.Store.Sync(ctx, end); err != nil {
		return err
	}
	took := s.p.Clock.Now().Sub(began)
	s.flushes.Observe(took.Seconds())
	s.mu.Lock()
	// A moving average that one stalled flush does not move far.
	s.flushTime += (min(took, 2*s.flushTime+time.Millisecond) - s.flushTime) / 8
	s.mu.Unlock()
	s.turn.Lock() // flushes overlap with appends, publishing does not
	defer s.turn.Unlock()
	return s.raw.Publish(ctx, end)
}

// settle tells the outcomes of everything that is published, or of everything
// when the log failed.
func (s *Solo) settle(err error) {
	if err != nil {
		s.readOnly(err)
	}
	upTo := s.p.Store.State().Published
	s.tell.Lock()
	defer s.tell.Unlock()
	s.mu.Lock()
	n := 0
	for n < len(s.waiting) && (err != nil || s.waiting[n].end <= upTo) {
		n++
	}
	s.ready = append(s.ready[:0], s.waiting[min(s.answered, n):n]...)
	rest := append(s.waiting[:0], s.waiting[n:]...)
	clear(s.waiting[len(rest):])
	s.waiting = rest
	s.expected = s.inLine
	for i := range s.ready {
		s.inLine -= s.ready[i].to - s.ready[i].from
	}
	s.answered = max(0, s.answered-n)
	more := len(s.waiting) > 0
	s.mu.Unlock()
	for i := range s.ready {
		e := &s.ready[i]
		switch {
		case e.refused:
			e.sink.Done(e.pending, e.from, e.to, e.outcome, e.err)
		case err != nil && e.end > upTo:
			e.sink.Done(e.pending, e.from, e.to, replication.Unknown, err)
		default:
			e.sink.Done(e.pending, e.from, e.to, replication.Stored, nil)
		}
	}
	clear(s.ready)
	if more {
		select {
		case s.work <- struct{}{}:
		default:
		}
	}
}

// expire tells those whose time is over, and the refused ones behind which
// nothing older waits, oldest first. They stay in line; the timed-out ones will
// be published.
func (s *Solo) expire() {
	now := s.p.Clock.Now()
	s.tell.Lock()
	defer s.tell.Unlock()
	for {
		s.mu.Lock()
		if s.answered == len(s.waiting) || !s.waiting[s.answered].refused && now.Before(s.waiting[s.answered].deadline) {
			s.mu.Unlock()
			return
		}
		e := s.waiting[s.answered]
		s.waiting[s.answered].pending = nil
		s.answered++
		s.inLine -= e.to - e.from
		s.mu.Unlock()
		if e.refused {
			e.sink.Done(e.pending, e.from, e.to, e.outcome, e.err)
			continue
		}
		s.timeouts.Add(uint64(e.to - e.from))
		e.sink.Done(e.pending, e.from, e.to, replication.FlushDiskTimeout, nil)
	}
}
