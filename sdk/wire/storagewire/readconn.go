package storagewire

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

// readConn carries all calls that do not change the log, many at once.
type readConn struct {
	send data.Sender
	mu   sync.Mutex
	wait map[uint64]*call
	over error // no answer will come
	// abandoned calls are those whose answers nobody waits for; at most mostAbandoned.
	abandoned map[uint64]struct{}
}

// mostAbandoned bounds what a plugin costs that does not answer what was cancelled.
// From then on answers to unknown calls are no fault.
const mostAbandoned = 1024

func (r *readConn) open(c io.ReadWriteCloser) {
	r.send.Conn, r.wait, r.abandoned = c, map[uint64]*call{}, map[uint64]struct{}{}
}

// abandon gives a call up; false when its answer is there.
func (r *readConn) abandon(id uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, mine := r.wait[id]; !mine {
		return false
	}
	delete(r.wait, id)
	if len(r.abandoned) < mostAbandoned {
		r.abandoned[id] = struct{}{}
	}
	return true
}

// answered gives the call that an answer is to, nil if it was abandoned. An answer
// to no call at all is an error: another call would wait for it for ever.
func (r *readConn) answered(h *data.Head) (*call, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.wait[h.ID]
	delete(r.wait, h.ID)
	if !ok {
		if _, ok = r.abandoned[h.ID]; !ok && len(r.abandoned) < mostAbandoned {
			return nil, fmt.Errorf("%w: answer %d of kind %d to no call", data.ErrFrame, h.ID, h.Kind)
		}
		delete(r.abandoned, h.ID)
	}
	return a, nil
}

// call waits for an answer; body is its own then.
type call struct {
	done chan struct{}
	kind data.Kind
	body *[]byte
	err  error
}

var calls = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }}

// release gives back the answer and the call.
func (c *call) release() {
	if c.body != nil {
		data.GiveBuffer(c.body)
	}
	c.body, c.err = nil, nil
	calls.Put(c)
}

// Release implements storage.Lease.
func (c *call) Release() { c.release() }

// ask sends the request in out, which it takes, and waits for the answer. When
// ctx ends first, the plugin is told and nobody waits for it.
func (c *session) ask(ctx context.Context, k data.Kind, out *[]byte) (*call, error) {
	defer data.GiveBuffer(out)
	left, err := data.Left(ctx)
	if err != nil {
		return nil, err
	}
	id, a := c.last.Add(1), calls.Get().(*call)
	data.Finish(*out, 0, k, id, left, 0)
	r := &c.read
	r.mu.Lock()
	if err := r.over; err != nil {
		r.mu.Unlock()
		a.release()
		return nil, err
	}
	r.wait[id] = a
	r.mu.Unlock()
	if err := r.send.Send(*out); err != nil {
		_ = c.gone(err) // the reader ends all calls
	}
	select {
	case <-a.done:
	case <-ctx.Done():
		if r.abandon(id) {
			a.release()
			c.cancel(id, 0)
			return nil, ctx.Err()
		}
		<-a.done // the answer is on its way into a
	}
	if a.err != nil {
		err := a.err
		a.release()
		return nil, err
	}
	if a.kind == kindFailed {
		err, bad := readFailure(*a.body)
		a.release()
		if bad != nil || err == nil {
			return nil, c.gone(fmt.Errorf("%w: an answer that failed without an error (%w)", data.ErrFrame, bad))
		}
		return nil, wire.OfCall(ctx, err)
	}
	return a, nil
}

// cancel tells the plugin that nobody waits for a call; onLog is 1 for one of
// the log connection.
func (c *session) cancel(id uint64, onLog int64) {
	out := data.Begin(nil)
	data.Finish(out, 0, kindCancel, id, onLog, 0)
	_ = c.read.send.Send(out) // a broken connection ends the call anyway
}

// lastWords is how long what a process has said is read after its end.
const lastWords = 500 * time.Millisecond

// watch breaks the connections when the process has ended without their ends being
// seen: a child that it forked may hold them open. It returns when they are read.
func (c *session) watch(read <-chan struct{}) {
	select {
	case <-c.proc.Gone():
	case <-read:
		return
	}
	t := c.s.p.Clock.NewTimer(lastWords)
	defer t.Stop()
	select {
	case <-t.C():
		c.disconnect()
	case <-read:
	}
}

// reader hands out the answers until the connection ends.
func (c *session) reader() {
	r := &c.read
	read := make(chan struct{})
	defer close(read)
	c.tasks.Go(func() { c.watch(read) })
	err := c.readAnswers()
	err = c.gone(err)
	r.mu.Lock()
	r.over = err
	all := r.wait
	r.wait = map[uint64]*call{}
	r.mu.Unlock()
	for _, a := range all {
		a.err = err
		a.done <- struct{}{}
	}
}

func (c *session) readAnswers() error {
	r := &c.read
	in := bufio.NewReaderSize(r.send.Conn, 4096)
	var b [data.HeadSize]byte
	for {
		if _, err := io.ReadFull(in, b[:]); err != nil {
			return err
		}
		h, err := data.ParseHead(b[:], kindEvent)
		if err != nil {
			return err
		}
		switch h.Kind {
		case kindEvent:
			if err := c.readOneEvent(in, &h); err != nil {
				return err
			}
			continue
		case kindDone, kindFailed:
		default:
			return fmt.Errorf("%w: kind %d in answer %d", data.ErrFrame, h.Kind, h.ID)
		}
		a, err := r.answered(&h)
		switch {
		case err != nil:
		case a == nil: // nobody waits any more
			_, err = in.Discard(int(h.Size))
		default:
			a.kind = h.Kind
			a.body = data.TakeBuffer()
			if *a.body, err = data.ReadBody((*a.body)[:0], in, int(h.Size)); err != nil {
				a.err = c.gone(err)
			}
			a.done <- struct{}{}
		}
		if err != nil {
			return err
		}
	}
}

// readOneEvent leaves the delivery to a goroutine: receivers may call Read.
func (c *session) readOneEvent(in io.Reader, h *data.Head) error {
	body, err := data.ReadBody(nil, in, int(h.Size))
	if err != nil {
		return err
	}
	e, err := readEvent(body)
	if err != nil {
		return err
	}
	id := h.ID
	c.tasks.Go(func() { c.event(id, &e) })
	return nil
}

// ask does a call that changes nothing, over the session that there is now.
func (s *store) ask(ctx context.Context, k data.Kind, out *[]byte) (*session, *call, error) {
	c, err := s.serving(ctx)
	if err != nil {
		data.GiveBuffer(out)
		return nil, nil, err
	}
	a, err := c.ask(ctx, k, out)
	return c, a, err
}

// chunk does the calls that give records; to is empty.
func (s *store) chunk(ctx context.Context, k data.Kind, out *[]byte, topic string, to *storage.Chunk) error {
	c, a, err := s.ask(ctx, k, out)
	if err != nil {
		return err
	}
	if err := readChunk(*a.body, topic, to); err != nil {
		a.release()
		to.Reset()
		return c.gone(err)
	}
	to.Lease = a
	return nil
}

// Read implements storage.Store.
func (s *store) Read(ctx context.Context, r storage.ReadRequest, c *storage.Chunk) error {
	c.Reset()
	out := data.TakeBuffer()
	*out = putReadRequest(data.Begin((*out)[:0]), &r)
	return s.chunk(ctx, kindRead, out, r.Queue.Topic, c)
}

// Get implements storage.Store.
func (s *store) Get(ctx context.Context, at []message.Position, c *storage.Chunk) error {
	c.Reset()
	out := data.TakeBuffer()
	*out = putPositions(data.Begin((*out)[:0]), at)
	return s.chunk(ctx, kindGet, out, "", c)
}

// Offsets implements storage.Store.
func (s *store) Offsets(ctx context.Context, q []storage.OffsetQuery, a *storage.OffsetAnswers) error {
	a.Answers = a.Answers[:0]
	out := data.TakeBuffer()
	*out = putQueries(data.Begin((*out)[:0]), q)
	c, got, err := s.ask(ctx, kindOffsets, out)
	if err != nil {
		return err
	}
	defer got.release()
	if err := readAnswers(*got.body, q, a); err != nil {
		a.Answers = a.Answers[:0]
		return c.gone(err)
	}
	return nil
}

// Sync implements storage.Store.
func (s *store) Sync(ctx context.Context, end message.Position) error {
	c, err := s.writing(ctx)
	if err != nil {
		return err
	}
	out := data.TakeBuffer()
	*out = data.PutInt(data.Begin((*out)[:0]), end)
	a, err := c.ask(ctx, kindSync, out)
	if err != nil {
		return err
	}
	o, err := readOutcome(*a.body)
	a.release()
	if err != nil {
		return c.gone(err)
	}
	if c.note(&o.marks) {
		c.refresh(ctx)
	}
	if o.err != nil {
		return wire.OfCall(ctx, writeError(o.err))
	}
	s.st.Lock()
	s.st.ack.synced = max(s.st.ack.synced, end)
	s.st.Unlock()
	return nil
}

// retention is the facet.
type retention struct{ s *store }

// Segments implements storage.Retention.
func (r retention) Segments(ctx context.Context) ([]storage.Segment, error) {
	c, err := r.s.serving(ctx)
	if err != nil {
		return nil, err
	}
	a, err := c.control().Segments(ctx, &storagepb.SegmentsRequest{Instance: c.id})
	if err = wire.FromRPC(ctx, err, a.GetFailure()); err != nil {
		return nil, err
	}
	out := make([]storage.Segment, 0, len(a.GetSegments()))
	for _, g := range a.GetSegments() {
		out = append(out, storage.Segment{
			At: message.Position(g.GetAt()), Bytes: g.GetBytes(),
			FirstStoreTime: g.GetFirstStoreTime(), LastStoreTime: g.GetLastStoreTime(), Leases: g.GetLeases(),
		})
	}
	return out, nil
}

// Expire implements storage.Retention.
func (r retention) Expire(ctx context.Context, first message.Position) error {
	return r.s.move(ctx, kindExpire, first)
}

// Drop implements storage.Retention.
func (r retention) Drop(ctx context.Context, q []message.Queue) error {
	s := r.s
	s.log.Lock()
	defer s.log.Unlock()
	c, err := s.writing(ctx)
	if err != nil {
		return err
	}
	ends := make([]message.Unit, len(q))
	for i := range q {
		ends[i].Queue = q[i]
	}
	c.log.out = data.PutEnds(data.Begin(c.log.out[:0]), ends)
	return c.change(ctx, kindDrop)
}

// keyIndex is the facet.
type keyIndex struct{ s *store }

// Find implements storage.KeyIndex.
func (k keyIndex) Find(ctx context.Context, q storage.KeyQuery, at []message.Position) ([]message.Position, error) {
	at = at[:0]
	c, err := k.s.serving(ctx)
	if err != nil {
		return at, err
	}
	a, err := c.control().Find(ctx, &storagepb.FindRequest{
		Instance: c.id, Topic: q.Topic, Key: q.Key, From: q.From, To: q.To, Max: q.Max,
	})
	if err = wire.FromRPC(ctx, err, a.GetFailure()); err != nil {
		return at, err
	}
	for _, p := range a.GetAt() {
		at = append(at, message.Position(p))
	}
	return at, nil
}
