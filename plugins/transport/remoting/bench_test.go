package remoting_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// answering is what an engine does at least: one small answer per request, all
// answers of a read in one Send.
type answering struct{}

type answeringSession struct {
	p    transport.Peer
	one  []byte
	many []byte
	out  [1]command.Frame
}

func (answering) Opened(p transport.Peer) transport.Session {
	return &answeringSession{p: p, one: command.AppendResponse(nil, command.JSON, 0, 1, "", 0)}
}
func (answering) Settle() {}
func (s *answeringSession) Arrived(in []command.Frame) {
	s.many = s.many[:0]
	for range in {
		s.many = append(s.many, s.one...)
	}
	s.out[0].Raw = s.many
	_ = s.p.Send(s.out[:]...)
}
func (s *answeringSession) Closed(error) {}

// BenchmarkEcho has connections x requests in flight; a request has 1 KiB. The
// client is raw: it writes what is in flight at once and reads the answers.
func BenchmarkEcho(b *testing.B) {
	for _, load := range []struct{ conns, depth int }{{1, 64}, {64, 1}, {4, 64}} {
		b.Run(fmt.Sprintf("%dx%d", load.conns, load.depth), func(b *testing.B) {
			tr := start(b, plugin.Settings{})
			ln := serve(b, tr, transport.Listen{}, answering{})
			f := frame(1024)
			request := f.Append(nil)
			var batch []byte
			for range load.depth {
				batch = append(batch, request...)
			}
			answer := len(command.AppendResponse(nil, command.JSON, 0, 1, "", 0)) * load.depth
			rounds := b.N/(load.conns*load.depth) + 1
			var conns []net.Conn
			for range load.conns {
				c, err := net.Dial("tcp", ln.Address())
				require.NoError(b, err)
				defer c.Close()
				conns = append(conns, c)
			}
			b.ReportAllocs()
			b.SetBytes(int64(len(request)))
			b.ResetTimer()
			var wg sync.WaitGroup
			for _, c := range conns {
				wg.Go(func() {
					buf := make([]byte, answer)
					for range rounds {
						if _, err := c.Write(batch); err != nil {
							b.Error(err)
							return
						}
						if _, err := io.ReadFull(c, buf); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
		})
	}
}

// BenchmarkSend is a Send of an answer with a fragmented body, of which the
// other end only throws away.
func BenchmarkSend(b *testing.B) {
	tr := start(b, plugin.Settings{})
	srv := newProbe()
	ln := serve(b, tr, transport.Listen{}, srv)
	c, err := net.Dial("tcp", ln.Address())
	require.NoError(b, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, 1<<20))
	}()
	s := <-srv.opened
	body := make([]byte, 3000)
	f := frame(3000)
	out := []command.Frame{{Header: f.Header, Body: body[:1000], Bodies: [][]byte{body[:1000], body[:1000]}}}
	b.ReportAllocs()
	b.SetBytes(int64(f.Len()))
	for b.Loop() {
		if err := s.p.Send(out...); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	_ = s.p.Close()
	<-done
	c.Close()
}

// BenchmarkIdle reports what an idle connection costs: the transport's end, a
// session with a small buffer, and the client's net.Conn.
func BenchmarkIdle(b *testing.B) {
	const n = 1000
	inUse := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	for b.Loop() {
		tr := start(b, plugin.Settings{})
		ln := serve(b, tr, transport.Listen{}, answering{})
		before := inUse()
		f := frame(1000)
		wire := f.Append(nil)
		back := make([]byte, len(command.AppendResponse(nil, command.JSON, 0, 1, "", 0)))
		conns := make([]net.Conn, n)
		for i := range conns {
			c, err := net.Dial("tcp", ln.Address())
			require.NoError(b, err)
			conns[i] = c
			_, err = c.Write(wire) // it has been at work before it became idle
			require.NoError(b, err)
			_, err = io.ReadFull(c, back)
			require.NoError(b, err)
		}
		after := inUse()
		b.ReportMetric(float64(after-before)/n, "B/conn")
		for _, c := range conns {
			c.Close()
		}
		require.NoError(b, tr.Shutdown(context.Background()))
	}
}
