package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/internal/adminclient"
	"github.com/hardpointmq/hardpoint/internal/rpc"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
	"github.com/hardpointmq/hardpoint/sdk/embedded"
)

// sceneStart is the time at which a scene begins; it stands still between commands.
var sceneStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// sceneClock shows the time of a scene. Short timers run as always; long ones, of
// samples and of what is done now and then, do not, so that a slow machine sees no more
// than a fast one.
type sceneClock struct{ ms atomic.Int64 }

func (c *sceneClock) Now() time.Time { return time.UnixMilli(c.ms.Load()) }

func (c *sceneClock) NewTimer(d time.Duration) plugin.Timer {
	return sceneTimer{plugin.SystemClock{}.NewTimer(sceneWait(d))}
}

type sceneTimer struct{ plugin.Timer }

func (t sceneTimer) Reset(d time.Duration) bool { return t.Timer.Reset(sceneWait(d)) }

func sceneWait(d time.Duration) time.Duration {
	if d >= 5*time.Second {
		return 24 * time.Hour
	}
	return d
}

// scene is brokers with a name server in the process of the test, clients of them, and
// brokers that the name server knows though they are away.
type scene struct {
	clock   sceneClock
	brokers map[string]*embedded.Broker
	names   string // address of the name server
	tr      *remoting.Transport
	admin   *adminclient.Client
	clients []*rpc.Client
	dir     string // of stores that keep files in small segments; empty: in memory
}

// start runs brokers of cluster C, the first one with a name server.
func (s *scene) start(ctx context.Context, names []string) error {
	s.clock.ms.Store(sceneStart.UnixMilli())
	s.brokers = map[string]*embedded.Broker{}
	var err error
	if s.tr, err = remoting.New(ctx, transport.Params{}, remoting.NewDefaultConfig()); err != nil {
		return err
	}
	if err := s.tr.Start(ctx); err != nil {
		return err
	}
	for i, name := range names {
		opts := []embedded.Option{
			embedded.With("brokerName", name), embedded.With("brokerClusterName", "C"), embedded.With("vipChannel", "false"), embedded.WithClock(&s.clock),
			embedded.With("diskSpaceWarningLevelRatio", "99"), embedded.With("cleanFileForciblyEnable", "false"), embedded.With("fileReservedTime", "87600"),
		}
		if s.dir != "" {
			opts = append(opts, embedded.WithDir(filepath.Join(s.dir, name)), embedded.With("mappedFileSizeCommitLog", "1MiB"), embedded.With("maxMessageSize", "64KiB"))
		}
		if i > 0 {
			opts = append(opts, embedded.WithoutNameServer(), embedded.With("namesrvAddr", s.names))
		}
		b, err := embedded.New(ctx, opts...)
		if err != nil {
			return err
		}
		s.brokers[name] = b
		if i == 0 {
			s.names = b.NamesrvAddress()
			s.admin = adminclient.New(adminclient.Options{Dialer: s.tr.Capabilities().Dialer, NameServers: []string{s.names}})
		}
	}
	return s.until("all brokers are registered", func() bool {
		info, err := s.admin.Clusters(ctx)
		return err == nil && len(info.BrokerAddrTable) == len(names)
	})
}

// until polls.
func (s *scene) until(what string, ok func() bool) error {
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return errors.New("it is not so after a minute: " + what)
		}
	}
	return nil
}

func (s *scene) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	for _, c := range s.clients {
		_ = c.Close()
		<-c.Done()
	}
	if s.admin != nil {
		s.admin.Close()
	}
	var first *embedded.Broker
	for _, b := range s.brokers {
		if b.NamesrvAddress() != "" {
			first = b
			continue
		}
		errs = append(errs, b.Close(ctx))
	}
	if first != nil {
		errs = append(errs, first.Close(ctx))
	}
	if s.tr != nil {
		errs = append(errs, s.tr.Shutdown(ctx))
	}
	return errors.Join(errs...)
}

// away registers a broker that nothing answers for.
func (s *scene) away(ctx context.Context, name, address string) error {
	c, err := s.dial(ctx, s.names, nil)
	if err != nil {
		return err
	}
	h := command.RegisterBrokerRequest{BrokerID: command.BrokerID{BrokerName: name, BrokerAddr: address, ClusterName: "C"}, HAServerAddr: address}
	body, crc, err := (&command.RegisterBrokerBody{}).Encode()
	if err != nil {
		return err
	}
	h.BodyCRC32 = crc
	r, err := c.Call(ctx, rpc.Request(command.ReqRegisterBroker, h.Append, body))
	if err != nil {
		return err
	}
	return r.Err()
}

func (s *scene) dial(ctx context.Context, address string, requests func(transport.Peer, *command.Header, *command.Frame)) (*rpc.Client, error) {
	c, err := rpc.Dial(ctx, s.tr.Capabilities().Dialer, address, rpc.Options{Requests: requests})
	if err == nil {
		s.clients = append(s.clients, c)
	}
	return c, err
}

// sceneMember is a client of a group.
type sceneMember struct {
	id    string
	model command.MessageModel
	subs  []command.SubscriptionData
	// queues are those it says it holds; nil: it does not answer.
	queues map[command.MessageQueue]command.ProcessQueueInfo
}

// join connects a member to brokers; it is one until the scene ends.
func (s *scene) join(ctx context.Context, group string, m sceneMember, brokers ...string) error {
	for _, name := range brokers {
		c, err := s.dial(ctx, s.brokers[name].Address(), func(p transport.Peer, h *command.Header, f *command.Frame) {
			if h.Code != command.ReqGetConsumerRunningInfo || m.queues == nil {
				if !h.IsOneway() {
					_ = p.Send(command.Frame{Header: command.AppendResponse(nil, f.Type, command.RespSystemError, h.Opaque, "busy", 0)})
				}
				return
			}
			info := command.ConsumerRunningInfo{MQTable: m.queues, SubscriptionSet: m.subs}
			body, err := command.EncodeBody(info)
			if err != nil {
				panic(err)
			}
			w := command.Begin(nil, f.Type, command.RespSuccess, h.Opaque, command.FlagResponse)
			_ = p.Send(command.Frame{Header: w.End(len(body)), Body: body})
		})
		if err != nil {
			return err
		}
		hb := command.HeartbeatData{ClientID: m.id, ConsumerDataSet: []command.ConsumerData{{
			GroupName: group, ConsumeType: command.ConsumePassively, MessageModel: m.model, ConsumeFromWhere: command.ConsumeFromLastOffset, SubscriptionDataSet: m.subs,
		}}}
		body, err := command.EncodeBody(hb)
		if err != nil {
			return err
		}
		r, err := c.Call(ctx, rpc.Request(command.ReqHeartBeat, nil, body))
		if err == nil {
			err = r.Err()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// subscription reads TOPIC or TOPIC:EXPRESSION.
func subscription(text string) command.SubscriptionData {
	topic, expr, ok := strings.Cut(text, ":")
	if !ok {
		expr = "*"
	}
	return command.SubscriptionData{Topic: topic, SubString: expr, ExpressionType: "TAG", SubVersion: 1}
}

// commit stores the offset of a group.
func (s *scene) commit(ctx context.Context, broker, group, topic string, queue int32, offset int64) error {
	h := command.UpdateConsumerOffsetRequest{ConsumerGroup: []byte(group), Topic: []byte(topic), QueueID: queue, CommitOffset: offset}
	_, err := s.admin.Ask(ctx, s.brokers[broker].Address(), command.ReqUpdateConsumerOffset, &h, nil)
	return err
}

// sceneBody is the length of messages: a segment takes few.
const sceneBody = 10 << 10

// send sends n messages to a queue, the clock going on by step after each.
func (s *scene) send(ctx context.Context, broker, topic string, queue int32, n int, step time.Duration) error {
	for range n {
		if _, err := s.brokers[broker].API().Send(ctx, &api.SendRequest{Topic: topic, Queue: queue, Body: make([]byte, sceneBody)}); err != nil {
			return err
		}
		s.clock.ms.Add(step.Milliseconds())
	}
	return nil
}

// routed: the name server tells of a topic what the brokers have.
func (s *scene) routed(ctx context.Context, topic string) bool {
	route, err := s.admin.Route(ctx, topic)
	if err != nil {
		return false
	}
	for name, b := range s.brokers {
		cfg, err := topicConfig(ctx, s.admin, adminclient.Broker{Address: b.Address()}, topic)
		i := slices.IndexFunc(route.QueueDatas, func(q command.QueueData) bool { return q.BrokerName == name })
		if err != nil || (cfg == nil) != (i < 0) {
			return false
		}
		if cfg != nil && (route.QueueDatas[i].Perm != cfg.Perm || route.QueueDatas[i].ReadQueueNums != cfg.ReadQueueNums) {
			return false
		}
	}
	return true
}

const sceneKey = "scene"

func sceneOf(ts *testscript.TestScript) *scene { return ts.Value(sceneKey).(*scene) }

// adminCmds are commands of scripts about running brokers.
var adminCmds = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	// cluster [-files] NAME...: brokers of cluster C; NAMESRV_ADDR and the address of each are in
	// the environment then
	"cluster": func(ts *testscript.TestScript, _ bool, args []string) {
		s := sceneOf(ts)
		if args[0] == "-files" {
			s.dir, args = ts.MkAbs("data"), args[1:]
		}
		ts.Defer(func() { ts.Check(s.close()) })
		ts.Check(s.start(context.Background(), args))
		ts.Setenv("NAMESRV_ADDR", s.names)
		for name, b := range s.brokers {
			ts.Setenv(strings.ReplaceAll(name, "-", "_"), b.Address())
		}
	},
	// masked FILE: writes the last standard output, brokers in place of their addresses
	"masked": func(ts *testscript.TestScript, _ bool, args []string) {
		text := ts.ReadFile("stdout")
		for name, b := range sceneOf(ts).brokers {
			text = strings.ReplaceAll(text, b.Address(), "address of "+name)
		}
		ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
	},
	// away NAME ADDRESS: a broker that is registered and does not answer
	"away": func(ts *testscript.TestScript, _ bool, args []string) {
		ts.Check(sceneOf(ts).away(context.Background(), args[0], args[1]))
	},
	// send BROKER TOPIC QUEUE COUNT [STEP]
	"send": func(ts *testscript.TestScript, _ bool, args []string) {
		var step time.Duration
		var err error
		if len(args) > 4 {
			step, err = time.ParseDuration(args[4])
			ts.Check(err)
		}
		ts.Check(sceneOf(ts).send(context.Background(), args[0], args[1], int32(number(ts, args[2])), number(ts, args[3]), step))
	},
	// pass TIME
	"pass": func(ts *testscript.TestScript, _ bool, args []string) {
		d, err := time.ParseDuration(args[0])
		ts.Check(err)
		sceneOf(ts).clock.ms.Add(d.Milliseconds())
	},
	// expire BROKER TOPIC: messages that are old are deleted, some of the topic's queue 0
	"expire": func(ts *testscript.TestScript, _ bool, args []string) {
		s := sceneOf(ts)
		ts.Check(s.until("some messages are deleted", func() bool {
			if _, err := s.admin.Ask(context.Background(), s.brokers[args[0]].Address(), command.ReqDeleteExpiredCommitLog, nil, nil); err != nil {
				return false
			}
			stats, err := adminclient.Get[command.TopicStatsTable](context.Background(), s.admin, s.brokers[args[0]].Address(), command.ReqGetTopicStatsInfo, &command.TopicRequest{Topic: args[1]}, nil)
			return err == nil && stats.OffsetTable[command.MessageQueue{Topic: args[1], BrokerName: args[0]}].MinOffset > 0
		}))
	},
	// commit BROKER GROUP TOPIC QUEUE OFFSET
	"commit": func(ts *testscript.TestScript, _ bool, args []string) {
		ts.Check(sceneOf(ts).commit(context.Background(), args[0], args[1], args[2], int32(number(ts, args[3])), int64(number(ts, args[4]))))
	},
	// member BROKER,... GROUP CLIENT TOPIC[:EXPRESSION],... QUEUE,...|silent: a queue is
	// TOPIC/BROKER/ID
	"member": func(ts *testscript.TestScript, _ bool, args []string) {
		m := sceneMember{id: args[2], model: command.Clustering}
		for _, t := range strings.Split(args[3], ",") {
			m.subs = append(m.subs, subscription(t))
		}
		if len(args) < 5 || args[4] != "silent" {
			m.queues = map[command.MessageQueue]command.ProcessQueueInfo{}
		}
		if m.queues != nil && len(args) > 4 {
			for _, text := range strings.Split(args[4], ",") {
				part := strings.Split(text, "/")
				id, err := strconv.ParseInt(part[2], 10, 32)
				ts.Check(err)
				m.queues[command.MessageQueue{Topic: part[0], BrokerName: part[1], QueueID: int32(id)}] = command.ProcessQueueInfo{
					LastPullTimestamp: sceneStart.UnixMilli(), LastConsumeTimestamp: sceneStart.UnixMilli() - 1, CachedMsgCount: 3,
				}
			}
		}
		ts.Check(sceneOf(ts).join(context.Background(), args[1], m, strings.Split(args[0], ",")...))
	},
	// routed TOPIC...: name servers know them as the brokers have them
	"routed": func(ts *testscript.TestScript, _ bool, args []string) {
		s := sceneOf(ts)
		for _, topic := range args {
			ts.Check(s.until("name servers know "+topic, func() bool { return s.routed(context.Background(), topic) }))
		}
	},
}
