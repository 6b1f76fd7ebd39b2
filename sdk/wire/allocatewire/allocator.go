package allocatewire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/allocatewire/allocatepb"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/proxy"
)

// Contract is what a host of allocators expects of a process.
func Contract() *wire.Contract {
	return &wire.Contract{
		Kind: wire.Allocate, Version: allocate.Contract,
		Methods: []string{allocatepb.Allocate_Open_FullMethodName, allocatepb.Allocate_Allocate_FullMethodName, allocatepb.Allocate_Close_FullMethodName},
	}
}

// NewFactory makes the host's half: a factory whose allocators live in a process.
// What it builds is closed with allocate.Close.
func NewFactory(name string, l wire.Launcher) allocate.Factory {
	return plugin.NewRawFactory(name,
		func(ctx context.Context, raw plugin.Raw) (plugin.Description, error) {
			return wire.Describe(ctx, l, nil, Contract(), name, raw)
		},
		func(ctx context.Context, p allocate.Params, raw plugin.Raw) (allocate.Allocator, error) {
			a := &allocator{name: name, launcher: l, settings: p.WithDefaults(), raw: raw}
			a.life, a.stop = context.WithCancel(context.WithoutCancel(ctx))
			s, err := a.session(ctx) // now, so that a constructor that fails does so here
			if err != nil {
				return nil, errors.Join(err, a.Close())
			}
			a.release(s)
			return a, nil
		})
}

var (
	_ io.Closer            = (*allocator)(nil)
	_ allocate.Replaceable = (*allocator)(nil)
)

// allocator is the host's proxy of an allocator in a plugin process.
type allocator struct {
	name     string
	launcher wire.Launcher
	settings plugin.Settings
	raw      plugin.Raw
	life     context.Context // until Close
	stop     context.CancelFunc
	tasks    sync.WaitGroup // sessions and openings

	mu      sync.Mutex
	closed  bool
	cur     *session
	opening *opening
	version string // of the newest process
	lost    error  // why the last process was of no use
}

// opening of a session is nobody's call: one that does not wait for it does not
// end it, because the next one needs it as well, and a program may take longer to
// start than any call may.
type opening struct {
	done chan struct{} // closed when there is a session, or err
	err  error
}

// session is an instance in one process.
type session struct {
	proc wire.Process
	id   uint64

	// under allocator.mu
	calls int
	over  bool

	left chan struct{} // closed when over
	idle chan struct{} // closed when over and without calls
}

var errClosed = fmt.Errorf("%w: the allocator is closed", plugin.ErrUnavailable)

// closeTime bounds the call that closes an instance.
const closeTime = 5 * time.Second

// Close implements io.Closer. It waits for calls under way.
func (a *allocator) Close() error {
	a.stop()
	a.mu.Lock()
	a.closed = true
	s := a.cur
	a.mu.Unlock()
	if s != nil {
		a.leave(s)
	}
	a.tasks.Wait()
	return nil
}

// Version implements allocate.Replaceable. It is that of a new process soon after
// it took the place of the old one, even without a call.
func (a *allocator) Version() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.version
}

// Allocate implements allocate.Allocator.
func (a *allocator) Allocate(ctx context.Context, r *allocate.Request) (allocate.Assignment, error) {
	if err := r.Check(); err != nil {
		return allocate.Assignment{}, err
	}
	m := toRequest(r)
	for again := false; ; again = true {
		s, err := a.session(ctx)
		if err != nil {
			return allocate.Assignment{}, err
		}
		m.Instance = s.id
		answer, rpc := allocatepb.NewAllocateClient(s.proc.Conn()).Allocate(ctx, m)
		err = wire.FromRPC(ctx, rpc, answer.GetFailure())
		switch {
		case err == nil:
			a.release(s)
			out, err := fromAnswer(answer, r)
			if err != nil {
				err = faulty(a.name, err)
			}
			return out, err
		case !errors.Is(err, plugin.ErrUnavailable):
			a.release(s)
			return allocate.Assignment{}, err
		}
		a.leave(s)
		err = a.cause(ctx, s.proc, rpc, err)
		a.release(s)
		a.mu.Lock()
		a.lost = err
		a.mu.Unlock()
		if again || ctx.Err() != nil {
			return allocate.Assignment{}, err
		}
		a.settings.Logger.Warn("an allocator's process was lost in a call; it is made again by another one", "plugin", a.name, "group", r.Group, "error", err)
	}
}

// exitTime is how long a process whose connection broke may take to end.
const exitTime = 2 * time.Second

// cause waits for the end of a process that a call was lost with: only then
// another one is launched in its place. It adds how the process ended.
func (a *allocator) cause(ctx context.Context, proc wire.Process, rpc, err error) error {
	if c := status.Code(rpc); c != codes.Unavailable && c != codes.Canceled {
		return err
	}
	t := a.settings.Clock.NewTimer(exitTime)
	defer t.Stop()
	select {
	case <-proc.Gone():
		return proc.Cause()
	case <-t.C():
	case <-ctx.Done():
	}
	return err
}

// session gives a session to a call, which releases it. When there is none, it
// waits for one that is opened.
func (a *allocator) session(ctx context.Context) (*session, error) {
	for {
		s, o, err := a.use()
		if s != nil || err != nil {
			return s, err
		}
		select {
		case <-o.done:
			if o.err != nil {
				return nil, o.err
			}
		case <-ctx.Done():
			a.mu.Lock()
			lost := a.lost
			a.mu.Unlock()
			err := fmt.Errorf("%w: the process of allocate plugin %q is being started: %w", plugin.ErrUnavailable, a.name, ctx.Err())
			if lost != nil {
				err = fmt.Errorf("%w; the last one: %w", err, lost)
			}
			return nil, err
		}
	}
}

// use gives the session under way to a call, or the opening of one.
func (a *allocator) use() (*session, *opening, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, nil, errClosed
	}
	if s := a.cur; s != nil {
		select {
		case <-s.proc.Gone():
		case <-s.proc.Retired():
		default:
			s.calls++
			return s, nil, nil
		}
		a.leaveLocked(s)
	}
	if a.opening == nil {
		o := &opening{done: make(chan struct{})}
		a.opening = o
		a.tasks.Go(func() {
			s, version, err := a.open()
			a.opened(o, s, version, err)
		})
	}
	return nil, a.opening, nil
}

// opened ends an opening.
func (a *allocator) opened(o *opening, s *session, version string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.opening, o.err = nil, err
	switch {
	case err != nil:
		a.lost = err
	case a.closed:
		o.err = errClosed
		a.tasks.Go(func() { a.end(s) })
	default:
		a.cur, a.version = s, version
		a.tasks.Go(func() { a.watch(s) })
	}
	close(o.done)
}

// openTime bounds the making of an instance in a process that runs.
const openTime = 30 * time.Second

// open makes an instance in a process acquired for it.
func (a *allocator) open() (s *session, version string, err error) {
	proc, err := a.launcher.Acquire(a.life, a.settings.Logger)
	if err != nil {
		return nil, "", err
	}
	defer func() {
		if err != nil {
			proc.Release(true)
		}
	}()
	ctx, cancel := context.WithTimeout(a.life, openTime)
	defer cancel()
	d, err := wire.DescribeIn(ctx, proc, Contract(), a.name, a.raw)
	if err != nil {
		return nil, "", err
	}
	r, rpc := allocatepb.NewAllocateClient(proc.Conn()).Open(ctx, &allocatepb.OpenRequest{
		Plugin: a.name, Config: a.raw, Settings: wire.ToSettings(&a.settings),
	})
	if err = wire.FromRPC(ctx, rpc, r.GetFailure()); err != nil {
		return nil, "", fmt.Errorf("open allocate plugin %q: %w", a.name, a.cause(ctx, proc, rpc, err))
	}
	return &session{proc: proc, id: r.GetInstance(), left: make(chan struct{}), idle: make(chan struct{})}, d.Version, nil
}

// watch ends a session when its process is of no more use, or nobody needs it.
func (a *allocator) watch(s *session) {
	select {
	case <-s.proc.Gone():
		a.move(s)
	case <-s.proc.Retired():
		a.move(s)
	case <-s.left:
	}
	a.leave(s)
	<-s.idle
	a.end(s)
}

// move opens the instance in the process that takes the place of one that is gone
// or retired, so that the next call need not wait for it. When it fails, the next
// call tries again.
func (a *allocator) move(old *session) {
	a.leave(old)
	s, err := a.session(a.life)
	switch {
	case err == nil:
		a.release(s)
	case a.life.Err() == nil:
		a.settings.Logger.Warn("an allocator's new process is not of use yet; the next call tries again", "plugin", a.name, "error", err)
	}
}

// end closes the instance and gives the process back.
func (a *allocator) end(s *session) {
	select {
	case <-s.proc.Gone():
	default:
		ctx, cancel := context.WithTimeout(context.Background(), min(closeTime, proxy.LastTime(s.proc)))
		defer cancel()
		r, err := allocatepb.NewAllocateClient(s.proc.Conn()).Close(ctx, &allocatepb.CloseRequest{Instance: s.id})
		err = proxy.NotWaited(ctx, s.proc, a.settings.Logger, a.name, wire.FromRPC(ctx, err, r.GetFailure()))
		if err != nil {
			a.settings.Logger.Warn("an allocator did not close", "plugin", a.name, "error", err)
		}
	}
	s.proc.Release(false)
}

// leave takes a session away from further calls.
func (a *allocator) leave(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leaveLocked(s)
}

func (a *allocator) leaveLocked(s *session) {
	if a.cur == s {
		a.cur = nil
	}
	if s.over {
		return
	}
	s.over = true
	close(s.left)
	if s.calls == 0 {
		close(s.idle)
	}
}

// release ends a call's use of a session.
func (a *allocator) release(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.releaseLocked(s)
}

func (a *allocator) releaseLocked(s *session) {
	s.calls--
	if s.over && s.calls == 0 {
		close(s.idle)
	}
}
