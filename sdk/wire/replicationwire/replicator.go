package replicationwire

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/proxy"
)

var (
	_ replication.Replicator = (*replicator)(nil)
	_ replication.Members    = members{}

	_ storage.SequencerWatcher = (*replicator)(nil)
)

// A process that is gone is started again after a pause that doubles. It begins
// anew when a process lived for longer than the longest pause.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 30 * time.Second
)

// replicator is the host's proxy of a replicator in a plugin process, and of those
// that follow it when the process dies.
type replicator struct {
	h      *host
	p      replication.Params
	raw    plugin.Raw
	facets []string
	caps   replication.Capabilities

	life *proxy.Life
	ctx  context.Context
	stop context.CancelFunc
	over chan struct{} // closed when nobody supervises any more; nil before Start
	last atomic.Pointer[session]

	// roles makes calls of OnRole come one at a time.
	roles sync.Mutex

	mu       sync.Mutex
	cur      *session // nil: none, or it is over
	role     replication.Role
	replicas []replication.Replica
}

func newReplicator(h *host, p replication.Params, raw plugin.Raw, facets []string) *replicator {
	r := &replicator{h: h, p: p, raw: raw, facets: facets, life: proxy.NewLife(fmt.Sprintf("replication plugin %q", h.name))}
	r.ctx, r.stop = context.WithCancel(context.Background())
	p.Sequencer.Watch(r)
	for _, f := range facets {
		if f == replication.FacetMembers {
			r.caps.Members = members{r}
		}
	}
	return r
}

// Capabilities implements replication.Replicator.
func (r *replicator) Capabilities() replication.Capabilities { return r.caps }

// Role implements replication.Replicator.
func (r *replicator) Role() replication.Role {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.role
}

// Status implements replication.Replicator; it is up to a second old.
func (r *replicator) Status() replication.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return replication.Status{Role: r.role, Replicas: append([]replication.Replica(nil), r.replicas...)}
}

// alone reports whether no replica is known that a call could wait for.
func (r *replicator) alone() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.replicas) == 0
}

// setRole takes a role that is to be told to the engine; false: from a session that
// is replaced, whose roles count no more.
func (r *replicator) setRole(s *session, x replication.Role) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cur != s {
		return false
	}
	r.role = x
	return true
}

// note takes what the plugin says of itself.
func (r *replicator) note(s *session, st replication.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cur == s {
		r.role, r.replicas = st.Role, st.Replicas
	}
}

// lost ends the use of a session.
func (r *replicator) lost(s *session, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cur == s && !r.life.Stopped() {
		r.cur = nil
		r.role.ReadOnly = why.Error()
	}
}

// The host's Sequencer is watched for what the engine does with it; what the plugin
// made it do is no news.

// Forgot implements storage.SequencerWatcher.
func (r *replicator) Forgot(q message.Queue) {
	r.mu.Lock()
	s := r.cur
	r.mu.Unlock()
	if s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forgotten = append(s.forgotten, q)
	}
}

// Opened implements storage.SequencerWatcher.
func (*replicator) Opened(uint64, storage.State, []storage.OffsetAnswer) {}

// Assigned implements storage.SequencerWatcher.
func (*replicator) Assigned(*storage.Pending, int, int64) {}

// Undone implements storage.SequencerWatcher.
func (*replicator) Undone(*storage.Pending, int, bool, message.Position, int64) {}

// session gives the one under way. Without one err says why not.
func (r *replicator) session() (*session, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.life.Running():
		return nil, replication.ErrNotRunning
	case r.cur == nil:
		return nil, fmt.Errorf("%w: %w: %s", replication.ErrReadOnly, plugin.ErrUnavailable, r.role.ReadOnly)
	}
	return r.cur, nil
}

// use makes s the session under way, unless the replicator is shutting down.
func (r *replicator) use(s *session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.life.Stopped() {
		return false
	}
	r.cur = s
	return true
}

// onRole tells the engine.
func (r *replicator) onRole(ctx context.Context, x replication.Role) error {
	if r.p.OnRole == nil {
		return nil
	}
	r.roles.Lock()
	defer r.roles.Unlock()
	return r.p.OnRole(ctx, x)
}

// Start implements plugin.Component.
func (r *replicator) Start(ctx context.Context) error {
	return r.life.Start(ctx, func(ctx context.Context, run func()) error {
		run() // OnRole may append
		s, err := r.begin(ctx)
		if err != nil {
			r.mu.Lock()
			r.cur, r.role = nil, replication.Role{}
			r.mu.Unlock()
			r.stop()
			return err
		}
		r.over = make(chan struct{})
		go r.supervise(s)
		return nil
	})
}

// begin starts a process and its replicator.
func (r *replicator) begin(ctx context.Context) (*session, error) {
	s, err := r.connect(ctx)
	if err != nil {
		return nil, err
	}
	if !r.use(s) {
		err = replication.ErrNotRunning
	} else if err = s.start(ctx); err == nil {
		s.led.Store(true)
		return s, nil
	}
	s.close()
	return nil, err
}

// supervise starts the process again whenever it is gone, and moves to the one that
// takes its place.
func (r *replicator) supervise(s *session) {
	defer close(r.over)
	pause, wait := firstPause, time.Duration(0)
	next := func() {
		wait, pause = pause, min(2*pause, lastPause)
	}
	for {
		r.last.Store(s)
		replaced := false
		select {
		case <-s.ended:
		case <-s.proc.Retired():
			replaced = r.take(s)
			if replaced {
				r.leave(s)
			}
			<-s.ended
		}
		if r.life.Stopped() {
			return
		}
		if r.p.Clock.Now().Sub(s.began) > lastPause {
			pause = firstPause
		}
		if replaced {
			wait = 0
			r.readOnly(errReplaced)
		} else {
			next()
			r.degrade(s.cause())
		}
		for s = nil; s == nil; {
			if wait > 0 && !proxy.Pause(r.ctx, r.p.Clock, wait, nil, nil) {
				return
			}
			var err error
			if s, err = r.begin(r.ctx); err != nil {
				if r.life.Stopped() {
					return
				}
				next() // only what fails makes the pause longer, no replacement does
				r.degrade(fmt.Errorf("the replication plugin %q cannot be started again: %w", r.h.name, err))
			}
		}
		r.p.Logger.Info("the replication plugin is back", "plugin", r.h.name, "role", r.Role().Kind.String(), "term", r.Role().Term)
	}
}

// errReplaced is why a node is read-only between two versions of its plugin.
var errReplaced = errors.New("the replication plugin is being replaced by another version; try again in a moment")

// take ends the use of a session that is well: nothing is begun in it any more. False:
// it is over, or the replicator is shutting down and does it itself.
func (r *replicator) take(s *session) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cur != s || r.life.Stopped() {
		return false
	}
	r.cur = nil
	r.role.ReadOnly = errReplaced.Error()
	return true
}

// leave ends the office of a replicator whose process is replaced: what it has is
// answered first. One that does not come to an end is cut off, and what it has is
// Unknown.
func (r *replicator) leave(s *session) {
	r.p.Logger.Info("the replication plugin is replaced; writes are refused until the next one has its office", "plugin", r.h.name)
	ctx, cancel := context.WithTimeout(context.Background(), proxy.LastTime(s.proc))
	defer cancel()
	if err := s.shutdown(ctx); err != nil {
		r.p.Logger.Warn("ending the office of a replication plugin that is replaced", "plugin", r.h.name, "error", err)
	}
}

// degrade tells the engine and the log that there is no process.
func (r *replicator) degrade(why error) {
	r.p.Logger.Error("the process of the replication plugin is gone, this broker is read-only until it is back", "plugin", r.h.name, "error", why)
	r.readOnly(why)
}

// readOnly tells the engine that nothing is written for now.
func (r *replicator) readOnly(why error) {
	r.mu.Lock()
	r.role.ReadOnly = why.Error()
	x := r.role
	r.mu.Unlock()
	if err := r.onRole(r.ctx, x); err != nil {
		r.p.Logger.Error("telling the engine that this broker is read-only", "error", err)
	}
}

// Shutdown implements plugin.Component. When ctx ends first, the replicator still
// shuts down, and a second Shutdown waits for it.
func (r *replicator) Shutdown(ctx context.Context) error {
	return r.life.Shutdown(ctx, func() error { return r.shutdown(ctx) })
}

func (r *replicator) shutdown(ctx context.Context) error {
	r.stop()
	r.mu.Lock()
	s := r.cur
	r.mu.Unlock()
	var err error
	if s != nil {
		call, done := proxy.WithLastMoment(ctx, r.p.Clock, proxy.StopLimit(s.proc))
		defer done()
		err = s.shutdown(call)
	} else if last := r.last.Load(); last != nil {
		proxy.Away(last.proc, r.p.Logger, r.h.name, errors.New(r.Role().ReadOnly))
	}
	<-r.over
	r.mu.Lock()
	r.role, r.replicas = replication.Role{}, nil
	r.mu.Unlock()
	return err
}

// shutdown shuts the replicator down, if it was started, and ends the session.
func (s *session) shutdown(ctx context.Context) (err error) {
	if s.led.Load() {
		err = proxy.NotWaited(ctx, s.proc, s.r.p.Logger, s.r.h.name, s.call(ctx, kindShutdown, nil))
		s.settled(ctx)
		if errors.Is(err, plugin.ErrUnavailable) {
			err = nil // it is gone; nothing of it is left to be shut down
		}
	}
	s.close()
	return err
}

// start is Start at the plugin.
func (s *session) start(ctx context.Context) error {
	return s.call(ctx, kindStart, func(b []byte) []byte { return putState(b, s.lender.State()) })
}

// Append implements replication.Replicator.
func (r *replicator) Append(ctx context.Context, p *replication.Pending, sink replication.Sink) error {
	s, err := r.session()
	if err != nil {
		return err
	}
	if !s.led.Load() && !s.opened.Load() {
		// Who does not know yet that the last office is over. A replicator that starts
		// has nothing to place by.
		return fmt.Errorf("%w: the replication plugin %q has no office yet; try again in a moment", replication.ErrReadOnly, r.h.name)
	}
	return s.append(ctx, p, sink)
}

// Barrier implements replication.Replicator. While there is no process it is for
// those who are alone: what was acknowledged was published here.
func (r *replicator) Barrier(ctx context.Context) error {
	s, err := r.session()
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.life.Running() && r.role.Kind == replication.RoleLeader && len(r.replicas) == 0 {
			return nil
		}
		return err
	}
	return s.call(ctx, kindBarrier, nil)
}

// members is the facet.
type members struct{ r *replicator }

func (m members) change(ctx context.Context, c change) error {
	s, err := m.r.session()
	if err != nil {
		return err
	}
	return s.call(ctx, kindMembers, func(b []byte) []byte { return putChange(b, &c) })
}

// AddLearner implements replication.Members.
func (m members) AddLearner(ctx context.Context, id, addr string) error {
	return m.change(ctx, change{addLearner, id, addr})
}

// Promote implements replication.Members.
func (m members) Promote(ctx context.Context, id string) error {
	return m.change(ctx, change{op: promote, id: id})
}

// Remove implements replication.Members.
func (m members) Remove(ctx context.Context, id string) error {
	return m.change(ctx, change{op: remove, id: id})
}

// Transfer implements replication.Members.
func (m members) Transfer(ctx context.Context, id string) error {
	return m.change(ctx, change{op: transfer, id: id})
}

// Resign implements replication.Members.
func (m members) Resign(ctx context.Context) error { return m.change(ctx, change{op: resign}) }

func position(v int64) message.Position { return message.Position(v) }
