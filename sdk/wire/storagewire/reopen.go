package storagewire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/proxy"
)

// When a process dies its session is over. lose keeps what was brought and not
// told (orphans) and opens the store in the next process; compare finds out
// whether the log is the one that was acknowledged; resume tells the engine what
// happened unseen. Then calls that read go on, and those that write when their
// author has called Reopened.

// acked is what has to be in the log after a death, under store.st.
type acked struct {
	tail, published, synced message.Position // of what calls returned for
	written                 message.Position // end of all that was ever sent
	// cutting is where a Truncate that is under way cuts; resetting where a Reset
	// begins anew.
	cutting, resetting *message.Position
}

// cut: the log ends there now.
func (a *acked) cut(at message.Position) {
	a.tail, a.published, a.synced = min(a.tail, at), min(a.published, at), min(a.synced, at)
}

// away is what Gone and Reopened wait for.
type away struct {
	mu    sync.Mutex
	moved chan struct{} // closed and made anew with every change
	gone  error         // why it went; nil when it has not, or Reopened has returned
	back  bool          // it is open again
	vain  error         // of the last attempt to open it, until Reopened has told it
	final error         // it failed, and is not written to again
}

func (a *away) change(f func(*away)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(a)
	close(a.moved)
	a.moved = make(chan struct{})
}

// failure is why the store takes no writes although it is back.
func (a *away) failure() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.final != nil && !errors.Is(a.final, storage.ErrFailed) {
		return fmt.Errorf("%w: %w", storage.ErrFailed, a.final)
	}
	return a.final
}

// reopener is the facet.
type reopener struct{ s *store }

// Gone implements storage.Reopener.
func (r reopener) Gone(ctx context.Context) error {
	return r.wait(ctx, func(a *away) (bool, error) { return a.gone != nil, a.gone })
}

// Reopened implements storage.Reopener.
func (r reopener) Reopened(ctx context.Context) error {
	s := r.s
	return r.wait(ctx, func(a *away) (bool, error) {
		c := s.cur.Load()
		switch {
		case a.final != nil:
			err := a.final
			if !errors.Is(err, storage.ErrFailed) {
				err = fmt.Errorf("%w: %w", storage.ErrFailed, err)
			}
			return true, err
		case a.gone == nil && c.cause.Load() == nil:
			return true, nil
		case a.back && c.cause.Load() == nil:
			c.resumed.Store(true)
			a.gone, a.vain = nil, nil
			return true, nil
		case a.vain != nil:
			err := a.vain
			a.vain = nil
			return true, err
		}
		return false, nil
	})
}

// wait returns what look says, when it says that there is something.
func (r reopener) wait(ctx context.Context, look func(*away) (bool, error)) error {
	a := &r.s.away
	for {
		if !r.s.life.Running() {
			return storage.ErrNotRunning
		}
		a.mu.Lock()
		done, err := look(a)
		moved := a.moved
		a.mu.Unlock()
		if done {
			return err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lose takes leave of a session that is over, and opens the store again.
func (s *store) lose(c *session, why error) {
	s.wake()
	c.tasks.Wait() // all its calls have their error, all its events are told
	s.log.Lock()
	s.orphan()
	s.log.Unlock()
	err := c.end(why)
	if !errors.Is(err, plugin.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", plugin.ErrUnavailable, err)
	}
	c.cause.Store(&err)
	c.release()
	s.away.change(func(a *away) { a.gone, a.back = err, false })
	s.p.Logger.Error("the store is away; opening it again", "plugin", s.h.name, "error", err)
	s.reopen()
}

// orphan frees all batches that are not published, and keeps what their events
// would have said: they may be in the log. log is held.
func (s *store) orphan() {
	s.pend.Lock()
	for _, w := range s.pend.queue.all() {
		s.keep(w.units)
	}
	s.pend.Unlock()
	s.free(0)
}

// keep copies units that are lent; pend is held.
func (s *store) keep(units []message.Unit) {
	for i := range units {
		u := units[i]
		u.Queue.Topic = strings.Clone(u.Queue.Topic)
		s.pend.orphans = append(s.pend.orphans, u)
	}
}

// The pause between attempts doubles from first to most. Starts of the process
// itself are the launcher's to space out.
const (
	firstPause = 50 * time.Millisecond
	mostPause  = 5 * time.Second
)

func (s *store) reopen() {
	pause := firstPause
	began := s.p.Clock.Now()
	for n := 1; ; n++ {
		c, st, err := s.connect(s.ctx)
		if err == nil {
			if err = s.compare(&st); err == nil {
				s.resume(c, &st)
				s.p.Logger.Info("the store is open again", "plugin", s.h.name, "attempts", n, "after", s.p.Clock.Now().Sub(began).Round(time.Millisecond), "tail", st.Tail, "published", st.Published)
				return
			}
			c.drop()
		}
		switch {
		case s.ctx.Err() != nil:
			return
		case errors.Is(err, storage.ErrIdentity):
			err = fmt.Errorf("%w: storage plugin %q does not open the log any more that it had: %w; bring that back, then restart the broker", storage.ErrFailed, s.h.name, err)
		}
		if errors.Is(err, storage.ErrFailed) {
			s.cur.Load().cause.Store(&err)
			s.tellFailed(err)
			return
		}
		err = fmt.Errorf("%w: opening storage plugin %q again failed %d times: %w", plugin.ErrUnavailable, s.h.name, n, err)
		s.p.Logger.Warn("the store cannot be opened again; trying further", "plugin", s.h.name, "retry_in", pause, "error", err)
		s.cur.Load().cause.Store(&err)
		s.away.change(func(a *away) { a.vain = err })
		if !proxy.Pause(s.ctx, s.p.Clock, pause, nil, nil) {
			return
		}
		pause = min(2*pause, mostPause)
	}
}

// compare refuses, with an error that matches storage.ErrFailed, a log that is not
// the one that was acknowledged.
func (s *store) compare(st *storage.State) error {
	s.st.Lock()
	defer s.st.Unlock()
	known, a := &s.st.state, &s.st.ack
	help := fmt.Sprintf("bring back what the log was (directory %q of this store), then restart the broker; restarted as it is, it goes on with what was found", s.p.Dir)
	if s.caps.Survives == storage.SurvivesNothing {
		help = "a log of this plugin ends with its process: restart the broker, which goes on with what was found"
	}
	refuse := func(what string, expected, found any, loss string) error {
		return fmt.Errorf("%w: storage plugin %q came back with another log: %s, expected %v, found %v%s; the broker neither writes to it nor reads from it: %s",
			storage.ErrFailed, s.h.name, what, expected, found, loss, help)
	}
	if st.LogID != known.LogID {
		return refuse("its id", known.LogID, st.LogID, "")
	}
	if st.Segment != known.Segment {
		return refuse("its segment size in bytes", known.Segment, st.Segment, "")
	}
	if at := a.resetting; at != nil && st.First == *at && st.Tail == *at {
		return nil // the Reset was done
	}
	need, shown := max(a.published, a.synced), a.published
	if s.caps.Survives == storage.SurvivesProcessDeath || s.p.Publish == storage.Immediate {
		need = max(need, a.tail)
	}
	if a.cutting != nil {
		need, shown = min(need, *a.cutting), min(shown, *a.cutting)
	}
	lost := func(from message.Position) string {
		return fmt.Sprintf("; %d bytes are gone that were acknowledged", need-from)
	}
	switch {
	case st.Tail < need:
		return refuse("its end", fmt.Sprintf("at least %d", need), st.Tail, lost(st.Tail))
	case st.Published < shown:
		return refuse("what of it is published", fmt.Sprintf("at least %d", shown), st.Published, "")
	case st.Tail > a.written:
		return refuse("its end", fmt.Sprintf("at most %d", a.written), st.Tail, "; somebody else wrote to it")
	}
	return nil
}

// resume makes a session the current one, and tells what happened to the log
// unseen. Its own events wait until that is told.
func (s *store) resume(c *session, st *storage.State) {
	s.told.Lock()
	defer s.told.Unlock()
	s.st.Lock()
	first := s.st.state.First
	s.st.state = *st
	a := &s.st.ack
	a.cut(st.Tail)
	a.tail, a.published = st.Tail, st.Published
	reset := a.resetting != nil && st.First == *a.resetting && st.Tail == *a.resetting
	a.cutting, a.resetting = nil, nil
	s.cur.Store(c)
	s.st.Unlock()
	c.tasks.Go(c.reader)

	switch {
	case reset:
		s.tellTruncated(min(first, st.First))
		s.told.upTo = st.Published
	case st.Published < s.told.upTo:
		s.tellTruncated(st.Tail)
	}
	if f := s.p.Events.Expired; f != nil && !reset && st.First > first {
		f(st.First)
	}
	if units := s.adopt(st); st.Published > s.told.upTo {
		s.tellPublished(st.Published, units)
	}
	s.away.change(func(a *away) { a.back, a.vain = true, nil })
}

// adopt takes the orphans that are published out of those that may still be.
func (s *store) adopt(st *storage.State) (published []message.Unit) {
	s.pend.Lock()
	defer s.pend.Unlock()
	slices.SortStableFunc(s.pend.orphans, func(a, b message.Unit) int { return cmp.Compare(a.At, b.At) })
	rest := s.pend.orphans[:0]
	for _, u := range s.pend.orphans {
		switch end := u.At + message.Position(u.Size); {
		case end <= st.Published:
			published = append(published, u)
		case end <= st.Tail:
			rest = append(rest, u)
		}
	}
	clear(s.pend.orphans[len(rest):])
	s.pend.orphans = rest
	return published
}

// tellTruncated calls Events.Truncated; told.mu is held.
func (s *store) tellTruncated(to message.Position) {
	s.told.upTo = min(s.told.upTo, to)
	if f := s.p.Events.Truncated; f != nil {
		f(to)
	}
}
