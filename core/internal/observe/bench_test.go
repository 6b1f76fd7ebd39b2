package observe_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/client"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/observe"
	"github.com/hardpointmq/hardpoint/core/message"
)

// BenchmarkScrape is a scrape of 10,000 topics with 8 queues each that 100 groups
// subscribe, with the default limit: 50,000 of the 1,000,000 pairs.
func BenchmarkScrape(b *testing.B) {
	const topics, queues, groups = 10_000, 8, 100
	var clients *client.Manager
	s := start(b, enginetest.Options{
		Segment: 64 << 20,
		Observe: func(p *observe.Params) { clients = p.Clients },
	})
	var names []string
	for i := range topics {
		names = append(names, fmt.Sprintf("Topic%05d", i))
		s.topic(b, names[i], queues)
	}
	for g := range groups {
		group := fmt.Sprintf("Group%03d", g)
		h := enginetest.Heartbeat("id", group, 1, names...)
		r := s.c.Do(command.ReqHeartBeat, nil, s.c.Body(h))
		require.Zero(b, r.Code, r.Remark)
		for _, t := range names[:500] {
			for q := range int32(queues) {
				s.K.Offsets.Commit(group, message.Queue{Topic: t, ID: q}, 0)
			}
		}
	}
	require.Len(b, clients.ConsumerGroups(), groups)
	b.ReportAllocs()
	for b.Loop() {
		_, err := prometheus.Gatherers{s.reg}.Gather()
		require.NoError(b, err)
	}
}
