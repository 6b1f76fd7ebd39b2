package solo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
)

var _ replication.Replicator = (*Solo)(nil)

// Solo is the replicator; see the package comment.
type Solo struct {
	p       replication.Params
	sync    bool
	every   time.Duration
	timeout time.Duration
	raw     storage.RawLog

	// turn is that of the log: it is held whenever the store appends or
	// publishes. Shutdown waits for it once, for the last Append. It is taken
	// before tell.
	turn sync.Mutex
	// roles makes calls of OnRole come one at a time.
	roles sync.Mutex

	away watcher // of a store that goes away

	mu       sync.Mutex
	running  bool
	role     replication.Role
	failed   error   // of the log; it is not written or flushed again in this office
	waiting  []entry // SYNC_FLUSH: ordered, not settled, in log order
	answered int     // of waiting, told already
	inLine   int     // groups of waiting that are not told
	expected int     // inLine when the last flush was settled: see gather
	// flushTime is what a flush takes, on average.
	flushTime time.Duration
	office    office
	over      chan struct{} // closed when everything is answered; nil before Start

	// tell makes outcomes come in log order and one at a time; it is taken
	// before mu.
	tell sync.Mutex

	ready []entry // of settle, which the commit loop alone calls

	work chan struct{} // something waits for a flush
	// tells are calls of OnRole by whom endOffice waits for.
	tells sync.WaitGroup

	flushes  plugin.Histogram
	timeouts plugin.Counter
}

// office is one office of this node: with a store that goes away and comes back
// there are several, each of a term of its own.
type office struct {
	end  context.CancelFunc // of the context that OnRole got
	quit chan struct{}      // closed when its loop is to end
	over chan struct{}      // closed when that has ended
}

// entry is a run of groups of a Pending that waits for its outcome. When it was
// told pending is not touched any more: the engine may have recycled it.
type entry struct {
	pending  *replication.Pending
	sink     replication.Sink
	from, to int
	// end is behind the groups; for groups that the store refused it is the end
	// of what was there before them.
	end      message.Position
	deadline time.Time
	// refused groups have their outcome already and wait only for their turn.
	refused bool
	outcome replication.Outcome
	err     error
}

// New makes the replicator. It fails when SYNC_FLUSH meets a store that cannot
// publish late.
func New(_ context.Context, p replication.Params, cfg Config) (*Solo, error) {
	p.Settings = p.WithDefaults()
	s := &Solo{
		p: p, sync: cfg.FlushDiskType == SyncFlush,
		every:    time.Duration(cfg.FlushIntervalMs) * time.Millisecond,
		timeout:  time.Duration(cfg.SyncFlushTimeoutMs) * time.Millisecond,
		raw:      p.Store.Capabilities().RawLog,
		work:     make(chan struct{}, 1),
		flushes:  p.Meter.Histogram("flush_seconds", "Time of one flush of the log, as its waiters see it."),
		timeouts: p.Meter.Counter("flush_timeouts_total", "Writes answered FLUSH_DISK_TIMEOUT."),
	}
	s.away.life, s.away.end = context.WithCancel(context.Background())
	if s.sync && s.raw == nil {
		return nil, fmt.Errorf("flushDiskType %s needs the storage facet %s, which this store does not offer; choose another store or %s", SyncFlush, storage.FacetRawLog, AsyncFlush)
	}
	return s, nil
}

// Start takes office.
func (s *Solo) Start(ctx context.Context) error {
	s.mu.Lock()
	s.running, s.over = true, make(chan struct{})
	s.mu.Unlock()
	if err := s.takeOffice(ctx); err != nil {
		_ = s.Shutdown(context.WithoutCancel(ctx))
		return err
	}
	if r := s.p.Store.Capabilities().Reopener; r != nil {
		s.away.task.Go(func() { s.watchStore(r) })
	}
	return nil
}

// takeOffice begins the next office. What the last one, or an unclean end, left
// unpublished is flushed and published first: it is whole, and nobody can have
// been told that it failed. Nothing may be appended meanwhile, and no office may
// be under way.
func (s *Solo) takeOffice(ctx context.Context) error {
	s.mu.Lock()
	s.failed = nil
	s.mu.Unlock()
	st := s.p.Store.State()
	if st.Published != st.Tail {
		if s.raw == nil {
			return fmt.Errorf("the log is published up to %d but ends at %d, and the store cannot publish it", st.Published, st.Tail)
		}
		err := s.p.Store.Sync(ctx, st.Tail)
		if err != nil {
			err = fmt.Errorf("flushing the unpublished end of the log: %w", err)
		} else if err = s.raw.Publish(ctx, st.Tail); err != nil {
			err = fmt.Errorf("publishing the end of the log: %w", err)
		}
		if err != nil {
			s.fail(err) // a flush is not tried twice
			return err
		}
		st = s.p.Store.State()
	}
	var ends storage.OffsetAnswers
	if err := s.p.Store.Offsets(ctx, nil, &ends); err != nil {
		return fmt.Errorf("reading the ends of the queues: %w", err)
	}
	// A term is above those that the store has seen. It forgets them when it is
	// opened, and there is nobody to fence.
	r := replication.Role{Kind: replication.RoleLeader, Term: s.p.Sequencer.Term() + 1}
	if err := s.p.Sequencer.Open(r.Term, st, ends.Answers); err != nil {
		return err
	}
	in, end := context.WithCancel(context.Background())
	o := office{end: end, quit: make(chan struct{}), over: make(chan struct{})}
	s.mu.Lock()
	s.role, s.office = r, o
	s.mu.Unlock()
	if s.sync {
		go s.commitLoop(o, s.p.Clock.NewTimer(s.watch()))
	} else {
		go s.flushLoop(o, s.p.Clock.NewTimer(s.every))
	}
	// An attempt that is given up ends the office, too; afterwards it lives on.
	stop := context.AfterFunc(ctx, end)
	err := s.tellRole(in)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	return err
}

// tellRole tells the engine the role that is in force now.
func (s *Solo) tellRole(ctx context.Context) error {
	if s.p.OnRole == nil {
		return nil
	}
	s.roles.Lock()
	defer s.roles.Unlock()
	return s.p.OnRole(ctx, s.Role())
}

// endOffice ends what the office under way still does: the last Append is
// through, what it brought is flushed if that can be, and all of it is answered.
func (s *Solo) endOffice() {
	s.mu.Lock()
	o := s.office
	s.office = office{}
	s.mu.Unlock()
	if o.end == nil {
		return
	}
	s.turn.Lock()
	close(o.quit)
	s.turn.Unlock()
	<-o.over
	o.end()
}

// Shutdown flushes what was appended, answers it and ends the office.
func (s *Solo) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	over, first := s.over, s.running
	s.running = false
	s.mu.Unlock()
	if over == nil {
		return nil
	}
	if first {
		go func() {
			s.away.end()
			s.away.task.Wait() // nobody begins an office any more
			s.endOffice()
			s.tells.Wait()
			s.mu.Lock()
			s.role = replication.Role{}
			s.mu.Unlock()
			close(over)
		}()
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the last flush: %w", ctx.Err())
	}
}

// Append implements replication.Replicator.
func (s *Solo) Append(ctx context.Context, p *replication.Pending, sink replication.Sink) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.mu.Lock()
	running, readOnly := s.running, s.role.ReadOnly
	s.mu.Unlock()
	if !running {
		return replication.ErrNotRunning
	}
	if readOnly != "" {
		return fmt.Errorf("%w: %s", replication.ErrReadOnly, readOnly)
	}
	if err := s.p.Sequencer.Assign(p, 0); err != nil {
		return err
	}
	groups, stored, end := len(p.Groups), len(p.Groups), p.End
	var failure error
	for i := range p.Batches {
		if failure = s.p.Store.Append(ctx, &p.Batches[i]); failure != nil {
			stored, end = s.undo(p, i, failure)
			break
		}
	}
	// From here on p may be recycled as soon as its last group is told.
	if s.sync {
		s.wait(p, sink, groups, stored, end, failure)
		return nil
	}
	s.tell.Lock()
	defer s.tell.Unlock()
	if stored > 0 {
		sink.Done(p, 0, stored, replication.Stored, nil)
	}
	if stored < groups {
		sink.Done(p, stored, groups, outcomeOf(failure), failure)
	}
	return nil
}

// wait puts groups in line for their outcome: the first stored ones for a flush,
// the others for their turn, since outcomes are told in log order.
func (s *Solo) wait(p *replication.Pending, sink replication.Sink, groups, stored int, end message.Position, failure error) {
	s.mu.Lock()
	s.inLine += groups
	if stored > 0 {
		s.waiting = append(s.waiting, entry{pending: p, sink: sink, to: stored, end: end, deadline: s.p.Clock.Now().Add(s.timeout)})
	}
	if stored < groups {
		s.waiting = append(s.waiting, entry{
			pending: p, sink: sink, from: stored, to: groups, end: end,
			refused: true, outcome: outcomeOf(failure), err: failure,
		})
	}
	s.mu.Unlock()
	if stored < groups {
		s.expire() // perhaps nothing stands before them
	}
	select {
	case s.work <- struct{}{}:
	default:
	}
}

// outcomeOf is what a failed Append means for its groups. Errors that the
// storage contract does not name say nothing about what was written.
func outcomeOf(err error) replication.Outcome {
	for _, clean := range []error{
		storage.ErrFull, storage.ErrReadOnly, storage.ErrTooLarge, storage.ErrNotRunning, storage.ErrFenced, storage.ErrGap,
	} {
		if errors.Is(err, clean) {
			return replication.NotStored
		}
	}
	return replication.Unknown
}

// undo gives back what was assigned to the batches from i on, and returns how
// many groups are stored and where they end. A store that failed, or that knows
// another log than the sequencer does, ends the office instead: nothing may be
// assigned after it.
func (s *Solo) undo(p *replication.Pending, i int, err error) (stored int, end message.Position) {
	end = p.Batches[0].At
	for n := range i {
		stored += len(p.Batches[n].Groups)
		end = p.Batches[n].End()
	}
	for n := i + 1; n < len(p.Batches); n++ {
		p.Batches[n].Done() // the store never saw them
	}
	if outcomeOf(err) == replication.Unknown || errors.Is(err, storage.ErrFenced) || errors.Is(err, storage.ErrGap) {
		s.readOnly(err)
		return stored, end
	}
	if uerr := s.p.Sequencer.Abandon(p, i); uerr != nil {
		s.readOnly(uerr)
		return stored, end
	}
	// Not where the refused batch was to begin: that may be an edge, with a blank
	// before it that was not written either.
	return stored, s.p.Sequencer.Tail()
}

// readOnly ends the office as far as writes go. A store that is away is watched
// by somebody who goes on from here.
func (s *Solo) readOnly(cause error) {
	if !s.fail(cause) || s.goneAway(cause) {
		return
	}
	s.p.Logger.Error("the log failed, this broker is read-only now", "error", cause)
	// In a goroutine of its own: the engine's hooks must not run in the turn of
	// the log, which this may be. endOffice waits for whoever calls, so that
	// Shutdown waits for this, too.
	s.tells.Go(s.tellReadOnly)
}

// fail notes why the log is not written any more in this office; the first cause
// counts.
func (s *Solo) fail(cause error) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return false
	}
	s.failed = cause
	if s.office.end != nil {
		s.office.end()
	}
	if s.goneAway(cause) {
		s.role.ReadOnly = awayText(cause)
	} else {
		s.role.ReadOnly = "the log failed and takes no writes until the broker is restarted: " + cause.Error()
	}
	return true
}

// failure is why the log is not flushed in this office any more; nil while it is.
func (s *Solo) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// flushLoop flushes every interval (ASYNC_FLUSH), and once more at the end.
func (s *Solo) flushLoop(o office, t plugin.Timer) {
	defer close(o.over)
	defer t.Stop()
	for {
		select {
		case <-t.C():
			t.Reset(s.every)
			s.flush()
		case <-o.quit:
			s.flush()
			return
		}
	}
}

func (s *Solo) flush() {
	st := s.p.Store.State()
	if st.Durable >= st.Tail || s.failure() != nil {
		return
	}
	began := s.p.Clock.Now()
	if err := s.p.Store.Sync(context.Background(), st.Tail); err != nil {
		s.readOnly(err)
		return
	}
	s.flushes.Observe(s.p.Clock.Now().Sub(began).Seconds())
}

// Barrier implements replication.Replicator: what was acknowledged was
// published before.
func (s *Solo) Barrier(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running {
		return replication.ErrNotRunning
	}
	return nil
}

// Role implements replication.Replicator.
func (s *Solo) Role() replication.Role {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.role
}

// Status implements replication.Replicator.
func (s *Solo) Status() replication.Status { return replication.Status{Role: s.Role()} }

// Capabilities implements replication.Replicator.
func (s *Solo) Capabilities() replication.Capabilities { return replication.Capabilities{} }
