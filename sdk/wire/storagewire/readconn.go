package storagewire

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

// readConn carries all calls that do not change the log, many at once, of a store's
// session and of a [Borrower].
type readConn struct {
	send data.Sender
	last atomic.Uint64 // id of a call
	// own are the call connections, which calls take as long as there are free ones.
	own callConns
	// fault ends the connection; it gives what calls fail with.
	fault func(why error) error
	// lost is why nothing counts any more that the other end says; nil: it counts.
	lost func() error
	// event takes one, on a connection that brings some; it must not block.
	event func(id uint64, body []byte) error

	mu   sync.Mutex
	wait map[uint64]*call
	over error // no answer will come
	// abandoned calls are those whose answers nobody waits for; at most mostAbandoned.
	abandoned map[uint64]struct{}
	// left is the last call that was abandoned, 0 when none was since owes was asked.
	left data.Kind
	line data.Line
}

// mostAbandoned bounds what another end costs that does not answer what was cancelled.
// From then on answers to unknown calls are no fault.
const mostAbandoned = 1024

func (r *readConn) open(c io.ReadWriteCloser) {
	r.send.Conn, r.line.Owes = c, r.owes
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wait, r.abandoned, r.over = map[uint64]*call{}, map[uint64]struct{}{}, nil
}

// call waits for an answer; body is its own then.
type call struct {
	done chan struct{}
	kind data.Kind
	body *[]byte
	from int // where the answer begins in it
	err  error
}

func (c *call) answer() []byte { return (*c.body)[c.from:] }

var calls = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }}

// release gives back the answer and the call.
func (c *call) release() {
	if c.body != nil {
		data.GiveBuffer(c.body)
	}
	c.body, c.from, c.err = nil, 0, nil
	calls.Put(c)
}

// Release implements storage.Lease.
func (c *call) Release() { c.release() }

// abandon gives a call up; false when its answer is there.
func (r *readConn) abandon(id uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, mine := r.wait[id]; !mine {
		return false
	}
	r.left = r.wait[id].kind
	delete(r.wait, id)
	if len(r.abandoned) < mostAbandoned {
		r.abandoned[id] = struct{}{}
	}
	return true
}

// leave notes a call that was given up.
func (r *readConn) leave(k data.Kind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = k
}

// owes is what data.Line asks. One that was abandoned counts once: what is
// cancelled needs an answer, too, but an end that gives none is only tolerated.
func (r *readConn) owes() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	k, first := r.left, uint64(math.MaxUint64)
	r.left = 0
	for id, a := range r.wait {
		if id < first {
			k, first = a.kind, id
		}
	}
	for _, p := range r.own.all {
		if id := p.id.Load(); id != 0 && id < first {
			k, first = data.Kind(p.kind.Load()), id
		}
	}
	return due(k)
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

// ask sends the request in out, which it takes, and waits for the answer. When
// ctx ends first, the other end is told and nobody waits for it.
func (r *readConn) ask(ctx context.Context, k data.Kind, out *[]byte) (*call, error) {
	defer data.GiveBuffer(out)
	left, err := data.Left(ctx)
	if err != nil {
		return nil, err
	}
	id := r.last.Add(1)
	data.Finish(*out, 0, k, id, left, 0)
	var a *call
	if p := r.own.take(); p != nil {
		a, err = p.ask(ctx, r, k, id, *out)
	} else {
		a, err = r.share(ctx, k, id, *out)
	}
	if err != nil {
		return nil, err
	}
	if a.kind == kindFailed {
		err, bad := data.ReadFailure(a.answer())
		a.release()
		// One that is given up ends its calls, and may still get to say so.
		if why := r.lost(); why != nil {
			return nil, why
		}
		if bad != nil || err == nil {
			return nil, r.fault(fmt.Errorf("%w: an answer that failed without an error (%w)", data.ErrFrame, bad))
		}
		return nil, wire.OfCall(ctx, err)
	}
	return a, nil
}

// share does a call over this connection, which others use at the same time.
func (r *readConn) share(ctx context.Context, k data.Kind, id uint64, frame []byte) (*call, error) {
	a, err := r.begin(k, id, frame)
	if err != nil {
		return nil, err
	}
	select {
	case <-a.done:
	case <-ctx.Done():
		if r.abandon(id) {
			a.release()
			r.cancel(id, cancelRead)
			return nil, ctx.Err()
		}
		<-a.done // the answer is on its way into a
	}
	return a.ended()
}

// begin sends a call; done is told of its end.
func (r *readConn) begin(k data.Kind, id uint64, frame []byte) (*call, error) {
	a := calls.Get().(*call)
	r.mu.Lock()
	if err := r.over; err != nil {
		r.mu.Unlock()
		a.release()
		return nil, err
	}
	a.kind = k
	r.wait[id] = a
	r.mu.Unlock()
	if err := r.send.Send(frame); err != nil {
		_ = r.fault(err) // serve ends all calls
	}
	return a, nil
}

// ended gives a call that has an answer.
func (c *call) ended() (*call, error) {
	if c.err != nil {
		err := c.err
		c.release()
		return nil, err
	}
	return c, nil
}

// cancel tells the other end that nobody waits for a call; on says which connection
// the call is on.
func (r *readConn) cancel(id uint64, on int64) {
	out := data.Begin(nil)
	data.Finish(out, 0, kindCancel, id, on, 0)
	_ = r.send.Send(out) // a broken connection ends the call anyway
}

// serve hands out the answers until the connection ends; then all calls fail. It
// gives the reason.
func (r *readConn) serve() error {
	why := r.hand()
	err := r.fault(why)
	r.mu.Lock()
	all := r.wait
	r.wait, r.over = nil, err
	r.mu.Unlock()
	for _, a := range all {
		a.err = err
		a.done <- struct{}{}
	}
	return why
}

func (r *readConn) hand() error {
	in := bufio.NewReaderSize(r.line.Hear(r.send.Conn), 4096)
	var b [data.HeadSize]byte
	for {
		if _, err := io.ReadFull(in, b[:]); err != nil {
			return err
		}
		h, err := data.ParseHead(b[:], kindEvent)
		switch {
		case err != nil:
		case h.Kind == kindEvent && r.event != nil:
			var body []byte
			if body, err = data.ReadBody(nil, in, int(h.Size)); err == nil {
				err = r.event(h.ID, body)
			}
		case h.Kind != kindDone && h.Kind != kindFailed:
			err = fmt.Errorf("%w: kind %d in answer %d", data.ErrFrame, h.Kind, h.ID)
		default:
			err = r.answer(in, &h)
		}
		if err != nil {
			return err
		}
	}
}

// answer reads one for whoever waits for it.
func (r *readConn) answer(in *bufio.Reader, h *data.Head) error {
	a, err := r.answered(h)
	if err != nil {
		return err
	}
	if a == nil { // nobody waits any more
		_, err = in.Discard(int(h.Size))
		return err
	}
	a.kind, a.body = h.Kind, data.TakeBuffer()
	if *a.body, err = data.ReadBody((*a.body)[:0], in, int(h.Size)); err != nil {
		a.err = r.fault(err)
	}
	a.done <- struct{}{}
	return err
}

// chunk does the calls that give records; to is empty.
func (r *readConn) chunk(ctx context.Context, k data.Kind, out *[]byte, topic string, to *storage.Chunk) error {
	a, err := r.ask(ctx, k, out)
	if err != nil {
		return err
	}
	if err := readChunk(a.answer(), topic, to); err != nil {
		a.release()
		to.Reset()
		return r.fault(err)
	}
	to.Lease = a
	return nil
}

// believe gives the error of an answer that was held against its question.
func (r *readConn) believe(c *storage.Chunk, why error) error {
	if why == nil {
		return nil
	}
	c.Reset()
	return r.fault(why)
}

// Read is storage.Store's.
func (r *readConn) Read(ctx context.Context, q storage.ReadRequest, c *storage.Chunk) error {
	c.Reset()
	out := data.TakeBuffer()
	*out = putReadRequest(data.Begin((*out)[:0]), &q)
	if err := r.chunk(ctx, kindRead, out, q.Queue.Topic, c); err != nil {
		return err
	}
	return r.believe(c, checkRead(&q, c))
}

// Get is storage.Store's.
func (r *readConn) Get(ctx context.Context, at []message.Position, c *storage.Chunk) error {
	c.Reset()
	out := data.TakeBuffer()
	*out = putPositions(data.Begin((*out)[:0]), at)
	if err := r.chunk(ctx, kindGet, out, "", c); err != nil {
		return err
	}
	return r.believe(c, checkGet(at, c))
}

// ReadLog is storage.RawLog's.
func (r *readConn) ReadLog(ctx context.Context, from message.Position, most int, c *storage.Chunk) error {
	c.Reset()
	out := data.TakeBuffer()
	*out = data.PutInt(data.PutInt(data.Begin((*out)[:0]), from), int64(most))
	if err := r.chunk(ctx, kindReadLog, out, "", c); err != nil {
		return err
	}
	return r.believe(c, checkReadLog(from, most, c))
}

// Offsets is storage.Store's.
func (r *readConn) Offsets(ctx context.Context, q []storage.OffsetQuery, to *storage.OffsetAnswers) error {
	to.Answers = to.Answers[:0]
	out := data.TakeBuffer()
	*out = putQueries(data.Begin((*out)[:0]), q)
	a, err := r.ask(ctx, kindOffsets, out)
	if err != nil {
		return err
	}
	defer a.release()
	if err = readAnswers(a.answer(), q, to); err == nil {
		err = checkOffsets(to)
	}
	if err != nil {
		to.Answers = to.Answers[:0]
		return r.fault(err)
	}
	return nil
}

// sync asks for Sync. err is of the call, the store's own is in the outcome.
func (r *readConn) sync(ctx context.Context, end message.Position) (o outcome, err error) {
	out := data.TakeBuffer()
	*out = data.PutInt(data.Begin((*out)[:0]), end)
	a, err := r.ask(ctx, kindSync, out)
	if err != nil {
		return o, err
	}
	return r.outcome(a, kindSync, &promise{least: end, most: mostLog})
}

// expire asks for Expire. When ctx ends, the other end is told, and what it says is the
// outcome: no two are under way.
func (r *readConn) expire(ctx context.Context, first message.Position) (o outcome, err error) {
	left, err := data.Left(ctx)
	if err != nil {
		return o, err
	}
	id := r.last.Add(1)
	out := data.PutInt(data.Begin(nil), first)
	data.Finish(out, 0, kindExpire, id, left, 0)
	a, err := r.begin(kindExpire, id, out)
	if err != nil {
		return o, err
	}
	stop := context.AfterFunc(ctx, func() { r.cancel(id, cancelRead) })
	defer stop()
	<-a.done
	if a, err = a.ended(); err != nil {
		return o, err
	}
	return r.outcome(a, kindExpire, &anything)
}

// outcome reads the answer to a call that makes a promise.
func (r *readConn) outcome(a *call, k data.Kind, must *promise) (o outcome, err error) {
	defer a.release()
	if a.kind != kindDone {
		err = fmt.Errorf("%w: %s failed without an outcome", data.ErrFrame, names[k])
	} else if o, err = readOutcome(a.answer()); err == nil && o.err == nil {
		err = must.kept(k, &o.marks)
	}
	if err != nil {
		return o, r.fault(err)
	}
	return o, nil
}

// take notes an outcome that the read connection brought, and gives its error.
func (c *session) take(ctx context.Context, o *outcome) error {
	if c.note(&o.marks) {
		c.refresh(ctx)
	}
	if o.err == nil {
		return nil
	}
	if why := c.lost(); why != nil {
		return why
	}
	return wire.OfCall(ctx, writeError(o.err))
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
	read := make(chan struct{})
	defer close(read)
	c.tasks.Go(func() { c.watch(read) })
	limits := data.LimitsOf(c.proc)
	if c.s.caps.Survives != storage.SurvivesProcessDeath {
		limits.Stop = 0 // it has what was acknowledged
	}
	c.tasks.Go(func() { c.deliverEvents(read) })
	c.tasks.Go(func() {
		if why := data.Watch(c.s.p.Clock, limits, read, &c.log.line, &c.read.line); why != nil {
			_ = c.gone(why)
		}
	})
	_ = c.read.serve()
}

// readEvent leaves the delivery to deliverEvents.
func (c *session) readEvent(id uint64, body []byte) error {
	e, err := readEvent(body)
	if err != nil {
		return err
	}
	return c.events.put(arrived{seq: id, bytes: len(body), event: e})
}

// Read implements storage.Store.
func (s *store) Read(ctx context.Context, r storage.ReadRequest, c *storage.Chunk) error {
	on, err := s.serving(ctx)
	if err != nil {
		c.Reset()
		return err
	}
	return on.read.Read(ctx, r, c)
}

// Get implements storage.Store.
func (s *store) Get(ctx context.Context, at []message.Position, c *storage.Chunk) error {
	on, err := s.serving(ctx)
	if err != nil {
		c.Reset()
		return err
	}
	return on.read.Get(ctx, at, c)
}

// Offsets implements storage.Store.
func (s *store) Offsets(ctx context.Context, q []storage.OffsetQuery, a *storage.OffsetAnswers) error {
	on, err := s.serving(ctx)
	if err != nil {
		a.Answers = a.Answers[:0]
		return err
	}
	return on.read.Offsets(ctx, q, a)
}

// Sync implements storage.Store.
func (s *store) Sync(ctx context.Context, end message.Position) error {
	c, err := s.writing(ctx)
	if err != nil {
		return err
	}
	o, err := c.read.sync(ctx, end)
	if err == nil {
		err = c.take(ctx, &o)
	}
	if err != nil {
		return err
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
	if err := checkSegments(out); err != nil {
		return nil, c.gone(err)
	}
	return out, nil
}

// Expire implements storage.Retention.
func (r retention) Expire(ctx context.Context, first message.Position) error {
	c, err := r.s.writing(ctx)
	if err != nil {
		return err
	}
	if !c.beside {
		return r.s.move(ctx, kindExpire, first, anything)
	}
	o, err := c.read.expire(ctx, first)
	if err != nil {
		return err
	}
	if o.own != 0 && !c.heard(o.own) { // the event belongs to the call
		if why := c.lost(); why != nil {
			return why
		}
		return storage.ErrNotRunning
	}
	return c.take(ctx, &o)
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
	return c.change(ctx, kindDrop, anything)
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
	if len(a.GetAt()) > max(int(q.Max), 0) {
		return at, c.gone(lie("%d positions in an answer to Find of at most %d", len(a.GetAt()), q.Max))
	}
	for _, p := range a.GetAt() {
		at = append(at, message.Position(p))
	}
	return at, nil
}
