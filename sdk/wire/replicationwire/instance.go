package replicationwire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/process"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

// statusEvery is how often the host gets a status that changed.
const statusEvery = time.Second

// endTime bounds the Shutdown of a replicator whose host is gone.
const endTime = 10 * time.Second

// instance is one replicator with its two connections.
type instance struct {
	rep    replication.Replicator
	store  *hostStore
	seq    *storage.Sequencer
	logger *slog.Logger
	clock  plugin.Clock
	life   *process.Life

	ctx    context.Context // ends with the instance
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	ended  chan struct{}
	out    outbox
	// work has the Pending that is to be appended next; there is one at a time.
	work      chan appendCall
	appending atomic.Bool
	topics    data.TopicReader

	last    atomic.Uint64 // id of a call
	mu      sync.Mutex
	cancels map[uint64]context.CancelFunc // of the host's calls
	asked   map[uint64]chan error         // calls of OnRole and of Reopener
	offices map[uint64]context.Context

	told struct {
		sync.Mutex // taken before rep's
		status     replication.Status
	}
}

type appendCall struct {
	p    *pending
	ctx  context.Context
	done func()
}

func newInstance() *instance {
	i := &instance{
		life:  process.NewLife(replication.ErrNotRunning),
		ended: make(chan struct{}), work: make(chan appendCall, 1),
		cancels: map[uint64]context.CancelFunc{}, asked: map[uint64]chan error{}, offices: map[uint64]context.Context{},
	}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	i.store = newHostStore(i)
	return i
}

// live waits for the host and serves it until the connection ends.
func (i *instance) live(ln *data.Listener) {
	defer close(i.ended)
	conns, err := ln.Accept(i.ctx, i.logger, roles)
	if err != nil {
		i.logger.Warn("the data connections of the host did not come", "error", err)
		i.cancel()
		i.end()
		return
	}
	i.out.conn = conns[0]
	i.store.Connect(conns[1])
	for _, c := range conns {
		i.tasks.Go(func() {
			<-i.ctx.Done()
			_ = c.Close()
		})
	}
	i.tasks.Go(func() { i.serve("store", func(net.Conn) error { return i.store.Serve() }, conns[1]) })
	i.tasks.Go(i.appender)
	i.tasks.Go(i.statuses)
	i.serve("turn", i.serveTurn, conns[0])
	i.end()
	i.tasks.Wait()
}

// end shuts the replicator down when the host is gone.
func (i *instance) end() {
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	if err := i.shutdown(ctx); err != nil {
		i.logger.Error("shutting down a replicator whose host is gone", "error", err)
	}
}

func (i *instance) start(ctx context.Context) error { return i.life.Start(ctx, i.rep.Start) }

func (i *instance) shutdown(ctx context.Context) error { return i.life.Shutdown(ctx, i.rep.Shutdown) }

func (i *instance) serve(what string, loop func(net.Conn) error, c net.Conn) {
	defer i.cancel()
	if err := loop(c); err != nil && i.ctx.Err() == nil && !errors.Is(err, io.EOF) {
		i.logger.Error("a data connection to the host broke", "connection", what, "error", err)
	}
}

// serveTurn reads what the host asks. It does nothing that waits.
func (i *instance) serveTurn(c net.Conn) error {
	in := data.NewReader(c, kindLast)
	for {
		h, body, err := in.Next()
		if err == nil {
			err = i.handle(&h, body)
		}
		if err != nil {
			return err
		}
	}
}

func (i *instance) handle(h *data.Head, body []byte) error {
	id := h.ID
	switch h.Kind {
	case kindAppend:
		p := takePending(i, id)
		if err := p.read(body, &i.topics); err != nil {
			return err
		}
		ctx, done := i.context(h)
		select {
		case i.work <- appendCall{p, ctx, done}:
		default:
			done()
			return fmt.Errorf("%w: Append %d while another one waits", data.ErrFrame, id)
		}
	case kindStart, kindState:
		st := &storagepb.LogState{}
		if err := proto.Unmarshal(body, st); err != nil {
			return fmt.Errorf("%w: the state of a log: %w", data.ErrFrame, err)
		}
		i.store.Begin(st)
		if h.Kind == kindStart {
			i.do(h, i.start)
		}
	case kindShutdown:
		i.do(h, i.shutdown)
	case kindBarrier:
		i.do(h, i.rep.Barrier)
	case kindMembers:
		c, err := readChange(body)
		if err != nil {
			return err
		}
		i.do(h, func(ctx context.Context) error { return i.change(ctx, c) })
	case kindForget:
		q, err := readQueue(body)
		if err != nil {
			return err
		}
		i.seq.Forget(q)
	case kindCancel:
		i.mu.Lock()
		cancel := i.cancels[id]
		i.mu.Unlock()
		if cancel != nil {
			cancel()
		}
	case kindLogDone:
		return i.store.answered(id, body)
	case kindRoleDone:
		failure, err := data.ReadFailure(body)
		if err != nil {
			return err
		}
		i.mu.Lock()
		c := i.asked[id]
		delete(i.asked, id)
		i.mu.Unlock()
		if c != nil {
			c <- failure
		}
	default:
		return fmt.Errorf("%w: kind %d from a host", data.ErrFrame, h.Kind)
	}
	return nil
}

// context makes that of a call of the host. Append waits for nobody, so that
// cancelling it would change nothing.
func (i *instance) context(h *data.Head) (context.Context, func()) {
	if h.Kind == kindAppend && h.Timeout == 0 {
		return i.ctx, func() {}
	}
	ctx, cancel := h.Context(i.ctx)
	id := h.ID
	i.mu.Lock()
	defer i.mu.Unlock()
	i.cancels[id] = cancel
	return ctx, func() {
		cancel()
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(i.cancels, id)
	}
}

// do does a call beside the reader.
func (i *instance) do(h *data.Head, f func(context.Context) error) {
	ctx, done := i.context(h)
	id := h.ID
	i.tasks.Go(func() {
		defer done()
		i.answer(id, f(ctx))
	})
}

// answer tells the result of a call, and before it what the host must know then.
func (i *instance) answer(id uint64, err error) {
	i.endOffices()
	i.tellRole()
	i.out.add(kindDone, id, 0, func(b []byte) []byte { return data.PutFailure(b, err) })
	i.flush()
}

func (i *instance) flush() {
	if err := i.out.flush(); err != nil {
		i.cancel()
	}
}

// appender appends, one Pending after the other.
func (i *instance) appender() {
	for {
		select {
		case c := <-i.work:
			i.appending.Store(true)
			err := i.rep.Append(c.ctx, &c.p.Pending, i)
			// Cleared before the last flush: who does not flush for it was
			// earlier and is part of it.
			i.appending.Store(false)
			c.done()
			id := c.p.id
			if err != nil {
				c.p.refused()
			} else {
				c.p.returned()
			}
			i.answer(id, err)
		case <-i.ctx.Done():
			return
		}
	}
}

func (i *instance) change(ctx context.Context, c change) error {
	m := i.rep.Capabilities().Members
	if m == nil {
		return storage.ErrUnsupported
	}
	switch c.op {
	case addLearner:
		return m.AddLearner(ctx, c.id, c.addr)
	case promote:
		return m.Promote(ctx, c.id)
	case remove:
		return m.Remove(ctx, c.id)
	case transfer:
		return m.Transfer(ctx, c.id)
	}
	return m.Resign(ctx)
}

// Done implements replication.Sink.
func (i *instance) Done(p *replication.Pending, from, to int, o replication.Outcome, err error) {
	own, ok := p.Owner.(*pending)
	if !ok {
		i.logger.Error("an outcome is told for a Pending that the host did not bring")
		return
	}
	i.endOffices()
	x := outcome{from, to, o, err}
	i.out.add(kindOutcome, own.id, 0, func(b []byte) []byte { return putOutcome(b, &x) })
	own.outcome(to - from)
	if !i.appending.Load() {
		i.flush()
	}
}

// onRole is the engine's OnRole.
func (i *instance) onRole(ctx context.Context, r replication.Role) error {
	id, c := i.last.Add(1), make(chan error, 1)
	i.mu.Lock()
	i.asked[id] = c
	i.offices[id] = ctx
	i.mu.Unlock()
	i.endOffices()
	i.told.Lock()
	i.told.status.Role = r
	i.out.add(kindRole, id, 0, func(b []byte) []byte { return putRole(b, &r) })
	i.told.Unlock()
	i.flush()
	stop := context.AfterFunc(ctx, func() { i.endOffices(); i.flush() })
	context.AfterFunc(i.ctx, func() { stop() })
	select {
	case err := <-c:
		return err
	case <-i.ctx.Done():
		return fmt.Errorf("%w: the host is gone", plugin.ErrUnavailable)
	}
}

// endOffices tells which contexts of OnRole ended. It is called before everything
// that may follow from the end of an office.
func (i *instance) endOffices() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for id, ctx := range i.offices {
		if ctx.Err() != nil {
			delete(i.offices, id)
			i.out.add(kindOver, id, 0, nil)
		}
	}
}

// tellRole tells a role that changed without a call of OnRole, or before it.
func (i *instance) tellRole() {
	i.told.Lock()
	defer i.told.Unlock()
	if i.rep.Role() != i.told.status.Role {
		i.putStatus()
	}
}

// tellStatus tells the status if it changed.
func (i *instance) tellStatus() {
	i.told.Lock()
	defer i.told.Unlock()
	i.putStatus()
}

// putStatus is called with told locked.
func (i *instance) putStatus() {
	s := i.rep.Status()
	s.Role = i.rep.Role()
	if reflect.DeepEqual(s, i.told.status) {
		return
	}
	i.told.status = s
	i.out.add(kindStatus, 0, 0, func(b []byte) []byte { return putStatus(b, &s) })
}

func (i *instance) statuses() {
	t := i.clock.NewTimer(statusEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C():
			t.Reset(statusEvery)
			i.tellStatus()
			i.flush()
		case <-i.ctx.Done():
			return
		}
	}
}

// outbox gathers frames in their order; flush sends all of them with one system
// call. Adding never waits for the connection.
type outbox struct {
	conn  net.Conn
	write sync.Mutex // taken before mu
	spare []byte

	mu  sync.Mutex
	buf []byte
}

func (o *outbox) add(k data.Kind, id uint64, left int64, fill func([]byte) []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf = frame(o.buf, k, id, left, fill)
}

func (o *outbox) flush() error {
	o.write.Lock()
	defer o.write.Unlock()
	o.mu.Lock()
	b := o.buf
	o.buf = o.spare[:0]
	o.mu.Unlock()
	o.spare = b
	if cap(b) > data.KeepSize {
		o.spare = nil
	}
	if len(b) == 0 {
		return nil
	}
	_, err := o.conn.Write(b)
	return err
}

// noNetwork is Params.Network of a plugin process.
type noNetwork struct{}

var errNetwork = errors.New("the host's network does not cross to a plugin process: listen and dial with package net")

// Listen implements replication.Network.
func (noNetwork) Listen(context.Context, string) (net.Listener, error) { return nil, errNetwork }

// Dial implements replication.Network.
func (noNetwork) Dial(context.Context, string) (net.Conn, error) { return nil, errNetwork }
