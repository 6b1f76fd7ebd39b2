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

	mu       sync.Mutex
	running  bool
	role     replication.Role
	failed   error   // of the log; it is never written or flushed again
	waiting  []entry // SYNC_FLUSH: ordered, not settled, in log order
	answered int     // of waiting, told already
	inLine   int     // groups of waiting that are not told
	expected int     // inLine when the last flush was settled: see gather
	// flushTime is what a flush takes, on average.
	flushTime time.Duration
	office    context.CancelFunc
	over      chan struct{} // closed when everything is answered; nil before Start

	// tell makes outcomes come in log order and one at a time; it is taken
	// before mu.
	tell sync.Mutex

	ready []entry // of settle, which the commit loop alone calls

	work chan struct{} // something waits for a flush
	quit chan struct{}
	wg   sync.WaitGroup

	flushes  plugin.Histogram
	timeouts plugin.Counter
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
		quit:     make(chan struct{}),
		flushes:  p.Meter.Histogram("flush_seconds", "Time of one flush of the log, as its waiters see it."),
		timeouts: p.Meter.Counter("flush_timeouts_total", "Writes answered FLUSH_DISK_TIMEOUT."),
	}
	if s.sync && s.raw == nil {
		return nil, fmt.Errorf("flushDiskType %s needs the storage facet %s, which this store does not offer; choose another store or %s", SyncFlush, storage.FacetRawLog, AsyncFlush)
	}
	return s, nil
}

// Start takes office. What an unclean end left unpublished is flushed and
// published first: it is whole, and nobody can have been told that it failed.
func (s *Solo) Start(ctx context.Context) error {
	st := s.p.Store.State()
	if st.Published != st.Tail {
		if s.raw == nil {
			return fmt.Errorf("the log is published up to %d but ends at %d, and the store cannot publish it", st.Published, st.Tail)
		}
		if err := s.p.Store.Sync(ctx, st.Tail); err != nil {
			return fmt.Errorf("flushing the unpublished end of the log: %w", err)
		}
		if err := s.raw.Publish(ctx, st.Tail); err != nil {
			return fmt.Errorf("publishing the end of the log: %w", err)
		}
		st = s.p.Store.State()
	}
	var ends storage.OffsetAnswers
	if err := s.p.Store.Offsets(ctx, nil, &ends); err != nil {
		return fmt.Errorf("reading the ends of the queues: %w", err)
	}
	// A term is above those that the store has seen. It forgets them when it is
	// opened, and there is nobody to fence.
	term := s.p.Sequencer.Term() + 1
	if err := s.p.Sequencer.Open(term, st, ends.Answers); err != nil {
		return err
	}
	office, end := context.WithCancel(context.Background())
	r := replication.Role{Kind: replication.RoleLeader, Term: term}
	s.mu.Lock()
	s.running, s.role, s.office, s.over = true, r, end, make(chan struct{})
	s.mu.Unlock()
	s.wg.Add(1)
	if s.sync {
		go s.commitLoop(s.p.Clock.NewTimer(s.watch()))
	} else {
		go s.flushLoop(s.p.Clock.NewTimer(s.every))
	}
	if err := s.takeOffice(ctx, office, end, r); err != nil {
		_ = s.Shutdown(context.WithoutCancel(ctx))
		return err
	}
	return nil
}

// takeOffice tells the engine. A Start that is given up ends the office, too;
// afterwards it lives on.
func (s *Solo) takeOffice(ctx, office context.Context, end context.CancelFunc, r replication.Role) error {
	if s.p.OnRole == nil {
		return nil
	}
	stop := context.AfterFunc(ctx, end)
	s.roles.Lock()
	err := s.p.OnRole(office, r)
	s.roles.Unlock()
	if !stop() && err == nil {
		err = ctx.Err()
	}
	return err
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
			s.turn.Lock() // the last Append is through
			close(s.quit)
			s.turn.Unlock()
			s.wg.Wait()
			s.mu.Lock()
			s.office()
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

// readOnly ends the office as far as writes go; the first cause counts.
func (s *Solo) readOnly(cause error) {
	s.mu.Lock()
	if s.failed != nil {
		s.mu.Unlock()
		return
	}
	s.failed = cause
	s.role.ReadOnly = "the log failed and takes no writes until the broker is restarted: " + cause.Error()
	r := s.role
	s.office()
	// Whoever calls is counted by wg, or holds the turn, so Shutdown still waits.
	s.wg.Add(1)
	s.mu.Unlock()
	s.p.Logger.Error("the log failed, this broker is read-only now", "error", cause)
	// In a goroutine of its own: the engine's hooks must not run in the turn of
	// the log, which this may be.
	go func() {
		defer s.wg.Done()
		if s.p.OnRole == nil {
			return
		}
		s.roles.Lock()
		defer s.roles.Unlock()
		if err := s.p.OnRole(context.Background(), r); err != nil {
			s.p.Logger.Error("telling the engine that this broker is read-only", "error", err)
		}
	}()
}

// failure is why the log is not flushed any more; nil while it is.
func (s *Solo) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// flushLoop flushes every interval (ASYNC_FLUSH), and once more at the end.
func (s *Solo) flushLoop(t plugin.Timer) {
	defer s.wg.Done()
	defer t.Stop()
	for {
		select {
		case <-t.C():
			t.Reset(s.every)
			s.flush()
		case <-s.quit:
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
