package replicationwire

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

var (
	_ storage.Store            = (*hostStore)(nil)
	_ storage.RawLog           = (*hostStore)(nil)
	_ storage.Reopener         = reopener{}
	_ storage.SequencerWatcher = (*instance)(nil)
)

// hostStore is the host's store in the plugin: what changes the log goes over the
// turn connection, the rest over the other one.
type hostStore struct {
	*storagewire.Borrower
	i    *instance
	caps storage.Capabilities

	turn   sync.Mutex // one call that changes the log at a time
	mu     sync.Mutex
	id     uint64 // of the call under way, 0: none
	answer chan error
}

func newHostStore(i *instance) *hostStore {
	return &hostStore{Borrower: storagewire.NewBorrower(), i: i, answer: make(chan error, 1)}
}

// Start implements plugin.Component.
func (*hostStore) Start(context.Context) error {
	return errors.New("the store is the host's, which starts and stops it")
}

// Shutdown implements plugin.Component.
func (s *hostStore) Shutdown(ctx context.Context) error { return s.Start(ctx) }

// Capabilities implements storage.Store.
func (s *hostStore) Capabilities() storage.Capabilities { return s.caps }

// call does a call that changes the log; turn is held. sent: the host hears of it.
func (s *hostStore) call(ctx context.Context, k data.Kind, fill func([]byte) []byte) (sent bool, err error) {
	left, err := data.Left(ctx)
	if err != nil {
		return false, err
	}
	id := s.i.last.Add(1)
	s.mu.Lock()
	s.id = id
	s.mu.Unlock()
	s.i.out.add(k, id, left, fill)
	s.i.flush()
	if ctx.Done() != nil && (k == kindTruncate || k == kindReset) {
		stop := context.AfterFunc(ctx, func() {
			s.i.out.add(kindCancel, id, 0, nil)
			s.i.flush()
		})
		defer stop()
	}
	select {
	case err := <-s.answer:
		return true, wire.OfCall(ctx, err)
	case <-s.i.ctx.Done():
		return true, fmt.Errorf("%w: %w: the host is gone", storage.ErrFailed, plugin.ErrUnavailable)
	}
}

// answered gives the call under way its answer; the reader calls it.
func (s *hostStore) answered(id uint64, body []byte) error {
	rest, err := s.Note(body)
	if err != nil {
		return err
	}
	failure, err := data.ReadFailure(rest)
	if err != nil {
		return err
	}
	s.mu.Lock()
	mine := s.id == id
	s.id = 0
	s.mu.Unlock()
	if !mine {
		return fmt.Errorf("%w: an answer to call %d of the store, which is not under way", data.ErrFrame, id)
	}
	s.answer <- failure
	return nil
}

// Append implements storage.Store. The batch is freed when it returns: the host has
// what its store still needs.
func (s *hostStore) Append(ctx context.Context, b *storage.Batch) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	own, n := s.i.ownBatch(b)
	if own == nil {
		_, err := s.call(ctx, kindWhole, func(out []byte) []byte { return s.PutBatch(out, b) })
		b.Done()
		return err
	}
	r := batchRef{own.id, n, b.Term, b.At}
	sent, err := s.call(ctx, kindStore, func(out []byte) []byte { return putBatchRef(out, &r) })
	if sent {
		own.freed()
	} else {
		b.Done() // tells the host, which waits for what becomes of it
	}
	return err
}

// Publish implements storage.RawLog.
func (s *hostStore) Publish(ctx context.Context, upTo message.Position) error {
	return s.move(ctx, kindPublish, upTo)
}

// Truncate implements storage.RawLog.
func (s *hostStore) Truncate(ctx context.Context, at message.Position) error {
	return s.move(ctx, kindTruncate, at)
}

func (s *hostStore) move(ctx context.Context, k data.Kind, at message.Position) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	_, err := s.call(ctx, k, func(b []byte) []byte { return data.PutInt(b, at) })
	return err
}

// Reset implements storage.RawLog.
func (s *hostStore) Reset(ctx context.Context, first message.Position, ends []message.Unit) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	_, err := s.call(ctx, kindReset, func(b []byte) []byte { return data.PutEnds(data.PutInt(b, first), ends) })
	return err
}

// reopener is the facet of a host's store that can go away.
type reopener struct{ i *instance }

// Gone implements storage.Reopener.
func (r reopener) Gone(ctx context.Context) error { return r.wait(ctx, kindGone) }

// Reopened implements storage.Reopener.
func (r reopener) Reopened(ctx context.Context) error { return r.wait(ctx, kindReopened) }

func (r reopener) wait(ctx context.Context, k data.Kind) error {
	i := r.i
	left, err := data.Left(ctx)
	if err != nil {
		return err
	}
	id, c := i.last.Add(1), make(chan error, 1)
	i.mu.Lock()
	i.asked[id] = c
	i.mu.Unlock()
	i.out.add(k, id, left, nil)
	i.flush()
	select {
	case err := <-c:
		return wire.OfCall(ctx, err)
	case <-ctx.Done():
		i.mu.Lock()
		delete(i.asked, id)
		i.mu.Unlock()
		i.out.add(kindCancel, id, 0, nil)
		i.flush()
		return ctx.Err()
	case <-i.ctx.Done():
		return storage.ErrNotRunning // the host is gone
	}
}

// putState carries the state of the log.
func putState(b []byte, s *storagepb.LogState) []byte {
	out, _ := proto.MarshalOptions{}.MarshalAppend(b, s) // fails for text that is no UTF-8, which paths are on any host that got this far
	return out
}

// pending is a Pending of the host in the plugin. It is used again when the
// replicator does not need it any more.
type pending struct {
	storage.Pending
	i  *instance
	id uint64

	mu     sync.Mutex
	told   int // groups
	frees  int // batches
	back   bool
	groups int
}

var pendings sync.Pool

func takePending(i *instance, id uint64) *pending {
	p, _ := pendings.Get().(*pending)
	if p == nil {
		p = &pending{}
		p.Owner = p
		p.Free = func(b *storage.Batch) { b.Owner.(*pending).i.freedUnseen(b) }
	}
	p.Reset()
	p.i, p.id, p.told, p.frees, p.back = i, id, 0, 0, false
	return p
}

// read fills it from an Append.
func (p *pending) read(body []byte, topics *data.TopicReader) error {
	b := storage.Batch{Units: p.Units[:0], Keys: p.Keys[:0], Groups: p.Groups[:0]}
	if err := data.ReadBatch(body, topics, &b); err != nil {
		return err
	}
	if len(b.Groups) == 0 || b.Term != 0 || b.At != 0 {
		return fmt.Errorf("%w: a Pending without groups, or one that is placed", data.ErrFrame)
	}
	p.Buf = append(p.Buf[:0], b.Buf...) // the frame's bytes are overwritten by the next one
	p.Units, p.Keys, p.Groups, p.groups = b.Units, b.Keys, b.Groups, len(b.Groups)
	return nil
}

// refused: Append failed, the host has it again.
func (p *pending) refused() { pendings.Put(p) }

// returned: Append ordered it.
func (p *pending) returned() { p.less(func() { p.back = true }) }

func (p *pending) outcome(groups int) { p.less(func() { p.told += groups }) }

func (p *pending) freed() { p.less(func() { p.frees++ }) }

// less notes that something less is to come; with the last of it p goes back.
func (p *pending) less(note func()) {
	p.mu.Lock()
	note()
	over := p.back && p.told == p.groups && p.frees == len(p.Batches)
	if over {
		p.back = false
	}
	p.mu.Unlock()
	if over && cap(p.Buf) <= data.KeepSize {
		pendings.Put(p)
	}
}

// ownBatch finds the Pending of the host that b belongs to.
func (i *instance) ownBatch(b *storage.Batch) (*pending, int) {
	p, _ := b.Owner.(*pending)
	if p == nil || p.i != i {
		return nil, 0
	}
	for n := range p.Batches {
		if p.Batches[n].At == b.At {
			return p, n
		}
	}
	return nil, 0
}

// freedUnseen is the Free of batches, which the replicator calls for those that it
// never gives to the store.
func (i *instance) freedUnseen(b *storage.Batch) {
	p, n := i.ownBatch(b)
	if p == nil {
		return
	}
	i.out.add(kindFreed, p.id, 0, func(out []byte) []byte { return data.PutUint(out, uint64(n)) })
	p.freed()
}

// Opened implements storage.SequencerWatcher.
func (i *instance) Opened(term uint64, st storage.State, ends []storage.OffsetAnswer) {
	o := opened{term, st.Segment, st.Tail, st.LastStoreTime, ends}
	i.out.add(kindOpened, 0, 0, func(b []byte) []byte { return putOpened(b, &o) })
}

// Assigned implements storage.SequencerWatcher.
func (i *instance) Assigned(p *storage.Pending, lead int, last int64) {
	if own, ok := p.Owner.(*pending); ok && own.i == i {
		a := assigned{lead, last, p.At, p.End}
		i.out.add(kindAssigned, own.id, 0, func(b []byte) []byte { return putAssigned(b, &a) })
		return
	}
	m := moved{tail: p.End, last: last}
	for n := range p.Units {
		m.ends = append(m.ends, storage.OffsetAnswer{Queue: p.Units[n].Queue, Max: p.Units[n].Offset + 1})
	}
	i.out.add(kindMoved, 0, 0, func(b []byte) []byte { return putMoved(b, &m) })
}

// Undone implements storage.SequencerWatcher.
func (i *instance) Undone(p *storage.Pending, from int, rewind bool, tail message.Position, last int64) {
	if own, ok := p.Owner.(*pending); ok && own.i == i {
		i.out.add(kindUndone, own.id, 0, func(b []byte) []byte { return putUndone(b, from, rewind) })
		return
	}
	m := moved{tail: tail, last: last}
	for n := len(p.Batches) - 1; n >= from; n-- {
		units := p.Batches[n].Units
		for k := len(units) - 1; k >= 0; k-- { // of a queue the first one counts
			m.ends = append(m.ends, storage.OffsetAnswer{Queue: units[k].Queue, Max: units[k].Offset})
		}
	}
	i.out.add(kindMoved, 0, 0, func(b []byte) []byte { return putMoved(b, &m) })
}

// Forgot implements storage.SequencerWatcher: the host said so.
func (*instance) Forgot(message.Queue) {}
