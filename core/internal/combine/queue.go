package combine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// ErrStopped: the broker is going down. Test with errors.Is.
var ErrStopped = errors.New("the broker is shutting down")

// Queue is the combining queue. It implements kernel.Journal and
// replication.Sink.
type Queue struct {
	k       *kernel.Kernel
	rep     replication.Replicator
	deriver *message.Deriver // only its rules are used: topic names are always given
	limit   int              // bytes of an ordinary batch

	mu      sync.Mutex
	open    *Batch // nil before Start and after stop
	pool    pool
	large   large
	alone   []*errand
	handed  counts        // batches that were handed to the replicator
	room    chan struct{} // closed when there may be room again; nil: nobody waits
	calm    chan struct{} // closed when nothing is under way; nil: nobody waits
	stopped bool

	epoch     atomic.Uint64 // of what was looked up for reservations, written under mu; see Epoch
	turn      turn
	imageLost atomic.Int64 // when a lost catalog image was told, Unix seconds
	replyC    chan struct{}

	dmu  sync.Mutex
	done []result

	scratch sync.Pool
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	count   counters
}

// pool are the shared batches that nobody uses, under Queue.mu.
type pool struct {
	free  []*Batch
	made  int // of all there are
	spare int // of free, those that nobody needed since the last shrink
}

// large are the batches of one large message each, under Queue.mu.
type large struct {
	ready []*Batch
	bytes int  // of all that are under way
	next  bool // large and ordinary batches take turns
}

// turn is the right to call Replicator.Append.
type turn struct {
	held      atomic.Bool
	passed    chan struct{} // to the goroutine of the queue
	appending atomic.Bool   // it is inside Replicator.Append
	since     atomic.Int64  // when that began, Unix nanoseconds; 0: it is not
	over      atomic.Bool   // nobody else answers any more
}

type counters struct{ batches, records, refusals plugin.Counter }

type result struct {
	b        *Batch
	from, to int
	o        replication.Outcome
	err      error
}

// New makes the queue and makes it the kernel's journal.
func New(k *kernel.Kernel) *Queue {
	q := &Queue{
		k: k, deriver: message.NewDeriver(k.Config().Index), limit: batchBytes,
		turn: turn{passed: make(chan struct{}, 1)}, replyC: make(chan struct{}, 1),
		count: counters{
			batches:  k.Meter.Counter("journal_batches_total", "Batches handed to the replicator."),
			records:  k.Meter.Counter("journal_groups_total", "Groups (messages or client batches) handed to the replicator."),
			refusals: k.Meter.Counter("journal_refusals_total", "Writes refused because the log did not take them in time."),
		},
	}
	q.scratch.New = func() any { b := make([]byte, 0, 32<<10); return &b }
	q.ctx, q.cancel = context.WithCancel(context.Background())
	k.Journal = q
	k.Hooks.OnStop(q.stop)
	return q
}

// Start begins to serve; the segment size and the replicator are known now.
// core/broker calls it before the replicator starts, since taking office may
// write.
func (q *Queue) Start(rep replication.Replicator, segment int64) {
	q.rep = rep
	// A batch crosses at most one edge, so that each segment can begin with an
	// image of the catalog.
	q.limit = int(min(batchBytes, max(segment/4, 4<<10)))
	q.mu.Lock()
	q.open = newBatch(q, q.limit, batchRecords, false)
	q.pool.made = 1
	q.mu.Unlock()
	q.wg.Add(2)
	go q.turnLoop()
	go q.replyLoop()
}

// Limit is how many bytes of records fit into a shared batch.
func (q *Queue) Limit() int { return q.limit }

func (q *Queue) stop(ctx context.Context) error {
	q.mu.Lock()
	if q.stopped {
		q.mu.Unlock()
		return nil
	}
	q.stopped = true
	q.wakeRoom()
	q.mu.Unlock()
	q.cancel()
	over := make(chan struct{})
	go func() { q.wg.Wait(); close(over) }()
	select {
	case <-over:
		q.turn.over.Store(true)
		q.abandon()
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stopping the journal: %w", ctx.Err())
	}
}

// abandon answers what never got its turn.
func (q *Queue) abandon() {
	q.mu.Lock()
	left := q.large.ready
	for _, e := range q.alone {
		e.done <- refusedBecause(ErrStopped)
	}
	q.alone = nil
	if q.open != nil && len(q.open.Groups) > 0 {
		left = append(left, q.open)
	}
	q.open, q.large.ready = nil, nil
	q.mu.Unlock()
	for _, b := range left {
		for b.writers.Load() != 0 {
			runtime.Gosched()
		}
		n := len(b.Groups)
		b.refs.Store(int32(n))
		q.enqueue(result{b, 0, n, replication.NotStored, ErrStopped})
	}
	q.answer()
}

// Reserve makes room for groups of one receiver. It waits for room at most
// until the deadline (zero: Config.SendWait from now) and then fails with an
// *api.Error that clients retry.
//
// While the replicator is stuck in one Append (stuckAfter) nobody gets in: what
// is let in would be answered late, and clients would give up and send it again.
// They wait here all the same, so that those who try again at once are slowed
// down.
func (q *Queue) Reserve(to Receiver, n Need) (Slot, error) {
	if n.Bytes > q.limit || n.Groups > batchRecords || n.Units > batchRecords || n.Keys > 2*batchRecords {
		return q.reserveLarge(to, n)
	}
	var timer plugin.Timer
	for {
		q.mu.Lock()
		if q.stopped {
			q.mu.Unlock()
			return Slot{}, refusedBecause(ErrStopped)
		}
		if q.outdated(n) {
			q.mu.Unlock()
			return Slot{}, ErrOutdated
		}
		stuck := q.stuck()
		if q.open != nil && !stuck && q.open.fits(n) {
			s := q.open.reserve(n, to)
			q.mu.Unlock()
			if timer != nil {
				timer.Stop()
			}
			return s, nil
		}
		full := q.open != nil && !stuck
		wait := q.waitRoom()
		q.mu.Unlock()
		if full {
			q.Settle() // somebody has to take the turn; perhaps it is us
		}
		if timer == nil {
			timer = q.k.Clock.NewTimer(q.sendWait())
		}
		select {
		case <-wait:
		case <-timer.C():
			q.count.refusals.Add(uint64(n.Groups))
			return Slot{}, q.busy()
		}
	}
}

func (q *Queue) reserveLarge(to Receiver, n Need) (Slot, error) {
	var timer plugin.Timer
	for {
		q.mu.Lock()
		if q.stopped {
			q.mu.Unlock()
			return Slot{}, refusedBecause(ErrStopped)
		}
		if q.large.bytes == 0 || q.large.bytes+n.Bytes <= largeBytes {
			q.large.bytes += n.Bytes
			q.mu.Unlock()
			if timer != nil {
				timer.Stop()
			}
			return q.makeLarge(to, n)
		}
		wait := q.waitRoom()
		q.mu.Unlock()
		if timer == nil {
			timer = q.k.Clock.NewTimer(q.sendWait())
		}
		select {
		case <-wait:
		case <-timer.C():
			q.count.refusals.Add(uint64(n.Groups))
			return Slot{}, q.busy()
		}
	}
}

// makeLarge makes the batch of a reservation that was counted. Megabytes are not
// allocated under the lock that every sender takes.
func (q *Queue) makeLarge(to Receiver, n Need) (Slot, error) {
	b := newBatch(q, n.Bytes, max(n.Groups, n.Units, (n.Keys+1)/2), true)
	b.counted = n.Bytes
	s := b.reserve(n, to)
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.stopped: // meanwhile: what never got its turn was answered without this one
		q.large.bytes -= n.Bytes
		return Slot{}, refusedBecause(ErrStopped)
	case q.outdated(n):
		q.large.bytes -= n.Bytes
		q.wakeRoom()
		q.calmed()
		return Slot{}, ErrOutdated
	}
	q.large.ready = append(q.large.ready, b)
	return s, nil
}

// stuckAfter is how long an Append may take before the log counts as stuck: the
// reference's osPageCacheBusyTimeOutMills.
const stuckAfter = time.Second

// Stuck is how long the replicator has been in one Append when that is longer
// than an Append may take (stuckAfter), else 0. It does not block.
func (q *Queue) Stuck() time.Duration {
	since := q.turn.since.Load()
	if since == 0 {
		return 0
	}
	if d := time.Duration(q.k.Clock.Now().UnixNano() - since); d > stuckAfter {
		return d
	}
	return 0
}

func (q *Queue) stuck() bool { return q.Stuck() > 0 }

func (q *Queue) sendWait() time.Duration {
	if w := q.k.Config().SendWait; w > 0 {
		return w
	}
	return 200 * time.Millisecond
}

// busy carries an identity that the Java 4.9 and Go clients retry, which
// SystemBusy is not.
func (q *Queue) busy() error {
	return &api.Error{ID: api.ServiceNotAvailable, Text: fmt.Sprintf("[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while: the log of %s took no more for %v", q.k.Config().BrokerName, q.sendWait())}
}

func refusedBecause(err error) error {
	return &api.Error{ID: api.ServiceNotAvailable, Text: "the broker does not accept this now", Err: err}
}

// waitRoom and wakeRoom are called with mu held.
func (q *Queue) waitRoom() <-chan struct{} {
	if q.room == nil {
		q.room = make(chan struct{})
	}
	return q.room
}

func (q *Queue) wakeRoom() {
	if q.room != nil {
		close(q.room)
		q.room = nil
	}
}

// Settle takes the turn of the log if nobody has it.
func (q *Queue) Settle() {
	if q.turn.held.CompareAndSwap(false, true) {
		q.useTurn(2)
	}
}

// slowRound is how long answers may wait for the rounds that follow theirs.
const slowRound = time.Millisecond

// useTurn keeps the turn for some rounds, then gives it back or on, and answers.
func (q *Queue) useTurn(rounds int) {
	began := q.k.Clock.Now()
	for i := 1; q.round(); i++ {
		q.turn.held.Store(false)
		if !q.more() || !q.turn.held.CompareAndSwap(false, true) {
			q.answer()
			return
		}
		if i == rounds {
			q.turn.passed <- struct{}{} // the turn goes with it; at most one is under way
			q.answer()
			return
		}
		if q.k.Clock.Now().Sub(began) > slowRound {
			q.kick() // who was stored so far does not wait for the next round
		}
	}
	q.turn.held.Store(false)
	if q.more() && q.turn.held.CompareAndSwap(false, true) {
		q.turn.passed <- struct{}{}
	}
	q.answer()
}

func (q *Queue) turnLoop() {
	defer q.wg.Done()
	rest := q.k.Clock.NewTimer(shrinkEvery)
	defer rest.Stop()
	for {
		select {
		case <-q.turn.passed:
			q.useTurn(8)
		case <-rest.C():
			q.shrink()
			rest.Reset(shrinkEvery)
		case <-q.ctx.Done():
			return
		}
	}
}

// shrinkEvery is for how long a batch may be in the pool without being needed.
const shrinkEvery = 10 * time.Second

// shrink gives up what was in the pool all the time since the last call: what a burst
// needed must not be held for as long as the broker runs. One stays, since messages that
// come now and then need a second batch.
func (q *Queue) shrink() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.pool.spare - 1; n > 0 {
		q.pool.free = slices.Delete(q.pool.free, 0, n)
		q.pool.made -= n
	}
	q.pool.spare = len(q.pool.free)
}

// more reports whether a round would find something.
func (q *Queue) more() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.openReady() || len(q.large.ready) > 0 || len(q.alone) > 0 && q.due(q.alone[0])
}

// openReady reports whether the open batch can be handed over: it holds
// something, and there is another one to be open after it. While all are under
// way, behind a slow flush, the open one goes on filling. mu is held.
func (q *Queue) openReady() bool {
	return q.open != nil && len(q.open.Groups) > 0 && (len(q.pool.free) > 0 || q.pool.made < maxBatches)
}

// round hands one batch to the replicator, or does what waits to be done alone; false
// when there is nothing. The caller has the turn.
func (q *Queue) round() bool {
	q.mu.Lock()
	if len(q.alone) > 0 && q.due(q.alone[0]) {
		e := q.alone[0]
		q.alone = slices.Delete(q.alone, 0, 1)
		q.mu.Unlock()
		q.run(e)
		return true
	}
	var b *Batch
	switch {
	case q.openReady() && !(q.large.next && len(q.large.ready) > 0):
		q.large.next = true
		q.handed.open++
		b = q.open
		if n := len(q.pool.free) - 1; n >= 0 {
			q.open, q.pool.free = q.pool.free[n], q.pool.free[:n]
			q.pool.spare = min(q.pool.spare, n)
		} else {
			q.pool.made++
			q.open = newBatch(q, q.limit, batchRecords, false)
		}
		q.wakeRoom()
	case len(q.large.ready) > 0:
		q.large.next = false
		q.handed.large++
		b = q.large.ready[0]
		q.large.ready = slices.Delete(q.large.ready, 0, 1)
	}
	q.mu.Unlock()
	if b == nil {
		return false
	}
	for b.writers.Load() != 0 {
		runtime.Gosched()
	}
	q.image(b)
	q.append(b)
	return true
}

func (q *Queue) append(b *Batch) {
	n := len(b.Groups)
	q.count.batches.Add(1)
	q.count.records.Add(uint64(n))
	b.told.Store(0)
	b.refs.Store(held + int32(n))
	q.turn.since.Store(q.k.Clock.Now().UnixNano())
	q.turn.appending.Store(true)
	err := q.rep.Append(context.Background(), &b.Pending, q) // what is begun is not cancelled
	q.turn.appending.Store(false)
	q.moves()
	if err != nil { // nothing was ordered, and Done is not called
		q.enqueue(result{b, 0, n, replication.NotStored, err})
		q.unref(b, held)
	}
	// Otherwise b is the replicator's, and perhaps somebody else's by now.
}

// moves ends what since began.
func (q *Queue) moves() {
	stuck := q.stuck()
	q.turn.since.Store(0)
	if stuck { // who came meanwhile waits for this
		q.mu.Lock()
		q.wakeRoom()
		q.mu.Unlock()
	}
}

// image puts a catalog image before b when b crosses a segment edge, or when
// the log is about to begin a segment.
func (q *Queue) image(b *Batch) {
	src, seq := q.k.Images, q.k.Sequencer
	if src == nil || seq == nil || seq.Segment() == 0 {
		return
	}
	seg, tail := seq.Segment(), int64(seq.Tail())
	room := seg - tail%seg
	if room < seg && int64(len(b.Buf))+message.BlankSize <= room {
		return // stays inside the segment under way
	}
	recs, settled := src.Image(seq.Ends)
	if len(recs) == 0 {
		return
	}
	i := &imageReceiver{q: q, settled: settled}
	n := needOf(recs)
	if int64(n.Bytes)+int64(b.Groups[0].Len)+2*message.BlankSize > seg {
		settled(false)
		return // the group at the front would not fit behind it
	}
	ib := newBatch(q, n.Bytes, max(n.Units, (n.Keys+1)/2, 1), true)
	s := ib.reserve(n, i)
	fill(&s, recs, q.deriver, true)
	q.append(ib)
}

type imageReceiver struct {
	q       *Queue
	settled func(stored bool)
}

// Answer implements Receiver: an image that was not stored is made again at the
// next edge, on a full disk with each batch. That is told once a second.
func (i *imageReceiver) Answer(_ *Batch, _, _ int, o replication.Outcome, err error, scratch []byte) []byte {
	stored := o != replication.NotStored && o != replication.Unknown
	i.settled(stored)
	if stored {
		return scratch
	}
	now, last := i.q.k.Clock.Now().Unix(), i.q.imageLost.Load()
	if now != last && i.q.imageLost.CompareAndSwap(last, now) {
		i.q.k.Log.Warn("the catalog image at the start of a segment was not stored", "outcome", o, "error", err)
	}
	return scratch
}

// Done implements replication.Sink.
func (q *Queue) Done(p *storage.Pending, from, to int, o replication.Outcome, err error) {
	b := p.Owner.(*Batch)
	// With the last outcome it is settled how many batches p became: a dropped
	// proposal has none, however often it was assigned.
	last, batches := int(b.told.Add(int32(to-from))) == len(b.Groups), int32(len(p.Batches))
	q.enqueue(result{b, from, to, o, err})
	if last {
		q.unref(b, held-batches)
	}
	switch {
	case q.turn.over.Load():
		q.answer() // a flush that was under way when the journal stopped
	case !q.turn.appending.Load():
		// Inside Append the holder of the turn answers when it has given the
		// turn back. It clears the flag before it looks, we enqueue before we
		// look: one of us sees the other.
		q.kick()
	}
}

func (q *Queue) enqueue(r result) {
	q.dmu.Lock()
	q.done = append(q.done, r)
	q.dmu.Unlock()
}

// kick lets the reply goroutine answer.
func (q *Queue) kick() {
	select {
	case q.replyC <- struct{}{}:
	default:
	}
}

func (q *Queue) replyLoop() {
	defer q.wg.Done()
	for {
		select {
		case <-q.replyC:
			q.answer()
		case <-q.ctx.Done():
			q.answer()
			return
		}
	}
}

// answer tells all receivers what is known. Several goroutines may do it at
// once, each for what it took.
func (q *Queue) answer() {
	q.dmu.Lock()
	if len(q.done) == 0 {
		q.dmu.Unlock()
		return
	}
	var few [4]result
	mine := append(few[:0], q.done...)
	clear(q.done)
	q.done = q.done[:0]
	q.dmu.Unlock()
	sp := q.scratch.Get().(*[]byte)
	for i := range mine {
		r := &mine[i]
		q.tell(r, sp)
		q.unref(r.b, int32(r.to-r.from))
	}
	if cap(*sp) > 1<<20 {
		*sp = make([]byte, 0, 32<<10)
	}
	q.scratch.Put(sp)
}

func (q *Queue) tell(r *result, sp *[]byte) {
	runs := r.b.runs
	for i := range runs {
		u := &runs[i]
		from, to := max(int(u.first), r.from), min(int(u.first+u.n), r.to)
		if from < to {
			*sp = u.to.Answer(r.b, from, to, r.o, r.err, (*sp)[:0])
		}
	}
}

// free is the Free of every storage.Batch.
func (q *Queue) free(sb *storage.Batch) { q.unref(sb.Owner.(*Batch), 1) }

// unref gives up n references; the last one recycles the batch.
func (q *Queue) unref(b *Batch, n int32) {
	if b.refs.Add(-n) != 0 {
		return
	}
	b.Pending.Reset()
	b.Tickets = b.Tickets[:0]
	clear(b.runs)
	b.runs = b.runs[:0]
	q.mu.Lock()
	starved := false
	if b.large {
		q.large.bytes -= b.counted
		q.wakeRoom()
	} else {
		starved = len(q.pool.free) == 0 && q.pool.made == maxBatches && q.open != nil && len(q.open.Groups) > 0
		q.pool.free = append(q.pool.free, b)
	}
	q.calmed()
	q.mu.Unlock()
	if starved && q.turn.held.CompareAndSwap(false, true) {
		q.turn.passed <- struct{}{} // there is room for one: only who has the turn puts it in
	}
}

// calmed wakes those who wait for the queue to be idle, if it is. mu is held.
func (q *Queue) calmed() {
	if q.calm != nil && q.idle() {
		close(q.calm)
		q.calm = nil
	}
}

// idle reports whether everything that was brought has been answered. The caller
// holds mu.
func (q *Queue) idle() bool {
	return q.open != nil && len(q.open.Groups) == 0 && len(q.pool.free)+1 == q.pool.made && q.large.bytes == 0
}

// Idle returns when everything that was brought has been answered, or with ctx's
// error. It says nothing about what comes after.
func (q *Queue) Idle(ctx context.Context) error {
	for {
		q.mu.Lock()
		if q.stopped || q.idle() {
			q.mu.Unlock()
			return nil
		}
		if q.calm == nil {
			q.calm = make(chan struct{})
		}
		c := q.calm
		q.mu.Unlock()
		q.Settle()
		select {
		case <-c:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the journal: %w", ctx.Err())
		}
	}
}
