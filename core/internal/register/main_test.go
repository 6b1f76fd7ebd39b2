package register

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/nameserver"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errRefused = errors.New("connection refused")

// network connects dialers with handlers by address, without sockets: what one
// end sends, the session of the other has taken when Send returns.
type network struct {
	mu    sync.Mutex
	up    map[string]transport.Handler
	ends  map[string][]*end // of the servers
	names map[string]string // address by name, both with port
	lost  map[string]bool   // what is sent there vanishes
	dials atomic.Int32
}

func newNetwork() *network {
	return &network{up: map[string]transport.Handler{}, ends: map[string][]*end{}, names: map[string]string{}, lost: map[string]bool{}}
}

// lose has everything between brokers and addr vanish from now on: for ever on the
// connections that there are, on new ones until find.
func (n *network) lose(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost[addr] = true
	for _, e := range n.ends[addr] {
		e.mute.Store(true)
	}
}

// find ends what lose began.
func (n *network) find(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.lost, addr)
}

func (n *network) start(addr string, h transport.Handler) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.up[addr] = h
}

// call says where a name is.
func (n *network) call(name, at string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.names[name] = at
}

// resolve looks a host name up among those of call.
func (n *network) resolve(_ context.Context, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, at := range n.names {
		if h, _, _ := net.SplitHostPort(name); h == host {
			return []netip.Addr{netip.MustParseAddr("10.1.0.9"), netip.MustParseAddrPort(at).Addr()}, nil
		}
	}
	return nil, errors.New("no such host: " + host)
}

// stop closes a server's connections and refuses new ones.
func (n *network) stop(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.up, addr)
	n.cutLocked(addr)
}

// cut closes a server's connections.
func (n *network) cut(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cutLocked(addr)
}

func (n *network) cutLocked(addr string) {
	for _, e := range n.ends[addr] {
		_ = e.Close()
	}
	delete(n.ends, addr)
}

func (n *network) Dial(ctx context.Context, addr string, _ transport.Limits, _ *tls.Config, h transport.Handler) (transport.Peer, error) {
	n.dials.Add(1)
	n.mu.Lock()
	lost := n.lost[addr]
	n.mu.Unlock()
	if lost { // also if it is found meanwhile
		<-ctx.Done()
		return nil, ctx.Err()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if at, ok := n.names[addr]; ok {
		addr = at
	}
	server := n.up[addr]
	if server == nil || ctx.Err() != nil {
		return nil, errRefused
	}
	p := &pipe{}
	far, err := netip.ParseAddrPort(addr)
	if err != nil {
		far = netip.MustParseAddrPort("10.0.0.1:1")
	}
	c, s := &end{pipe: p, far: far}, &end{pipe: p}
	c.other, s.other, p.ends = s, c, [2]*end{c, s}
	s.session = server.Opened(s)
	c.session = h.Opened(c)
	n.ends[addr] = append(n.ends[addr], s)
	return c, nil
}

type pipe struct {
	closed atomic.Bool
	mute   atomic.Bool // what is sent vanishes
	ends   [2]*end
}

type end struct {
	*pipe
	other   *end
	far     netip.AddrPort
	mu      sync.Mutex // of calls of session
	session transport.Session
}

func (e *end) ID() string                   { return "end" }
func (e *end) Remote() netip.AddrPort       { return e.far }
func (e *end) Local() netip.AddrPort        { return netip.MustParseAddrPort("10.0.0.2:1") }
func (e *end) Identity() transport.Identity { return transport.Identity{} }

func (e *end) Send(out ...command.Frame) error {
	if e.closed.Load() {
		return transport.ErrClosed
	}
	if e.mute.Load() {
		return nil
	}
	var raw []byte
	for i := range out {
		raw = out[i].Append(raw)
	}
	in, _, _, err := command.Split(raw, nil, command.Limits{})
	if err != nil {
		panic(err)
	}
	e.other.mu.Lock()
	defer e.other.mu.Unlock()
	e.other.session.Arrived(in)
	return nil
}

func (e *end) Close() error {
	if e.closed.Swap(true) {
		return transport.ErrClosed
	}
	for _, x := range e.ends {
		if x != e && e.mute.Load() {
			continue
		}
		go func() {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.session.Closed(io.EOF)
		}()
	}
	return nil
}

// tap counts requests by code on their way to a handler.
type tap struct {
	transport.Handler
	mu    sync.Mutex
	codes map[int32]int
}

type tapSession struct {
	transport.Session
	t *tap
}

func (t *tap) Opened(p transport.Peer) transport.Session {
	return tapSession{t.Handler.Opened(p), t}
}

func (s tapSession) Arrived(in []command.Frame) {
	var h command.Header
	for i := range in {
		if h.Decode(&in[i]) == nil {
			s.t.mu.Lock()
			s.t.codes[h.Code]++
			s.t.mu.Unlock()
		}
	}
	s.Session.Arrived(in)
}

func (t *tap) count(code int32) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.codes[code]
}

// script answers every request with a code, or not at all, after a delay, and counts
// registrations.
type script struct {
	code  atomic.Int32
	delay time.Duration
	asked atomic.Int32
}

type scriptSession struct {
	s *script
	p transport.Peer
}

func (s *script) Opened(p transport.Peer) transport.Session { return scriptSession{s, p} }
func (s *script) Settle()                                   {}
func (s scriptSession) Closed(error)                        {}
func (s scriptSession) Arrived(in []command.Frame) {
	var h command.Header
	if h.Decode(&in[0]) != nil {
		return
	}
	if h.Code == command.ReqRegisterBroker {
		s.s.asked.Add(1)
	}
	code, opaque := h.Code, h.Opaque
	if s.s.delay == 0 {
		s.answer(code, opaque)
		return
	}
	time.AfterFunc(s.s.delay, func() { s.answer(code, opaque) }) // who sends never waits
}

func (s scriptSession) answer(request, opaque int32) {
	code := s.s.code.Load()
	if code < 0 {
		return
	}
	w := command.Begin(nil, command.JSON, code, opaque, command.FlagResponse)
	if request == command.ReqQueryDataVersion {
		(&command.QueryDataVersionResponse{}).Append(&w)
	}
	w.Remark("as the script says")
	_ = s.p.Send(command.Frame{Header: w.End(0)})
}

// nameServer starts a name server at addr.
func nameServer(t *testing.T, n *network, addr string) *tap {
	s, err := nameserver.New(nameserver.Params{Config: nameserver.NewDefaultConfig()})
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, s.Shutdown(context.Background())) })
	h := &tap{Handler: s.Handler(), codes: map[int32]int{}}
	n.start(addr, h)
	return h
}

// code asks the name server at addr for a topic's route and returns the
// response code.
func code(t *testing.T, n *network, addr, topic string) int32 {
	t.Helper()
	return ask(t, n, addr, command.ReqGetRouteInfoByTopic, func(w *command.Writer) { w.Ext("topic", topic) })
}

// ask sends one request over a connection of its own and returns the response code.
func ask(t *testing.T, n *network, addr string, request int32, fill func(*command.Writer)) int32 {
	t.Helper()
	got := int32(-1)
	p, err := n.Dial(t.Context(), addr, transport.Limits{}, nil, handlerFunc(func(in []command.Frame) {
		var h command.Header
		if h.Decode(&in[0]) == nil {
			got = h.Code
		}
	}))
	require.NoError(t, err)
	w := command.Begin(nil, command.JSON, request, 1, 0)
	fill(&w)
	require.NoError(t, p.Send(command.Frame{Header: w.End(0)}))
	require.NoError(t, p.Close())
	return got
}

type handlerFunc func(in []command.Frame)

func (f handlerFunc) Opened(transport.Peer) transport.Session { return f }
func (f handlerFunc) Settle()                                 {}
func (f handlerFunc) Arrived(in []command.Frame)              { f(in) }
func (f handlerFunc) Closed(error)                            {}

// broker is the source of what is registered.
type broker struct {
	mu     sync.Mutex
	id     Identity
	topics []command.TopicConfig
	ver    command.DataVersion
}

func newBroker() *broker {
	b := &broker{id: Identity{Cluster: "C", Name: "a", Addr: "10.0.0.1:10911", HAAddr: "10.0.0.1:10912"}}
	b.add("TBW102")
	b.add("SELF_TEST_TOPIC")
	return b
}

func (b *broker) add(topic string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.topics = append(b.topics[:len(b.topics):len(b.topics)], command.TopicConfig{TopicName: topic, Perm: 6, ReadQueueNums: 4, WriteQueueNums: 4})
	b.ver.Counter++
}

func (b *broker) identity() Identity {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.id
}

func (b *broker) source() ([]command.TopicConfig, command.DataVersion) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.topics, b.ver
}

// logs keeps the messages that were logged.
type logs struct {
	slog.Handler
	mu   sync.Mutex
	seen []string
}

func newLogs() *logs { return &logs{Handler: slog.DiscardHandler} }

func (l *logs) Enabled(context.Context, slog.Level) bool { return true }
func (l *logs) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logs) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	l.seen = append(l.seen, text)
	return nil
}

func (l *logs) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.seen
	l.seen = nil
	return s
}

func start(t *testing.T, n *network, b *broker, l *logs, servers ...string) *Registrar {
	t.Helper()
	r, err := New(Params{
		Settings: plugin.Settings{Logger: slog.New(l)}, NameServers: servers, Dialer: n, Identity: b.identity, Source: b.source, Resolve: n.resolve,
	})
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, r.Shutdown(context.Background())) })
	return r
}
