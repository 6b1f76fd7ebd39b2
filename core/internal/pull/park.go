package pull

import (
	"container/heap"
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

const (
	// maxParked bounds parked requests; more are answered at once.
	maxParked = 200_000
	// maxHold bounds the time a client may ask for, ms.
	maxHold = 5 * 60_000
	shards  = 64
)

// waiter is a parked request.
type waiter struct {
	t        *task
	deadline time.Time
	at       int // in the list of its queue, guarded by the shard
	index    int // in the heap, -1 when out of it
	// Neighbours among those of one connection, guarded by park.mu as the heap is.
	next, prev *waiter
	// taken is set by whoever answers: a wake-up or the deadline.
	taken atomic.Bool
}

// park holds requests that wait for messages.
//
// Lock order: rmu within shard.mu; mu and rmu are leaves, and mu is never held with a
// shard's.
type park struct {
	p      *Pull
	shards [shards]shard
	count  atomic.Int64

	mu   sync.Mutex
	heap deadlines
	// of is the first of each connection's waiters in the heap: when thousands of
	// clients leave at once, each must cost what it parked, not what all did.
	of   map[*kernel.Conn]*waiter
	kick chan struct{} // the earliest deadline changed

	rmu     sync.Mutex
	ready   []*waiter
	readyC  chan struct{}
	quit    chan struct{}
	drop    func() // of the gauge
	stopped atomic.Bool
	leaving atomic.Bool // nobody parks any more
	wg      sync.WaitGroup
}

type shard struct {
	mu     sync.Mutex
	queues map[message.Queue][]*waiter
}

func newPark(p *Pull) *park {
	k := &park{p: p, of: map[*kernel.Conn]*waiter{}, kick: make(chan struct{}, 1), readyC: make(chan struct{}, 1), quit: make(chan struct{})}
	for i := range k.shards {
		k.shards[i].queues = map[message.Queue][]*waiter{}
	}
	k.drop = p.k.Meter.Gauge("pull_parked", "Pulls that wait for a message.", func() float64 { return float64(k.count.Load()) })
	p.k.Hooks.OnDisconnect(k.disconnected)
	return k
}

func (k *park) shard(q message.Queue) *shard {
	h := uint32(q.ID) * 0x9E3779B1
	for i := range len(q.Topic) {
		h = (h ^ uint32(q.Topic[i])) * 16777619
	}
	return &k.shards[h%shards]
}

func (k *park) start(context.Context) error {
	k.wg.Add(1)
	go k.deadlineLoop()
	for range max(2, runtime.GOMAXPROCS(0)) {
		k.wg.Add(1)
		go k.work()
	}
	return nil
}

func (k *park) stop(context.Context) error {
	if k.stopped.CompareAndSwap(false, true) {
		close(k.quit)
		k.drop()
	}
	k.wg.Wait()
	return nil
}

// hold parks t, unless there is something to read by now: then it has been read.
// true: t is the park's.
func (k *park) hold(t *task, ms int64) (bool, error) {
	if k.leaving.Load() || k.stopped.Load() || k.count.Load() >= maxParked {
		return false, nil
	}
	w := &waiter{t: t, deadline: k.p.k.Clock.Now().Add(time.Duration(min(ms, maxHold)) * time.Millisecond), index: -1}
	t.ticket.LongPolling = true
	// From the registration on t may be answered and reused by others.
	queue, offset, group := t.req.Queue, t.req.Offset, t.group
	sh := k.shard(queue)
	k.count.Add(1)
	sh.mu.Lock()
	w.at = len(sh.queues[queue])
	sh.queues[queue] = append(sh.queues[queue], w)
	sh.mu.Unlock()

	// Look again: what was published, or reset, before the waiter was registered
	// woke nobody.
	if k.fresh(group, queue, offset) && w.taken.CompareAndSwap(false, true) {
		k.forget(w)
		t.ticket.LongPolling = false
		return false, k.p.read(t)
	}
	k.mu.Lock()
	if !w.taken.Load() {
		k.schedule(w)
		if w.index == 0 {
			select {
			case k.kick <- struct{}{}:
			default:
			}
		}
	}
	k.mu.Unlock()
	return true, nil
}

// fresh reports whether the queue has something at or behind offset, or moved
// away from it, or the group has to read elsewhere.
func (k *park) fresh(group string, q message.Queue, offset int64) bool {
	if _, reset := k.p.k.Offsets.Meets(group, q, offset); reset {
		return true
	}
	var a storage.OffsetAnswers
	if err := k.p.k.Store.Offsets(k.p.k.Serving(), []storage.OffsetQuery{{Queue: q}}, &a); err != nil || len(a.Answers) != 1 {
		return false
	}
	return a.Answers[0].Known && a.Answers[0].Max > offset
}

// forget takes a waiter that was answered out of its queue.
func (k *park) forget(w *waiter) {
	k.count.Add(-1)
	queue := w.t.req.Queue
	sh := k.shard(queue)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	list := sh.queues[queue]
	if w.at >= len(list) || list[w.at] != w {
		return // published swept it out meanwhile
	}
	last := len(list) - 1
	list[w.at] = list[last]
	list[w.at].at = w.at
	list[last] = nil
	sh.set(queue, list[:last])
}

func (s *shard) set(q message.Queue, list []*waiter) {
	if len(list) == 0 {
		delete(s.queues, q)
		return
	}
	s.queues[q] = list
}

// published is the hook: it only moves waiters to the ready list.
func (k *park) published(_ message.Position, units []message.Unit) {
	if k.count.Load() == 0 {
		return
	}
	woken := false
	for i := range units {
		u := &units[i]
		sh := k.shard(u.Queue)
		sh.mu.Lock()
		list := sh.queues[u.Queue]
		if len(list) == 0 {
			sh.mu.Unlock()
			continue
		}
		keep := list[:0]
		for _, w := range list {
			if u.Offset < w.t.req.Offset || !w.t.tags.MatchCode(u.TagsCode) {
				w.at = len(keep)
				keep = append(keep, w)
				continue
			}
			woken = k.wake(w) || woken
		}
		clear(list[len(keep):])
		sh.set(u.Queue, keep)
		sh.mu.Unlock()
	}
	if woken {
		k.signal()
	}
}

// reset wakes those of a group that wait for a queue: they read elsewhere now.
func (k *park) reset(group string, q message.Queue) {
	if k.count.Load() == 0 {
		return
	}
	sh := k.shard(q)
	sh.mu.Lock()
	list := sh.queues[q]
	keep, woken := list[:0], false
	for _, w := range list {
		if w.t.group != group {
			w.at = len(keep)
			keep = append(keep, w)
			continue
		}
		woken = k.wake(w) || woken
	}
	clear(list[len(keep):])
	sh.set(q, keep)
	sh.mu.Unlock()
	if woken {
		k.signal()
	}
}

// wake has a waiter answered, unless somebody else does; the caller takes it out of
// its queue, whose lock it holds.
func (k *park) wake(w *waiter) bool {
	if !w.taken.CompareAndSwap(false, true) {
		return false
	}
	k.count.Add(-1)
	k.rmu.Lock()
	k.ready = append(k.ready, w)
	k.rmu.Unlock()
	return true
}

func (k *park) signal() {
	select {
	case k.readyC <- struct{}{}:
	default:
	}
}

// work answers what was woken.
func (k *park) work() {
	defer k.wg.Done()
	for {
		select {
		case <-k.readyC:
		case <-k.quit:
			return
		}
		for {
			k.rmu.Lock()
			n := len(k.ready)
			if n == 0 {
				k.rmu.Unlock()
				break
			}
			w := k.ready[n-1]
			k.ready[n-1] = nil
			k.ready = k.ready[:n-1]
			k.rmu.Unlock()
			if n > 1 {
				k.signal() // another worker helps
			}
			k.unschedule(w)
			k.finish(w)
		}
	}
}

// finish reads once more, never parks again, and answers.
func (k *park) finish(w *waiter) {
	t := w.t
	if no := k.p.again(t); no != nil {
		ticket := t.ticket
		k.p.put(t)
		ticket.Reply(no.code, no.fill)
		return
	}
	if err := k.p.read(t); err != nil {
		ticket := t.ticket
		k.p.put(t)
		ticket.Reply(kernel.CodeOf(err), nil)
		if k.p.k.Serving().Err() == nil {
			k.p.k.Log.Error("a parked pull could not be read", "error", err)
		}
		return
	}
	k.p.answer(t)
	k.p.put(t)
}

func (k *park) unschedule(w *waiter) {
	k.mu.Lock()
	k.leave(w)
	k.mu.Unlock()
}

// schedule puts w into the heap and among those of its connection; leave takes
// it out if it is there. The caller holds k.mu.
func (k *park) schedule(w *waiter) {
	heap.Push(&k.heap, w)
	c := w.t.ticket.Conn
	if w.next = k.of[c]; w.next != nil {
		w.next.prev = w
	}
	k.of[c] = w
}

func (k *park) leave(w *waiter) {
	if w.index < 0 {
		return
	}
	heap.Remove(&k.heap, w.index)
	switch c := w.t.ticket.Conn; {
	case w.prev != nil:
		w.prev.next = w.next
	case w.next != nil:
		k.of[c] = w.next
	default:
		delete(k.of, c)
	}
	if w.next != nil {
		w.next.prev = w.prev
	}
	w.next, w.prev = nil, nil
}

// deadlineLoop answers those whose time is over.
func (k *park) deadlineLoop() {
	defer k.wg.Done()
	timer := k.p.k.Clock.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-k.quit:
			return
		case <-k.kick:
		case <-timer.C():
		}
		now := k.p.k.Clock.Now()
		next := time.Hour
		for {
			k.mu.Lock()
			if len(k.heap) == 0 {
				k.mu.Unlock()
				break
			}
			w := k.heap[0]
			if d := w.deadline.Sub(now); d > 0 {
				next = d
				k.mu.Unlock()
				break
			}
			k.leave(w)
			k.mu.Unlock()
			if w.taken.CompareAndSwap(false, true) {
				k.forget(w)
				k.finish(w)
			}
		}
		timer.Reset(next)
	}
}

// leaveAll answers all that is parked as if its time were over, and without reading: what
// the last read left in them is an answer, too, and the store may hang.
func (k *park) leaveAll() {
	k.leaving.Store(true)
	for {
		k.mu.Lock()
		if len(k.heap) == 0 {
			k.mu.Unlock()
			return
		}
		w := k.heap[0]
		k.leave(w)
		k.mu.Unlock()
		if w.taken.CompareAndSwap(false, true) {
			k.forget(w)
			k.p.answer(w.t)
			k.p.put(w.t)
		}
	}
}

// disconnected drops what a connection left parked.
func (k *park) disconnected(c *kernel.Conn) {
	var gone []*waiter
	k.mu.Lock()
	for w := k.of[c]; w != nil; w = w.next {
		if w.taken.CompareAndSwap(false, true) {
			gone = append(gone, w)
		}
	}
	for _, w := range gone {
		k.leave(w)
	}
	k.mu.Unlock()
	for _, w := range gone {
		k.forget(w)
		k.p.put(w.t)
	}
}

// deadlines is a heap by deadline.
type deadlines []*waiter

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return d[i].deadline.Before(d[j].deadline) }
func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

// Push implements heap.Interface.
func (d *deadlines) Push(x any) {
	w := x.(*waiter)
	w.index = len(*d)
	*d = append(*d, w)
}

// Pop implements heap.Interface.
func (d *deadlines) Pop() any {
	old := *d
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*d = old[:len(old)-1]
	w.index = -1
	return w
}
