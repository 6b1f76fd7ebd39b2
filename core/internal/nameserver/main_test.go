package nameserver

import (
	"context"
	"encoding/json"
	"io"
	"net/netip"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is a connection whose other end is the test.
type peer struct {
	mu     sync.Mutex
	sent   [][]byte
	closed bool
}

func (p *peer) ID() string                   { return "peer" }
func (p *peer) Remote() netip.AddrPort       { return netip.MustParseAddrPort("10.9.9.9:4000") }
func (p *peer) Local() netip.AddrPort        { return netip.MustParseAddrPort("10.9.9.1:9876") }
func (p *peer) Identity() transport.Identity { return transport.Identity{} }

func (p *peer) Send(out ...command.Frame) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return transport.ErrClosed
	}
	for i := range out {
		p.sent = append(p.sent, out[i].Append(nil))
	}
	return nil
}

func (p *peer) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return nil
}

func (p *peer) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// conn is a peer with its session.
type conn struct {
	t    testing.TB
	peer *peer
	ses  transport.Session
}

func open(t testing.TB, s *Server) *conn {
	p := &peer{}
	return &conn{t, p, s.Handler().Opened(p)}
}

func (c *conn) close() { c.ses.Closed(io.EOF) }

// answer is a decoded response.
type answerFrame struct {
	typ    command.HeaderType
	code   int32
	opaque int32
	flag   int32
	remark string
	ext    map[string]string
	body   string
}

func decode(t testing.TB, raw []byte) answerFrame {
	t.Helper()
	fs, used, _, err := command.Split(raw, nil, command.Limits{})
	require.NoError(t, err)
	require.Len(t, fs, 1)
	require.Equal(t, len(raw), used)
	var h command.Header
	require.NoError(t, h.Decode(&fs[0]))
	a := answerFrame{typ: h.Type, code: h.Code, opaque: h.Opaque, flag: h.Flag, remark: string(h.Remark()), ext: map[string]string{}, body: string(fs[0].Body)}
	h.Fields(func(k, v []byte) bool { a.ext[string(k)] = string(v); return true })
	return a
}

// raw hands over encoded frames and returns the answers.
func (c *conn) raw(frames ...[]byte) []answerFrame {
	c.t.Helper()
	var all []byte
	for _, f := range frames {
		all = append(all, f...)
	}
	in, used, _, err := command.Split(all, nil, command.Limits{})
	require.NoError(c.t, err)
	require.Equal(c.t, len(all), used)
	c.ses.Arrived(in)
	var out []answerFrame
	for _, b := range c.peer.sent {
		out = append(out, decode(c.t, b))
	}
	c.peer.sent = nil
	return out
}

type appender interface{ Append(w *command.Writer) }

func request(typ command.HeaderType, code, flag int32, head appender, body []byte) []byte {
	w := command.Begin(nil, typ, code, 77, flag)
	if head != nil {
		head.Append(&w)
	}
	return append(w.End(len(body)), body...)
}

func (c *conn) call(code int32, head appender, body []byte) answerFrame {
	c.t.Helper()
	out := c.raw(request(command.JSON, code, 0, head, body))
	require.Len(c.t, out, 1)
	require.Equal(c.t, int32(77), out[0].opaque)
	require.Equal(c.t, command.FlagResponse, out[0].flag)
	return out[0]
}

// ext is a header of plain fields.
type ext map[string]string

func (e ext) Append(w *command.Writer) {
	for k, v := range e {
		w.Ext(k, v)
	}
}

// reg describes a registration in short.
type reg struct {
	name, addr string
	id         int64
	cluster    string // C
	version    command.DataVersion
	topics     map[string]int32 // permissions; nil: the two topics A and B
	timeout    int64
	acting     bool
	zone       string
}

func (c *conn) register(r reg) answerFrame {
	c.t.Helper()
	if r.cluster == "" {
		r.cluster = "C"
	}
	if r.topics == nil {
		r.topics = map[string]int32{"A": 6, "B": 6}
	}
	b := command.RegisterBrokerBody{}
	b.Topics.DataVersion = r.version
	b.Topics.TopicConfigTable = map[string]command.TopicConfig{}
	for name, perm := range r.topics {
		b.Topics.TopicConfigTable[name] = command.TopicConfig{TopicName: name, Perm: perm, ReadQueueNums: 4, WriteQueueNums: 8}
	}
	body, crc, err := b.Encode()
	require.NoError(c.t, err)
	return c.call(command.ReqRegisterBroker, &command.RegisterBrokerRequest{
		BrokerID:     command.BrokerID{BrokerName: r.name, BrokerAddr: r.addr, ClusterName: r.cluster, BrokerID: r.id},
		HAServerAddr: "ha-" + r.addr, HeartbeatTimeoutMillis: r.timeout, ZoneName: r.zone, EnableActingMaster: r.acting, BodyCRC32: crc,
	}, body)
}

func (c *conn) unregister(r reg) answerFrame {
	return c.call(command.ReqUnregisterBroker, &command.BrokerID{BrokerName: r.name, BrokerAddr: r.addr, ClusterName: "C", BrokerID: r.id}, nil)
}

// route returns a topic's route, nil if there is none.
func (c *conn) route(topic string) *command.TopicRouteData {
	c.t.Helper()
	a := c.call(command.ReqGetRouteInfoByTopic, &command.RouteRequest{Topic: topic}, nil)
	if a.code == command.RespTopicNotExist {
		return nil
	}
	require.Equal(c.t, command.RespSuccess, a.code, a.remark)
	var r command.TopicRouteData
	require.NoError(c.t, json.Unmarshal([]byte(a.body), &r))
	return &r
}

// addrs is the route in short: broker name, id and address, permission.
func (c *conn) addrs(topic string) map[string]string {
	c.t.Helper()
	r := c.route(topic)
	if r == nil {
		return nil
	}
	require.Len(c.t, r.BrokerDatas, len(r.QueueDatas))
	m := map[string]string{}
	for i, b := range r.BrokerDatas {
		require.Equal(c.t, b.BrokerName, r.QueueDatas[i].BrokerName)
		for id, addr := range b.BrokerAddrs {
			m[b.BrokerName+"/"+strconv.FormatInt(id, 10)] = addr
		}
		m[b.BrokerName] = strconv.Itoa(int(r.QueueDatas[i].Perm))
	}
	return m
}

func newServer(t testing.TB, change func(*Params)) *Server {
	t.Helper()
	p := Params{Config: NewDefaultConfig(), Settings: plugin.Settings{}}
	if change != nil {
		change(&p)
	}
	s, err := New(p)
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, s.Shutdown(context.Background())) })
	return s
}
