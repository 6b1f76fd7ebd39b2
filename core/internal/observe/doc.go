// Package observe shows the metrics of RocketMQ 5 under the names, with the labels,
// units and buckets that Apache's Prometheus exporter prints (BrokerMetricsManager,
// RemotingMetricsManager, DefaultStoreMetricsManager of 5.3.3). docs/metrics.md lists
// them, and those that Apache has and this broker not.
//
// What is counted per message is counted elsewhere, once for a batch (stats,
// kernel.Served). Everything else is looked at when somebody scrapes. The lag of
// consumers costs most: it is computed for one group and topic after the other until
// the time of a scrape is over, and the next scrape goes on where this one stopped;
// until its turn comes a pair shows its last value. There are at most
// metricsOtelCardinalityLimit series of a name; hardpoint_metrics_left_out_series
// tells of what is not shown.
package observe
