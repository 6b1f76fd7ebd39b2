package external_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/api"
	frames "github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/transport/transporttest"
	"github.com/hardpointmq/hardpoint/internal/hosttest"
	"github.com/hardpointmq/hardpoint/plugins/standard"
	"github.com/hardpointmq/hardpoint/plugins/transport/inproc"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
	"github.com/hardpointmq/hardpoint/sdk/embedded"
	"github.com/hardpointmq/hardpoint/sdk/external"
)

func transports() []transport.Factory {
	return []transport.Factory{remoting.NewFactory(), inproc.NewFactory()}
}

func tcp(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

func anyPort(testing.TB) string { return "127.0.0.1:0" }

// transportConformance is a part of TestConformance.
func transportConformance(t *testing.T) {
	var n atomic.Int64
	for _, h := range []transporttest.Harness{
		{
			Factory: external.Transport(remoting.Name, command(t, "serve"), external.Options{}), Form: "process",
			Address: anyPort, Bytes: tcp, Lacks: []string{transport.FacetMover}, // used by the host itself
		},
		{
			Factory: external.Transport(inproc.Name, command(t, "serve"), external.Options{}), Form: "process",
			Address: func(testing.TB) string { return fmt.Sprintf("broker-%d", n.Add(1)) },
			Lacks:   []string{"idle", "idle_while_served", transport.FacetMover}, // as in process
		},
	} {
		startTransport(t, h.Factory) // keeps the process
		transporttest.Run(t, h)
	}
}

// startTransport builds and starts a transport, which is shut down with the
// test.
func startTransport(tb testing.TB, f transport.Factory) transport.Transport {
	tb.Helper()
	return startLogged(tb, f, nil, nil)
}

func startLogged(tb testing.TB, f transport.Factory, log *slog.Logger, raw plugin.Raw) transport.Transport {
	tb.Helper()
	var p transport.Params
	p.Settings = plugin.Settings{Name: f.Name(), Logger: log}.WithDefaults()
	tr, err := f.Build(tb.Context(), p, raw)
	require.NoError(tb, err)
	require.NoError(tb, tr.Start(tb.Context()))
	tb.Cleanup(func() { require.NoError(tb, tr.Shutdown(context.WithoutCancel(tb.Context()))) })
	return tr
}

// echo sends back what arrives and tells why peers are closed.
type echo struct {
	closed chan error
	opened chan transport.Peer
}

func newEcho() *echo {
	return &echo{closed: make(chan error, 1000), opened: make(chan transport.Peer, 1000)}
}

type echoSession struct {
	e *echo
	p transport.Peer
}

func (e *echo) Opened(p transport.Peer) transport.Session {
	e.opened <- p
	return &echoSession{e, p}
}
func (e *echo) Settle()                          {}
func (s *echoSession) Arrived(in []frames.Frame) { _ = s.p.Send(in...) }
func (s *echoSession) Closed(err error)          { s.e.closed <- err }

func serveEcho(tb testing.TB, tr transport.Transport, address string) (*echo, transport.Listener) {
	tb.Helper()
	e := newEcho()
	ln, err := tr.Serve(tb.Context(), transport.Listen{Address: address}, transport.Services{Frames: e})
	require.NoError(tb, err)
	return e, ln
}

// client is one that is as persistent as the official ones: it keeps its
// connection, and tries a send three times.
type client struct {
	address string
	conn    net.Conn
	seq     int32
}

func (c *client) close() {
	if c.conn != nil {
		_ = c.conn.Close()
	}
	c.conn = nil
}

// call sends a frame once and waits for the answer.
func (c *client) call(frame []byte) (answer []byte, err error) {
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if c.conn == nil {
		if c.conn, err = net.DialTimeout("tcp", c.address, patience); err != nil {
			return nil, err
		}
	}
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	if _, err := c.conn.Write(frame); err != nil {
		return nil, err
	}
	answer = make([]byte, 4)
	if _, err := io.ReadFull(c.conn, answer); err != nil {
		return nil, err
	}
	answer = append(answer, make([]byte, binary.BigEndian.Uint32(answer))...)
	_, err = io.ReadFull(c.conn, answer[4:])
	return answer, err
}

// ask sends an echo a request of n bytes, once.
func (c *client) ask(n int) error {
	c.seq++
	body := bytes.Repeat([]byte{byte(c.seq)}, n)
	want := append(frames.AppendResponse(nil, frames.JSON, 0, c.seq, "", n), body...)
	got, err := c.call(want)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("frame %d of %d bytes came back changed, as %d bytes", c.seq, n, len(got))
	}
	return err
}

// store sends a broker a message, once.
func (c *client) store(topic string, queue int32, body []byte) (r frames.SendResponse, err error) {
	c.seq++
	w := frames.Begin(nil, frames.JSON, frames.ReqSendMessageV2, c.seq, 0)
	h := frames.SendRequest{
		ProducerGroup: []byte("group"), Topic: []byte(topic), DefaultTopic: []byte("TBW102"), DefaultTopicQueueNums: 4,
		QueueID: queue, BornTimestamp: 1, MaxReconsumeTimes: -1,
	}
	h.Append(&w)
	raw, err := c.call(append(w.End(len(body)), body...))
	if err != nil {
		return r, err
	}
	f, _, _, err := frames.Split(raw, nil, frames.DefaultLimits())
	if err != nil {
		return r, err
	}
	var head frames.Header
	if err := head.Decode(&f[0]); err != nil {
		return r, err
	}
	if head.Code != 0 {
		return r, fmt.Errorf("code %d: %s", head.Code, head.Remark())
	}
	return r, r.Decode(&head)
}

// thrice does what the official clients do.
func thrice(f func() error) (err error) {
	for range 3 {
		if err = f(); err == nil {
			return nil
		}
	}
	return err
}

func kill(t *testing.T, pid int) {
	t.Helper()
	p, err := os.FindProcess(pid)
	require.NoError(t, err)
	require.NoError(t, p.Kill())
}

// TestTransportKilled: the peers of a transport whose process is killed are told
// why, other transports go on, and the address is served again.
func TestTransportKilled(t *testing.T) {
	tr := startTransport(t, external.Transport(remoting.Name, command(t, "serve"), external.Options{Linger: -1}))
	pids := children(t)
	require.Len(t, pids, 1)
	e, ln := serveEcho(t, tr, "127.0.0.1:0")
	_, port, err := net.SplitHostPort(ln.Address())
	require.NoError(t, err)
	require.NotEqual(t, "0", port)
	other := startTransport(t, remoting.NewFactory())
	_, otherLn := serveEcho(t, other, "127.0.0.1:0")
	bystander := &client{address: otherLn.Address()}
	defer bystander.close()
	require.NoError(t, bystander.ask(10))

	c := &client{address: ln.Address()}
	defer c.close()
	for round := range 3 {
		require.Eventually(t, func() bool { return c.ask(1000) == nil }, patience, time.Millisecond, "round %d", round)
		for len(e.opened) > 1 {
			<-e.opened
		}
		p := <-e.opened
		for len(e.closed) > 0 {
			require.Error(t, <-e.closed)
		}
		pids = children(t)
		require.Len(t, pids, 1)
		kill(t, pids[0])
		err := <-e.closed
		require.ErrorIs(t, err, plugin.ErrUnavailable)
		require.ErrorContains(t, err, "signal: killed")
		err = p.Send(frames.Frame{Raw: []byte("x")})
		require.ErrorIs(t, err, transport.ErrClosed)
		require.ErrorIs(t, err, plugin.ErrUnavailable)
		require.NoError(t, bystander.ask(10))
	}
	require.Eventually(t, func() bool { return c.ask(1000) == nil }, patience, time.Millisecond)
	require.NoError(t, ln.Close())
	_, err = net.Dial("tcp", ln.Address())
	require.Error(t, err)
}

// TestTransportGone: a listener that was closed or drained is not, and
// what is called while there is no process says why.
func TestTransportGone(t *testing.T) {
	cmd := command(t, "serve")
	gone := t.TempDir() + "/program"
	require.NoError(t, os.Symlink(cmd.Path, gone))
	cmd.Path = gone
	tr := startTransport(t, external.Transport(remoting.Name, cmd, external.Options{Linger: -1}))
	e, ln := serveEcho(t, tr, "127.0.0.1:0")
	_, drained := serveEcho(t, tr, "127.0.0.1:0")
	require.NoError(t, drained.Drain(t.Context()))
	c := &client{address: ln.Address()}
	defer c.close()
	require.NoError(t, c.ask(10))
	require.NoError(t, os.Remove(gone)) // it does not start again
	kill(t, children(t)[0])
	require.Error(t, <-e.closed)
	for _, call := range []func() error{
		func() error {
			_, err := tr.Serve(t.Context(), transport.Listen{Address: "127.0.0.1:0"}, transport.Services{Frames: e})
			return err
		},
		func() error {
			_, err := tr.Capabilities().Dialer.Dial(t.Context(), "127.0.0.1:1", transport.Limits{}, nil, e)
			return err
		},
	} {
		err := call()
		require.ErrorIs(t, err, plugin.ErrUnavailable)
		require.ErrorContains(t, err, "127.0.0.1")
	}
	require.NoError(t, drained.Close())
	require.NoError(t, ln.Drain(t.Context()))
	require.NoError(t, ln.Close())
	require.NoError(t, os.Symlink(command(t, "serve").Path, gone))
	require.Eventually(t, func() bool {
		ln, err := tr.Serve(t.Context(), transport.Listen{Address: "127.0.0.1:0"}, transport.Services{Frames: e})
		if err == nil {
			require.NoError(t, ln.Close())
		}
		return err == nil
	}, patience, time.Millisecond)
	_, err := net.Dial("tcp", ln.Address())
	require.Error(t, err, "a listener that was closed serves again")
}

func TestTransportTLS(t *testing.T) {
	tr := startTransport(t, external.Transport(remoting.Name, command(t, "serve"), external.Options{Linger: -1}))
	e := newEcho()
	_, err := tr.Serve(t.Context(), transport.Listen{Address: "127.0.0.1:0", TLS: &tls.Config{}}, transport.Services{Frames: e})
	require.ErrorContains(t, err, "certificate")
	_, err = tr.Capabilities().Dialer.Dial(t.Context(), "127.0.0.1:1", transport.Limits{}, &tls.Config{}, e)
	require.ErrorContains(t, err, "certificate")
}

// tenTimes replaces the program of a transport ten times while clients are at
// work.
func tenTimes(t *testing.T, up *external.Replacer, role string, work func(client int) error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	var done atomic.Int64
	for i := range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := work(i); err != nil {
					t.Errorf("a send during a replacement: %v", err)
					return
				}
				done.Add(1)
			}
		})
	}
	seen := map[int]bool{}
	for range 10 {
		before := children(t)
		require.NoError(t, up.Replace(t.Context(), command(t, role)))
		require.Eventually(t, func() bool {
			now := children(t)
			return len(now) == 1 && now[0] != before[0]
		}, patience, time.Millisecond, "the old process does not end")
		seen[children(t)[0]] = true
		at := done.Load()
		require.Eventually(t, func() bool { return done.Load() > at+20 || t.Failed() }, patience, time.Millisecond)
	}
	stop()
	wg.Wait()
	require.Len(t, seen, 10)
}

// unmoving is a transport without the facet Mover.
func unmoving() transport.Factory {
	f := remoting.NewFactory()
	return plugin.NewRawFactory(f.Name(),
		func(ctx context.Context, raw plugin.Raw) (plugin.Description, error) {
			d, err := f.Describe(ctx, raw)
			d.Facets = []string{transport.FacetDialer}
			return d, err
		},
		func(ctx context.Context, p transport.Params, raw plugin.Raw) (transport.Transport, error) {
			t, err := f.Build(ctx, p, raw)
			return stays{t}, err
		})
}

type stays struct{ transport.Transport }

func (s stays) Capabilities() transport.Capabilities {
	return transport.Capabilities{Dialer: s.Transport.Capabilities().Dialer}
}

// TestTransportReplaced: ten new versions of a transport under load. Its clients
// do not notice: they keep their connections, at both ends of them, and each request
// is answered at once.
func TestTransportReplaced(t *testing.T) {
	if runtime.GOOS == "windows" {
		hosttest.Refused(t, "the connections of a process do not move on Windows")
	}
	var up external.Replacer
	var log buffer
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(log.String())
		}
	})
	// Without TLS a connection that says nothing is a peer, too, and moves.
	tr := startLogged(t, external.Transport(remoting.Name, command(t, "serve"), external.Options{Linger: -1, Replacer: &up}), log.logger(), plugin.Raw(`{"tlsMode": "disabled"}`))
	e, ln := serveEcho(t, tr, "127.0.0.1:0")
	clients := make([]client, 4)
	for i := range clients {
		clients[i].address = ln.Address()
		require.NoError(t, clients[i].ask(10))
	}
	dialled := newEcho()
	own, err := tr.Capabilities().Dialer.Dial(t.Context(), ln.Address(), transport.Limits{}, nil, dialled)
	require.NoError(t, err)
	open := len(clients) + 1
	require.Eventually(t, func() bool { return len(e.opened) == open }, patience, time.Millisecond)
	tenTimes(t, &up, "serve", func(i int) error {
		c := &clients[i]
		if c.conn == nil {
			return errors.New("the connection ended")
		}
		return c.ask(100 + int(c.seq)*i%3000)
	})
	require.Len(t, e.opened, open, "somebody connected anew")
	select {
	case why := <-e.closed:
		t.Fatalf("a connection was closed: %v", why)
	default:
	}
	require.Empty(t, dialled.closed)
	require.NoError(t, own.Send(frames.Frame{Raw: frames.AppendResponse(nil, frames.JSON, 0, 1, "", 0)}))
	require.NoError(t, own.Close())
	require.Error(t, <-dialled.closed)
	require.Error(t, <-e.closed)
	for i := range clients {
		clients[i].close()
		require.ErrorIs(t, <-e.closed, io.EOF)
	}
	require.NoError(t, ln.Close())
	_, err = net.Dial("tcp", ln.Address())
	require.Error(t, err, "no process has the port any more")
}

// crowdedAt is how many connections a process with role crowded takes over.
const crowdedAt = 2

// crowded is a transport whose process may not have many open files.
func crowded() transport.Factory {
	f := remoting.NewFactory()
	return plugin.NewRawFactory(f.Name(), f.Describe,
		func(ctx context.Context, p transport.Params, raw plugin.Raw) (transport.Transport, error) {
			t, err := f.Build(ctx, p, raw)
			return &crowd{Transport: t}, err
		})
}

type crowd struct {
	transport.Transport
	taken atomic.Int64
}

func (c *crowd) Capabilities() transport.Capabilities {
	all := c.Transport.Capabilities()
	all.Mover = crowdMover{all.Mover, c}
	return all
}

type crowdMover struct {
	transport.Mover
	c *crowd
}

func (m crowdMover) TakePeer(l transport.Listener, lim transport.Limits, p transport.Moving, h transport.Handler) (transport.Peer, error) {
	if m.c.taken.Add(1) > crowdedAt {
		_ = p.File.Close()
		return nil, &os.SyscallError{Syscall: "dup", Err: syscall.EMFILE}
	}
	return m.Mover.TakePeer(l, lim, p, h)
}

// TestTransportReplacedByACrowded: connections that the new process has no room for
// are closed, and one line says how many, why, and what to do.
func TestTransportReplacedByACrowded(t *testing.T) {
	if runtime.GOOS == "windows" {
		hosttest.Refused(t, "the connections of a process do not move on Windows")
	}
	var up external.Replacer
	var log buffer
	tr := startLogged(t, external.Transport(remoting.Name, command(t, "serve"), external.Options{Linger: -1, Replacer: &up}), log.logger(), nil)
	e, ln := serveEcho(t, tr, "127.0.0.1:0")
	clients := make([]client, crowdedAt+3)
	for i := range clients {
		clients[i].address = ln.Address()
		defer clients[i].close()
		require.NoError(t, clients[i].ask(10))
	}
	require.NoError(t, up.Replace(t.Context(), command(t, "crowded")))
	require.Eventually(t, func() bool { return len(e.closed) == 3 }, patience, time.Millisecond)
	for i := range clients {
		require.NoError(t, thrice(func() error { return clients[i].ask(10) }))
	}
	said := func() bool { return strings.Contains(log.String(), "the process of a transport is replaced") }
	require.Eventually(t, said, patience, time.Millisecond)
	require.Regexp(t, `level=WARN msg="connections did not move to the new process of a transport; they are closed, [^"]+" plugin=remoting moved=2 closed=3 first_error="[^\n]*ulimit -n[^\n]*too many open files`, log.String())
}

// TestTransportTakenOver is the same with a transport whose connections do not
// move: no send fails of clients that try three times.
func TestTransportTakenOver(t *testing.T) {
	var up external.Replacer
	tr := startTransport(t, external.Transport(remoting.Name, command(t, "unmoving"), external.Options{Linger: -1, Replacer: &up}))
	_, ln := serveEcho(t, tr, "127.0.0.1:0")
	clients := make([]client, 4)
	tenTimes(t, &up, "unmoving", func(i int) error {
		c := &clients[i]
		c.address = ln.Address()
		return thrice(func() error { return c.ask(100 + int(c.seq)*i%3000) })
	})
	for i := range clients {
		clients[i].close()
	}
}

// TestTransportLearnsToMove: a version that has the facet Mover takes the place of
// one that has not, and the other way round.
func TestTransportLearnsToMove(t *testing.T) {
	var up external.Replacer
	tr := startTransport(t, external.Transport(remoting.Name, command(t, "unmoving"), external.Options{Linger: -1, Replacer: &up}))
	_, ln := serveEcho(t, tr, "127.0.0.1:0")
	c := client{address: ln.Address()}
	defer c.close()
	for _, role := range []string{"serve", "unmoving"} {
		require.NoError(t, thrice(func() error { return c.ask(10) }))
		before := children(t)
		require.NoError(t, up.Replace(t.Context(), command(t, role)))
		require.Eventually(t, func() bool {
			now := children(t)
			return len(now) == 1 && now[0] != before[0]
		}, patience, time.Millisecond)
		require.NoError(t, thrice(func() error { return c.ask(10) }))
	}
}

// TestBrokersTransportReplaced is the same with a broker: what it acknowledged is
// stored, each at a place of its own.
func TestBrokersTransportReplaced(t *testing.T) {
	var up external.Replacer
	all, err := standard.Plugins()
	require.NoError(t, err)
	all.Transport = all.Transport.With(external.Transport(remoting.Name, command(t, "serve"), external.Options{Linger: -1, Replacer: &up}))
	b := embedded.Start(t, embedded.WithPlugins(all), embedded.With("waitTimeMillsInSendQueue", "5000"))
	require.NoError(t, b.API().PutTopic(t.Context(), api.Topic{Name: "T", ReadQueues: 4, WriteQueues: 4, Perm: 6}))
	clients := make([]client, 4)
	acked := make([]map[int64]bool, 4)
	tenTimes(t, &up, "serve", func(i int) error {
		c := &clients[i]
		c.address = b.Address()
		return thrice(func() error {
			r, err := c.store("T", int32(i), []byte("body"))
			if err != nil {
				return err
			}
			if acked[i] == nil {
				acked[i] = map[int64]bool{}
			}
			if acked[i][r.QueueOffset] {
				t.Errorf("offset %d of queue %d was given twice", r.QueueOffset, i)
			}
			acked[i][r.QueueOffset] = true
			return nil
		})
	})
	for i := range clients {
		clients[i].close()
		end, err := b.API().Offset(t.Context(), message.Queue{Topic: "T", ID: int32(i)}, api.MaxOffset, time.Time{})
		require.NoError(t, err)
		require.GreaterOrEqual(t, end, int64(len(acked[i])))
		t.Logf("queue %d: %d acknowledged, %d stored", i, len(acked[i]), end)
	}
}

// BenchmarkTransport is the shared benchmark through a process, beside the same
// transport in this one. Both ends of a connection are in the same transport.
func BenchmarkTransport(b *testing.B) {
	b.Run("in_process", func(b *testing.B) {
		transporttest.Benchmark(b, transporttest.Harness{Factory: remoting.NewFactory(), Address: anyPort})
	})
	b.Run("process", func(b *testing.B) {
		f := external.Transport(remoting.Name, command(b, "serve"), external.Options{})
		startTransport(b, f) // keeps the process
		transporttest.Benchmark(b, transporttest.Harness{Factory: f, Address: anyPort})
	})
}
