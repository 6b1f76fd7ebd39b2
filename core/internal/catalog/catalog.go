package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

// queue is where catalog records go.
var queue = message.Queue{Topic: message.CatalogTopic}

// Catalog is the behaviour. It implements kernel.Topics, and through views
// kernel.Groups, kernel.Offsets and kernel.ImageSource.
//
// Lock order: office, then keys (a topic's before others), then images.order, then
// leaving.order, then apply, then state, flight, leaving and files, which are leaves.
type Catalog struct {
	k   *kernel.Kernel
	fs  vfs.FS
	dir string // config/
	s   *state

	// office serialises changes of role and reloading.
	office  sync.Mutex
	leading bool
	keep    bool   // progress that is not in the log, with the next load
	term    uint64 // of the office while leading
	built   stage
	// next is the offset in the catalog queue of the first record not yet
	// applied; a leader does not apply its own records and keeps none.
	next int64
	// img is an image of which not all parts were applied yet.
	img assembly
	// cut: the log was truncated below what was published.
	cut atomic.Bool

	// keys serialises changes of one name.
	keys    keyLocks
	leaving leaving

	// apply is held while a change moves from flight to the tables; epoch counts
	// how often these were built, from what the catalog queue held below readTo.
	apply  sync.Mutex
	epoch  int
	readTo int64
	flight inflight

	images imager
	files  files
	// unsaved is how many bytes of catalog records were published since the last
	// snapshot.
	unsaved atomic.Int64

	wake chan struct{} // a follower has something to apply
	quit chan struct{}
	once sync.Once
	wg   sync.WaitGroup
}

// stage is how far the tables are.
type stage uint8

const (
	notBuilt stage = iota
	// builtEarly: for the numbers of an office, which has yet to begin. Until then
	// nobody writes files: they may be somebody else's.
	builtEarly
	// builtFully: an office of whatever kind has begun with them.
	builtFully
)

type keyLocks struct {
	mu sync.Mutex
	m  map[string]*keyLock
}

type keyLock struct {
	mu   sync.Mutex
	refs int
}

// New makes the behaviour and registers it.
func New(k *kernel.Kernel, fs vfs.FS) *Catalog {
	c := &Catalog{
		k: k, fs: fs, dir: filepath.Join(k.Config().Dir, "config"), s: newState(),
		keys: keyLocks{m: map[string]*keyLock{}}, leaving: leaving{m: map[string]int{}}, wake: make(chan struct{}, 1), quit: make(chan struct{}),
	}
	c.files = files{c: c, dirty: map[string]bool{}, known: map[string][]uint32{}, texts: map[string]map[any][]byte{}, moved: make(chan struct{}), kick: make(chan struct{}, 1)}
	c.images.c = c
	k.Topics, k.Groups, k.Offsets, k.Locks, k.Values, k.Images = c, groups{c}, offsets{c}, c, c, &c.images
	k.Ends = c.raise
	k.Hooks.OnRole(c.onRole)
	k.Hooks.OnPublished(c.published)
	k.Hooks.OnTruncated(c.truncated)
	k.Hooks.OnBeforeExpire(kernel.Holder{Name: "catalog", Always: true, Ask: c.images.beforeExpire})
	k.Hooks.OnStart(c.start)
	k.Hooks.OnStop(c.stop)
	k.Handle(command.ReqLockBatchMQ, c.lockBatch)
	k.Handle(command.ReqUnlockBatchMQ, c.unlockBatch)
	return c
}

// onRole is called at each change of office. A leader has applied everything
// published before it returns, and has written what must be in the log before
// clients do.
func (c *Catalog) onRole(ctx context.Context, r replication.Role) error {
	c.office.Lock()
	defer c.office.Unlock()
	if r.Kind == replication.RoleLeader && c.leading && r.Term == c.term && r.ReadOnly != "" {
		return nil // the same office, without writes from now on
	}
	// A leader does not follow the log, and its tables hold changes that may
	// not be in it: they are built anew after every office.
	stale := c.leading || c.cut.Load()
	// From one office of this node to the next nobody else led: what consumers
	// reported between is newer than the log.
	c.keep = c.keep || c.leading
	c.leading = false
	if r.Kind != replication.RoleLeader {
		c.keep = false
	}
	if c.built == notBuilt || stale {
		if err := c.load(ctx); err != nil {
			return err
		}
	}
	c.built = builtFully
	if r.Kind != replication.RoleLeader {
		return nil
	}
	if err := c.catchUp(ctx, c.s); err != nil {
		return err
	}
	c.apply.Lock()
	c.readTo = c.next
	c.apply.Unlock()
	c.s.fences.load(c)
	if r.ReadOnly != "" {
		return nil
	}
	c.leading, c.term = true, r.Term
	if err := c.begin(ctx); err != nil {
		c.leading, c.built = false, notBuilt // the tables hold what is not in the log
		return err
	}
	return nil
}

// begin writes what a new leader must: foreign files and missing topics as one
// full image.
func (c *Catalog) begin(ctx context.Context) error {
	changed, err := c.files.adopt()
	if err != nil {
		return err
	}
	if c.seed() {
		changed = true
	}
	if !changed {
		return nil
	}
	if err := c.images.write(ctx); err != nil {
		return fmt.Errorf("writing the catalog to the log: %w", err)
	}
	c.files.adopted()
	return nil
}

// seed adds the topics and groups that exist on every broker
// (TopicConfigManager.init, SubscriptionGroupManager.init); true when one was
// missing.
func (c *Catalog) seed() bool {
	cfg := c.k.Config()
	rw := command.PermRead | command.PermWrite
	usable := func(on bool) int32 {
		if on {
			return rw | command.PermInherit
		}
		return command.PermInherit
	}
	wanted := []command.TopicConfig{
		{TopicName: message.SelfTestTopic, ReadQueueNums: 1, WriteQueueNums: 1, Perm: rw},
		{TopicName: message.BenchmarkTopic, ReadQueueNums: 1024, WriteQueueNums: 1024, Perm: rw},
		{TopicName: cfg.ClusterName, ReadQueueNums: 16, WriteQueueNums: 16, Perm: usable(cfg.ClusterTopic)},
		{TopicName: cfg.BrokerName, ReadQueueNums: 1, WriteQueueNums: 1, Perm: usable(cfg.BrokerTopic)},
		{TopicName: message.OffsetMovedTopic, ReadQueueNums: 1, WriteQueueNums: 1, Perm: rw},
		{TopicName: message.ScheduleTopic, ReadQueueNums: 18, WriteQueueNums: 18, Perm: rw},
		{TopicName: cfg.ClusterName + message.ReplyTopicSuffix, ReadQueueNums: 1, WriteQueueNums: 1, Perm: rw},
		{TopicName: message.HalfTopic, ReadQueueNums: 1, WriteQueueNums: 1, Perm: rw},
		{TopicName: message.OpHalfTopic, ReadQueueNums: 1, WriteQueueNums: 1, Perm: rw},
	}
	if cfg.AutoCreateTopic {
		n := max(cfg.DefaultTopicQueueNums, 1)
		wanted = append(wanted, command.TopicConfig{TopicName: message.AutoCreateTopic, ReadQueueNums: n, WriteQueueNums: n, Perm: rw | command.PermInherit})
	}
	if cfg.TraceTopic != "" {
		wanted = append(wanted, command.TopicConfig{TopicName: cfg.TraceTopic, ReadQueueNums: 1, WriteQueueNums: 1, Perm: rw})
	}
	changed := false
	for _, t := range wanted {
		if c.Named(t.TopicName) == nil {
			t.TopicFilterType = "SINGLE_TAG"
			c.s.putTopic(t)
			changed = true
		}
	}
	if t := c.Named(message.AutoCreateTopic); t != nil && !cfg.AutoCreateTopic && t.Config.Perm&command.PermInherit != 0 {
		left := t.Config
		left.Perm &^= command.PermInherit // a left-over template makes no topics
		c.s.putTopic(left)
		changed = true
	}
	for _, name := range message.SystemGroups() {
		if (groups{c}).Named(name) == nil {
			g := command.DefaultSubscriptionGroup(name)
			c.s.putGroup(g)
			changed = true
		}
	}
	if changed {
		c.touch(true, true)
	}
	return changed
}

// touch moves the data versions and has the files written at once.
func (c *Catalog) touch(topics, groups bool, hidden ...*topic) {
	now := c.k.Clock.Now().UnixMilli()
	c.s.mu.Lock()
	if topics {
		nextVersion(&c.s.tVersion, now)
	}
	if groups {
		nextVersion(&c.s.gVersion, now)
	}
	c.s.mu.Unlock()
	c.files.changedHere(topics, groups, hidden)
}

func (c *Catalog) isLeading() bool {
	c.office.Lock()
	defer c.office.Unlock()
	return c.leading
}

// record makes a catalog record of entries.
func (c *Catalog) record(body []byte) *message.Record {
	return &message.Record{
		Topic: queue.Topic, QueueID: queue.ID, BornTime: c.k.Clock.Now().UnixMilli(),
		BornHost: c.k.StoreHost, StoreHost: c.k.StoreHost, Body: body,
	}
}

// change orders entries in one record, waits until they are published, and applies
// them; topics and groups tell which tables they are of.
func (c *Catalog) change(ctx context.Context, w *writer, topics, groups bool) error {
	return c.changeThen(ctx, w.buf, [][]byte{w.buf}, topics, groups, func() {})
}

// remove is change for entries that remove the topic or the group of a key: progress
// that is made a record meanwhile leaves out what is of it.
func (c *Catalog) remove(ctx context.Context, key string, w *writer, topics, groups bool) error {
	c.leaving.add(key)
	return c.changeThen(ctx, w.buf, [][]byte{w.buf}, topics, groups, func() { c.leaving.done(key) })
}

// changeThen is change of entries that are put into a record for each of the parts, all
// of which are stored, or none. settled is called when the outcome is known, which may be
// after it has returned. It must not block.
func (c *Catalog) changeThen(ctx context.Context, all []byte, parts [][]byte, topics, groups bool, settled func()) error {
	if err := c.k.Writable(); err != nil {
		settled()
		return err
	}
	c.apply.Lock()
	epoch := c.epoch
	c.apply.Unlock()
	recs := make([]*message.Record, len(parts))
	for i, part := range parts {
		recs[i] = c.record(deltaBody(part))
	}
	c.images.order.RLock()
	f := c.flight.add(all)
	done := make(chan error, 1)
	// The change stays in flight until its outcome is known, whether or not the
	// caller still waits: it may be in the log.
	c.k.Journal.Submit(recs, func(p kernel.Placed, err error) {
		c.apply.Lock()
		defer c.apply.Unlock()
		if err == nil {
			var hidden []*topic
			// When the log was read since, it was read with this record, or it was
			// ordered in the office that began with reading: leaders read no more.
			if epoch == c.epoch || p.Units[0].Offset >= c.readTo {
				hidden, err = c.applyOwn(all)
			}
			c.touch(topics, groups, hidden...)
		}
		c.flight.remove(f)
		settled()
		done <- err
	})
	c.images.order.RUnlock()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("waiting for the log: %w", ctx.Err())
	}
}

// applyOwn applies a change of this leader. It returns the new topics, which
// look-ups do not find yet.
func (c *Catalog) applyOwn(b []byte) (hidden []*topic, err error) {
	var put []command.TopicConfig // at once: each table is a copy of the one before
	err = entries(b, func(kind byte, p []byte) error {
		if kind != entryTopic {
			return c.s.applyEntry(kind, p)
		}
		t, err := decodeTopic(p)
		put = append(put, t)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, n := range c.s.putTopics(put, true) {
		if n.hidden.Load() {
			hidden = append(hidden, n)
		}
	}
	return hidden, nil
}

// dump writes tables and changes in flight as one view: a change is in one of
// them, and what is in flight is newer.
func (c *Catalog) dump(w *writer) error {
	c.apply.Lock()
	defer c.apply.Unlock()
	if err := c.s.dump(w); err != nil {
		return err
	}
	c.flight.dump(w)
	return nil
}

// lockKey serialises changes of one name; the returned function unlocks.
func (c *Catalog) lockKey(key string) func() {
	c.keys.mu.Lock()
	l := c.keys.m[key]
	if l == nil {
		l = &keyLock{}
		c.keys.m[key] = l
	}
	l.refs++
	c.keys.mu.Unlock()
	l.mu.Lock()
	return func() { c.unlockKey(key, l) }
}

// tryLockKey is lockKey for a key that nobody has or waits for; else false.
func (c *Catalog) tryLockKey(key string) (unlock func(), ok bool) {
	c.keys.mu.Lock()
	defer c.keys.mu.Unlock()
	if c.keys.m[key] != nil {
		return nil, false
	}
	l := &keyLock{refs: 1}
	l.mu.Lock()
	c.keys.m[key] = l
	return func() { c.unlockKey(key, l) }, true
}

func (c *Catalog) unlockKey(key string, l *keyLock) {
	l.mu.Unlock()
	c.keys.mu.Lock()
	if l.refs--; l.refs == 0 {
		delete(c.keys.m, key)
	}
	c.keys.mu.Unlock()
}

// inflight is changes that were handed to the journal and are not applied.
type inflight struct {
	mu sync.Mutex
	m  map[int][]byte
	n  int
}

func (f *inflight) add(entries []byte) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.m == nil {
		f.m = map[int][]byte{}
	}
	f.n++
	f.m[f.n] = entries
	return f.n
}

func (f *inflight) remove(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.m, n)
}

// dump appends them in the order they were added.
func (f *inflight) dump(w *writer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range slices.Sorted(maps.Keys(f.m)) {
		w.buf = append(w.buf, f.m[n]...)
	}
}

// leaving is the topics and groups of which the removal is under way.
type leaving struct {
	// order is held until a removal is noted here, and until what was taken from the
	// tables has its place in the log: it never comes behind a removal of which it does
	// not know.
	order sync.Mutex
	mu    sync.Mutex
	m     map[string]int // removals, by key
}

func (l *leaving) add(key string) {
	l.order.Lock()
	defer l.order.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.m[key]++
}

func (l *leaving) done(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m[key]--; l.m[key] == 0 {
		delete(l.m, key)
	}
}

// now tells of what belongs to a group in a topic whether one of them is leaving as of
// this call.
func (l *leaving) now() func(p progress) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := maps.Clone(l.m)
	return func(p progress) bool { return len(m) > 0 && m[topicKey(p.topic)]+m[groupKey(p.group)] > 0 }
}

// topicKey and groupKey are the keys of lockKey for the names of topics and groups.
func topicKey(name string) string { return "t/" + name }
func groupKey(name string) string { return "g/" + name }

func (c *Catalog) start(context.Context) error {
	c.wg.Add(2)
	go c.applyLoop()
	go c.flushLoop()
	return nil
}

// stop writes progress and files a last time.
func (c *Catalog) stop(ctx context.Context) error {
	c.once.Do(func() { close(c.quit) })
	c.wg.Wait()
	defer c.files.close()
	if !c.isLoaded() {
		return nil
	}
	c.flushOffsets(ctx, true)
	err := c.files.write(true)
	if errors.Is(err, vfs.ErrNoSpace) { // no reason to say that the end was not in order
		c.behind(err)
		return nil
	}
	return err
}

// behind says that the files are older than the tables.
func (c *Catalog) behind(err error) {
	c.k.Log.Warn("writing the catalog's files; the previous ones stay, the log has everything", "dir", c.dir, "error", err)
}

func (c *Catalog) isLoaded() bool {
	c.office.Lock()
	defer c.office.Unlock()
	return c.built == builtFully
}

// flushLoop makes records of changed progress and writes files.
func (c *Catalog) flushLoop() {
	defer c.wg.Done()
	every := c.k.Config().OffsetInterval
	if every <= 0 || every > time.Second {
		every = time.Second
	}
	t := c.k.Clock.NewTimer(every)
	defer t.Stop()
	for {
		select {
		case <-c.files.kick:
		case <-t.C():
			c.flushOffsets(context.Background(), false)
			t.Reset(every)
		case <-c.quit:
			return
		}
		if err := c.files.write(false); err != nil {
			c.behind(err)
		}
	}
}

// flushOffsets makes one record of all progress and locks that changed.
func (c *Catalog) flushOffsets(ctx context.Context, wait bool) {
	// Not Writable: at the end clients are refused, and this is still written.
	if !c.isLeading() || c.k.Role().ReadOnly != "" {
		return
	}
	c.images.order.RLock()
	defer c.images.order.RUnlock()
	c.leaving.order.Lock()
	defer c.leaving.order.Unlock()
	w, leaves := &writer{}, c.leaving.now()
	n, again := c.s.offsets.takeDirty(w, leaves)
	locks, lockAgain := c.s.locks.takeDirty(w, leaves, c.k.Clock.Now().UnixMilli())
	obeyed, placed, fenceAgain := c.s.fences.takeDirty(w, leaves, &c.s.values, c.tryLockKey)
	defer placed()
	if n+locks+obeyed == 0 {
		return
	}
	c.s.mu.Lock()
	nextVersion(&c.s.oVersion, c.k.Clock.Now().UnixMilli())
	c.s.mu.Unlock()
	for _, part := range split(w.buf, c.images.partSize()) {
		done := make(chan struct{})
		c.k.Journal.Submit([]*message.Record{c.record(deltaBody(part))}, func(_ kernel.Placed, err error) {
			if err != nil {
				again()
				lockAgain()
				fenceAgain()
				c.k.Log.Warn("progress of consumers did not reach the log and will be tried again", "error", err)
			}
			close(done)
		})
		if wait {
			select {
			case <-done:
			case <-ctx.Done():
				return
			}
		}
	}
}

// split cuts entries into runs of at most size bytes; a longer entry stands
// alone.
func split(b []byte, size int) [][]byte {
	var out [][]byte
	start, at := 0, 0
	for at < len(b) {
		r := reader{b: b[at+1:]}
		r.bytes()
		end := len(b) - len(r.b)
		if end-start > size && at > start {
			out = append(out, b[start:at])
			start = at
		}
		at = end
	}
	if at > start {
		out = append(out, b[start:at])
	}
	return out
}

// notFound says that a topic is not there.
func notFound(kind, name string) error {
	return &api.Error{ID: api.TopicNotExist, Text: fmt.Sprintf("%s[%s] not exist, apply first please!", kind, name)}
}
