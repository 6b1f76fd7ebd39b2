package transporttest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/transport/transporttest"
)

func answer(opaque int32, body string) command.Frame {
	return command.Frame{Header: command.AppendResponse(nil, command.JSON, 0, opaque, "", len(body)), Body: []byte(body)}
}

func TestPeer(t *testing.T) {
	p, other := transporttest.NewPeer(netip.AddrPort{}), transporttest.NewPeer(netip.MustParseAddrPort("10.1.2.3:4"))
	require.NotEqual(t, p.ID(), other.ID())
	require.NotEqual(t, p.Remote(), other.Remote())
	require.Equal(t, "10.1.2.3:4", other.Remote().String())

	one, two := answer(1, "one"), answer(2, "two")
	run := two.Append(one.Append(nil))
	require.NoError(t, p.Send(one, command.Frame{Raw: run}))
	clear(one.Body) // was lent
	got := p.Take()
	require.Len(t, got, 3)
	for i, want := range []string{"one", "one", "two"} {
		require.Equal(t, want, string(got[i].Body))
		var h command.Header
		require.NoError(t, h.Decode(&got[i]))
	}
	require.Empty(t, p.Take())
	require.Equal(t, 1, p.Sends())
	require.ErrorContains(t, p.Send(command.Frame{Raw: run[:len(run)-1]}), "after the last whole frame")

	go func() { _ = p.Send(two) }()
	got, err := p.Wait(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, "two", string(got[0].Body))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Wait(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)

	p.Refuse(transport.ErrSlow)
	require.ErrorIs(t, p.Send(two), transport.ErrSlow)
	<-p.Done()
	require.ErrorIs(t, p.Send(two), transport.ErrClosed)
	_, err = p.Wait(t.Context(), 1)
	require.ErrorIs(t, err, transport.ErrClosed)
	require.NoError(t, p.Close())
}

// log writes down what a handler is told.
type log struct{ bytes.Buffer }

func (l *log) Opened(transport.Peer) transport.Session { l.WriteString("opened "); return l }
func (l *log) Settle()                                 { l.WriteString("settle ") }
func (l *log) Closed(err error)                        { l.WriteString("closed:" + err.Error()) }
func (l *log) Arrived(in []command.Frame) {
	for i := range in {
		l.Write(in[i].Body)
		l.WriteByte(' ')
	}
}

func TestLink(t *testing.T) {
	var l log
	link := transporttest.Open(&l, nil)
	one, two := answer(1, "one"), answer(2, "two")
	wire := two.Append(one.Append(nil))
	require.NoError(t, link.Feed(wire[:5]))
	require.NoError(t, link.Feed(wire[5:len(wire)-1]))
	require.NoError(t, link.Feed(wire[len(wire)-1:]))
	require.NoError(t, link.FeedFrames(one, two))
	link.Close(io.EOF)
	link.Close(errors.New("twice"))
	require.ErrorIs(t, link.Feed(wire), transport.ErrClosed)
	require.Equal(t, "opened one settle two settle one two settle closed:EOF", l.String())
	<-link.Peer.Done()

	l.Reset()
	link = transporttest.Open(&l, transporttest.NewPeer(netip.AddrPort{}))
	require.ErrorIs(t, link.Feed(wire, []byte{0, 0, 0, 1}), command.ErrHeader)
	require.Contains(t, l.String(), "opened one two settle closed:")
}
