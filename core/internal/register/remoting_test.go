package register

import (
	"context"
	"encoding/json"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/nameserver"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/internal/rpc"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
)

// Over TCP with the real transport: a broker registers, the name server is
// replaced by an empty one on the same port, the broker registers again, leaves.
func TestOverTCP(t *testing.T) {
	tr, err := remoting.New(t.Context(), transport.Params{}, remoting.NewDefaultConfig())
	require.NoError(t, err)
	require.NoError(t, tr.Start(t.Context()))
	defer func() { require.NoError(t, tr.Shutdown(context.Background())) }()
	serve := func(addr string) (transport.Listener, *nameserver.Server) {
		s, err := nameserver.New(nameserver.Params{Config: nameserver.NewDefaultConfig()})
		require.NoError(t, err)
		require.NoError(t, s.Start(t.Context()))
		l, err := tr.Serve(t.Context(), transport.Listen{Address: addr}, transport.Services{Frames: s.Handler()})
		require.NoError(t, err)
		return l, s
	}
	l, s := serve("127.0.0.1:0")
	addr := l.Address()
	dialer := tr.Capabilities().Dialer

	b, answers := newBroker(), make(chan Answer, 16)
	r, err := New(Params{NameServers: []string{addr}, Dialer: dialer, Identity: b.identity, Source: b.source, Answered: func(a Answer) { answers <- a }})
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context()))
	<-r.Registered()
	<-answers
	require.NoError(t, CheckReachable(t.Context(), dialer, addr, nil))

	route := func(topic string) (*rpc.Response, *command.TopicRouteData) {
		c, err := rpc.Dial(t.Context(), dialer, addr, rpc.Options{})
		require.NoError(t, err)
		defer c.Close()
		resp, err := c.Call(t.Context(), rpc.Request(command.ReqGetRouteInfoByTopic, (&command.RouteRequest{Topic: topic}).Append, nil))
		require.NoError(t, err)
		var d command.TopicRouteData
		if resp.Header.Code == command.RespSuccess {
			require.NoError(t, json.Unmarshal(resp.Body, &d))
		}
		return resp, &d
	}
	b.add("New")
	require.NoError(t, r.Sync(t.Context()))
	_, d := route("New")
	require.Equal(t, command.BrokerAddrs{0: b.id.Addr}, d.BrokerDatas[0].BrokerAddrs)

	for len(answers) > 0 {
		<-answers
	}
	require.NoError(t, l.Close())
	require.NoError(t, s.Shutdown(t.Context()))
	l, s = serve(addr)
	<-answers // it registered by itself
	_, d = route("New")
	require.Equal(t, command.BrokerAddrs{0: b.id.Addr}, d.BrokerDatas[0].BrokerAddrs)

	require.NoError(t, r.Shutdown(t.Context()))
	resp, _ := route("New")
	require.Equal(t, command.RespTopicNotExist, resp.Header.Code)
	require.NoError(t, l.Close())
	require.NoError(t, s.Shutdown(t.Context()))
	require.ErrorContains(t, CheckReachable(t.Context(), dialer, addr, nil), addr)
}

// relay is between brokers and a name server, both over TCP.
type relay struct {
	net.Listener
	mu   sync.Mutex
	to   string // empty: new connections are taken, and nothing comes over them
	held []net.Conn
	wg   sync.WaitGroup
}

func newRelay(t *testing.T, to string) *relay {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{Listener: l, to: to}
	r.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.take(c)
		}
	})
	return r
}

func (r *relay) take(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = append(r.held, c)
	if r.to == "" {
		return
	}
	far, err := (&net.Dialer{}).Dial("tcp", r.to)
	if err != nil {
		return
	}
	r.held = append(r.held, far)
	move := func(from, to net.Conn) {
		buf := make([]byte, 64<<10)
		for {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			r.mu.Lock()
			silent := !slices.Contains(r.held, from)
			r.mu.Unlock()
			if silent {
				continue // what is lost is lost
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
	}
	r.wg.Go(func() { move(c, far) })
	r.wg.Go(func() { move(far, c) })
}

// silence has nothing come over the connections that there are any more. It returns them.
func (r *relay) silence(to string) []net.Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.held
	r.held, r.to = nil, to
	return was
}

// TestSilentOverTCP: a name server is lost without a word, nothing closes a connection, and
// another one comes in its place.
func TestSilentOverTCP(t *testing.T) {
	tr, err := remoting.New(t.Context(), transport.Params{}, remoting.NewDefaultConfig())
	require.NoError(t, err)
	require.NoError(t, tr.Start(t.Context()))
	defer func() { require.NoError(t, tr.Shutdown(context.Background())) }()
	serve := func() string {
		s, err := nameserver.New(nameserver.Params{Config: nameserver.NewDefaultConfig()})
		require.NoError(t, err)
		require.NoError(t, s.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, s.Shutdown(context.Background())) })
		l, err := tr.Serve(t.Context(), transport.Listen{Address: "127.0.0.1:0"}, transport.Services{Frames: s.Handler()})
		require.NoError(t, err)
		return l.Address()
	}
	between := newRelay(t, serve())
	b := newBroker()
	r, err := New(Params{NameServers: []string{between.Addr().String()}, Dialer: tr.Capabilities().Dialer, Identity: b.identity, Source: b.source})
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context()))
	<-r.Registered()

	var held []net.Conn
	held = append(held, between.silence("")...)
	<-time.After(2 * time.Second) // it asks in vain
	addr := serve()
	held = append(held, between.silence(addr)...)
	c, err := rpc.Dial(t.Context(), tr.Capabilities().Dialer, addr, rpc.Options{})
	require.NoError(t, err)
	defer c.Close()
	// Without looking anew it takes 24 s.
	require.Eventually(t, func() bool {
		resp, err := c.Call(t.Context(), rpc.Request(command.ReqGetRouteInfoByTopic, (&command.RouteRequest{Topic: "TBW102"}).Append, nil))
		return err == nil && resp.Header.Code == command.RespSuccess
	}, 12*time.Second, 50*time.Millisecond)

	require.NoError(t, r.Shutdown(t.Context()))
	require.NoError(t, between.Close())
	for _, c := range append(held, between.silence("")...) {
		_ = c.Close() // an error says that it is closed already
	}
	between.wg.Wait()
}
