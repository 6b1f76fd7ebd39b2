package storagewire

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/proxy"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

var (
	_ storage.Store     = (*store)(nil)
	_ storage.RawLog    = rawLog{}
	_ storage.Retention = retention{}
	_ storage.KeyIndex  = keyIndex{}
)

// store is the host's proxy of a store in a plugin process, and of those that
// follow when a process dies: see reopen.go.
//
// Lock order: log, then told.mu, then pend.mu, st.mu and away.mu. Events are
// called with log and told.mu held, so that they may read the store, not write
// it.
type store struct {
	h      *host
	p      storage.Params
	raw    plugin.Raw
	caps   storage.Capabilities
	facets *storagepb.Capabilities

	life  *proxy.Life
	ctx   context.Context // ends with Shutdown
	stop  context.CancelFunc
	tasks struct {
		sync.Mutex
		closed bool
		sync.WaitGroup
	}

	// cur is the newest session. It may be over; then another one is on its way.
	cur    atomic.Pointer[session]
	log    sync.Mutex // held by a call that changes the log
	failed sync.Once  // of Events.Failed
	away   away

	st struct {
		sync.Mutex
		state storage.State
		ack   acked
	}
	pend struct {
		sync.Mutex
		queue   queue
		orphans []message.Unit // of batches of processes that died, as long as they may be published
	}
	told struct {
		sync.Mutex
		turn sync.Cond
		upTo message.Position // up to where Events.Published was called
	}
}

// waiting is a batch that is not published whole.
type waiting struct {
	end   message.Position
	units []message.Unit
	batch *storage.Batch
}

func newStore(h *host, p storage.Params, raw plugin.Raw, c *storagepb.Capabilities) *store {
	s := &store{h: h, p: p, raw: raw, facets: c, life: proxy.NewLife(fmt.Sprintf("storage plugin %q", h.name))}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.told.turn.L = &s.told.Mutex
	s.away.moved = make(chan struct{})
	s.caps.Reopener = reopener{s}
	for _, f := range c.GetFacets() {
		switch f {
		case storage.FacetRawLog:
			s.caps.RawLog = rawLog{s}
		case storage.FacetRetention:
			s.caps.Retention = retention{s}
		case storage.FacetKeyIndex:
			s.caps.KeyIndex = keyIndex{s}
		}
	}
	if c.GetSurvivesProcessDeath() {
		s.caps.Survives = storage.SurvivesProcessDeath
	}
	s.caps.ExpiresBeside = c.GetExpiresBeside()
	return s
}

// Capabilities implements storage.Store.
func (s *store) Capabilities() storage.Capabilities { return s.caps }

// State implements storage.Store. Every answer to a write brings the marks, so
// it is no call. What the plugin makes durable by itself is known late.
func (s *store) State() storage.State {
	s.st.Lock()
	defer s.st.Unlock()
	st := s.st.state
	st.Damaged = slices.Clone(st.Damaged)
	return st
}

// Start implements plugin.Component.
func (s *store) Start(ctx context.Context) error {
	return s.life.Start(ctx, func(ctx context.Context, run func()) error {
		c, st, err := s.connect(ctx)
		if err != nil {
			s.stop()
			return err
		}
		if err := checkIdentity(&st, &s.p); err != nil {
			c.drop()
			s.stop()
			return s.startLie(err)
		}
		s.st.state = st
		s.st.ack = acked{tail: st.Tail, published: st.Published, written: st.Tail}
		s.told.upTo = st.Published
		c.resumed.Store(true)
		s.cur.Store(c)
		run()
		c.tasks.Go(c.reader)
		return nil
	})
}

// Shutdown implements plugin.Component. The process ends with its last store.
// When ctx ends first, the store still shuts down, and a second Shutdown waits
// for it.
func (s *store) Shutdown(ctx context.Context) error {
	return s.life.Shutdown(ctx, func() error { return s.shutdown(ctx) })
}

func (s *store) shutdown(ctx context.Context) error {
	s.stop()
	s.tasks.Lock()
	s.tasks.closed = true
	s.tasks.Unlock()
	s.tasks.Wait() // nobody opens the store again
	s.away.change(func(*away) {})
	c := s.cur.Load()
	survives := s.caps.Survives == storage.SurvivesProcessDeath
	most := time.Duration(0) // what was acknowledged may be in the process alone
	if survives {
		most = proxy.StopLimit(c.proc)
	}
	call, done := proxy.WithLastMoment(ctx, s.p.Clock, most)
	defer done()
	var err error
	switch why := c.cause.Load(); {
	case why == nil:
		if err = c.shutdown(call); survives {
			err = proxy.NotWaited(call, c.proc, s.p.Logger, s.h.name, err)
		}
	case survives:
		proxy.Away(c.proc, s.p.Logger, s.h.name, *why)
	case proxy.StopLimit(c.proc) > 0:
		err = fmt.Errorf("what was acknowledged may be lost, it does not survive the process of the store: %w", *why)
	}
	c.disconnect()
	s.wake()
	c.tasks.Wait()
	s.log.Lock() // a call under way has ended
	s.free(0)
	s.log.Unlock()
	c.release()
	return err
}

// serving gives the session for a call that changes nothing.
func (s *store) serving(ctx context.Context) (*session, error) {
	if !s.life.Running() {
		return nil, storage.ErrNotRunning
	}
	c := s.cur.Load()
	if why := c.lost(); why != nil {
		return nil, why
	}
	return c, ctx.Err()
}

// writing gives it for the others. After a death they wait for Reopened.
func (s *store) writing(ctx context.Context) (*session, error) {
	c, err := s.serving(ctx)
	if err == nil && !c.resumed.Load() {
		if err = s.away.failure(); err == nil {
			err = fmt.Errorf("%w: storage plugin %q is back, but whoever writes to it has not gone on yet", plugin.ErrUnavailable, s.h.name)
		}
	}
	return c, err
}

// spawn runs what Shutdown waits for.
func (s *store) spawn(f func()) {
	s.tasks.Lock()
	defer s.tasks.Unlock()
	if !s.tasks.closed {
		s.tasks.Go(f)
	}
}

// written is the end of all that was ever sent to the store.
func (s *store) written() message.Position {
	s.st.Lock()
	defer s.st.Unlock()
	return s.st.ack.written
}

// wake wakes whoever waits for an event that will not come.
func (s *store) wake() {
	s.told.Lock()
	defer s.told.Unlock()
	s.told.turn.Broadcast()
}

// tellFailed calls Events.Failed once.
func (s *store) tellFailed(err error) {
	s.failed.Do(func() {
		s.told.Lock()
		defer s.told.Unlock()
		s.away.change(func(a *away) { a.final = err })
		s.p.Logger.Error("the store failed and takes no writes until the broker is restarted", "plugin", s.h.name, "error", err)
		if f := s.p.Events.Failed; f != nil {
			f(err)
		}
	})
}

// published frees the batches that are published, and tells of them.
func (s *store) published(upTo message.Position, tell bool) {
	for s.publishedOne(upTo, tell) {
	}
	if tell && s.told.upTo < upTo { // a blank with which the log ends
		s.tellPublished(upTo, nil)
	}
}

// publishedOne does so with the first batch; false when the rest is not published.
func (s *store) publishedOne(upTo message.Position, tell bool) bool {
	s.pend.Lock()
	list := s.pend.queue.all()
	if len(list) == 0 || len(list[0].units) == 0 && list[0].end > upTo {
		s.pend.Unlock()
		return false
	}
	w := list[0]
	whole := w.end <= upTo
	if whole {
		s.pend.queue.shift()
	} else {
		n := 0
		for n < len(w.units) && w.units[n].At+message.Position(w.units[n].Size) <= upTo {
			n++
		}
		list[0].units, w.units, w.end = w.units[n:], w.units[:n], upTo
	}
	s.pend.Unlock()
	if tell && (whole || len(w.units) > 0) {
		s.tellPublished(w.end, w.units)
	}
	if whole {
		w.batch.Done()
	}
	return whole
}

// tellPublished calls Events.Published; told.mu is held.
func (s *store) tellPublished(upTo message.Position, units []message.Unit) {
	for len(units) > 0 && units[0].At < s.told.upTo {
		units = units[1:] // a process that died had told it
	}
	s.told.upTo = max(s.told.upTo, upTo)
	if f := s.p.Events.Published; f != nil {
		f(upTo, units)
	}
}

// free frees the batches at or above a position; of one that it cuts the rest
// is forgotten.
func (s *store) free(at message.Position) {
	s.pend.Lock()
	list := s.pend.queue.all()
	n := len(list)
	for n > 0 && list[n-1].batch.At >= at {
		n--
	}
	gone := slices.Clone(list[n:])
	s.pend.queue.cut(n)
	if n > 0 && list[n-1].end > at {
		w := &list[n-1]
		for len(w.units) > 0 && w.units[len(w.units)-1].At >= at {
			w.units = w.units[:len(w.units)-1]
		}
		w.end = at
	}
	s.pend.Unlock()
	for i := range gone {
		gone[i].batch.Done()
	}
}
