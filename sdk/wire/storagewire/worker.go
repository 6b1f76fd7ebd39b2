package storagewire

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
)

// worker does calls other than those of the log connection, one at a time, and has the memory
// for them: what it is asked twice in a row costs it none.
type worker struct {
	i    *instance
	head data.Head

	read    storage.ReadRequest
	at      []message.Position // of Get
	pos     message.Position   // of ReadLog, Sync, Expire
	most    int64              // of ReadLog
	queries []storage.OffsetQuery

	chunk   storage.Chunk
	answers storage.OffsetAnswers
	out     []byte
}

// workers are those of the read connection.
var workers = sync.Pool{New: func() any { return new(worker) }}

// parse takes a request; nothing of body is kept.
func (w *worker) parse(h *data.Head, body []byte) (err error) {
	w.head = *h
	d := data.Decoder{B: body}
	switch h.Kind {
	case kindRead:
		return readReadRequest(body, &w.read)
	case kindGet:
		w.at, err = readPositions(body, w.at[:0])
		return err
	case kindReadLog:
		w.pos, w.most = message.Position(d.Int()), d.Int()
		return d.Done("ReadLog")
	case kindOffsets:
		w.queries, err = readQueries(body, w.queries[:0])
		return err
	case kindSync, kindExpire:
		w.pos = message.Position(d.Int())
		return d.Done(names[h.Kind])
	}
	return fmt.Errorf("%w: kind %d is no call of this connection", data.ErrFrame, h.Kind)
}

// do does the call and answers it; a broken connection ends its reader, too.
func (w *worker) do(ctx context.Context, to *data.Sender) {
	w.out = data.Begin(w.out[:0])
	var err error
	defer w.chunk.Reset() // what the store lent is on its way
	switch w.head.Kind {
	case kindRead:
		err = w.i.store.Read(ctx, w.read, &w.chunk)
	case kindGet:
		err = w.i.store.Get(ctx, w.at, &w.chunk)
	case kindReadLog:
		if raw := w.i.caps.RawLog; raw == nil {
			err = storage.ErrUnsupported
		} else {
			err = raw.ReadLog(ctx, w.pos, int(min(w.most, data.MaxFrame/2)), &w.chunk)
		}
	case kindOffsets:
		if err = w.i.store.Offsets(ctx, w.queries, &w.answers); err == nil {
			w.out = putAnswers(w.out, len(w.queries) == 0, &w.answers)
		}
	case kindSync, kindExpire:
		var o outcome
		if w.head.Kind == kindExpire {
			o = w.i.expire(ctx, w.pos)
		} else {
			o.err = w.i.store.Sync(ctx, w.pos)
		}
		o.marks = w.i.marks()
		w.out = putOutcome(w.out, &o)
	}
	kind, total := kindDone, 0
	if k := w.head.Kind; err == nil && k != kindOffsets && k != kindSync && k != kindExpire {
		topic := ""
		if k == kindRead {
			topic = w.read.Queue.Topic
		}
		w.out = putChunk(w.out, topic, &w.chunk)
		for _, f := range w.chunk.Frags { // the store's own memory is what is written
			total += len(f)
		}
		if len(w.out)+total > data.MaxFrame {
			err = fmt.Errorf("%w: an answer of %d bytes, at most %d cross to the host; ask for less", storage.ErrUnsupported, total, data.MaxFrame)
		}
	}
	if err != nil {
		kind, total = kindFailed, 0
		w.chunk.Reset()
		w.out = data.PutFailure(w.out[:data.HeadSize], err)
	}
	data.Finish(w.out, 0, kind, w.head.ID, 0, total)
	_ = to.Send(w.out, w.chunk.Frags...)
	if cap(w.out) > data.KeepSize {
		w.out = nil
	}
}

// serveRead does the calls of the read connection, several at once.
func (i *instance) serveRead() error {
	r := io.Reader(i.read.Conn)
	if i.line != nil {
		r = i.line.Hear(r)
	}
	in := data.NewReader(r, kindEvent)
	for {
		h, body, err := in.Next()
		if err != nil {
			return err
		}
		if h.Kind == kindCancel {
			i.cancelCall(&h)
			continue
		}
		w := workers.Get().(*worker)
		if err := w.parse(&h, body); err != nil {
			return err
		}
		w.i = i
		ctx, done := i.context(&h, false)
		i.busy.Add(1)
		i.tasks.Go(func() {
			defer i.busy.Add(-1)
			defer done()
			w.do(ctx, &i.read)
			w.i = nil
			workers.Put(w)
		})
	}
}

// lane is a call connection at the plugin; its reader does the calls.
type lane struct {
	to data.Sender
	w  worker

	mu     sync.Mutex
	ctx    context.Context // of calls without a deadline, until one is cancelled
	cancel context.CancelFunc
	id     uint64 // of the call under way
	early  uint64 // the last one that was cancelled when it was not under way
}

func newLane(i *instance, c io.ReadWriteCloser) *lane {
	l := &lane{w: worker{i: i}}
	l.to.Conn = c
	l.ctx, l.cancel = context.WithCancel(i.ctx)
	return l
}

// serve does the calls until the connection ends.
func (l *lane) serve() error {
	defer func() { l.cancel() }()
	var buf []byte
	for {
		h, b, err := data.ReadAlone(l.to.Conn, buf[:0], kindEvent)
		if err != nil {
			return err
		}
		if err := l.w.parse(&h, b[data.HeadSize:]); err != nil {
			return err
		}
		if buf = b; cap(buf) > data.KeepSize {
			buf = nil
		}
		ctx := l.begin(h.ID)
		if h.Timeout > 0 {
			var stop context.CancelFunc
			ctx, stop = h.Context(ctx)
			l.w.do(ctx, &l.to)
			stop()
		} else {
			l.w.do(ctx, &l.to)
		}
		l.end()
	}
}

// begin gives the context of a call; a call that was cancelled has one that is over.
func (l *lane) begin(id uint64) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id = id
	if l.early == id {
		l.cancel()
	}
	return l.ctx
}

func (l *lane) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id = 0
	if l.ctx.Err() != nil {
		l.ctx, l.cancel = context.WithCancel(l.w.i.ctx)
	}
}

// cancelCall ends the context of a call, which may not have arrived yet.
func (l *lane) cancelCall(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.id == id {
		l.cancel()
	} else {
		l.early = id
	}
}
