package storagewire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

var (
	_ storage.Store     = (*store)(nil)
	_ storage.RawLog    = rawLog{}
	_ storage.Retention = retention{}
	_ storage.KeyIndex  = keyIndex{}
)

// phase of a store's life.
const (
	phaseNew int32 = iota
	phaseRunning
	phaseStopped
)

// store is the host's proxy of a store in a plugin process.
//
// Lock order: log.mu, then told.mu, then pend.mu and st.mu. Events are called
// with log.mu and told.mu held, so that they may read the store, not write it.
type store struct {
	h      *host
	p      storage.Params
	raw    plugin.Raw
	caps   storage.Capabilities
	facets *storagepb.Capabilities

	life  sync.Mutex // Start and Shutdown
	phase atomic.Int32
	down  chan struct{} // closed when it is shut down; nil before Shutdown
	// downErr is how that went; written before down is closed.
	downErr error
	proc    wire.Process
	id      uint64
	last    atomic.Uint64 // id of a call
	tasks   struct {
		sync.Mutex
		closed bool
		sync.WaitGroup
	}

	log  logConn
	read readConn

	cause  atomic.Pointer[error] // why the process is of no use any more
	failed sync.Once             // of Events.Failed

	st struct {
		sync.Mutex
		version uint64
		state   storage.State
	}
	pend struct {
		sync.Mutex
		list []waiting
	}
	told struct {
		sync.Mutex
		turn sync.Cond
		done uint64 // number of the last event delivered
	}
}

// waiting is a batch that is not published whole.
type waiting struct {
	end   message.Position
	units []message.Unit
	batch *storage.Batch
}

func newStore(h *host, p storage.Params, raw plugin.Raw, c *storagepb.Capabilities) *store {
	s := &store{h: h, p: p, raw: raw, facets: c}
	s.told.turn.L = &s.told.Mutex
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
func (s *store) Start(ctx context.Context) (err error) {
	s.life.Lock()
	defer s.life.Unlock()
	if s.phase.Load() != phaseNew {
		return errors.New("the store was started already")
	}
	if s.proc, err = s.h.launcher.Acquire(ctx, s.p.Logger); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			s.abandon(ctx)
		}
	}()
	if err := s.open(ctx); err != nil {
		return err
	}
	r, err := storagepb.NewStorageClient(s.proc.Conn()).Start(ctx, &storagepb.StartRequest{Instance: s.id})
	if err = wire.FromRPC(ctx, err, r.GetFailure()); err != nil {
		return err
	}
	s.st.Lock()
	s.st.version, s.st.state = r.GetState().GetVersion(), fromState(r.GetState())
	s.st.Unlock()
	s.spawn(s.reader)
	s.phase.Store(phaseRunning)
	return nil
}

// open makes the instance and connects to it.
func (s *store) open(ctx context.Context) error {
	var r *storagepb.OpenResponse
	conns, err := data.Connect(ctx, fmt.Sprintf("storage plugin %q", s.h.name), roles, func(dir string) (string, []byte, error) {
		var err error
		r, err = storagepb.NewStorageClient(s.proc.Conn()).Open(ctx, &storagepb.OpenRequest{
			Plugin: s.h.name, Config: s.raw, Params: toParams(&s.p), SocketDir: dir,
		})
		if err = wire.FromRPC(ctx, err, r.GetFailure()); err != nil {
			return "", nil, err
		}
		s.id = r.GetInstance()
		return r.GetSocket(), r.GetNonce(), s.h.agree(s.facets.GetFacets(), r.GetCapabilities())
	})
	if err != nil {
		return err
	}
	if conns == nil { // a plugin without sockets
		log, read, err := openStream(s.proc.Conn(), s.h.name, r, s.spawn)
		if err != nil {
			return fmt.Errorf("open the stream of storage plugin %q: %w: %w", s.h.name, plugin.ErrUnavailable, err)
		}
		s.log.open(log)
		s.read.open(read)
		return nil
	}
	s.log.open(conns[0])
	s.read.open(conns[1])
	return nil
}

// abandon gives back what a failed Start took.
func (s *store) abandon(ctx context.Context) {
	s.phase.Store(phaseStopped)
	if s.id != 0 {
		_, _ = storagepb.NewStorageClient(s.proc.Conn()).Shutdown(context.WithoutCancel(ctx), &storagepb.ShutdownRequest{Instance: s.id})
	}
	s.disconnect()
	s.proc.Release(false)
}

func (s *store) disconnect() {
	if c := s.log.send.Conn; c != nil {
		_ = c.Close()
	}
	if c := s.read.send.Conn; c != nil {
		_ = c.Close()
	}
}

// Shutdown implements plugin.Component. The process ends with its last store.
// When ctx ends first, the store still shuts down, and a second Shutdown waits
// for it.
func (s *store) Shutdown(ctx context.Context) error {
	s.life.Lock()
	if s.phase.CompareAndSwap(phaseRunning, phaseStopped) {
		s.down = make(chan struct{})
		go func() {
			defer close(s.down)
			s.downErr = s.shutdown(ctx)
		}()
	}
	s.phase.Store(phaseStopped)
	down := s.down
	s.life.Unlock()
	if down == nil {
		return nil
	}
	select {
	case <-down:
		return s.downErr
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lastMoment is what a process gets to close a store after the context of
// Shutdown has ended; then its connections are cut.
const lastMoment = 10 * time.Second

func (s *store) shutdown(ctx context.Context) error {
	// Not with ctx itself: the process would never hear of the call, keep the
	// store open and locked, and serve other stores for as long as it likes.
	call, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		t := s.p.Clock.NewTimer(lastMoment)
		defer t.Stop()
		select {
		case <-t.C():
			cancel()
		case <-call.Done():
		}
	})()
	var err error
	if s.cause.Load() == nil {
		r, rpc := storagepb.NewStorageClient(s.proc.Conn()).Shutdown(call, &storagepb.ShutdownRequest{Instance: s.id})
		err = wire.FromRPC(call, rpc, r.GetFailure())
	}
	s.disconnect()
	s.wake()
	s.tasks.Lock()
	s.tasks.closed = true
	s.tasks.Unlock()
	s.tasks.Wait()
	s.log.mu.Lock() // a call under way has ended
	s.free(0)
	s.log.mu.Unlock()
	s.proc.Release(false)
	return err
}

// running tells whether a call may go on.
func (s *store) running(ctx context.Context) error {
	if s.phase.Load() != phaseRunning {
		return storage.ErrNotRunning
	}
	if c := s.cause.Load(); c != nil {
		return *c
	}
	return ctx.Err()
}

// spawn runs what Shutdown waits for.
func (s *store) spawn(f func()) {
	s.tasks.Lock()
	defer s.tasks.Unlock()
	if !s.tasks.closed {
		s.tasks.Go(f)
	}
}

// wake wakes whoever waits for an event that will not come.
func (s *store) wake() {
	s.told.Lock()
	defer s.told.Unlock()
	s.told.turn.Broadcast()
}

// gone ends all use of the process: every call fails with what it returns, and
// Events.Failed is called once. It may be called by a receiver of an event.
func (s *store) gone(why error) error {
	if s.phase.Load() == phaseStopped {
		return storage.ErrNotRunning
	}
	err := fmt.Errorf("the process of storage plugin %q is gone: %w: %w", s.h.name, plugin.ErrUnavailable, why)
	if !s.cause.CompareAndSwap(nil, &err) {
		return *s.cause.Load()
	}
	s.disconnect()
	s.spawn(func() {
		s.wake()
		full := s.proc.Cause() // with exit status and last output
		s.cause.Store(&full)
		s.tellFailed(full)
	})
	return err
}

// tellFailed calls Events.Failed once.
func (s *store) tellFailed(err error) {
	s.failed.Do(func() {
		s.told.Lock()
		defer s.told.Unlock()
		s.p.Logger.Error("the store failed and takes no writes until it is opened again", "plugin", s.h.name, "error", err)
		if f := s.p.Events.Failed; f != nil {
			f(err)
		}
	})
}

// note keeps the newest marks. It reports whether the list of damage is old.
func (s *store) note(m *marks) (stale bool) {
	s.st.Lock()
	defer s.st.Unlock()
	if m.version > s.st.version {
		s.st.version = m.version
		st := &s.st.state
		st.First, st.Published, st.Durable, st.Tail, st.LastStoreTime = m.first, m.published, m.durable, m.tail, m.lastStoreTime
	}
	return m.damaged != len(s.st.state.Damaged)
}

// refresh asks for the whole state.
func (s *store) refresh(ctx context.Context) {
	r, err := storagepb.NewStorageClient(s.proc.Conn()).State(ctx, &storagepb.StateRequest{Instance: s.id})
	if err = wire.FromRPC(ctx, err, r.GetFailure()); err != nil {
		s.p.Logger.Warn("the list of damage is not known", "plugin", s.h.name, "error", err)
		return
	}
	s.st.Lock()
	defer s.st.Unlock()
	s.st.state.Damaged = fromState(r.GetState()).Damaged
	if v := r.GetState().GetVersion(); v > s.st.version {
		s.st.version, s.st.state = v, fromState(r.GetState())
	}
}

// deliver calls tell for event number seq when all before it are delivered.
func (s *store) deliver(seq uint64, tell func()) {
	s.told.Lock()
	defer s.told.Unlock()
	for s.told.done+1 < seq && s.cause.Load() == nil && s.phase.Load() == phaseRunning {
		s.told.turn.Wait()
	}
	tell()
	s.told.done = max(s.told.done, seq)
	s.told.turn.Broadcast()
}

// event delivers one that came as a frame.
func (s *store) event(seq uint64, e *event) {
	s.note(&e.marks)
	if e.kind == eventFailed {
		s.deliver(seq, func() {})
		s.tellFailed(e.err)
		return
	}
	s.deliver(seq, func() {
		switch e.kind {
		case eventPublished:
			if f := s.p.Events.Published; f != nil {
				f(e.at, e.units)
			}
			s.published(e.at, false)
		case eventTruncated:
			if f := s.p.Events.Truncated; f != nil {
				f(e.at)
			}
		case eventExpired:
			if f := s.p.Events.Expired; f != nil {
				f(e.at)
			}
		}
	})
}

// published frees the batches that are published, and tells of them.
func (s *store) published(upTo message.Position, tell bool) {
	for {
		s.pend.Lock()
		if len(s.pend.list) == 0 || len(s.pend.list[0].units) == 0 && s.pend.list[0].end > upTo {
			s.pend.Unlock()
			return
		}
		w := s.pend.list[0]
		whole := w.end <= upTo
		if whole {
			n := copy(s.pend.list, s.pend.list[1:])
			s.pend.list[n] = waiting{}
			s.pend.list = s.pend.list[:n]
		} else {
			n := 0
			for n < len(w.units) && w.units[n].At+message.Position(w.units[n].Size) <= upTo {
				n++
			}
			s.pend.list[0].units, w.units, w.end = w.units[n:], w.units[:n], upTo
		}
		s.pend.Unlock()
		if f := s.p.Events.Published; tell && f != nil && (whole || len(w.units) > 0) {
			f(w.end, w.units)
		}
		if !whole {
			return
		}
		w.batch.Done()
	}
}

// free frees the batches at or above a position; of one that it cuts the rest
// is forgotten.
func (s *store) free(at message.Position) {
	s.pend.Lock()
	list := s.pend.list
	n := len(list)
	for n > 0 && list[n-1].batch.At >= at {
		n--
	}
	gone := slices.Clone(list[n:])
	clear(list[n:])
	s.pend.list = list[:n]
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

// writeError makes that of a call that changes the log: a store without its
// process is failed.
func writeError(err error) error {
	if errors.Is(err, plugin.ErrUnavailable) && !errors.Is(err, storage.ErrFailed) {
		return fmt.Errorf("%w: %w", storage.ErrFailed, err)
	}
	return err
}
