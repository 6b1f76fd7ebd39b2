package solo

import (
	"context"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
)

// commitLoop is the group commit of SYNC_FLUSH: one flush for all that wait,
// then Publish, then the outcomes.
func (s *Solo) commitLoop() {
	defer s.wg.Done()
	watch := s.watchTimer()
	defer watch.Stop()
	flushed := make(chan error, 1)
	for {
		select {
		case <-s.work:
		case <-s.quit:
			s.commit()
			return
		}
		// The flush runs beside this goroutine, which meanwhile tells those
		// whose time is over.
		go func() { flushed <- s.sync1() }()
		for busy := true; busy; {
			select {
			case err := <-flushed:
				s.settle(err)
				busy = false
			case <-watch.C():
				s.expire()
				watch.Reset(s.timeout / 4)
			}
		}
	}
}

func (s *Solo) watchTimer() plugin.Timer { return s.p.Clock.NewTimer(max(s.timeout/4, 1)) }

// commit flushes and settles once.
func (s *Solo) commit() { s.settle(s.sync1()) }

// sync1 flushes and publishes everything that waited when it began.
func (s *Solo) sync1() error {
	s.mu.Lock()
	n := len(s.waiting)
	var end message.Position
	if n > 0 {
		end = s.waiting[n-1].end
	}
	s.mu.Unlock()
	if n == 0 {
		return nil
	}
	ctx := context.Background()
	began := s.p.Clock.Now()
	if err := s.p.Store.Sync(ctx, end); err != nil {
		return err
	}
	s.flushes.Observe(s.p.Clock.Now().Sub(began).Seconds())
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
	ready := append([]entry(nil), s.waiting[min(s.answered, n):n]...)
	s.waiting = append(s.waiting[:0], s.waiting[n:]...)
	s.answered = max(0, s.answered-n)
	more := len(s.waiting) > 0
	s.mu.Unlock()
	for i := range ready {
		e := &ready[i]
		if err != nil && e.end > upTo {
			e.sink.Done(e.pending, 0, e.groups, replication.Unknown, err)
		} else {
			e.sink.Done(e.pending, 0, e.groups, replication.Stored, nil)
		}
	}
	if more {
		select {
		case s.work <- struct{}{}:
		default:
		}
	}
}

// expire tells those whose time is over, oldest first; they stay in line, since
// they will be published.
func (s *Solo) expire() {
	now := s.p.Clock.Now()
	s.tell.Lock()
	defer s.tell.Unlock()
	for {
		s.mu.Lock()
		if s.answered == len(s.waiting) || now.Before(s.waiting[s.answered].deadline) {
			s.mu.Unlock()
			return
		}
		e := s.waiting[s.answered]
		s.waiting[s.answered].pending = nil
		s.answered++
		s.mu.Unlock()
		s.timeouts.Add(uint64(e.groups))
		e.sink.Done(e.pending, 0, e.groups, replication.FlushDiskTimeout, nil)
	}
}

// drainThen runs f when everything that waits has been told: f tells groups
// that come later in the log. It is the rare path of a failed append.
func (s *Solo) drainThen(f func()) {
	for {
		s.mu.Lock()
		empty := s.answered == len(s.waiting)
		s.mu.Unlock()
		if empty {
			break
		}
		s.commit()
	}
	s.tell.Lock()
	f()
	s.tell.Unlock()
}
