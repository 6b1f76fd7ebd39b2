package replicationtest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// ScriptedName is the name of the scripted replicator's factory.
const ScriptedName = "scripted"

// ErrScripted explains the outcomes that a script asked for.
var ErrScripted = errors.New("the script says so")

var _ replication.Replicator = (*Scripted)(nil)

// Scripted is a replicator that behaves as one with replicas does, as far as its
// own node can see: it publishes when the test says so, drops proposals, loses
// and wins offices, and follows another leader.
//
// Left alone it publishes at once, inside Append. Outcomes and offices are told
// by the goroutine that asks for them. The methods that drive it are safe for
// concurrent use; those that tell something must not be called from Done or
// OnRole.
type Scripted struct {
	p   replication.Params
	raw storage.RawLog

	// turn is held while the Sequencer or the log is changed. roles and tell make offices and
	// outcomes come one at a time. The order is roles, turn, tell, mu.
	turn, roles, tell sync.Mutex
	wg                sync.WaitGroup

	mu      sync.Mutex
	running bool
	role    replication.Role
	office  context.CancelFunc
	held    []*heldPending
	hold    bool
	drop    int
	refuse  int
	refusal error
	barrier error
	asWhat  replication.Role // at Start
	changed chan struct{}
}

// heldPending is ordered and not settled.
type heldPending struct {
	p      *replication.Pending
	sink   replication.Sink
	groups int
	end    message.Position
	told   bool
	// refused is why the groups are not in the log at all; they wait for their
	// turn to be told so.
	refused error
}

// done tells the outcome once.
func (h *heldPending) done(from, to int, o replication.Outcome, err error) {
	if h.refused != nil {
		o, err = replication.NotStored, h.refused
	}
	h.sink.Done(h.p, from, to, o, err)
}

// NewScripted makes a scripted replicator; its store must offer RawLog and be
// opened with storage.Explicit.
func NewScripted(p replication.Params) (*Scripted, error) {
	p.Settings = p.WithDefaults()
	s := &Scripted{
		p: p, raw: p.Store.Capabilities().RawLog, changed: make(chan struct{}),
		asWhat: replication.Role{Kind: replication.RoleLeader, Term: 1},
	}
	if s.raw == nil {
		return nil, fmt.Errorf("the scripted replicator needs the storage facet %s", storage.FacetRawLog)
	}
	return s, nil
}

// ScriptedFactory makes a factory of scripted replicators; made is called with
// each of them.
func ScriptedFactory(made func(*Scripted)) replication.Factory {
	type config struct{}
	describe := func(config) plugin.Description {
		return plugin.Description{Version: "1.0.0", Publish: storage.Explicit.String(), Needs: []string{"storage." + storage.FacetRawLog}}
	}
	return replication.NewFactory(ScriptedName, describe, func() config { return config{} },
		func(_ context.Context, p replication.Params, _ config) (*Scripted, error) {
			s, err := NewScripted(p)
			if err == nil && made != nil {
				made(s)
			}
			return s, err
		})
}

// StartAs sets the role that Start takes [leader of term 1].
func (s *Scripted) StartAs(r replication.Role) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asWhat = r
}

// Start implements [plugin.Component]: what was not published is cut off.
func (s *Scripted) Start(ctx context.Context) error {
	s.mu.Lock()
	s.running = true
	r := s.asWhat
	s.mu.Unlock()
	err := s.raw.Truncate(ctx, s.p.Store.State().Published)
	if err == nil {
		err = s.take(ctx, r)
	}
	if err != nil {
		_ = s.Shutdown(context.WithoutCancel(ctx))
	}
	return err
}

// take begins a role and tells the engine.
func (s *Scripted) take(ctx context.Context, r replication.Role) error {
	s.roles.Lock()
	defer s.roles.Unlock()
	if now := s.Role(); r.Kind == replication.RoleLeader && (now.Kind != r.Kind || now.Term != r.Term) {
		s.turn.Lock()
		err := s.open(ctx, r.Term)
		s.turn.Unlock()
		if err != nil {
			return err
		}
	}
	office, end := context.WithCancel(context.WithoutCancel(ctx))
	s.mu.Lock()
	if s.office != nil {
		s.office()
	}
	s.role, s.office = r, end
	s.wake()
	s.mu.Unlock()
	if s.p.OnRole == nil {
		return nil
	}
	if err := s.p.OnRole(office, r); err != nil {
		s.mu.Lock()
		s.office()
		s.role = replication.Role{Term: r.Term}
		s.wake()
		s.mu.Unlock()
		return err
	}
	return nil
}

func (s *Scripted) open(ctx context.Context, term uint64) error {
	var ends storage.OffsetAnswers
	if err := s.p.Store.Offsets(ctx, nil, &ends); err != nil {
		return err
	}
	return s.p.Sequencer.Open(term, s.p.Store.State(), ends.Answers)
}

// wake tells waiters that something changed; mu is held.
func (s *Scripted) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Shutdown implements [plugin.Component]: what is held is published.
func (s *Scripted) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if !s.running {
		s.mu.Unlock()
		return nil
	}
	s.running = false
	lead := s.role.Kind == replication.RoleLeader
	s.mu.Unlock()
	s.turn.Lock()   // the last Append is through
	s.turn.Unlock() //nolint:staticcheck // nothing is to be done under it
	s.wg.Wait()
	var err error
	if lead {
		err = s.Publish(ctx, -1)
	} else {
		s.Answer(-1, replication.Unknown)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.office != nil {
		s.office()
	}
	s.role = replication.Role{}
	s.wake()
	return err
}

// Append implements [replication.Replicator].
func (s *Scripted) Append(ctx context.Context, p *replication.Pending, sink replication.Sink) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.mu.Lock()
	running, role, hold := s.running, s.role, s.hold
	refuse := s.refuse > 0
	if refuse {
		s.refuse--
	}
	refusal := s.refusal
	drop := !refuse && s.drop > 0
	if drop {
		s.drop--
	}
	s.mu.Unlock()
	switch {
	case !running:
		return replication.ErrNotRunning
	case role.Kind != replication.RoleLeader:
		return fmt.Errorf("%w: %s does", replication.ErrNotLeader, role.Leader)
	case role.ReadOnly != "":
		return fmt.Errorf("%w: %s", replication.ErrReadOnly, role.ReadOnly)
	case refuse:
		return refusal
	}
	if err := s.p.Sequencer.Assign(p, 0); err != nil {
		return err
	}
	h := &heldPending{p: p, sink: sink, groups: len(p.Groups), end: p.End}
	if drop {
		if err := s.p.Sequencer.Rewind(p); err != nil {
			return err
		}
		h.refused = ErrScripted
		return s.put(ctx, h, hold)
	}
	for i := range p.Batches {
		if err := s.p.Store.Append(ctx, &p.Batches[i]); err != nil {
			return s.failed(h, i, err)
		}
	}
	return s.put(ctx, h, hold)
}

// put puts a Pending in line, and settles the line unless it is to be held.
func (s *Scripted) put(ctx context.Context, h *heldPending, hold bool) error {
	s.mu.Lock()
	s.held = append(s.held, h)
	s.wake()
	s.mu.Unlock()
	if hold {
		return nil
	}
	return s.publish(ctx, -1)
}

// failed ends the office, as a failed Append does, unless nothing was written.
func (s *Scripted) failed(h *heldPending, i int, err error) error {
	for n := i + 1; n < len(h.p.Batches); n++ {
		h.p.Batches[n].Done()
	}
	stored := 0
	for n := range i {
		stored += len(h.p.Batches[n].Groups)
	}
	if errors.Is(err, storage.ErrFull) {
		if aerr := s.p.Sequencer.Abandon(h.p, i); aerr != nil {
			return aerr
		}
		s.tell.Lock()
		defer s.tell.Unlock()
		if stored > 0 {
			_ = s.raw.Publish(context.Background(), h.p.Batches[i-1].End())
			h.sink.Done(h.p, 0, stored, replication.Stored, nil)
		}
		h.sink.Done(h.p, stored, h.groups, replication.NotStored, err)
		return nil
	}
	s.mu.Lock()
	s.role.ReadOnly = err.Error()
	r := s.role
	s.office()
	s.mu.Unlock()
	s.tell.Lock()
	h.sink.Done(h.p, 0, h.groups, replication.Unknown, err)
	s.tell.Unlock()
	if s.p.OnRole != nil {
		s.wg.Add(1) // not in the turn
		go func() {
			defer s.wg.Done()
			s.roles.Lock()
			defer s.roles.Unlock()
			_ = s.p.OnRole(context.Background(), r)
		}()
	}
	return nil
}

// Hold makes what is appended from now on wait for Publish.
func (s *Scripted) Hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold = true
}

// Release publishes what is held and ends Hold.
func (s *Scripted) Release(ctx context.Context) error {
	s.mu.Lock()
	s.hold = false
	s.mu.Unlock()
	return s.Publish(ctx, -1)
}

// Publish publishes the n oldest Pendings held, all with n < 0, and tells Stored
// for those that were not told before.
func (s *Scripted) Publish(ctx context.Context, n int) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	return s.publish(ctx, n)
}

// publish is Publish by the holder of the turn.
func (s *Scripted) publish(ctx context.Context, n int) error {
	s.tell.Lock()
	defer s.tell.Unlock()
	for _, h := range s.takeHeld(n) {
		if h.refused == nil {
			if err := s.raw.Publish(ctx, h.end); err != nil {
				return err
			}
		}
		if !h.told {
			h.done(0, h.groups, replication.Stored, nil)
		}
	}
	return nil
}

func (s *Scripted) takeHeld(n int) []*heldPending {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n < 0 || n > len(s.held) {
		n = len(s.held)
	}
	out := append([]*heldPending(nil), s.held[:n]...)
	s.held = append([]*heldPending(nil), s.held[n:]...)
	s.wake()
	return out
}

// Answer tells an outcome for the n oldest Pendings held that were not told yet,
// all with n < 0. They stay in the log, unpublished, for Publish or Truncate.
func (s *Scripted) Answer(n int, o replication.Outcome) {
	s.tell.Lock()
	defer s.tell.Unlock()
	s.mu.Lock()
	var tell []*heldPending
	for _, h := range s.held {
		if !h.told && (n < 0 || len(tell) < n) {
			h.told = true
			tell = append(tell, h)
		}
	}
	s.mu.Unlock()
	for _, h := range tell {
		h.done(0, h.groups, o, ErrScripted)
	}
}

// Truncate cuts off everything that was not published; what of it was not told
// is told o (Unknown or NotStored) first.
func (s *Scripted) Truncate(ctx context.Context, o replication.Outcome) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.Answer(-1, o)
	s.takeHeld(-1)
	if err := s.raw.Truncate(ctx, s.p.Store.State().Published); err != nil {
		return err
	}
	if r := s.Role(); r.Kind == replication.RoleLeader {
		return s.open(ctx, r.Term)
	}
	return nil
}

// Drop makes the next n Appends lose their proposal: it is rewound and told
// NotStored.
func (s *Scripted) Drop(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop = n
}

// Refuse makes the next n Appends fail with err and order nothing.
func (s *Scripted) Refuse(n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse, s.refusal = n, err
}

// FailBarrier makes Barrier fail until it is called with nil.
func (s *Scripted) FailBarrier(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.barrier = err
}

// Lose ends the office: another node leads in the next term. What is held is
// told Unknown and stays in the log, unpublished, until Win or Truncate.
func (s *Scripted) Lose(ctx context.Context, leader string, foreign bool) error {
	s.mu.Lock()
	r := replication.Role{Kind: replication.RoleFollower, Term: s.role.Term + 1, Leader: leader, Foreign: foreign}
	s.role = r // no Append from here on
	if s.office != nil {
		s.office()
	}
	s.mu.Unlock()
	s.Answer(-1, replication.Unknown)
	return s.take(ctx, r)
}

// Win begins a new office. With keep, what an earlier office left unpublished is
// published first; otherwise it is cut off.
func (s *Scripted) Win(ctx context.Context, keep bool) error {
	var err error
	if keep {
		err = s.Publish(ctx, -1)
	} else {
		err = s.Truncate(ctx, replication.Unknown)
	}
	if err != nil {
		return err
	}
	return s.take(ctx, replication.Role{Kind: replication.RoleLeader, Term: s.Role().Term + 1})
}

// ReadOnly keeps the office and refuses writes; "" ends that.
func (s *Scripted) ReadOnly(ctx context.Context, why string) error {
	r := s.Role()
	r.ReadOnly = why
	return s.take(ctx, r)
}

// Follow appends and publishes, while this node follows, what its leader wrote:
// p is placed as that leader would.
func (s *Scripted) Follow(ctx context.Context, p *replication.Pending) error {
	if r := s.Role(); r.Kind != replication.RoleFollower {
		return fmt.Errorf("this node is %v, only followers follow", r.Kind)
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	if err := s.open(ctx, s.Role().Term); err != nil {
		return err
	}
	if err := s.p.Sequencer.Assign(p, 0); err != nil {
		return err
	}
	for i := range p.Batches {
		if err := s.p.Store.Append(ctx, &p.Batches[i]); err != nil {
			return err
		}
	}
	return s.raw.Publish(ctx, p.End)
}

// Cut cuts the log at a record edge while this node follows: its leader's log ends
// there.
func (s *Scripted) Cut(ctx context.Context, at message.Position) error {
	if r := s.Role(); r.Kind != replication.RoleFollower {
		return fmt.Errorf("this node is %v, only the log of followers is cut", r.Kind)
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	return s.raw.Truncate(ctx, at)
}

// Held counts the Pendings that wait.
func (s *Scripted) Held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held)
}

// WaitHeld waits until at least n Pendings are held.
func (s *Scripted) WaitHeld(ctx context.Context, n int) error {
	for {
		s.mu.Lock()
		have, changed := len(s.held), s.changed
		s.mu.Unlock()
		if have >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d are held: %w", have, n, ctx.Err())
		}
	}
}

// Barrier implements [replication.Replicator].
func (s *Scripted) Barrier(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.running:
		return replication.ErrNotRunning
	case s.barrier != nil:
		return s.barrier
	case s.role.Kind != replication.RoleLeader:
		return replication.ErrNotLeader
	}
	return nil
}

// Role implements [replication.Replicator].
func (s *Scripted) Role() replication.Role {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.role
}

// Status implements [replication.Replicator].
func (s *Scripted) Status() replication.Status { return replication.Status{Role: s.Role()} }

// Capabilities implements [replication.Replicator].
func (s *Scripted) Capabilities() replication.Capabilities { return replication.Capabilities{} }
