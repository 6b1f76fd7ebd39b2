package commitlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

// Store is the commitlog store. Make it with [New] or the factory.
type Store struct {
	fs   vfs.FS
	p    storage.Params
	cfg  Config
	path paths

	gate    gate
	logID   string
	lock    vfs.File
	cp      *checkpoint
	queues  *queueIndex
	keys    *keyIndex // nil without the facet
	prep    preparer
	deriver *message.Deriver // recovery's and the writer's
	leases  sync.Pool
	events  emitter

	list    atomic.Pointer[segments]
	marks   marks
	damage  damageList
	failed  atomic.Pointer[error]
	writer  writer
	stop    context.CancelFunc
	done    sync.WaitGroup
	dropped dropped
	turns
	scanning
}

// turns are what calls that overlap take from each other, in this order.
type turns struct {
	cutTurn  chan struct{} // holds one token: for Expire, Truncate, Reset and Drop
	syncTurn chan struct{} // holds one token
	flushMu  sync.Mutex    // one flush of what is derived at a time
	growMu   sync.Mutex    // list, at both of its ends

	lookedAt int64 // base of the segment that was the last when segments were looked for, 0 after a cut; flushMu
}

// takeCut takes the turn of the calls that make the log shorter; the error is ctx's, when
// that ends before the turn is free.
func (t *turns) takeCut(ctx context.Context) error {
	select {
	case <-t.cutTurn:
		return nil
	default:
	}
	select {
	case <-t.cutTurn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *turns) giveCut() { t.cutTurn <- struct{}{} }

// scanning says how recovery scans the log.
type scanning struct {
	// progressEvery is how many bytes are scanned between two lines in the log.
	progressEvery int64
	mend          mending
}

// mending is set while a store is opened to be repaired.
type mending struct {
	// on: what is derived from the log is not believed, and made again from all of
	// it.
	on bool
	// short: the log may end before what is derived from it says.
	short bool
}

// marks are the positions and times that State shows.
type marks struct {
	first, published, durable, tail atomic.Int64
	lastTime                        atomic.Int64 // store time of the last record
	pubTime                         atomic.Int64 // of the last published one
	lastAt                          atomic.Int64 // a record, no further than the last batch; -1 for none
	syncedAt                        atomic.Int64 // a record that is durable with all before it; -1 for none
	pubAt                           atomic.Int64 // the last published record with a unit; -1 for none
	pubSeq                          atomic.Uint64
	cuts                            atomic.Uint64 // odd while one is under way
}

// paths are the files and directories of the store.
type paths struct {
	root, log, queues, index                            string
	checkpoint, abort, lock, identity, cut, droppedFile string
	damaged                                             string
}

func newPaths(root, log string) paths {
	p := paths{
		root: root, log: log,
		queues: filepath.Join(root, "consumequeue"), index: filepath.Join(root, "index"),
		checkpoint: filepath.Join(root, "checkpoint"), abort: filepath.Join(root, "abort"), lock: filepath.Join(root, "lock"),
		identity: filepath.Join(root, identityFile), cut: filepath.Join(root, cutFile), droppedFile: filepath.Join(root, droppedFile),
		damaged: filepath.Join(root, damagedFile),
	}
	if log == "" {
		p.log = filepath.Join(root, "commitlog")
	}
	return p
}

var (
	_ storage.Store     = (*Store)(nil)
	_ storage.RawLog    = (*Store)(nil)
	_ storage.Retention = (*Store)(nil)
	_ storage.KeyIndex  = (*Store)(nil)
)

func newStore(fsys vfs.FS, p storage.Params, cfg Config) *Store {
	s := &Store{
		fs: fsys, p: p, cfg: cfg, path: newPaths(p.Dir, cfg.StorePathCommitLog),
		deriver:  message.NewDeriver(p.Index),
		turns:    turns{cutTurn: make(chan struct{}, 1), syncTurn: make(chan struct{}, 1)},
		scanning: scanning{progressEvery: progressEvery},
	}
	s.cutTurn <- struct{}{}
	s.leases.New = func() any { return &lease{pool: &s.leases} }
	s.events.failed = p.Events.Failed
	s.prep.create = func(base int64) (*segment, error) {
		return createSegment(s.fs, s.path.log, base, p.Segment, cfg.CommitLogWrite == WriteMap, cfg.WarmMapedFileEnable)
	}
	s.queues = newQueueIndex(fsys, p.Logger, s.path.queues, cfg.queueFileSize(), cfg.MaxMappedFiles)
	if cfg.MessageIndexEnable {
		s.keys = newKeyIndex(s)
	}
	s.list.Store(&segments{})
	return s
}

// Capabilities implements [storage.Store].
func (s *Store) Capabilities() storage.Capabilities {
	c := storage.Capabilities{RawLog: s, Retention: s, Survives: storage.SurvivesProcessDeath, ExpiresBeside: true}
	if s.keys != nil {
		c.KeyIndex = s
	}
	return c
}

// Start implements [plugin.Component]: it takes the lock, recovers, and starts
// the goroutines that flush and prepare.
func (s *Store) Start(ctx context.Context) (err error) {
	if !s.gate.begin() {
		return fmt.Errorf("%w: Start was called before", storage.ErrNotRunning)
	}
	defer func() {
		if err != nil {
			s.gate.end()
			_ = s.release() // the first error counts
			err = fmt.Errorf("open store in %s: %w", s.path.root, err)
		}
	}()
	for _, dir := range []string{s.path.root, s.path.log, s.path.queues, s.path.index} {
		if err := vfs.EnsureDir(s.fs, dir); err != nil {
			return err
		}
	}
	if s.lock == nil { // else whoever repairs has it
		s.lock, err = storage.WaitLock(ctx, s.p.Settings, s.path.lock, func() (vfs.File, error) { return s.fs.Lock(s.path.lock) })
		if err != nil {
			return err
		}
	}
	if _, err = s.lock.WriteAt([]byte("lock"), 0); err != nil {
		return err
	}
	if err = s.recover(ctx); err != nil {
		if errors.Is(err, vfs.ErrNoSpace) {
			err = fmt.Errorf("the disk is full, and what is missing in the indexes after the last end has to be written first; make some space: %w", err)
		}
		return err
	}
	s.syncTurn <- struct{}{}
	run, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.writer.touched = make(chan *segment, 1)
	s.done.Go(func() { s.flushLoop(run) })
	if s.cfg.CommitLogWrite == WriteMap {
		s.done.Go(func() { s.populator(run) })
	}
	if s.keys != nil {
		s.done.Go(func() { s.keys.run(run) })
	}
	s.gate.open()
	return nil
}

// Shutdown implements [plugin.Component]: it waits for calls under way,
// flushes everything and leaves a clean directory. What chunks still hold stays
// mapped until they are released. A store that has failed is not flushed: the
// error says so once more.
func (s *Store) Shutdown(ctx context.Context) error {
	first, err := s.gate.close(ctx)
	if err != nil || !first {
		return err
	}
	s.stop()
	s.done.Wait()
	s.prep.drop()
	for _, b := range s.writer.take() {
		b.Done()
	}
	err = s.failure()
	clean := err == nil
	if clean {
		err = s.flushAll()
		clean = err == nil
	}
	if clean {
		if err = s.fs.Remove(s.path.abort); s.writer.mark.Load() == nil && errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		err = errors.Join(err, s.fs.SyncDir(s.path.root))
	}
	return errors.Join(err, s.release())
}

// release gives back what Start took, as far as it came.
func (s *Store) release() error {
	var errs []error
	list := *s.list.Swap(&segments{})
	for _, seg := range list {
		seg.retiring.Store(true)
		seg.release()
	}
	s.prep.drop()
	for _, q := range s.queues.all() {
		q.mu.Lock()
		for _, f := range q.files {
			f.closeHandles()
		}
		q.mu.Unlock()
	}
	if s.keys != nil {
		errs = append(errs, s.keys.close())
	}
	if s.cp != nil {
		errs = append(errs, s.cp.close())
		s.cp = nil
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
		s.lock = nil
	}
	return errors.Join(errs...)
}

// State implements [storage.Store].
func (s *Store) State() storage.State {
	// Read in the order in which they grow towards each other.
	durable := s.marks.durable.Load()
	published := s.marks.published.Load()
	st := storage.State{
		LogID: s.logID, Segment: s.p.Segment,
		First:         message.Position(s.marks.first.Load()),
		LastStoreTime: s.marks.lastTime.Load(),
		Published:     message.Position(published),
		Durable:       message.Position(durable),
		Tail:          message.Position(s.marks.tail.Load()),
	}
	st.Published, st.Durable = min(st.Published, st.Tail), min(st.Durable, st.Tail)
	st.Damaged = s.damage.report()
	return st
}

// fail makes the store refuse writes for ever.
func (s *Store) fail(cause error) error {
	err := fmt.Errorf("%w: %w", storage.ErrFailed, cause)
	if s.failed.CompareAndSwap(nil, &err) {
		s.p.Logger.Error("the store has failed and takes no more writes; what is published stays readable", "dir", s.path.root, "error", cause)
		s.events.fail(err)
	}
	return *s.failed.Load()
}

func (s *Store) failure() error {
	if e := s.failed.Load(); e != nil {
		return *e
	}
	return nil
}

// flushRest is how long, in times of its duration, nothing is flushed after a
// flush.
const flushRest = 4

// flushLoop flushes what is derived from the log.
func (s *Store) flushLoop(ctx context.Context) {
	every := time.Duration(s.cfg.FlushIntervalConsumeQueue) * time.Millisecond
	t := s.p.Clock.NewTimer(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C():
		}
		if s.failure() != nil {
			return
		}
		began := s.p.Clock.Now()
		if err := s.flushDerived(false); err != nil {
			_ = s.fail(err)
			return
		}
		// Very many queues that are all in use take long to flush: most of the time
		// the disk is for others.
		t.Reset(max(every, flushRest*s.p.Clock.Now().Sub(began)))
	}
}

// damageList holds what is damaged. Few stores have any.
type damageList struct {
	mu   sync.Mutex
	skip atomic.Pointer[[]storage.Damage] // ranges that reads pass over, in order
	told []storage.Damage                 // everything, for State
	// saved is what hardpoint.damaged holds, nil when it is not there; unsaved is set when it lacks something. Both
	// are recovery's and the writer's.
	saved   []byte
	unsaved atomic.Bool
}

// skipped lists the ranges that reads pass over.
func (d *damageList) skipped() []storage.Damage {
	if list := d.skip.Load(); list != nil {
		return *list
	}
	return nil
}

// maxDamage bounds the list; more of it says nothing new.
const maxDamage = 1000

// add reports damage; with skip reads pass over it. It tells whether it is new.
func (d *damageList) add(x storage.Damage, skip bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.told {
		if d.told[i].From <= x.From && x.To <= d.told[i].To {
			return false
		}
	}
	if len(d.told) >= maxDamage {
		return false
	}
	byFrom := func(a, b storage.Damage) int { return int(min(max(a.From-b.From, -1), 1)) }
	d.told = append(d.told, x)
	slices.SortStableFunc(d.told, byFrom)
	if skip {
		var list []storage.Damage
		if old := d.skip.Load(); old != nil {
			list = slices.Clone(*old)
		}
		list = append(list, x)
		slices.SortStableFunc(list, byFrom)
		d.skip.Store(&list)
	}
	return true
}

// covers reports whether pos lies in a range that reads pass over.
func (d *damageList) covers(pos message.Position) bool {
	list := d.skip.Load()
	if list == nil {
		return false
	}
	for i := range *list {
		if x := &(*list)[i]; x.From <= pos && pos < x.To {
			return true
		}
	}
	return false
}

// end gives the end of the skipped range that covers pos.
func (d *damageList) end(pos message.Position) (message.Position, bool) {
	if list := d.skip.Load(); list != nil {
		for i := range *list {
			if x := &(*list)[i]; x.From <= pos && pos < x.To {
				return x.To, true
			}
		}
	}
	return 0, false
}

func (d *damageList) report() []storage.Damage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.told)
}

// within drops what lies outside of [first, tail).
func (d *damageList) within(first, tail message.Position) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := func(x storage.Damage) bool { return x.To <= first || x.From >= tail }
	d.told = slices.DeleteFunc(d.told, out)
	if old := d.skip.Load(); old != nil {
		list := slices.DeleteFunc(slices.Clone(*old), out)
		d.skip.Store(&list)
	}
}

// gate counts calls, so that Shutdown can wait for them.
type gate struct {
	state atomic.Int32
	calls atomic.Int64
	idle  chan struct{}
	once  sync.Once
}

const (
	gateNew int32 = iota
	gateStarting
	gateOpen
	gateClosed
)

func (g *gate) begin() bool {
	g.idle = make(chan struct{}, 1)
	return g.state.CompareAndSwap(gateNew, gateStarting)
}
func (g *gate) open() { g.state.Store(gateOpen) }
func (g *gate) end()  { g.state.Store(gateClosed) }

// enter begins a call; leave ends it.
func (g *gate) enter() bool {
	g.calls.Add(1)
	if g.state.Load() == gateOpen {
		return true
	}
	g.leave()
	return false
}

func (g *gate) leave() {
	if g.calls.Add(-1) == 0 && g.state.Load() == gateClosed {
		select {
		case g.idle <- struct{}{}:
		default:
		}
	}
}

// close lets nobody in any more and waits for the calls under way; first is
// false when there is nothing (more) to shut down.
func (g *gate) close(ctx context.Context) (first bool, err error) {
	if g.state.CompareAndSwap(gateNew, gateClosed) {
		g.once.Do(func() {})
		return false, nil
	}
	opened := g.state.CompareAndSwap(gateOpen, gateClosed)
	for g.calls.Load() > 0 {
		select {
		case <-g.idle:
		case <-ctx.Done():
			if opened {
				g.state.Store(gateOpen) // the caller may try again
			}
			return false, ctx.Err()
		}
	}
	if opened {
		g.once.Do(func() { first = true })
	}
	return first, nil
}

// emitter delivers events one at a time.
type emitter struct {
	failed func(error)

	mu      sync.Mutex
	wait    sync.Cond
	busy    bool
	pending error
}

// begin claims the right to call receivers; end gives it back.
func (e *emitter) begin() {
	e.mu.Lock()
	if e.wait.L == nil {
		e.wait.L = &e.mu
	}
	for e.busy {
		e.wait.Wait()
	}
	e.busy = true
	e.mu.Unlock()
}

func (e *emitter) end() {
	for {
		e.mu.Lock()
		err := e.pending
		e.pending = nil
		if err == nil {
			e.busy = false
			if e.wait.L != nil {
				e.wait.Signal()
			}
			e.mu.Unlock()
			return
		}
		e.mu.Unlock()
		e.failed(err)
	}
}

// fail tells the failure, now or after the event that is being delivered.
func (e *emitter) fail(err error) {
	if e.failed == nil {
		return
	}
	e.mu.Lock()
	if e.busy {
		e.pending = err
		e.mu.Unlock()
		return
	}
	e.busy = true
	e.mu.Unlock()
	e.failed(err)
	e.end()
}

var _ plugin.Component = (*Store)(nil)
