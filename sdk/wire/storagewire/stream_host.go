package storagewire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire/internal/data"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

// hostStream stands between the connections of a store and the stream Data of its
// plugin.
type hostStream struct {
	name      string // of the plugin
	most      int64  // bytes of a request that the plugin takes
	stream    grpc.BidiStreamingClient[storagepb.DataRequest, storagepb.DataResponse]
	cancel    context.CancelFunc
	log, read *pipeEnd

	sending sync.Mutex
	mu      sync.Mutex
	under   map[uint64]asked // way
}

// openStream gives the connections to an instance without data sockets. They end
// with the stream; run runs what serves them, until one of them is closed.
func openStream(c grpc.ClientConnInterface, name string, r *storagepb.OpenResponse, run func(func())) (log, read io.ReadWriteCloser, err error) {
	s := &hostStream{name: name, most: r.GetMaxMessage(), under: map[uint64]asked{}}
	if s.most <= 0 || s.most > maxStream {
		s.most = maxStream
	}
	// It lives as long as the store does, not only while that starts.
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.stream, err = storagepb.NewStorageClient(c).Data(ctx, grpc.MaxCallRecvMsgSize(maxStream), grpc.MaxCallSendMsgSize(maxStream))
	if err == nil {
		err = s.stream.Send(&storagepb.DataRequest{Call: &storagepb.DataRequest_Attach{Attach: &storagepb.Attach{Instance: r.GetInstance()}}})
	}
	if err != nil {
		cancel()
		return nil, nil, err
	}
	nearLog, farLog := newPipe()
	nearRead, farRead := newPipe()
	s.log, s.read = farLog, farRead
	for _, from := range []*pipeEnd{s.log, s.read} {
		run(func() { s.end(s.requests(from)) })
	}
	run(func() { s.end(s.answers()) })
	return nearLog, nearRead, nil
}

// end ends everything; the store gets the first reason.
func (s *hostStream) end(why error) {
	s.cancel()
	s.log.closeFor(why)
	s.read.closeFor(why)
}

// requests translates what one connection of the store brings.
func (s *hostStream) requests(from *pipeEnd) error {
	var topics data.TopicReader
	in := data.NewReader(from, kindEvent)
	for {
		h, body, err := in.Next()
		if err != nil {
			return err
		}
		r, a, err := toRequest(&h, body, &topics)
		if err != nil {
			return err
		}
		if n := int64(proto.Size(r)); n > s.most {
			if err := s.refuse(&h, n); err != nil {
				return err
			}
			continue
		}
		if h.Kind != kindCancel {
			s.mu.Lock()
			s.under[h.ID] = a
			s.mu.Unlock()
		}
		s.sending.Lock()
		err = s.stream.Send(r)
		s.sending.Unlock()
		if errors.Is(err, io.EOF) {
			return nil // the reason comes with the answers
		}
		if err != nil {
			return err
		}
	}
}

// refuse answers a request that is larger than the plugin takes.
func (s *hostStream) refuse(h *data.Head, size int64) error {
	err := fmt.Errorf("%w: it takes %d bytes to the storage plugin %q, whose gRPC takes %d; lower the broker's message limit, or raise that of the plugin",
		storage.ErrTooLarge, size, s.name, s.most)
	if !onLog(h.Kind) {
		return err // no such request is large
	}
	b := putOutcome(data.Begin(nil), &outcome{err: err})
	data.Finish(b, 0, kindDone, h.ID, 0, 0)
	_, err = s.log.Write(b)
	return err
}

// answers translates what the plugin says.
func (s *hostStream) answers() error {
	var buf []byte
	for {
		r, err := s.stream.Recv()
		if err != nil {
			return err
		}
		if cap(buf) > data.KeepSize {
			buf = nil
		}
		s.mu.Lock()
		a, under := s.under[r.GetId()]
		if r.GetEvent() == nil {
			delete(s.under, r.GetId())
		}
		s.mu.Unlock()
		switch {
		case r.GetEvent() != nil:
			buf, err = putEventOf(buf[:0], r.GetEvent())
		case under:
			buf, err = putAnswer(buf[:0], r, &a)
		default:
			err = fmt.Errorf("%w: an answer to call %d, which is not under way", data.ErrFrame, r.GetId())
		}
		if err != nil {
			return err
		}
		to := s.read
		if under && onLog(a.kind) {
			to = s.log
		}
		if _, err := to.Write(buf); err != nil {
			return err
		}
	}
}
