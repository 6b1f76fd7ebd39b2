package inproc_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/plugins/transport/inproc"
)

// end sends back what arrives, or tells how much it was.
type end struct {
	p    transport.Peer
	n    chan int
	echo bool
}

func (e *end) Opened(p transport.Peer) transport.Session { e.p = p; return e }
func (e *end) Settle()                                   {}
func (e *end) Closed(error)                              {}
func (e *end) Arrived(in []command.Frame) {
	if e.echo {
		_ = e.p.Send(in...)
		return
	}
	e.n <- len(in)
}

// BenchmarkEcho has 64 frames of 1 KiB in flight.
func BenchmarkEcho(b *testing.B) {
	tr, err := inproc.New(b.Context(), transport.Params{}, inproc.Config{})
	require.NoError(b, err)
	require.NoError(b, tr.Start(b.Context()))
	defer func() { _ = tr.Shutdown(context.Background()) }()
	_, err = tr.Serve(b.Context(), transport.Listen{Address: "s"}, transport.Services{Frames: &end{echo: true}})
	require.NoError(b, err)
	client := &end{n: make(chan int, 64)}
	p, err := tr.Dial(b.Context(), "s", transport.Limits{}, nil, client)
	require.NoError(b, err)
	f := command.Frame{Header: command.AppendResponse(nil, command.JSON, 0, 1, "", 1024), Body: make([]byte, 1024)}
	var out []command.Frame
	for range 64 {
		out = append(out, f)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N/64 + 1 {
		if err := p.Send(out...); err != nil {
			b.Fatal(err)
		}
		for n := 64; n > 0; {
			n -= <-client.n
		}
	}
}
