package storagewire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/proxy"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

// session is an instance of the store in one process, and the connections to it.
// It ends with the process and never comes back.
type session struct {
	s    *store
	proc wire.Process
	id   uint64
	// beside: the process takes Expire over the read connection.
	beside bool
	log    logConn
	read   readConn

	events events

	cause    atomic.Pointer[error] // why it is over
	resumed  atomic.Bool           // it may be written to
	released sync.Once
	tasks    sync.WaitGroup // the reader and what it starts

	version uint64 // of the newest marks, under store.st
	told    uint64 // number of the last event delivered, under store.told
}

func newSession(s *store) *session {
	c := &session{s: s}
	c.events.more = make(chan struct{}, 1)
	c.read.fault, c.read.lost, c.read.event = c.gone, c.lost, c.readEvent
	return c
}

// connect launches the process if there is none, and makes and starts an instance.
// Nothing is left of it when it fails.
func (s *store) connect(ctx context.Context) (_ *session, st storage.State, err error) {
	c := newSession(s)
	if c.proc, err = s.h.launcher.Acquire(ctx, s.p.Logger); err != nil {
		return nil, st, err
	}
	defer func() {
		if err != nil {
			c.drop()
		}
	}()
	var opened *storagepb.OpenResponse
	conns, err := data.Connect(ctx, fmt.Sprintf("storage plugin %q", s.h.name), func(dir string) (data.Offer, error) {
		r, err := c.control().Open(ctx, &storagepb.OpenRequest{
			Plugin: s.h.name, Config: s.raw, Params: toParams(&s.p), SocketDir: dir, CallConnections: callConnections,
		})
		if err = wire.FromRPC(ctx, err, r.GetFailure()); err != nil {
			return data.Offer{}, err
		}
		c.id, opened = r.GetInstance(), r
		o := data.Offer{Path: r.GetSocket(), Nonce: r.GetNonce(), Roles: rolesOf(min(r.GetCallConnections(), callConnections))}
		return o, proxy.Agree(wire.Storage, s.h.name, s.facets.GetFacets(), r.GetCapabilities().GetFacets())
	})
	switch {
	case errors.Is(err, data.ErrNoSocket): // a plugin in another language
		log, read, err := openStream(c.proc.Conn(), s.h.name, opened, c.tasks.Go)
		if err != nil {
			return nil, st, fmt.Errorf("open the stream of storage plugin %q: %w: %w", s.h.name, plugin.ErrUnavailable, err)
		}
		c.log.open(log)
		c.read.open(read)
	case err != nil:
		return nil, st, err
	default:
		c.beside = opened.GetCapabilities().GetExpiresBeside()
		c.log.open(conns[0])
		c.read.open(conns[1])
		for _, conn := range conns[2:] {
			c.read.own.add(&c.read, conn, &c.tasks)
		}
	}
	r, err := c.control().Start(ctx, &storagepb.StartRequest{Instance: c.id})
	if err = wire.FromRPC(ctx, err, r.GetFailure()); err != nil {
		return nil, st, err
	}
	c.version = r.GetState().GetVersion()
	st = fromState(r.GetState())
	if err = checkState(&st); err != nil {
		return nil, st, s.startLie(err)
	}
	return c, st, nil
}

func (s *store) startLie(why error) error {
	return fmt.Errorf("start of storage plugin %q: %w: %w", s.h.name, plugin.ErrUnavailable, why)
}

func (c *session) control() storagepb.StorageClient {
	return storagepb.NewStorageClient(c.proc.Conn())
}

// shutdown has the process shut the instance down.
func (c *session) shutdown(ctx context.Context) error {
	r, err := c.control().Shutdown(ctx, &storagepb.ShutdownRequest{Instance: c.id})
	return wire.FromRPC(ctx, err, r.GetFailure())
}

// drop ends a session that nobody uses.
func (c *session) drop() {
	if c.id != 0 {
		ctx, cancel := context.WithTimeout(context.Background(), proxy.LastTime(c.proc))
		_ = c.shutdown(ctx) // so that the directory is not locked when the next one comes
		cancel()
	}
	c.disconnect()
	c.tasks.Wait() // the stream's translators
	c.release()
}

// lost is why the session is over, nil when it is not.
func (c *session) lost() error {
	if why := c.cause.Load(); why != nil {
		return *why
	}
	return nil
}

func (c *session) disconnect() {
	c.read.own.close() // first: the plugin may answer what it gives up when another one breaks
	for _, conn := range []io.Closer{c.log.send.Conn, c.read.send.Conn} {
		if conn != nil {
			_ = conn.Close()
		}
	}
}

// release gives the process back.
func (c *session) release() { c.released.Do(func() { c.proc.Release(false) }) }

// gone ends the session: every call fails with what it returns, and the store is
// opened again. It may be called by a receiver of an event.
func (c *session) gone(why error) error {
	s := c.s
	if s.life.Stopped() {
		return storage.ErrNotRunning
	}
	err := fmt.Errorf("the process of storage plugin %q is gone: %w: %w", s.h.name, plugin.ErrUnavailable, why)
	if !c.cause.CompareAndSwap(nil, &err) {
		return *c.cause.Load()
	}
	c.disconnect()
	s.spawn(func() { s.lose(c, why) })
	return err
}

// end waits until the process has ended and says why. One that lives on although
// its connections broke, or that sent what the protocol does not know, or nothing
// where an answer is due, is ended: nothing that it says can be relied on.
func (c *session) end(why error) error {
	lost := !data.GivenUp(why)
	var err error
	if lost {
		err = c.proc.Cause() // it waits, so that the last words of a process that panics are heard
	}
	select {
	case <-c.proc.Gone():
		if lost {
			return err
		}
	default:
	}
	if lost {
		why = fmt.Errorf("its data connection broke while it lived on: %w", why)
	}
	c.proc.Fail(why)
	return c.proc.Cause()
}

// note keeps the newest marks. It reports whether the list of damage is old.
func (c *session) note(m *marks) (stale bool) {
	s := c.s
	s.st.Lock()
	defer s.st.Unlock()
	if s.cur.Load() != c {
		return false
	}
	if m.version > c.version {
		c.version = m.version
		st := &s.st.state
		st.First, st.Published, st.Durable, st.Tail, st.LastStoreTime = m.first, m.published, m.durable, m.tail, m.lastStoreTime
	}
	return m.damaged != len(s.st.state.Damaged)
}

// refresh asks for the whole state.
func (c *session) refresh(ctx context.Context) {
	s := c.s
	r, err := c.control().State(ctx, &storagepb.StateRequest{Instance: c.id})
	if err = wire.FromRPC(ctx, err, r.GetFailure()); err != nil {
		s.p.Logger.Warn("the list of damage is not known", "plugin", s.h.name, "error", err)
		return
	}
	st := fromState(r.GetState())
	if err := checkState(&st); err != nil {
		_ = c.gone(err)
		return
	}
	s.st.Lock()
	defer s.st.Unlock()
	if s.cur.Load() != c {
		return
	}
	s.st.state.Damaged = st.Damaged
	if v := r.GetState().GetVersion(); v > c.version {
		c.version, s.st.state = v, st
	}
}

// eventTime is how long an event waits for those before it, which are under way on
// the other connection.
const eventTime = 30 * time.Second

// deliver calls tell for event number seq when all before it are delivered. When
// the session is over and one before it will not come, it does not: what happened
// is found out when the store is open again. It reports whether it did.
func (c *session) deliver(seq uint64, tell func()) bool {
	s := c.s
	s.told.Lock()
	defer s.told.Unlock()
	c.awaitBefore(seq)
	switch {
	case seq <= c.told:
		_ = c.gone(lie("event %d came after event %d", seq, c.told))
		return false
	case c.told+1 < seq:
		return false
	}
	tell()
	c.told = seq
	s.told.turn.Broadcast()
	return true
}

// awaitBefore waits until all events before number seq are delivered, or the session is
// over; told.mu is held.
func (c *session) awaitBefore(seq uint64) {
	s := c.s
	if c.told+1 < seq {
		missing := c.told + 1
		defer time.AfterFunc(eventTime, func() {
			_ = c.gone(fmt.Errorf("%w: event %d came, and %d did not within %v", data.ErrFrame, seq, missing, eventTime))
		}).Stop()
	}
	for c.told+1 < seq && c.cause.Load() == nil && s.life.Running() {
		s.told.turn.Wait()
	}
}

// heard waits until event number seq is delivered; false when it will not be.
func (c *session) heard(seq uint64) bool {
	c.s.told.Lock()
	defer c.s.told.Unlock()
	c.awaitBefore(seq + 1)
	return c.told >= seq
}

// event delivers one that came as a frame.
func (c *session) event(seq uint64, e *event) {
	s := c.s
	err := e.marks.check()
	if err == nil && e.kind == eventPublished {
		err = checkPublished(e.at, s.written(), e.units)
	}
	if err != nil {
		_ = c.gone(err)
		return
	}
	c.note(&e.marks)
	if e.kind == eventFailed {
		c.deliver(seq, func() {})
		s.tellFailed(e.err)
		return
	}
	c.deliver(seq, func() {
		switch e.kind {
		case eventPublished:
			s.tellPublished(e.at, e.units)
			s.published(e.at, false)
		case eventTruncated:
			s.tellTruncated(e.at)
		case eventExpired:
			if f := s.p.Events.Expired; f != nil {
				f(e.at)
			}
		}
	})
}

// deliverOwn is deliver for what came through the log connection.
func (c *session) deliverOwn(seq uint64, upTo message.Position) bool {
	if err := checkPublished(upTo, c.s.written(), nil); err != nil {
		_ = c.gone(err)
		return false
	}
	return c.deliver(seq, func() { c.s.published(upTo, true) })
}
