package catalog

import (
	"sync"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
)

// lockLife is how long a queue lock holds after the last successful call, ms
// (rocketmq.broker.rebalance.lockMaxLiveTime).
const lockLife = 60_000

// lockEntry is the owner of a queue for an orderly group.
type lockEntry struct {
	group, topic string
	queue        int32
	owner        string
	expiry       int64 // ms
	// unlogged: its record is not published yet.
	unlogged bool
}

type lockKey struct {
	group string
	queue message.Queue
}

type lockTable struct {
	mu    sync.Mutex
	m     map[lockKey]*lockEntry
	dirty map[lockKey]struct{}
	built int // how often it was built from the log
}

// replace takes over the table of a private state.
func (t *lockTable) replace(from *lockTable) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.m, t.dirty = from.m, map[lockKey]struct{}{}
	t.built++
}

func (l *lockEntry) key() lockKey {
	return lockKey{l.group, message.Queue{Topic: l.topic, ID: l.queue}}
}

// set applies a record; without an expiry it frees the queue, if it is still its
// owner's: that of the next one may stand before it in the log, since the table
// gives a queue away as soon as it is free. (Older records free without an owner.)
func (t *lockTable) set(l *lockEntry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch old := t.m[l.key()]; {
	case l.owner != "" && l.expiry != 0:
		t.m[l.key()] = l
	case old != nil && (l.owner == "" || l.owner == old.owner):
		delete(t.m, l.key())
	}
}

// bound ends a lock within lockLife of now: one that would hold longer was given or
// renewed before the clock was set back, and its owner may be gone. The log keeps the
// old end, also over restarts, and every reader of it bounds it again.
func (l *lockEntry) bound(now int64) {
	l.expiry = min(l.expiry, now+lockLife)
}

func (t *lockTable) removeTopic(topic string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k := range t.m {
		if k.queue.Topic == topic {
			delete(t.m, k)
		}
	}
}

func (t *lockTable) removeGroup(group string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k := range t.m {
		if k.group == group {
			delete(t.m, k)
		}
	}
}

// lock gives the queues that the client holds now. fresh is written to, and
// given the entries, for each queue whose lock must be in the log first; built is
// for settle.
func (t *lockTable) lock(group, owner string, queues []command.MessageQueue, now int64, fresh *writer) (ok []command.MessageQueue, given []*lockEntry, built int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range queues {
		l := &lockEntry{group: group, topic: q.Topic, queue: q.QueueID, owner: owner, expiry: now + lockLife, unlogged: true}
		old := t.m[l.key()]
		if old != nil {
			old.bound(now)
		}
		switch {
		case old == nil || old.expiry <= now || old.owner == owner && old.unlogged:
			t.m[l.key()] = l
			fresh.lock(l)
			given = append(given, l)
		case old.owner == owner:
			old.expiry = l.expiry
			t.dirty[l.key()] = struct{}{} // the longer life is no hurry
		default:
			continue
		}
		ok = append(ok, q)
	}
	return ok, given, t.built
}

// settle says whether the records of locks given reached the log. A lock that
// did not is nobody's: its client was told so. One that did, after the table was
// built from what the log had before, stands in the new table, too.
func (t *lockTable) settle(given []*lockEntry, built int, logged bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range given {
		switch old := t.m[l.key()]; {
		case logged && (old == l || old == nil && built != t.built):
			l.unlogged = false
			t.m[l.key()] = l
		case !logged && old == l:
			delete(t.m, l.key())
		}
	}
}

// unlock frees what the client holds.
func (t *lockTable) unlock(group, owner string, queues []command.MessageQueue, freed *writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range queues {
		l := &lockEntry{group: group, topic: q.Topic, queue: q.QueueID, owner: owner}
		if old := t.m[l.key()]; old != nil && old.owner == owner {
			delete(t.m, l.key())
			freed.lock(l)
		}
	}
}

// takeDirty writes the locks whose life grew since the last call, and forgets
// those that are over. It is called every second, and bounds all of them.
func (t *lockTable) takeDirty(w *writer, leaves func(progress) bool, now int64) (n int, again func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, l := range t.m {
		if l.bound(now); l.expiry <= now {
			delete(t.m, k)
		}
	}
	taken := t.dirty
	t.dirty = map[lockKey]struct{}{}
	for k := range taken {
		if leaves(progress{k.group, k.queue.Topic}) {
			t.dirty[k] = struct{}{}
			delete(taken, k)
		} else if l := t.m[k]; l != nil {
			w.lock(l)
			n++
		}
	}
	return n, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		for k := range taken {
			t.dirty[k] = struct{}{}
		}
	}
}

func (t *lockTable) dump(w *writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.m {
		w.lock(l)
	}
}

// Held implements kernel.Locks.
func (c *Catalog) Held(group string) bool {
	now := c.k.Clock.Now().UnixMilli()
	t := &c.s.locks
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, l := range t.m {
		if k.group == group && l.expiry > now {
			return true
		}
	}
	return false
}

// lockBatch serves LOCK_BATCH_MQ (41). Owners are records: a lock given is one
// that survives the broker.
func (c *Catalog) lockBatch(r *kernel.Request) {
	var q command.LockBatchBody
	if err := command.DecodeBody(r.Frame.Body, &q); err != nil {
		r.Fail(err)
		return
	}
	if err := c.k.Writable(); err != nil {
		r.Fail(err)
		return
	}
	if err := message.CheckGroup(q.ConsumerGroup); err != nil {
		r.Error(command.RespInvalidParameter, err.Error())
		return
	}
	if q.ClientID == "" { // a lock without an owner is one that is free
		r.Error(command.RespInvalidParameter, "a lock needs an owner: the body has no clientId")
		return
	}
	ctx, cancel := c.k.Waiting()
	defer cancel()
	if err := c.k.Barrier(ctx, "the owners of queues are"); err != nil {
		r.Fail(err)
		return
	}
	c.images.order.RLock()
	defer c.images.order.RUnlock()
	w := &writer{}
	ok, given, built := c.s.locks.lock(q.ConsumerGroup, q.ClientID, q.MQSet, c.k.Clock.Now().UnixMilli(), w)
	body, err := command.EncodeBody(command.LockBatchResponse{LockOKMQSet: ok})
	if err != nil {
		r.Fail(err)
		return
	}
	c.answerAfter(r, w, body, func(logged bool) { c.s.locks.settle(given, built, logged) })
}

// unlockBatch serves UNLOCK_BATCH_MQ (42).
func (c *Catalog) unlockBatch(r *kernel.Request) {
	var q command.LockBatchBody
	if err := command.DecodeBody(r.Frame.Body, &q); err != nil {
		r.Fail(err)
		return
	}
	if err := c.k.Writable(); err != nil {
		r.Fail(err)
		return
	}
	c.images.order.RLock()
	defer c.images.order.RUnlock()
	w := &writer{}
	c.s.locks.unlock(q.ConsumerGroup, q.ClientID, q.MQSet, w)
	c.answerAfter(r, w, nil, func(bool) {}) // a lock that stays in the log ends by itself
}

// answerAfter answers when the entries are published, or are not; settle is
// told which.
func (c *Catalog) answerAfter(r *kernel.Request, w *writer, body []byte, settle func(logged bool)) {
	if len(w.buf) == 0 {
		r.JSON(body)
		return
	}
	t := r.Ticket()
	c.k.Journal.Submit([]*message.Record{c.record(deltaBody(w.buf))}, func(_ kernel.Placed, err error) {
		settle(err == nil)
		if err != nil {
			t.Reply(command.RespSystemError, func(w *command.Writer) { w.Remark("the lock did not reach the log: " + err.Error()) })
			return
		}
		t.Reply(command.RespSuccess, nil, body)
	})
}
