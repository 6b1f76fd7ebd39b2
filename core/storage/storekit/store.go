package storekit

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

var (
	_ storage.Store     = (*Store)(nil)
	_ storage.RawLog    = (*Store)(nil)
	_ storage.Retention = (*Store)(nil)
	_ storage.KeyIndex  = (*Store)(nil)
)

// Store is a whole store over a simple backend; made by [FromKV] and [FromLog].
//
// Lock order: life, write, cut, mu. told is taken with none of them held.
type Store struct {
	p   storage.Params
	kv  KV
	opt Options

	// life is held for reading by every call, for writing by Start and Shutdown.
	life    sync.RWMutex
	running bool

	// write is held by whatever changes the log.
	write   sync.Mutex
	term    uint64
	ops     arena
	deriver *message.Deriver
	pending []pending // appended and not published, in log order
	ready   []pending // published now, events are due
	touched []*queue
	lastQ   *queue

	// expiring is held by Expire, taken before write.
	expiring sync.Mutex

	// cut is held for reading while the backend is read, for writing while
	// something that readers may look at is removed.
	cut sync.RWMutex

	mu     sync.RWMutex
	st     storage.State
	queues map[message.Queue]*queue
	number uint32 // of the next new queue
	segs   []storage.Segment

	syncing sync.Mutex
	cause   atomic.Pointer[error] // why the store failed
	told    sync.Mutex            // one event at a time
	once    sync.Once             // of Events.Failed
}

// queue holds the published ends of a queue, under mu. The staged ones belong to
// the step under way, under write.
type queue struct {
	q              message.Queue
	number         uint32
	known          bool
	min, max       int64
	staged         bool
	newMin, newMax int64
	newKnown       bool
}

// pending is a batch that waits for Publish, or what was derived at Start.
type pending struct {
	end   message.Position
	units []message.Unit
	keys  []message.Key
	batch *storage.Batch
	whole bool // nothing of it remains
}

// FromKV makes a store of an ordered key-value backend. It does no I/O.
func FromKV(p storage.Params, kv KV, opt Options) *Store {
	p.Settings = p.WithDefaults()
	return &Store{p: p, kv: kv, opt: opt, deriver: message.NewDeriver(p.Index)}
}

// Capabilities implements storage.Store: all facets.
func (s *Store) Capabilities() storage.Capabilities {
	return storage.Capabilities{RawLog: s, Retention: s, KeyIndex: s, Survives: s.opt.Survives, ExpiresBeside: true}
}

// Start implements plugin.Component.
func (s *Store) Start(ctx context.Context) (err error) {
	s.life.Lock()
	defer s.life.Unlock()
	if s.running {
		return errors.New("the store runs already")
	}
	if s.p.Segment <= message.MinRecordSize+message.BlankSize {
		return fmt.Errorf("segments of %d bytes hold no record", s.p.Segment)
	}
	if err := s.kv.Open(ctx); err != nil {
		return fmt.Errorf("open the store in %q: %w", s.p.Dir, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.kv.Close())
		}
	}()
	if err := s.identify(); err != nil {
		return err
	}
	if err := s.load(ctx); err != nil {
		return err
	}
	if err := s.kv.Sync(); err != nil {
		return fmt.Errorf("sync the store in %q: %w", s.p.Dir, err)
	}
	s.st.Durable = s.st.Tail
	if s.p.Publish == storage.Immediate && s.st.Published < s.st.Tail {
		if err := s.publish(s.st.Tail); err != nil {
			return err
		}
		s.ready = s.ready[:0]
	}
	s.running = true
	return nil
}

// identify reads the log's identity, or gives a new log one.
func (s *Store) identify() error {
	v, found, err := s.kv.Get([]byte{keyIdentity}, nil)
	if err != nil {
		return err
	}
	s.st = storage.State{Segment: s.p.Segment, LogID: s.p.LogID}
	if found {
		if len(v) < 9 || v[0] != formatVersion {
			return &storage.CorruptError{File: s.p.Dir, Reason: "the identity of the log is unreadable, or of a newer version"}
		}
		s.st.Segment, s.st.LogID = int64(be.Uint64(v[1:])), string(v[9:])
		switch {
		case s.st.Segment != s.p.Segment:
			return fmt.Errorf("%w: %q has segments of %d bytes, configured are %d", storage.ErrIdentity, s.p.Dir, s.st.Segment, s.p.Segment)
		case s.p.LogID != "" && s.p.LogID != s.st.LogID:
			return fmt.Errorf("%w: %q holds log %q, wanted is %q", storage.ErrIdentity, s.p.Dir, s.st.LogID, s.p.LogID)
		}
		return nil
	}
	if s.st.LogID == "" {
		var id [16]byte
		_, _ = rand.Read(id[:]) // never fails
		s.st.LogID = hex.EncodeToString(id[:])
	}
	v = be.AppendUint64([]byte{formatVersion}, uint64(s.st.Segment))
	return s.kv.Apply([]Op{{Key: []byte{keyIdentity}, Value: append(v, s.st.LogID...)}}, true)
}

// load reads state, queues and segments, and derives what is not published.
func (s *Store) load(ctx context.Context) error {
	s.queues, s.number, s.pending, s.lastQ, s.term = map[message.Queue]*queue{}, 0, nil, nil, 0
	v, found, err := s.kv.Get([]byte{keyState}, nil)
	if err != nil {
		return err
	}
	if found {
		if len(v) != stateSize {
			return &storage.CorruptError{File: s.p.Dir, Reason: fmt.Sprintf("the state has %d bytes, not %d", len(v), stateSize)}
		}
		s.parseState(v)
		if err := s.checkState(); err != nil {
			return err
		}
	}
	err = s.scan([]byte{keyQueue}, prefixEnd(keyQueue), false, func(k, v []byte) bool {
		name, _ := parseQueueKey(k)
		s.queues[name] = &queue{
			q: name, known: true, number: be.Uint32(v),
			min: int64(be.Uint64(v[4:])), max: int64(be.Uint64(v[12:])),
		}
		return true
	})
	if err != nil {
		return err
	}
	if s.segs, err = s.loadSegments(); err != nil {
		return err
	}
	return s.derivePending(ctx)
}

// derivePending makes pending what is in the log above the published mark.
func (s *Store) derivePending(ctx context.Context) error {
	if s.st.Published == s.st.Tail {
		return nil
	}
	p := pending{end: s.st.Tail}
	err := s.records(ctx, s.st.Published, s.st.Tail, func(v *message.View) bool {
		if v.Position+message.Position(v.Size) > s.st.Published {
			p.units, p.keys = s.deriver.Derive(v, nil, p.units, p.keys)
		}
		return true
	})
	s.pending = append(s.pending, p)
	return err
}

// records parses the records of [from, to), also the one that from lies in.
func (s *Store) records(ctx context.Context, from, to message.Position, each func(*message.View) bool) error {
	start, err := s.recordBefore(from)
	if err != nil {
		return err
	}
	var v message.View
	var bad error
	err = s.scan(recordKey(nil, start), recordKey(nil, to), false, func(k, rec []byte) bool {
		at := recordAt(k)
		if bad = ctx.Err(); bad != nil {
			return false
		}
		if err := message.Parse(rec, &v); err != nil {
			bad = &storage.CorruptError{File: s.p.Dir, Offset: int64(at), Reason: "a record of the log", Err: err}
			return false
		}
		v.Position = at
		return each(&v)
	})
	if err == nil {
		err = bad
	}
	return err
}

// recordBefore is the position of the last record that begins at or before at;
// at itself when there is none.
func (s *Store) recordBefore(at message.Position) (message.Position, error) {
	pos := at
	err := s.scan([]byte{keyRecord}, recordKey(nil, at+1), true, func(k, _ []byte) bool {
		pos = recordAt(k)
		return false
	})
	return pos, err
}

// Shutdown implements plugin.Component. When ctx ends first, closing goes on.
func (s *Store) Shutdown(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- s.shutdown() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Store) shutdown() error {
	s.life.Lock()
	defer s.life.Unlock()
	if !s.running {
		return nil
	}
	s.running = false
	for i := range s.pending {
		s.pending[i].free()
	}
	s.pending = nil
	var err error
	if s.cause.Load() == nil {
		err = s.kv.Sync()
	}
	if err = errors.Join(err, s.kv.Close()); err != nil {
		return fmt.Errorf("close the store in %q: %w", s.p.Dir, err)
	}
	return nil
}

func (p *pending) free() {
	if p.batch != nil {
		p.batch.Done()
		p.batch = nil
	}
}

// State implements storage.Store.
func (s *Store) State() storage.State {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.st
}

const stateSize = 36

// stateOp adds the state to the step.
func (s *Store) stateOp(st *storage.State, number uint32) {
	s.ops.room(stateSize + 1)
	n := len(s.ops.block)
	s.ops.block = append(s.ops.block, keyState)
	key := s.ops.take(n)
	n = len(s.ops.block)
	b := be.AppendUint64(s.ops.block, uint64(st.First))
	b = be.AppendUint64(b, uint64(st.Tail))
	b = be.AppendUint64(b, uint64(st.Published))
	b = be.AppendUint64(b, uint64(st.LastStoreTime))
	s.ops.block = be.AppendUint32(b, number)
	s.ops.set(key, s.ops.take(n))
}

func (s *Store) parseState(v []byte) {
	s.st.First = message.Position(be.Uint64(v))
	s.st.Tail = message.Position(be.Uint64(v[8:]))
	s.st.Published = message.Position(be.Uint64(v[16:]))
	s.st.LastStoreTime = int64(be.Uint64(v[24:]))
	s.number = be.Uint32(v[32:])
}

// checkState holds the state against the records: what follows goes by it, segment
// for segment.
func (s *Store) checkState() error {
	st := &s.st
	end, seg := st.First, message.Position(st.Segment)
	err := s.scan([]byte{keyRecord}, prefixEnd(keyRecord), true, func(k, rec []byte) bool {
		end = max(end, recordAt(k)+message.Position(len(rec)))
		return false
	})
	if err != nil {
		return err
	}
	if st.First < 0 || st.First%seg != 0 || st.Published < st.First || st.Published > st.Tail || st.Tail < end || st.Tail-end > seg || st.Tail > math.MaxInt64-seg {
		return &storage.CorruptError{File: s.p.Dir, Reason: fmt.Sprintf("the state says that the log begins at %d, is published up to %d and ends at %d; its last record ends at %d", st.First, st.Published, st.Tail, end)}
	}
	return nil
}

// scan is the backend's Scan, which ends with a *storage.CorruptError at a pair
// that this package did not write.
func (s *Store) scan(from, to []byte, reverse bool, each func(key, value []byte) bool) error {
	var bad error
	err := s.kv.Scan(from, to, reverse, func(k, v []byte) bool {
		if !wellFormed(k, v) {
			bad = &storage.CorruptError{File: s.p.Dir, Reason: fmt.Sprintf("a pair with the key %x has a value of %d bytes", k, len(v))}
			return false
		}
		return each(k, v)
	})
	if err == nil {
		err = bad
	}
	return err
}

// check tells whether a call may go on; life is held.
func (s *Store) check(ctx context.Context, writes bool) error {
	if !s.running {
		return storage.ErrNotRunning
	}
	if writes {
		if c := s.cause.Load(); c != nil {
			return fmt.Errorf("%w: %w", storage.ErrFailed, *c)
		}
	}
	return ctx.Err()
}

// fail marks the store as failed and makes the error of the call.
func (s *Store) fail(what string, err error) error {
	err = fmt.Errorf("%s: %w", what, err)
	s.cause.CompareAndSwap(nil, &err)
	return fmt.Errorf("%w: %w", storage.ErrFailed, err)
}

// tellFailed calls Events.Failed once; no lock is held.
func (s *Store) tellFailed() {
	c := s.cause.Load()
	if c == nil {
		return
	}
	s.once.Do(func() {
		s.told.Lock()
		defer s.told.Unlock()
		s.p.Logger.Error("the store failed and takes no writes until it is opened again", "error", *c)
		if f := s.p.Events.Failed; f != nil {
			f(*c)
		}
	})
}

// apply does the step that was gathered.
func (s *Store) apply(what string, sync bool) error {
	err := s.kv.Apply(s.ops.ops, sync)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, storage.ErrFull):
		return fmt.Errorf("%s: %w", what, err)
	}
	return s.fail(what, err)
}

// loadSegments describes the segments from the records.
func (s *Store) loadSegments() ([]storage.Segment, error) {
	var out []storage.Segment
	seg := message.Position(s.st.Segment)
	for at := s.st.First; at < s.st.Tail; at += seg {
		g := storage.Segment{At: at, Bytes: int64(min(seg, s.st.Tail-at))}
		found := false
		for _, reverse := range []bool{false, true} {
			err := s.scan(recordKey(nil, at), recordKey(nil, at+seg), reverse, func(_, rec []byte) bool {
				if g.LastStoreTime = message.StoreTime(rec); !reverse {
					g.FirstStoreTime = g.LastStoreTime
				}
				found = true
				return false
			})
			if err != nil {
				return nil, err
			}
		}
		if !found && s.st.Tail-at > seg { // every segment but the last one begins with a record
			return nil, &storage.CorruptError{File: s.p.Dir, Offset: int64(at), Reason: fmt.Sprintf("a segment without a record in a log that ends at %d", s.st.Tail)}
		}
		out = append(out, g)
	}
	return slices.Clip(out), nil
}

// Facets names what a Store of this package offers, for a plugin.Description.
func Facets() []string {
	return []string{storage.FacetKeyIndex, storage.FacetRawLog, storage.FacetRetention}
}
