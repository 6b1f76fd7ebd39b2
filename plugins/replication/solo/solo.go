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

// term is the only office there is. Nothing of it survives the process: a store
// forgets terms when it is opened, and there is nobody to fence.
const term = 1

var _ replication.Replicator = (*Solo)(nil)

// Solo is the replicator; see the package comment.
type Solo struct {
	p       replication.Params
	sync    bool
	every   time.Duration
	timeout time.Duration
	raw     storage.RawLog

	mu       sync.Mutex
	running  bool
	started  bool
	role     replication.Role
	waiting  []entry // SYNC_FLUSH: appended, not flushed, in log order
	answered int     // of waiting, timed out and told so already
	office   context.CancelFunc

	// tell makes outcomes come in log order and one at a time; it is taken
	// before mu.
	tell sync.Mutex

	work chan struct{} // something waits for a flush
	quit chan struct{}
	wg   sync.WaitGroup

	flushes  plugin.Histogram
	timeouts plugin.Counter
}

// entry is a Pending that waits for its flush. After its outcome was told
// pending is not touched any more: the engine may have recycled it.
type entry struct {
	pending  *replication.Pending
	sink     replication.Sink
	groups   int
	end      message.Position
	deadline time.Time
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
	if err := s.p.Sequencer.Open(term, st, ends.Answers); err != nil {
		return err
	}
	office, end := context.WithCancel(context.Background())
	r := replication.Role{Kind: replication.RoleLeader, Term: term}
	s.mu.Lock()
	s.running, s.started, s.role, s.office = true, true, r, end
	s.mu.Unlock()
	s.wg.Add(1)
	if s.sync {
		go s.commitLoop()
	} else {
		go s.flushLoop()
	}
	if s.p.OnRole != nil {
		// A Start that is given up ends the office, too; afterwards it lives on.
		stop := context.AfterFunc(ctx, end)
		err := s.p.OnRole(office, r)
		if err == nil && !stop() {
			err = ctx.Err()
		}
		if err != nil {
			_ = s.Shutdown(context.WithoutCancel(ctx))
			return err
		}
	}
	return nil
}

// Shutdown flushes what was appended and ends the office.
func (s *Solo) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	if !s.started {
		s.mu.Unlock()
		return nil
	}
	if s.running {
		s.running = false
		close(s.quit)
	}
	end := s.office
	s.mu.Unlock()
	over := make(chan struct{})
	go func() { s.wg.Wait(); close(over) }()
	select {
	case <-over:
	case <-ctx.Done():
		return fmt.Errorf("waiting for the last flush: %w", ctx.Err())
	}
	end()
	s.mu.Lock()
	s.role = replication.Role{}
	s.mu.Unlock()
	return nil
}

// Append implements replication.Replicator.
func (s *Solo) Append(ctx context.Context, p *replication.Pending, sink replication.Sink) error {
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
	groups := len(p.Groups)
	end := p.End
	stored := groups
	var failure error
	for i := range p.Batches {
		if failure = s.p.Store.Append(ctx, &p.Batches[i]); failure != nil {
			stored, end = s.undo(p, i, failure)
			break
		}
	}
	// From here on p may be recycled as soon as its last group is told.
	if stored == 0 {
		s.done(sink, p, 0, groups, outcomeOf(failure), failure)
		return nil
	}
	if s.sync {
		e := entry{p, sink, stored, end, s.p.Clock.Now().Add(s.timeout)}
		s.mu.Lock()
		s.waiting = append(s.waiting, e)
		s.mu.Unlock()
		select {
		case s.work <- struct{}{}:
		default:
		}
		if failure != nil {
			s.drainThen(func() { sink.Done(p, stored, groups, outcomeOf(failure), failure) })
		}
		return nil
	}
	s.tell.Lock()
	if failure == nil {
		sink.Done(p, 0, groups, replication.Stored, nil)
	} else {
		sink.Done(p, 0, stored, replication.Stored, nil)
		sink.Done(p, stored, groups, outcomeOf(failure), failure)
	}
	s.tell.Unlock()
	return nil
}

// done tells one outcome when nothing older waits.
func (s *Solo) done(sink replication.Sink, p *replication.Pending, from, to int, o replication.Outcome, err error) {
	if s.sync {
		s.drainThen(func() { sink.Done(p, from, to, o, err) })
		return
	}
	s.tell.Lock()
	sink.Done(p, from, to, o, err)
	s.tell.Unlock()
}

// outcomeOf is what a failed Append means for its groups.
func outcomeOf(err error) replication.Outcome {
	if errors.Is(err, storage.ErrFailed) {
		return replication.Unknown
	}
	return replication.NotStored
}

// undo gives back what was assigned to the batches from i on, and returns how
// many groups are stored and where they end. A store that failed ends the
// office instead: nothing may be assigned after it.
func (s *Solo) undo(p *replication.Pending, i int, err error) (stored int, end message.Position) {
	for n := range i {
		stored += len(p.Batches[n].Groups)
		end = p.Batches[n].End()
	}
	for n := i + 1; n < len(p.Batches); n++ {
		p.Batches[n].Done() // the store never saw them
	}
	if errors.Is(err, storage.ErrFailed) {
		s.readOnly(err)
		return stored, end
	}
	if uerr := s.p.Sequencer.Abandon(p, i); uerr != nil {
		s.readOnly(uerr)
	}
	return stored, end
}

// readOnly ends the office as far as writes go.
func (s *Solo) readOnly(cause error) {
	s.mu.Lock()
	first := s.role.ReadOnly == ""
	s.role.ReadOnly = "the log failed and takes no writes until the broker is restarted: " + cause.Error()
	r := s.role
	end := s.office
	s.mu.Unlock()
	if !first {
		return
	}
	s.p.Logger.Error("the log failed, this broker is read-only now", "error", cause)
	end()
	if s.p.OnRole != nil {
		// In a goroutine of its own: the engine's hooks must not run in the turn
		// of the log, which this may be.
		s.wg.Add(1)
		go func() {
			defer s.wg.Done()
			if err := s.p.OnRole(context.Background(), r); err != nil {
				s.p.Logger.Error("telling the engine that this broker is read-only", "error", err)
			}
		}()
	}
}

// flushLoop flushes every interval (ASYNC_FLUSH), and once more at the end.
func (s *Solo) flushLoop() {
	defer s.wg.Done()
	t := s.p.Clock.NewTimer(s.every)
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
	if st.Durable >= st.Tail {
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
