package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
)

// ResponseError is an answer with another code than success.
type ResponseError struct {
	Code   int32
	Remark string
}

func (e *ResponseError) Error() string {
	return fmt.Sprintf("%s (code %d): %s", command.ResponseName(e.Code), e.Code, e.Remark)
}

// callOpaque is that of the only request of a connection.
const callOpaque = 1

type fields interface{ Append(w *command.Writer) }

// unreachable says what a failed dial means to who gave the address.
func unreachable(addr string, err error) error {
	return fmt.Errorf("nothing answers at %s; is a name server (--namesrv) or broker (--broker) running there? %w", addr, err)
}

// call makes one request on a connection of its own.
func call(ctx context.Context, addr string, timeout time.Duration, code int32, req fields, h *command.Header) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, unreachable(addr, err)
	}
	defer nc.Close()
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	w := command.Begin(nil, command.JSON, code, callOpaque, 0)
	req.Append(&w)
	if _, err := nc.Write(w.End(0)); err != nil {
		return nil, fmt.Errorf("%s to %s: %w", command.RequestName(code), addr, err)
	}
	f, err := readFrame(bufio.NewReader(nc))
	if err != nil {
		return nil, fmt.Errorf("%s to %s: %w", command.RequestName(code), addr, err)
	}
	if err := h.Decode(&f); err != nil {
		return nil, fmt.Errorf("%s to %s: %w", command.RequestName(code), addr, err)
	}
	if !h.IsResponse() || h.Opaque != callOpaque {
		return nil, fmt.Errorf("%s to %s: answered with opaque %d, which was not asked", command.RequestName(code), addr, h.Opaque)
	}
	if h.Code != command.RespSuccess {
		return nil, fmt.Errorf("%s to %s: %w", command.RequestName(code), addr, &ResponseError{h.Code, string(h.Remark())})
	}
	return f.Body, nil
}

func readFrame(r io.Reader) (command.Frame, error) {
	buf := make([]byte, 4)
	if _, err := io.ReadFull(r, buf); err != nil {
		return command.Frame{}, err
	}
	n := binary.BigEndian.Uint32(buf)
	if n > command.MaxFrame {
		return command.Frame{}, command.ErrFrameTooLarge
	}
	buf = append(buf, make([]byte, n)...)
	if _, err := io.ReadFull(r, buf[4:]); err != nil {
		return command.Frame{}, err
	}
	frames, _, _, err := command.Split(buf, nil, command.DefaultLimits())
	if err != nil {
		return command.Frame{}, err
	}
	if len(frames) != 1 {
		return command.Frame{}, command.ErrHeader
	}
	return frames[0], nil
}

// queue is one queue of the topic on one broker.
type queue struct {
	broker string // address
	id     int32
}

// target is where the load goes.
type target struct {
	brokers []string // addresses of masters
	queues  []queue
}

// on lists the queue ids of a broker.
func (t *target) on(broker string) []int32 {
	var ids []int32
	for _, q := range t.queues {
		if q.broker == broker {
			ids = append(ids, q.id)
		}
	}
	return ids
}

// autoCreate is the topic that stands for all that do not exist yet.
const autoCreate = "TBW102"

// locate finds the brokers and queues, and creates the topic when asked to.
func locate(ctx context.Context, o *Options, write bool) (*target, error) {
	t := &target{}
	if o.Broker != "" {
		t.brokers = []string{o.Broker}
	} else {
		topic := o.Topic
		if o.CreateTopic {
			topic = autoCreate
		}
		err := t.route(ctx, o, topic, write)
		var re *ResponseError
		if errors.As(err, &re) && re.Code == command.RespTopicNotExist && topic != autoCreate && write {
			err = t.route(ctx, o, autoCreate, write)
			t.queues = nil
		}
		if err != nil {
			return nil, err
		}
	}
	if o.CreateTopic {
		req := command.CreateTopicRequest{
			Topic: o.Topic, DefaultTopic: autoCreate, TopicFilterType: "SINGLE_TAG",
			ReadQueueNums: int32(o.Queues), WriteQueueNums: int32(o.Queues), Perm: command.PermRead | command.PermWrite,
		}
		for _, b := range t.brokers {
			var h command.Header
			if _, err := call(ctx, b, o.Timeout, command.ReqUpdateAndCreateTopic, &req, &h); err != nil {
				return nil, fmt.Errorf("creating topic %s: %w", o.Topic, err)
			}
		}
		t.queues = nil
	}
	if t.queues == nil {
		for _, b := range t.brokers {
			for i := range o.Queues {
				t.queues = append(t.queues, queue{b, int32(i)})
			}
		}
	}
	return t, nil
}

// maxQueues is how many queues of a topic a broker may have for a name server to
// be believed: there is memory for each.
const maxQueues = 1 << 16

func (t *target) route(ctx context.Context, o *Options, topic string, write bool) error {
	var h command.Header
	body, err := call(ctx, o.NameServer, o.Timeout, command.ReqGetRouteInfoByTopic, &command.RouteRequest{Topic: topic, AcceptStandardJSONOnly: true}, &h)
	if err != nil {
		return err
	}
	var r command.TopicRouteData
	if err := command.DecodeBody(body, &r); err != nil {
		return fmt.Errorf("route of %s: %w", topic, err)
	}
	master := map[string]string{}
	for _, b := range r.BrokerDatas {
		if addr := b.BrokerAddrs[0]; addr != "" {
			master[b.BrokerName] = addr
		}
	}
	for _, q := range r.QueueDatas {
		addr, n := master[q.BrokerName], q.ReadQueueNums
		if write {
			n = q.WriteQueueNums
		}
		if addr == "" {
			continue
		}
		if n < 0 || n > maxQueues {
			return fmt.Errorf("route of %s: %s says that broker %s has %d queues, believable are 0 to %d", topic, o.NameServer, q.BrokerName, n, maxQueues)
		}
		if !slices.Contains(t.brokers, addr) {
			t.brokers = append(t.brokers, addr)
		}
		for i := range n {
			t.queues = append(t.queues, queue{addr, i})
		}
	}
	if len(t.brokers) == 0 {
		return fmt.Errorf("name server %s knows no master for topic %s", o.NameServer, topic)
	}
	return nil
}
