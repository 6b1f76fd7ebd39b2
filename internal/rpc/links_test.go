package rpc

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/plugins/transport/inproc"
)

// answering answers each request at once.
type answering struct{ p transport.Peer }

func (answering) Opened(p transport.Peer) transport.Session { return answering{p} }
func (answering) Settle()                                   {}
func (answering) Closed(error)                              {}
func (s answering) Arrived(in []command.Frame) {
	for i := range in {
		var h command.Header
		if h.Decode(&in[i]) == nil {
			_ = s.p.Send(command.Frame{Raw: command.AppendResponse(nil, command.JSON, 0, h.Opaque, "", 0)})
		}
	}
}

// TestLinksShrink: brokers that went away are not remembered for ever, and one that is
// there keeps its connection.
func TestLinksShrink(t *testing.T) {
	tr, err := inproc.New(t.Context(), transport.Params{}, inproc.NewDefaultConfig())
	require.NoError(t, err)
	require.NoError(t, tr.Start(t.Context()))
	defer func() { require.NoError(t, tr.Shutdown(context.WithoutCancel(t.Context()))) }()
	serve := func(name string) transport.Listener {
		ln, err := tr.Serve(t.Context(), transport.Listen{Address: name}, transport.Services{Frames: answering{}})
		require.NoError(t, err)
		return ln
	}
	l := NewLinks(func() transport.Dialer { return tr }, Options{})
	defer l.Close()
	ask := func(name string) error {
		_, err := l.Call(t.Context(), name, Request(command.ReqGetRouteInfoByTopic, func(*command.Writer) {}, nil))
		return err
	}
	stays := serve("stays")
	defer func() { _ = stays.Close() }()
	require.NoError(t, ask("stays"))
	kept := l.m["stays"].c
	for i := range 100 {
		name := fmt.Sprint("broker-", i)
		ln := serve(name)
		require.NoError(t, ask(name))
		gone := l.m[name].c
		require.NoError(t, ln.Close())
		<-gone.Done()
		require.Error(t, ask(fmt.Sprint("nobody-", i)))
		require.LessOrEqual(t, len(l.m), 3)
	}
	require.NoError(t, ask("stays"))
	require.Same(t, kept, l.m["stays"].c)
}
