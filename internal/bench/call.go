package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/internal/rpc"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
)

type fields interface{ Append(w *command.Writer) }

// unreachable says what a failed dial means to who gave the address.
func unreachable(addr string, err error) error {
	return fmt.Errorf("nothing answers at %s; is a name server (--namesrv) or broker (--broker) running there? %w", addr, err)
}

// questions go to name servers and brokers beside a load, over connections of their own.
type questions struct {
	o     *Options
	trans *remoting.Transport
	links *rpc.Links
}

// questions are closed by who asked them.
func (o *Options) questions(ctx context.Context) (*questions, error) {
	t, err := remoting.New(ctx, transport.Params{}, remoting.Config{})
	if err != nil {
		return nil, err
	}
	if err := t.Start(ctx); err != nil {
		return nil, err
	}
	dialer := func() transport.Dialer { return t.Capabilities().Dialer }
	return &questions{o: o, trans: t, links: rpc.NewLinks(dialer, rpc.Options{TLS: o.TLS})}, nil
}

// ask makes one request. The error says what was asked of whom, and matches
// *rpc.CodeError when it was refused.
func (q *questions) ask(ctx context.Context, addr string, code int32, req fields) (*rpc.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, q.o.Timeout)
	defer cancel()
	r, err := q.links.Call(ctx, addr, rpc.Request(code, req.Append, nil))
	var dial *net.OpError
	switch {
	case errors.As(err, &dial) && dial.Op == "dial":
		return nil, unreachable(addr, dial.Err)
	case err == nil:
		err = r.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("%s to %s: %w", command.RequestName(code), addr, err)
	}
	return r, nil
}

func (q *questions) close() {
	q.links.Close()
	_ = q.trans.Shutdown(context.Background()) // nothing is under way any more
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
	asks, err := o.questions(ctx)
	if err != nil {
		return nil, err
	}
	defer asks.close()
	if o.Broker != "" {
		t.brokers = []string{o.Broker}
	} else {
		topic := o.Topic
		if o.CreateTopic {
			topic = autoCreate
		}
		err := t.route(ctx, asks, topic, write)
		var re *rpc.CodeError
		if errors.As(err, &re) && re.Code == command.RespTopicNotExist && topic != autoCreate && write {
			err = t.route(ctx, asks, autoCreate, write)
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
			if _, err := asks.ask(ctx, b, command.ReqUpdateAndCreateTopic, &req); err != nil {
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

func (t *target) route(ctx context.Context, asks *questions, topic string, write bool) error {
	server := asks.o.NameServer
	answer, err := asks.ask(ctx, server, command.ReqGetRouteInfoByTopic, &command.RouteRequest{Topic: topic, AcceptStandardJSONOnly: true})
	if err != nil {
		return err
	}
	var r command.TopicRouteData
	if err := command.DecodeBody(answer.Body, &r); err != nil {
		return fmt.Errorf("route of %s: %w", topic, err)
	}
	master := map[string]string{}
	for _, b := range r.BrokerDatas {
		if addr := b.BrokerAddrs[0]; addr != "" {
			master[b.BrokerName] = addr
		}
	}
	var barred []string
	for _, q := range r.QueueDatas {
		addr, n, needed := master[q.BrokerName], q.ReadQueueNums, command.PermRead
		if write {
			n, needed = q.WriteQueueNums, command.PermWrite
		}
		if addr == "" {
			continue
		}
		if q.Perm&needed == 0 { // clients leave it out, too
			barred = append(barred, fmt.Sprintf("%s (permission %d)", q.BrokerName, q.Perm))
			continue
		}
		if n < 0 || n > maxQueues {
			return fmt.Errorf("route of %s: %s says that broker %s has %d queues, believable are 0 to %d", topic, server, q.BrokerName, n, maxQueues)
		}
		if !slices.Contains(t.brokers, addr) {
			t.brokers = append(t.brokers, addr)
		}
		for i := range n {
			t.queues = append(t.queues, queue{addr, i})
		}
	}
	if len(t.brokers) == 0 && len(barred) > 0 {
		return fmt.Errorf("name server %s tells clients of topic %s to keep off %s: brokerPermission, or the topic's perm, forbids it; --broker asks a broker itself", server, topic, strings.Join(barred, ", "))
	}
	if len(t.brokers) == 0 {
		return fmt.Errorf("name server %s knows no master for topic %s", server, topic)
	}
	return nil
}
