package rpc_test

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/transport/transporttest"
	"github.com/hardpointmq/hardpoint/internal/rpc"
	"github.com/hardpointmq/hardpoint/plugins/transport/inproc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers a request with its own body, unless its code says otherwise.
type server struct {
	mu       sync.Mutex
	sessions []*serverSession
	opened   chan *serverSession
	got      chan int32 // codes of requests without an answer
}

type serverSession struct {
	s     *server
	p     transport.Peer
	table rpc.Table
	h     command.Header
}

const (
	codeEcho   = 1000
	codeSilent = 1001 // no answer
	codeFail   = 1002 // an error code
)

func (s *server) Opened(p transport.Peer) transport.Session {
	ss := &serverSession{s: s, p: p}
	s.mu.Lock()
	s.sessions = append(s.sessions, ss)
	s.mu.Unlock()
	s.opened <- ss
	return ss
}

func (s *server) Settle() {}

func (s *serverSession) Arrived(in []command.Frame) {
	for i := range in {
		if err := s.h.Decode(&in[i]); err != nil {
			panic(err)
		}
		switch {
		case s.h.IsResponse():
			s.table.Deliver(&s.h, &in[i])
		case s.h.Code == codeEcho:
			w := command.Begin(nil, in[i].Type, command.RespSuccess, s.h.Opaque, command.FlagResponse)
			w.Ext("answer", "yes")
			_ = s.p.Send(command.Frame{Header: w.End(len(in[i].Body)), Body: in[i].Body})
		case s.h.Code == codeFail:
			_ = s.p.Send(command.Frame{Header: command.AppendResponse(nil, in[i].Type, command.RespSystemError, s.h.Opaque, "no luck", 0)})
		default:
			s.s.got <- s.h.Code
		}
	}
}

func (s *serverSession) Closed(err error) { s.table.Fail(err) }

type fixture struct {
	tr     transport.Transport
	dialer transport.Dialer
	srv    *server
	ln     transport.Listener
}

func serve(t *testing.T) *fixture {
	t.Helper()
	tr, err := inproc.New(t.Context(), transport.Params{}, inproc.Config{})
	require.NoError(t, err)
	require.NoError(t, tr.Start(t.Context()))
	t.Cleanup(func() { _ = tr.Shutdown(context.Background()) })
	f := &fixture{tr: tr, dialer: tr, srv: &server{opened: make(chan *serverSession, 100), got: make(chan int32, 100)}}
	f.listen(t)
	return f
}

func (f *fixture) listen(t *testing.T) {
	t.Helper()
	ln, err := f.tr.Serve(t.Context(), transport.Listen{Address: "s"}, transport.Services{Frames: f.srv})
	require.NoError(t, err)
	f.ln = ln
}

func TestCall(t *testing.T) {
	f := serve(t)
	c, err := rpc.Dial(t.Context(), f.dialer, "s", rpc.Options{})
	require.NoError(t, err)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				body := fmt.Sprintf("%d-%d", g, i)
				r, err := c.Call(t.Context(), rpc.Request(codeEcho, func(w *command.Writer) { w.ExtInt("i", int64(i)) }, []byte(body)))
				if err != nil || string(r.Body) != body || r.Header.ExtString("answer") != "yes" || r.Err() != nil {
					t.Errorf("call %s: %v, %v", body, r, err)
				}
			}
		})
	}
	wg.Wait()

	r, err := c.Call(t.Context(), rpc.Request(codeFail, nil, nil))
	require.NoError(t, err)
	var code *rpc.CodeError
	require.ErrorAs(t, r.Err(), &code)
	require.Equal(t, rpc.CodeError{Code: command.RespSystemError, Remark: "no luck"}, *code)

	require.NoError(t, c.Oneway(rpc.Oneway(codeSilent, nil, nil)))
	require.EqualValues(t, codeSilent, <-f.srv.got)
	require.NoError(t, c.Err())
}

func TestContextEndsCall(t *testing.T) {
	f := serve(t)
	c, err := rpc.Dial(t.Context(), f.dialer, "s", rpc.Options{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-f.srv.got
		cancel()
	}()
	_, err = c.Call(ctx, rpc.Request(codeSilent, nil, nil))
	require.ErrorIs(t, err, context.Canceled)
	_, err = c.Call(ctx, rpc.Request(codeEcho, nil, nil))
	require.ErrorIs(t, err, context.Canceled)
	_, err = c.Call(t.Context(), rpc.Request(codeEcho, nil, nil))
	require.NoError(t, err)
}

func TestCloseEndsCalls(t *testing.T) {
	for name, end := range map[string]func(*rpc.Client, *serverSession){
		"client": func(c *rpc.Client, _ *serverSession) { _ = c.Close() },
		"server": func(_ *rpc.Client, s *serverSession) { _ = s.p.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t)
			closed := make(chan error, 1)
			c, err := rpc.Dial(t.Context(), f.dialer, "s", rpc.Options{Closed: func(err error) { closed <- err }})
			require.NoError(t, err)
			s := <-f.srv.opened
			const n = 5
			errs := make(chan error, n)
			for range n {
				go func() {
					_, err := c.Call(context.Background(), rpc.Request(codeSilent, nil, nil))
					errs <- err
				}()
			}
			for range n {
				<-f.srv.got
			}
			end(c, s)
			for range n {
				require.ErrorIs(t, <-errs, transport.ErrClosed)
			}
			<-c.Done()
			cause := <-closed
			require.Equal(t, cause, c.Err())
			if name == "server" {
				require.ErrorIs(t, cause, io.EOF)
			}
			_, err = c.Call(t.Context(), rpc.Request(codeEcho, nil, nil))
			require.ErrorIs(t, err, transport.ErrClosed)
			require.ErrorIs(t, c.Oneway(rpc.Oneway(codeEcho, nil, nil)), transport.ErrClosed)
		})
	}
}

// The server calls its client; with and without a handler there.
func TestServerCallsClient(t *testing.T) {
	f := serve(t)
	_, err := rpc.Dial(t.Context(), f.dialer, "s", rpc.Options{
		Requests: func(p transport.Peer, h *command.Header, fr *command.Frame) {
			_ = p.Send(command.Frame{Header: command.AppendResponse(nil, fr.Type, command.RespSuccess, h.Opaque, "it is "+string(fr.Body), 0)})
		},
	})
	require.NoError(t, err)
	s := <-f.srv.opened
	r, err := s.table.Call(t.Context(), s.p, rpc.Request(220, nil, []byte("me")))
	require.NoError(t, err)
	require.Equal(t, "it is me", string(r.Header.Remark()))

	_, err = rpc.Dial(t.Context(), f.dialer, "s", rpc.Options{})
	require.NoError(t, err)
	s = <-f.srv.opened
	r, err = s.table.Call(t.Context(), s.p, rpc.Request(220, nil, nil))
	require.NoError(t, err)
	require.Equal(t, command.RespRequestCodeNotSupported, r.Header.Code)
}

// A table must not mix up calls when the numbers start over or a response
// comes late.
func TestTable(t *testing.T) {
	var table rpc.Table
	p := transporttest.NewPeer(netip.AddrPort{})
	type result struct {
		r   *rpc.Response
		err error
	}
	results := make(chan result, 1)
	go func() {
		r, err := table.Call(t.Context(), p, rpc.Request(1, nil, nil))
		results <- result{r, err}
	}()
	sent, err := p.Wait(t.Context(), 1)
	require.NoError(t, err)
	var h command.Header
	require.NoError(t, h.Decode(&sent[0]))
	answer := func(opaque int32, remark string) bool {
		frames, _, _, err := command.Split(command.AppendResponse(nil, command.RocketMQ, 0, opaque, remark, 0), nil, command.DefaultLimits())
		require.NoError(t, err)
		var h command.Header
		require.NoError(t, h.Decode(&frames[0]))
		return table.Deliver(&h, &frames[0])
	}
	require.False(t, answer(h.Opaque+1, "to nobody"))
	require.Equal(t, 1, table.Pending())
	require.True(t, answer(h.Opaque, "right"))
	require.False(t, answer(h.Opaque, "twice"))
	res := <-results
	require.NoError(t, res.err)
	require.Equal(t, "right", string(res.r.Header.Remark()))

	p.Refuse(transport.ErrSlow)
	_, err = table.Call(t.Context(), p, rpc.Request(1, nil, nil))
	require.ErrorIs(t, err, transport.ErrSlow)
	require.Zero(t, table.Pending())
}

func TestGarbageClosesClient(t *testing.T) {
	f := serve(t)
	c, err := rpc.Dial(t.Context(), f.dialer, "s", rpc.Options{})
	require.NoError(t, err)
	s := <-f.srv.opened
	require.NoError(t, s.p.Send(command.Frame{Raw: []byte{0, 0, 0, 6, 0, 0, 0, 2, '{', '{'}}))
	<-c.Done()
	_, err = c.Call(t.Context(), rpc.Request(codeEcho, nil, nil))
	require.ErrorIs(t, err, transport.ErrClosed)
	require.ErrorIs(t, err, command.ErrHeader)
}

func BenchmarkCall(b *testing.B) {
	tr, err := inproc.New(b.Context(), transport.Params{}, inproc.Config{})
	require.NoError(b, err)
	require.NoError(b, tr.Start(b.Context()))
	defer func() { _ = tr.Shutdown(context.Background()) }()
	srv := &server{opened: make(chan *serverSession, 1), got: make(chan int32, 1)}
	_, err = tr.Serve(b.Context(), transport.Listen{Address: "s"}, transport.Services{Frames: srv})
	require.NoError(b, err)
	c, err := rpc.Dial(b.Context(), tr, "s", rpc.Options{})
	require.NoError(b, err)
	req := rpc.Request(codeEcho, nil, make([]byte, 100))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Call(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}
