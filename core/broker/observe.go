package broker

import (
	"time"

	"github.com/hardpointmq/hardpoint/core/internal/observe"
	"github.com/hardpointmq/hardpoint/core/internal/retention"
	"github.com/hardpointmq/hardpoint/core/internal/stats"
)

// lagBudget is how long one scrape of the metrics computes lags. Prometheus waits ten
// seconds unless told otherwise.
const lagBudget = time.Second

// observe shows RocketMQ's metrics.
func (b *Broker) observe(st *stats.Stats, kept *retention.Retention) error {
	m := &b.p.Config.Metrics
	labels, err := m.Labels()
	if err != nil {
		return err
	}
	dir := ""
	if dirs := b.disks(); len(dirs) > 0 {
		dir = dirs[0]
	}
	observe.New(b.k, observe.Params{
		Clients: b.client, Stats: st, Query: b.query, Usage: b.p.FS.Usage, Dir: dir, Oldest: kept.Oldest,
		Labels: labels, Limit: m.CardinalityLimit, Budget: lagBudget,
		Hide: observe.Hidden{
			Remoting: !m.Remoting, Store: !m.MessageStore, Connections: !m.Connections, Stats: !m.Stats, Requests: !m.Requests, Lag: !m.LagAndDLQ,
		},
	})
	return nil
}
