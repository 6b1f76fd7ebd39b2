package replicationwire

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/proxy"
	"github.com/hardpointmq/hardpoint/sdk/wire/replicationwire/replicationpb"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire"
)

// session is the host's end of one instance, from its process's start to its end.
//
// Only its reader tells outcomes and changes the Sequencer. s.mu is a leaf.
type session struct {
	r      *replicator
	proc   wire.Process
	conns  []net.Conn
	send   data.Sender
	lender *storagewire.Lender
	kept   kept
	began  time.Time

	ctx    context.Context // ends with the session
	cancel context.CancelFunc
	tasks  sync.WaitGroup // calls of the plugin that the reader does not do itself
	ended  chan struct{}  // closed when everything is answered
	// led: Start was answered. opened: the Sequencer was.
	led, opened atomic.Bool

	// of Append, whose caller has the turn
	topics  data.TopicWriter
	out     []byte
	mu      sync.Mutex
	over    error // why nothing is answered any more
	last    uint64
	calls   map[uint64]waiting
	pending map[uint64]*ordered
	cancels map[uint64]context.CancelFunc // of calls of the plugin and of offices
	idle    chan struct{}                 // closed when no call is under way; nil: nobody waits
	quiet   quiet
	// forgotten are queues of which the plugin is told before the next Append.
	forgotten []message.Queue
}

// quiet is what is known of a plugin that says nothing.
type quiet struct {
	line data.Line // of what comes over both connections
	// The plugin's calls that are not answered: changing those that change the log,
	// asking those of OnRole and Reopened.
	changing, asking atomic.Int64
	why              atomic.Pointer[error] // it is given up
}

// waiting is a call of the host that is not answered; o is that of an Append.
type waiting struct {
	done chan error
	o    *ordered
	kind data.Kind
	over bool // its caller has gone: nothing is left to wait for
}

// ordered is a Pending that the plugin has. All but the first line is the reader's.
type ordered struct {
	id       uint64
	p        *replication.Pending
	sink     replication.Sink
	groups   int
	told     int
	assigned bool
	// gone tells which batches are the store's or freed.
	gone []bool
	left int // of gone, false
}

// settled: nothing about it will be told any more.
func (o *ordered) settled() bool { return o.told == o.groups && o.left == 0 }

// connect launches a process if there is none, makes an instance and connects to it.
func (r *replicator) connect(ctx context.Context) (_ *session, err error) {
	s := &session{
		r: r, began: r.p.Clock.Now(), ended: make(chan struct{}),
		calls: map[uint64]waiting{}, pending: map[uint64]*ordered{}, cancels: map[uint64]context.CancelFunc{},
	}
	if s.proc, err = r.h.launcher.Acquire(ctx, r.p.Logger); err != nil {
		return nil, err
	}
	s.conns, err = data.Connect(ctx, fmt.Sprintf("replication plugin %q", r.h.name), func(dir string) (data.Offer, error) {
		a, err := replicationpb.NewReplicationClient(s.proc.Conn()).Open(ctx, &replicationpb.OpenRequest{
			Plugin: r.h.name, Config: r.raw, Params: toParams(&r.p), SocketDir: dir,
		})
		if err = wire.FromRPC(ctx, err, a.GetFailure()); err != nil {
			return data.Offer{}, err
		}
		return data.Offer{Path: a.GetSocket(), Nonce: a.GetNonce(), Roles: roles}, proxy.Agree(wire.Replication, r.h.name, r.facets, a.GetFacets())
	})
	if err != nil {
		s.proc.Release(false)
		return nil, err
	}
	s.send.Conn = s.conns[0]
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.lender = storagewire.NewLender(keeping{storagemw.Base{Store: r.p.Store}, &s.kept}, r.p.Logger)
	s.quiet.line.Owes = s.owes
	s.lender.Watch(&s.quiet.line)
	go s.serve()
	return s, nil
}

// close ends the session and waits for its end.
func (s *session) close() {
	s.cut()
	<-s.ended
}

func (s *session) cut() {
	for _, c := range s.conns {
		_ = c.Close()
	}
}

// serve reads until the connection ends, and then answers everything.
func (s *session) serve() {
	defer close(s.ended)
	s.tasks.Go(func() {
		select {
		case <-s.proc.Gone():
			s.cut()
		case <-s.ctx.Done():
		}
	})
	s.tasks.Go(func() {
		err := s.lender.Serve(s.conns[1])
		if errors.Is(err, data.ErrFrame) {
			s.r.p.Logger.Error("the store connection of a replication plugin broke", "plugin", s.r.h.name, "error", err)
		}
		s.cut() // neither is of use without the other
	})
	s.tasks.Go(func() {
		if why := data.Watch(s.r.p.Clock, data.LimitsOf(s.proc), s.ctx.Done(), &s.quiet.line); why != nil {
			s.quiet.why.Store(&why)
			s.cut() // the reader ends the session
		}
	})
	in := data.NewReader(s.quiet.line.Hear(s.conns[0]), kindLast)
	var err error
	for err == nil {
		var h data.Head
		var body []byte
		if h, body, err = in.Next(); err == nil {
			err = s.handle(&h, body)
		}
	}
	if why := s.quiet.why.Load(); why != nil {
		err = *why
	}
	s.end(fmt.Errorf("the process of replication plugin %q is gone: %w: %w", s.r.h.name, plugin.ErrUnavailable, err))
}

// end answers everything that is under way, in log order. The reader calls it
// last, so that nobody else tells outcomes.
func (s *session) end(why error) {
	if data.GivenUp(why) {
		s.proc.Fail(why)
	}
	s.r.lost(s, why) // nothing more is begun
	s.cut()
	s.cancel()
	s.mu.Lock()
	s.over = why
	calls, cancels := s.calls, s.cancels
	left := make([]*ordered, 0, len(s.pending))
	for _, o := range s.pending {
		left = append(left, o)
	}
	s.calls, s.pending, s.cancels = nil, nil, nil
	s.mu.Unlock()
	slices.SortFunc(left, func(a, b *ordered) int { return int(a.id) - int(b.id) })
	for _, cancel := range cancels {
		cancel()
	}
	for _, o := range left {
		s.settle(o, why)
	}
	for _, c := range calls {
		if c.o != nil {
			c.done <- nil // ordered or not: its outcomes are told
		} else {
			c.done <- why
		}
	}
	s.lender.Close()
	s.tasks.Wait()
	s.proc.Release(false)
}

// settle frees what the store never saw of a Pending and tells its groups Unknown.
func (s *session) settle(o *ordered, why error) {
	p, told, groups := o.p, o.told, o.groups
	batches, gone := p.Batches, o.gone
	if !o.assigned {
		gone = nil
	}
	for n := range gone { // the engine may have it again with the last of these
		if !gone[n] {
			batches[n].Done()
		}
	}
	if told < groups {
		o.sink.Done(p, told, groups, replication.Unknown, why)
	}
}

// owes is what data.Line asks: what the plugin has to do without waiting for others.
// Outcomes may wait for replicas, and so may a change of members; where there are
// replicas a Barrier may, too. A call whose caller has gone waits for nobody. While the
// store does something for the plugin it is not the plugin's turn; while the engine
// takes an office, or the store is awaited, Append is all that may not wait for that.
func (s *session) owes() string {
	if s.quiet.changing.Load() > 0 || s.lender.Busy() {
		return ""
	}
	alone, waits := s.r.alone(), s.quiet.asking.Load() > 0
	s.mu.Lock()
	defer s.mu.Unlock()
	var due data.Kind
	first := uint64(math.MaxUint64)
	for id, c := range s.calls {
		may := c.kind == kindMembers || c.kind == kindBarrier && !alone
		if id < first && (c.kind == kindAppend || !waits && (c.over || !may)) {
			due, first = c.kind, id
		}
	}
	if first == math.MaxUint64 {
		return ""
	}
	return "answer " + callNames[due]
}

// callNames are what people call the calls of the host.
var callNames = map[data.Kind]string{
	kindStart: "Start", kindShutdown: "Shutdown", kindBarrier: "Barrier", kindMembers: "a change of members", kindAppend: "Append",
}

// begin notes a call.
func (s *session) begin(k data.Kind, o *ordered) (id uint64, done chan error, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over != nil {
		return 0, nil, s.over
	}
	s.last++
	id, done = s.last, make(chan error, 1)
	if o != nil {
		o.id = id
		s.pending[id] = o
	}
	s.calls[id] = waiting{done: done, o: o, kind: k}
	return id, done, nil
}

// post sends a frame that is whole.
func (s *session) post(b []byte) {
	if err := s.send.Send(b); err != nil {
		s.cut() // the reader ends the session
	}
}

// wait waits for the answer to a call that can be cancelled.
func (s *session) wait(ctx context.Context, id uint64, done chan error) error {
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() { s.post(frame(nil, kindCancel, id, 0, nil)) })
		defer stop()
	}
	return wire.OfCall(ctx, s.kept.restore(<-done))
}

// call does a call that orders nothing. Unlike Append it does not wait for the
// plugin when ctx ends.
func (s *session) call(ctx context.Context, k data.Kind, fill func([]byte) []byte) error {
	left, err := data.Left(ctx)
	if err != nil {
		return err
	}
	id, done, err := s.begin(k, nil)
	if err != nil {
		return err
	}
	s.post(frame(nil, k, id, left, fill))
	over := make(chan error, 1)
	s.mu.Lock()
	if s.over == nil {
		s.tasks.Go(func() { over <- s.wait(ctx, id, done) })
	} else {
		over <- s.over
	}
	s.mu.Unlock()
	select {
	case err := <-over:
		return err
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		if c, some := s.calls[id]; some {
			c.over = true
			s.calls[id] = c
		}
		return ctx.Err()
	}
}

// append is Replicator.Append.
func (s *session) append(ctx context.Context, p *replication.Pending, sink replication.Sink) error {
	left, err := data.Left(ctx)
	if err != nil {
		return err
	}
	id, done, err := s.begin(kindAppend, &ordered{p: p, sink: sink, groups: len(p.Groups)})
	if err != nil {
		return fmt.Errorf("%w: %w", replication.ErrReadOnly, err)
	}
	// p is as a batch that begins at 0.
	b := storage.Batch{Buf: p.Buf, Units: p.Units, Keys: p.Keys, Groups: p.Groups}
	s.out = s.putForgotten(s.out[:0])
	start := len(s.out)
	s.out = data.PutBatch(data.Begin(s.out), &s.topics, &b)
	data.Finish(s.out, start, kindAppend, id, left, len(p.Buf))
	if err := s.send.Send(s.out, p.Buf); err != nil {
		s.cut()
	}
	if cap(s.out) > data.KeepSize {
		s.out = nil
	}
	return wire.OfCall(ctx, s.kept.restore(<-done))
}

func (s *session) putForgotten(b []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.forgotten {
		b = frame(b, kindForget, 0, 0, func(b []byte) []byte { return putQueue(b, q) })
	}
	s.forgotten = s.forgotten[:0]
	return b
}

// cause is why the session ended: a fault of the plugin, or how its process did,
// with exit status and last output.
func (s *session) cause() error {
	return fmt.Errorf("replication plugin %q: %w", s.r.h.name, s.proc.Cause())
}

// settled waits until no call is under way.
func (s *session) settled(ctx context.Context) {
	s.mu.Lock()
	var idle chan struct{}
	if len(s.calls) > 0 {
		idle = make(chan struct{})
		s.idle = idle
	}
	s.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-s.ended:
	case <-ctx.Done():
	}
}

// errPlugin: the plugin does what none may.
var errPlugin = errors.New("this is a fault of the plugin")

// find gives a Pending that the plugin has.
func (s *session) find(id uint64) (*ordered, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.pending[id]; o != nil {
		return o, nil
	}
	return nil, fmt.Errorf("%w: it speaks of Pending %d, which it does not have; %w", data.ErrFrame, id, errPlugin)
}

func (s *session) forget(o *ordered) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, o.id)
}

// handle does what a frame says; an error ends the session.
func (s *session) handle(h *data.Head, body []byte) error {
	switch h.Kind {
	case kindDone:
		return s.done(h, body)
	case kindOutcome:
		return s.outcome(h, body)
	case kindOpened, kindAssigned, kindUndone, kindMoved:
		return s.place(h, body)
	case kindFreed:
		return s.freed(h, body)
	case kindStore, kindWhole, kindPublish, kindTruncate, kindReset:
		return s.change(h, body)
	case kindRole:
		return s.role(h, body)
	case kindGone, kindReopened:
		s.reopener(h)
		return nil
	case kindStatus:
		st, err := readStatus(body)
		if err == nil {
			s.r.note(s, st)
		}
		return err
	case kindOver, kindCancel:
		s.mu.Lock()
		cancel := s.cancels[h.ID]
		delete(s.cancels, h.ID)
		s.mu.Unlock()
		if cancel != nil {
			cancel()
		}
		return nil
	}
	return fmt.Errorf("%w: kind %d from a replication plugin", data.ErrFrame, h.Kind)
}

// done answers a call.
func (s *session) done(h *data.Head, body []byte) error {
	failure, err := data.ReadFailure(body)
	if err != nil {
		return err
	}
	s.mu.Lock()
	c, some := s.calls[h.ID]
	if !some {
		s.mu.Unlock()
		return fmt.Errorf("%w: an answer to call %d, which is not under way; %w", data.ErrFrame, h.ID, errPlugin)
	}
	if o := c.o; o != nil && failure != nil {
		if o.assigned || o.told > 0 {
			s.mu.Unlock() // the end of the session answers it
			return fmt.Errorf("%w: its Append failed (%w) after it placed the Pending or told of it; %w", data.ErrFrame, failure, errPlugin)
		}
		delete(s.pending, h.ID)
	}
	delete(s.calls, h.ID)
	if s.idle != nil && len(s.calls) == 0 {
		close(s.idle)
		s.idle = nil
	}
	s.mu.Unlock()
	c.done <- failure
	return nil
}

// outcome tells one.
func (s *session) outcome(h *data.Head, body []byte) error {
	x, err := readOutcome(body)
	if err != nil {
		return err
	}
	o, err := s.find(h.ID)
	if err != nil {
		return err
	}
	if x.from != o.told || x.to > o.groups {
		return fmt.Errorf("%w: outcome of the groups [%d, %d) of %d after %d were told; %w", data.ErrFrame, x.from, x.to, o.groups, o.told, errPlugin)
	}
	o.told = x.to
	if o.settled() { // from here on the engine may use it again
		s.forget(o)
	}
	o.sink.Done(o.p, x.from, x.to, x.o, s.kept.restore(x.err))
	return nil
}

// place makes the host's Sequencer do what the plugin's did.
func (s *session) place(h *data.Head, body []byte) error {
	seq := s.r.p.Sequencer
	switch h.Kind {
	case kindOpened:
		o, err := readOpened(body)
		if err != nil {
			return err
		}
		if st := s.r.p.Store.State(); st.Tail != o.tail || st.Segment != o.segment {
			return fmt.Errorf("%w: it opens its Sequencer at %d with segments of %d bytes, the log ends at %d and has %d; %w", data.ErrFrame, o.tail, o.segment, st.Tail, st.Segment, errPlugin)
		}
		err = seq.Open(o.term, storage.State{Segment: o.segment, Published: o.tail, Tail: o.tail, LastStoreTime: o.lastStoreTime}, o.ends)
		s.opened.Store(err == nil)
		return err
	case kindMoved:
		m, err := readMoved(body)
		if err != nil {
			return err
		}
		if seq.Segment() == 0 {
			return fmt.Errorf("%w: it places records before it opened its Sequencer; %w", data.ErrFrame, errPlugin)
		}
		seq.Adopt(m.tail, m.last, m.ends)
		return nil
	}
	o, err := s.find(h.ID)
	if err != nil {
		return err
	}
	if h.Kind == kindAssigned {
		a, err := readAssigned(body)
		if err != nil {
			return err
		}
		if o.assigned {
			return fmt.Errorf("%w: it places Pending %d twice; %w", data.ErrFrame, o.id, errPlugin)
		}
		if err := seq.AssignAt(o.p, a.lead, a.last); err != nil {
			return fmt.Errorf("%w: it placed what cannot be placed: %w; %w", data.ErrFrame, err, errPlugin)
		}
		o.assigned = true
		o.gone, o.left = append(o.gone[:0], make([]bool, len(o.p.Batches))...), len(o.p.Batches)
		if o.p.At != a.at || o.p.End != a.end {
			return fmt.Errorf("%w: it placed Pending %d from %d to %d, the host from %d to %d; build both from the same version", data.ErrFrame, o.id, a.at, a.end, o.p.At, o.p.End)
		}
		return nil
	}
	from, rewind, err := readUndone(body)
	if err != nil {
		return err
	}
	if !o.assigned || rewind && slices.Contains(o.gone, true) {
		return fmt.Errorf("%w: it takes back Pending %d, which is not placed or is in the log; %w", data.ErrFrame, o.id, errPlugin)
	}
	if !rewind {
		return seq.Abandon(o.p, from)
	}
	o.assigned, o.left = false, 0
	return seq.Rewind(o.p)
}

// batch finds one that is neither the store's nor freed, and makes it so.
func (s *session) batch(id uint64, n int) (*ordered, *storage.Batch, error) {
	o, err := s.find(id)
	if err != nil {
		return nil, nil, err
	}
	if !o.assigned || n < 0 || n >= len(o.gone) || o.gone[n] {
		return nil, nil, fmt.Errorf("%w: it speaks of batch %d of Pending %d, which is not there any more; %w", data.ErrFrame, n, id, errPlugin)
	}
	o.gone[n] = true
	o.left--
	return o, &o.p.Batches[n], nil
}

func (s *session) freed(h *data.Head, body []byte) error {
	n, err := readNumber(body)
	if err != nil {
		return err
	}
	o, b, err := s.batch(h.ID, n)
	if err != nil {
		return err
	}
	if o.settled() {
		s.forget(o)
	}
	b.Done()
	return nil
}

// change does what changes the log. What waits for nobody is done by the reader
// itself: the plugin waits for it, too.
func (s *session) change(h *data.Head, body []byte) error {
	s.quiet.changing.Add(1) // logDone ends it; an error ends the session
	ctx, stop := s.context(h)
	raw := s.r.p.Store.Capabilities().RawLog
	if raw == nil && h.Kind != kindStore && h.Kind != kindWhole {
		stop()
		s.logDone(h.ID, storage.ErrUnsupported)
		return nil
	}
	switch h.Kind {
	case kindStore:
		defer stop()
		r, err := readBatchRef(body)
		if err != nil {
			return err
		}
		o, b, err := s.batch(r.pending, r.n)
		if err != nil {
			return err
		}
		if b.Term != r.term || b.At != r.at {
			return fmt.Errorf("%w: it appends batch %d of Pending %d at %d in term %d, it was placed at %d in term %d; %w", data.ErrFrame, r.n, r.pending, r.at, r.term, b.At, b.Term, errPlugin)
		}
		if o.settled() {
			s.forget(o)
		}
		s.logDone(h.ID, s.r.p.Store.Append(ctx, b))
	case kindWhole:
		defer stop()
		failed, err := s.lender.Append(ctx, body)
		if err != nil {
			return err
		}
		s.logDone(h.ID, failed)
	case kindPublish:
		defer stop()
		at, err := readPosition(body)
		if err != nil {
			return err
		}
		s.logDone(h.ID, raw.Publish(ctx, at))
	case kindTruncate:
		at, err := readPosition(body)
		if err != nil {
			stop()
			return err
		}
		s.tasks.Go(func() { // it waits for readers
			defer stop()
			s.logDone(h.ID, raw.Truncate(ctx, at))
		})
	case kindReset:
		d := data.Decoder{B: body}
		first := d.Int()
		ends := data.ReadEnds(&d)
		if err := d.Done("Reset"); err != nil {
			stop()
			return err
		}
		id := h.ID
		s.tasks.Go(func() {
			defer stop()
			s.logDone(id, raw.Reset(ctx, position(first), ends))
		})
	}
	return nil
}

// context makes that of a call of the plugin.
func (s *session) context(h *data.Head) (context.Context, func()) {
	switch h.Kind {
	case kindTruncate, kindReset, kindGone, kindReopened:
	default: // it waits for nobody
		if h.Timeout == 0 {
			return s.ctx, func() {}
		}
	}
	ctx, cancel := h.Context(s.ctx)
	id := h.ID
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancels != nil {
		s.cancels[id] = cancel
	}
	return ctx, func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.cancels, id)
	}
}

// logDone answers a call that changes the log.
func (s *session) logDone(id uint64, err error) {
	defer s.quiet.changing.Add(-1)
	out := data.TakeBuffer()
	defer data.GiveBuffer(out)
	*out = frame((*out)[:0], kindLogDone, id, 0, func(b []byte) []byte {
		return data.PutFailure(s.lender.AppendMarks(b), s.kept.number(err))
	})
	s.post(*out)
}

// reopener does the calls of that facet, which wait. From Reopened's return on the
// plugin knows the log as it is then.
func (s *session) reopener(h *data.Head) {
	ctx, stop := s.context(h)
	id, back := h.ID, h.Kind == kindReopened
	if back {
		s.quiet.asking.Add(1)
	}
	s.tasks.Go(func() {
		defer stop()
		if back {
			defer s.quiet.asking.Add(-1)
		}
		r, err := s.r.p.Store.Capabilities().Reopener, storage.ErrUnsupported
		switch {
		case r != nil && back:
			err = r.Reopened(ctx)
		case r != nil:
			err = r.Gone(ctx)
		}
		if back && err == nil {
			s.post(frame(nil, kindState, 0, 0, func(b []byte) []byte { return putState(b, s.lender.State()) }))
		}
		s.post(frame(nil, kindRoleDone, id, 0, func(b []byte) []byte { return data.PutFailure(b, s.kept.number(err)) }))
	})
}

// role calls OnRole beside the reader, since the engine may append in it.
func (s *session) role(h *data.Head, body []byte) error {
	d := data.Decoder{B: body}
	r := readRole(&d)
	if err := d.Done("a role"); err != nil {
		return err
	}
	id, mine := h.ID, s.r.setRole(s, r)
	ctx, cancel := context.WithCancel(context.Background())
	s.mu.Lock()
	if old := s.cancels[id]; old != nil {
		old()
	}
	s.cancels[id] = cancel
	s.mu.Unlock()
	s.quiet.asking.Add(1)
	s.tasks.Go(func() {
		defer s.quiet.asking.Add(-1)
		err := error(replication.ErrFenced)
		if mine {
			err = s.r.onRole(ctx, r)
		}
		s.post(frame(nil, kindRoleDone, id, 0, func(b []byte) []byte { return data.PutFailure(b, s.kept.number(err)) }))
	})
	return nil
}
