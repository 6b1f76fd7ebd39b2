package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/internal/adminclient"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
)

// crowded is a broker with topics that answers a question about one when so many have
// been asked.
type crowded struct {
	topics []string
	asked  int

	p       transport.Peer
	waiting []func()
}

func (b *crowded) Opened(p transport.Peer) transport.Session { b.p = p; return b }
func (b *crowded) Settle()                                   {}
func (b *crowded) Closed(error)                              {}

func (b *crowded) Arrived(in []command.Frame) {
	for i := range in {
		var h command.Header
		if h.Decode(&in[i]) != nil {
			_ = b.p.Close()
			return
		}
		opaque := h.Opaque
		answer := func(v any) {
			body, err := command.EncodeBody(v)
			if err != nil {
				panic(err)
			}
			w := command.Begin(nil, command.JSON, command.RespSuccess, opaque, command.FlagResponse)
			_ = b.p.Send(command.Frame{Header: w.End(len(body)), Body: body})
		}
		switch h.Code {
		case command.ReqGetAllTopicConfig:
			all := map[string]command.TopicConfig{}
			for _, t := range b.topics {
				all[t] = command.TopicConfig{TopicName: t, Perm: 6}
			}
			answer(command.TopicConfigSerializeWrapper{TopicConfigTable: all})
		case command.ReqQueryTopicConsumeByWho:
			answer(command.GroupList{})
		default:
			b.waiting = append(b.waiting, func() { answer(command.BrokerStatsData{}) })
			if len(b.waiting) == b.asked {
				for _, answer := range b.waiting {
					answer()
				}
				b.waiting = nil
			}
		}
	}
}

// TestStatsAtOnce: topics do not wait for each other.
func TestStatsAtOnce(t *testing.T) {
	tr, err := remoting.New(t.Context(), transport.Params{}, remoting.Config{})
	require.NoError(t, err)
	require.NoError(t, tr.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, tr.Shutdown(context.Background())) })
	b := &crowded{topics: []string{"A", "B", "C"}, asked: 3}
	l, err := tr.Serve(t.Context(), transport.Listen{Address: "127.0.0.1:0"}, transport.Services{Frames: b})
	require.NoError(t, err)
	c := adminclient.New(adminclient.Options{Dialer: tr})
	t.Cleanup(c.Close)
	at := adminclient.Broker{Cluster: "c", Name: "b", Address: l.Address()}
	s, err := askStats(t.Context(), c, at, []adminclient.Broker{at}, nil, false)
	require.NoError(t, err)
	require.Len(t, s.topics, 3)
}
