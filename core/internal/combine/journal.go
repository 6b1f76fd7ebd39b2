package combine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/replication"
)

// needOf is the exact need of one group of records.
func needOf(recs []*message.Record) Need {
	n := Need{Groups: 1}
	var f message.Facts
	for _, r := range recs {
		n.Bytes += r.Size()
		f.Scan(r.Properties)
		u, k := Count(r, &f)
		n.Units += u
		n.Keys += k
	}
	return n
}

// Count is how many units and keys a record with these facts has; it agrees
// with message.Deriver.
func Count(r *message.Record, f *message.Facts) (units, keys int) {
	tx := r.SysFlag & message.SysTxMask
	if tx == 0 || tx == message.SysTxCommit {
		units = 1
	}
	if tx == message.SysTxRollback {
		return units, 0
	}
	if len(f.UniqueKey) > 0 {
		keys++
	}
	for i, c := range f.Keys {
		if c != ' ' && (i == 0 || f.Keys[i-1] == ' ') {
			keys++
		}
	}
	return units, keys
}

// fill encodes the records as one group.
//
// A fault here leaves a batch that is never complete, behind which the whole log
// would wait: it ends the process.
func fill(s *Slot, recs []*message.Record, d *message.Deriver, edge bool) {
	defer func() {
		if p := recover(); p != nil {
			panic(kernel.InvariantError(fmt.Sprintf("combine: encoding records into a reservation: %v", p)))
		}
	}()
	var f message.Facts
	var v message.View
	s.Begin()
	for _, r := range recs {
		f.Scan(r.Properties)
		s.Record(r, r.Size(), d, &f, &v)
	}
	s.End(Ticket{}, false, edge)
	s.Commit()
}

// waiter is the receiver of one Write or Submit.
type waiter struct {
	done func(kernel.Placed, error)
}

// Answer implements Receiver.
func (w *waiter) Answer(b *Batch, from, _ int, o replication.Outcome, err error, scratch []byte) []byte {
	if o == replication.NotStored || o == replication.Unknown {
		w.done(kernel.Placed{Outcome: o}, failure(o, err))
		return scratch
	}
	g := &b.Groups[from]
	units := append([]message.Unit(nil), b.Units[g.Unit:g.Unit+g.Units]...)
	w.done(kernel.Placed{Units: units, Outcome: o}, nil)
	return scratch
}

// failure is the error of a group that is not, or perhaps not, in the log.
func failure(o replication.Outcome, err error) error {
	text := "the record was not stored"
	if o == replication.Unknown {
		text = "it is unknown whether the record was stored"
	}
	return &api.Error{ID: api.ServiceNotAvailable, Text: text, Err: err}
}

// Submit implements kernel.Journal.
func (q *Queue) Submit(recs []*message.Record, done func(kernel.Placed, error)) {
	q.submit(0, recs, done)
}

// SubmitSince is Submit of records whose topics were looked up after [Queue.Epoch] was
// epoch. When that has to be done again it is false, and done is not called.
func (q *Queue) SubmitSince(epoch uint64, recs []*message.Record, done func(kernel.Placed, error)) bool {
	outdated := false
	q.submit(epoch, recs, func(p kernel.Placed, err error) {
		if errors.Is(err, ErrOutdated) { // before submit returns
			outdated = true
			return
		}
		done(p, err)
	})
	return !outdated
}

func (q *Queue) submit(epoch uint64, recs []*message.Record, done func(kernel.Placed, error)) {
	for _, r := range recs {
		if n := r.PropertiesSize(); n > message.MaxProperties {
			done(kernel.Placed{Outcome: replication.NotStored}, &api.Error{ID: api.MessageIllegal, Text: fmt.Sprintf("properties of %d bytes, at most %d are allowed", n, message.MaxProperties)})
			return
		}
	}
	n := needOf(recs)
	n.Epoch = epoch
	s, err := q.Reserve(&waiter{done}, n)
	if err != nil {
		done(kernel.Placed{Outcome: replication.NotStored}, err)
		return
	}
	fill(&s, recs, q.deriver, false)
	q.Settle()
}

// Write implements kernel.Journal.
func (q *Queue) Write(ctx context.Context, recs ...*message.Record) (kernel.Placed, error) {
	return q.WriteSince(ctx, 0, recs...)
}

// WriteSince is Write of records whose topics were looked up after [Queue.Epoch] was
// epoch; ErrOutdated when that has to be done again.
func (q *Queue) WriteSince(ctx context.Context, epoch uint64, recs ...*message.Record) (kernel.Placed, error) {
	if err := ctx.Err(); err != nil { // nobody waits any more: what fails must leave nothing behind
		return kernel.Placed{Outcome: replication.NotStored}, &api.Error{ID: api.ServiceNotAvailable, Text: "no time is left to store the record", Err: err}
	}
	type answer struct {
		p   kernel.Placed
		err error
	}
	c := make(chan answer, 1)
	q.submit(epoch, recs, func(p kernel.Placed, err error) { c <- answer{p, err} })
	select {
	case a := <-c:
		return a.p, a.err
	case <-ctx.Done():
		return kernel.Placed{Outcome: replication.Unknown}, &api.Error{ID: api.ServiceNotAvailable, Text: "the log took too long, it is unknown whether the record was stored", Err: ctx.Err()}
	}
}

// errand is what waits for the turn of the log.
type errand struct {
	ctx  context.Context
	f    func(ctx context.Context) error
	done chan error
	// behind: as many batches go to the replicator before it.
	behind counts
}

// counts are of shared batches and of those of one large message.
type counts struct{ open, large uint64 }

// ErrOutdated is the error of a reservation whose topics were looked up before the
// log was held alone: they may be gone. Test with errors.Is.
var ErrOutdated = errors.New("the topics must be looked up again")

// Epoch changes whenever somebody wants the log alone ([Queue.Alone]). A reservation
// with the epoch from before its topics were looked up is refused with ErrOutdated
// when it comes behind that: it could bring a message into a topic that was deleted.
// Never 0.
func (q *Queue) Epoch() uint64 { return q.epoch.Load() + 1 }

// outdated is called with mu held.
func (q *Queue) outdated(n Need) bool { return n.Epoch != 0 && n.Epoch != q.epoch.Load()+1 }

// due reports whether what was brought before an errand has gone to the replicator.
// mu is held.
func (q *Queue) due(e *errand) bool {
	return q.handed.open >= e.behind.open && q.handed.large >= e.behind.large
}

// Alone implements kernel.Journal.
func (q *Queue) Alone(ctx context.Context, f func(ctx context.Context) error) error {
	e := &errand{ctx: ctx, f: f, done: make(chan error, 1)}
	q.mu.Lock()
	if q.stopped {
		q.mu.Unlock()
		return refusedBecause(ErrStopped)
	}
	q.epoch.Add(1)
	e.behind = q.handed
	e.behind.large += uint64(len(q.large.ready))
	if q.open != nil && len(q.open.Groups) > 0 {
		e.behind.open++
	}
	q.alone = append(q.alone, e)
	q.mu.Unlock()
	q.Settle()
	select {
	case err := <-e.done:
		return err
	case <-ctx.Done():
	}
	q.mu.Lock()
	at := slices.Index(q.alone, e)
	if at >= 0 {
		q.alone = slices.Delete(q.alone, at, at+1)
	}
	q.mu.Unlock()
	if at >= 0 {
		return notInTime(ctx.Err())
	}
	return <-e.done // it ends with f, which has the context, or with the journal
}

func notInTime(err error) error { return fmt.Errorf("waiting for the turn of the log: %w", err) }

// run does an errand; the caller has the turn.
func (q *Queue) run(e *errand) {
	if err := e.ctx.Err(); err != nil {
		e.done <- notInTime(err)
		return
	}
	q.turn.since.Store(q.k.Clock.Now().UnixNano())
	err := func() (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("internal error while the log was held: %v", p)
			}
		}()
		return e.f(e.ctx)
	}()
	q.moves()
	e.done <- err
}
