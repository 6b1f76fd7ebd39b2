package storagewire

import (
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

// WithStream makes instances offer the stream Data in place of the data sockets,
// as plugins in other languages do. It costs more and is there for tests of the
// host. Call it before Register.
func (s *Server) WithStream() *Server {
	s.stream = true
	return s
}

// pluginStream stands between the stream Data and the connections of an instance.
type pluginStream struct {
	stream    grpc.BidiStreamingServer[storagepb.DataRequest, storagepb.DataResponse]
	log, read *pipeEnd

	sending sync.Mutex
	mu      sync.Mutex
	under   map[uint64]asked // way
	onLog   []uint64         // those that change the log, in order
}

// Data implements storagepb.StorageServer.
func (s *Server) Data(stream grpc.BidiStreamingServer[storagepb.DataRequest, storagepb.DataResponse]) error {
	r, err := stream.Recv()
	if err != nil {
		return err
	}
	if r.GetAttach() == nil {
		return status.Errorf(codes.InvalidArgument, "the stream begins with %T, not with attach", r.GetCall())
	}
	p := &pluginStream{stream: stream, under: map[uint64]asked{}}
	nearLog, farLog := newPipe()
	nearRead, farRead := newPipe()
	p.log, p.read = farLog, farRead
	if err := s.attach(r.GetAttach().GetInstance(), nearLog, nearRead); err != nil {
		return err
	}
	// Recv returns when this function has: the stream ends with the instance.
	go func() { p.end(p.requests()) }()
	var wg sync.WaitGroup
	wg.Go(func() { p.end(p.answers(p.log)) })
	wg.Go(func() { p.end(p.answers(p.read)) })
	wg.Wait()
	return nil
}

// attach connects an instance, which nobody shuts down meanwhile.
func (s *Server) attach(id uint64, log, read *pipeEnd) error {
	return s.open.Hold(id, func(i *instance) error {
		if i.ln != nil || i.attached {
			return status.Errorf(codes.FailedPrecondition, "instance %d has its connections already", id)
		}
		i.attached = true
		i.connect(log, read)
		return nil
	})
}

func (p *pluginStream) end(why error) {
	p.log.closeFor(why)
	p.read.closeFor(why)
}

// requests translates what the host says.
func (p *pluginStream) requests() error {
	var topics data.TopicWriter
	var buf []byte
	for {
		r, err := p.stream.Recv()
		if err != nil {
			return err
		}
		if cap(buf) > data.KeepSize {
			buf = nil
		}
		var a asked
		if buf, a, err = putRequest(buf[:0], r, &topics); err != nil {
			return err
		}
		to := p.read
		if a.kind != kindCancel {
			p.mu.Lock()
			if p.under[r.GetId()] = a; onLog(a.kind) {
				p.onLog = append(p.onLog, r.GetId())
				to = p.log
			}
			p.mu.Unlock()
		}
		if _, err := to.Write(buf); err != nil {
			return err
		}
	}
}

// answers translates what one connection of the instance brings.
func (p *pluginStream) answers(from *pipeEnd) error {
	in := data.NewReader(from, kindEvent)
	for {
		h, body, err := in.Next()
		if err != nil {
			return err
		}
		var r *storagepb.DataResponse
		if h.Kind == kindEvent {
			r, err = toEvent(&h, body, p.call(from))
		} else if a, ok := p.take(h.ID); ok {
			r, err = toAnswer(&h, body, &a)
		} else {
			err = fmt.Errorf("%w: an answer to call %d, which is not under way", data.ErrFrame, h.ID)
		}
		if err != nil {
			return err
		}
		p.sending.Lock()
		err = p.stream.Send(r)
		p.sending.Unlock()
		if err != nil {
			return err
		}
	}
}

// call is the one that an event on a connection belongs to: on that of the log
// the oldest without an answer.
func (p *pluginStream) call(from *pipeEnd) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if from == p.log && len(p.onLog) > 0 {
		return p.onLog[0]
	}
	return 0
}

func (p *pluginStream) take(id uint64) (asked, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, ok := p.under[id]
	delete(p.under, id)
	if ok && onLog(a.kind) {
		p.onLog = p.onLog[1:]
	}
	return a, ok
}
