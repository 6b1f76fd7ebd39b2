package storagewire

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

// A data connection begins with the nonce and its role.
const (
	nonceSize = 32
	roleLog   = 'L'
	roleRead  = 'R'
	// helloTime bounds the beginning of a connection.
	helloTime = 10 * time.Second
)

// instance is one store with its two connections: calls that change the log come
// over one and are done in order by its reader; all others come over the other
// and each gets a goroutine.
type instance struct {
	store  storage.Store
	caps   storage.Capabilities
	logger *slog.Logger
	ln     net.Listener
	nonce  []byte

	ctx    context.Context // ends with the instance
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	ready  chan struct{} // both connections are there
	log    sender
	read   sender

	version struct {
		sync.Mutex
		n uint64
	}
	calls struct {
		sync.Mutex
		cancels map[uint64]context.CancelFunc
		early   uint64 // cancelled before it arrived, on the log connection
	}
	ev emitter
}

func newInstance() *instance {
	i := &instance{ready: make(chan struct{})}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	i.calls.cancels = map[uint64]context.CancelFunc{}
	return i
}

// accept takes the two connections and serves them.
func (i *instance) accept() {
	defer i.ln.Close()
	stop := context.AfterFunc(i.ctx, func() { _ = i.ln.Close() })
	defer stop()
	for i.log.conn == nil || i.read.conn == nil {
		c, err := i.ln.Accept()
		if err != nil {
			return
		}
		role, err := i.hello(c)
		switch {
		case err == nil && role == roleLog && i.log.conn == nil:
			i.log.conn = c
		case err == nil && role == roleRead && i.read.conn == nil:
			i.read.conn = c
		default:
			i.logger.Warn("a connection to the data socket was refused", "role", role, "error", err)
			_ = c.Close()
		}
	}
	for _, c := range []net.Conn{i.log.conn, i.read.conn} {
		widen(c)
		i.tasks.Go(func() {
			<-i.ctx.Done()
			_ = c.Close()
		})
	}
	close(i.ready)
	i.tasks.Go(func() { i.serve("log", i.serveLog) })
	i.tasks.Go(func() { i.serve("read", i.serveRead) })
}

func (i *instance) hello(c net.Conn) (byte, error) {
	var b [nonceSize + 1]byte
	if err := c.SetReadDeadline(time.Now().Add(helloTime)); err != nil {
		return 0, err
	}
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return 0, err
	}
	if subtle.ConstantTimeCompare(b[:nonceSize], i.nonce) != 1 {
		return 0, errors.New("wrong nonce")
	}
	return b[nonceSize], c.SetReadDeadline(time.Time{})
}

// widen asks for socket buffers that hold a batch, so that its writer is not
// woken for every part of it. The system may give less.
func widen(c net.Conn) {
	if u, ok := c.(*net.UnixConn); ok {
		_ = u.SetWriteBuffer(1 << 20)
		_ = u.SetReadBuffer(1 << 20)
	}
}

// serve runs a reader. When it ends, so do both connections: the host must not
// wait for an answer that never comes.
func (i *instance) serve(what string, loop func() error) {
	defer i.cancel()
	if err := loop(); err != nil && i.ctx.Err() == nil && !errors.Is(err, io.EOF) {
		i.logger.Error("a data connection to the host broke", "connection", what, "error", err)
	}
}

func (i *instance) start(ctx context.Context) error {
	select {
	case <-i.ready:
	case <-ctx.Done():
		return fmt.Errorf("the data connections of the host did not come: %w", ctx.Err())
	case <-i.ctx.Done():
		return storage.ErrNotRunning
	}
	i.ev.begin(i, true)
	err := i.store.Start(ctx)
	st := i.store.State()
	i.ev.started(&st)
	return err
}

// shutdown stops the store first, so that calls under way get their answers.
func (i *instance) shutdown(ctx context.Context) error {
	err := i.store.Shutdown(ctx)
	i.cancel()
	i.tasks.Wait()
	return err
}

// marks orders states by a number, because answers of the two connections
// overtake each other.
func (i *instance) marks() marks {
	i.version.Lock()
	defer i.version.Unlock()
	i.version.n++
	st := i.store.State()
	return marksOf(i.version.n, &st)
}

func (i *instance) state() *storagepb.LogState {
	i.version.Lock()
	defer i.version.Unlock()
	i.version.n++
	st := i.store.State()
	return toState(i.version.n, &st)
}

// context makes that of a call; done ends it. Append and Publish wait for
// nobody, so that cancelling them would change nothing.
func (i *instance) context(h *head, onLog bool) (ctx context.Context, done func()) {
	if h.timeout == 0 && (h.kind == kindAppend || h.kind == kindPublish) {
		return i.ctx, func() {}
	}
	var cancel context.CancelFunc
	if h.timeout > 0 {
		ctx, cancel = context.WithTimeout(i.ctx, time.Duration(h.timeout))
	} else {
		ctx, cancel = context.WithCancel(i.ctx)
	}
	i.calls.Lock()
	defer i.calls.Unlock()
	if onLog && i.calls.early == h.id {
		cancel()
	}
	i.calls.cancels[h.id] = cancel
	return ctx, func() {
		cancel()
		i.calls.Lock()
		delete(i.calls.cancels, h.id)
		i.calls.Unlock()
	}
}

// cancelCall ends the context of a call. One on the log connection may not have
// arrived yet.
func (i *instance) cancelCall(h *head) {
	i.calls.Lock()
	defer i.calls.Unlock()
	if cancel := i.calls.cancels[h.id]; cancel != nil {
		cancel()
	} else if h.timeout > 0 { // marks the log connection
		i.calls.early = h.id
	}
}

// lentBatch is a batch in the plugin; it returns to its pool when the store
// frees it.
type lentBatch struct {
	storage.Batch
	lent atomic.Bool
	free func(*storage.Batch)
}

var lentBatches sync.Pool

func takeBatch() *lentBatch {
	b, _ := lentBatches.Get().(*lentBatch)
	if b == nil {
		b = &lentBatch{}
		b.free = func(*storage.Batch) {
			if b.lent.CompareAndSwap(true, false) { // a store that frees twice harms nobody else
				lentBatches.Put(b)
			}
		}
	}
	b.lent.Store(true)
	b.Batch = storage.Batch{Units: b.Units[:0], Keys: b.Keys[:0], Groups: b.Groups[:0], Free: b.free}
	return b
}

// serveLog does the calls that change the log.
func (i *instance) serveLog() error {
	var topics topicReader
	var out []byte
	in := newFrameReader(i.log.conn)
	for {
		h, body, err := in.next()
		if err != nil {
			return err
		}
		i.ev.begin(i, false)
		var o outcome
		if h.kind == kindAppend {
			o.err, err = i.append(&h, body, &topics)
		} else {
			o.err, err = i.change(&h, body)
		}
		out = i.ev.end(out[:0], &o)
		if err != nil {
			return err
		}
		o.marks = i.marks()
		n := len(out)
		out = putOutcome(begin(out), &o)
		finish(out, n, kindDone, h.id, 0, 0)
		if err := i.log.send(out); err != nil {
			return err
		}
	}
}

// append gives the store's error and that of the frame.
func (i *instance) append(h *head, body []byte, topics *topicReader) (failed, err error) {
	b := takeBatch()
	if err := readBatch(body, topics, &b.Batch); err != nil {
		b.free(nil)
		return nil, err
	}
	ctx, done := i.context(h, true)
	defer done()
	return i.store.Append(ctx, &b.Batch), nil
}

func (i *instance) change(h *head, body []byte) (failed, err error) {
	ctx, done := i.context(h, true)
	defer done()
	d := decoder{b: body}
	switch h.kind {
	case kindPublish, kindTruncate, kindExpire:
		at := message.Position(d.int())
		if err := d.done("a position"); err != nil {
			return nil, err
		}
		switch {
		case h.kind == kindExpire && i.caps.Retention != nil:
			return i.caps.Retention.Expire(ctx, at), nil
		case h.kind == kindPublish && i.caps.RawLog != nil:
			return i.caps.RawLog.Publish(ctx, at), nil
		case h.kind == kindTruncate && i.caps.RawLog != nil:
			failed = i.caps.RawLog.Truncate(ctx, at)
			i.ev.cut(failed == nil, at)
			return failed, nil
		}
	case kindReset:
		first := message.Position(d.int())
		ends := readEnds(&d)
		if err := d.done("Reset"); err != nil {
			return nil, err
		}
		if i.caps.RawLog != nil {
			failed = i.caps.RawLog.Reset(ctx, first, ends)
			i.ev.reset(failed == nil, first)
			return failed, nil
		}
	case kindDrop:
		ends := readEnds(&d)
		if err := d.done("Drop"); err != nil {
			return nil, err
		}
		if i.caps.Retention != nil {
			queues := make([]message.Queue, len(ends))
			for n := range ends {
				queues[n] = ends[n].Queue
			}
			return i.caps.Retention.Drop(ctx, queues), nil
		}
	default:
		return nil, fmt.Errorf("%w: kind %d on the log connection", errFrame, h.kind)
	}
	return storage.ErrUnsupported, nil
}

// serveRead does all other calls, several at once.
func (i *instance) serveRead() error {
	in := newFrameReader(i.read.conn)
	for {
		h, body, err := in.next()
		if err != nil {
			return err
		}
		var do func(context.Context, head)
		switch h.kind {
		case kindCancel:
			i.cancelCall(&h)
			continue
		case kindRead:
			var r storage.ReadRequest
			r, err = readReadRequest(body)
			do = func(ctx context.Context, h head) {
				i.chunk(h, r.Queue.Topic, func(c *storage.Chunk) error { return i.store.Read(ctx, r, c) })
			}
		case kindGet:
			var at []message.Position
			at, err = readPositions(body)
			do = func(ctx context.Context, h head) {
				i.chunk(h, "", func(c *storage.Chunk) error { return i.store.Get(ctx, at, c) })
			}
		case kindReadLog:
			d := decoder{b: body}
			from, most := message.Position(d.int()), d.int()
			err = d.done("ReadLog")
			do = func(ctx context.Context, h head) {
				i.chunk(h, "", func(c *storage.Chunk) error {
					if i.caps.RawLog == nil {
						return storage.ErrUnsupported
					}
					return i.caps.RawLog.ReadLog(ctx, from, int(min(most, maxFrame/2)), c)
				})
			}
		case kindOffsets:
			var q []storage.OffsetQuery
			q, err = readQueries(body)
			do = func(ctx context.Context, h head) { i.offsets(ctx, h, q) }
		case kindSync:
			d := decoder{b: body}
			end := message.Position(d.int())
			err = d.done("Sync")
			do = func(ctx context.Context, h head) { i.sync(ctx, h, end) }
		default:
			err = fmt.Errorf("%w: kind %d on the read connection", errFrame, h.kind)
		}
		if err != nil {
			return err
		}
		ctx, done := i.context(&h, false)
		i.tasks.Go(func() {
			defer done()
			do(ctx, h)
		})
	}
}

var chunks = sync.Pool{New: func() any { return new(storage.Chunk) }}

// chunk answers with records; the store's own memory is what is written.
func (i *instance) chunk(h head, topic string, fill func(*storage.Chunk) error) {
	c := chunks.Get().(*storage.Chunk)
	defer func() {
		c.Reset()
		chunks.Put(c)
	}()
	if err := fill(c); err != nil {
		i.failed(h, err)
		return
	}
	total := 0
	for _, f := range c.Frags {
		total += len(f)
	}
	out := takeBuffer()
	defer giveBuffer(out)
	*out = putChunk(begin((*out)[:0]), topic, c)
	if len(*out)+total > maxFrame {
		i.failed(h, fmt.Errorf("%w: an answer of %d bytes, at most %d cross to the host; ask for less", storage.ErrUnsupported, total, maxFrame))
		return
	}
	finish(*out, 0, kindDone, h.id, 0, total)
	_ = i.read.send(*out, c.Frags...) // a broken connection ends the reader, too
}

func (i *instance) failed(h head, err error) {
	out := putProto(begin(nil), wire.ToFailure(err))
	finish(out, 0, kindFailed, h.id, 0, 0)
	_ = i.read.send(out)
}

func (i *instance) offsets(ctx context.Context, h head, q []storage.OffsetQuery) {
	var a storage.OffsetAnswers
	if err := i.store.Offsets(ctx, q, &a); err != nil {
		i.failed(h, err)
		return
	}
	out := takeBuffer()
	defer giveBuffer(out)
	*out = putAnswers(begin((*out)[:0]), len(q) == 0, &a)
	finish(*out, 0, kindDone, h.id, 0, 0)
	_ = i.read.send(*out)
}

func (i *instance) sync(ctx context.Context, h head, end message.Position) {
	o := outcome{err: i.store.Sync(ctx, end)}
	o.marks = i.marks()
	out := takeBuffer()
	defer giveBuffer(out)
	*out = putOutcome(begin((*out)[:0]), &o)
	finish(*out, 0, kindDone, h.id, 0, 0)
	_ = i.read.send(*out)
}
