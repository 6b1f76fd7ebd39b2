package config

import (
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

// The words of metricsExporterType. The admin port serves
// metrics whatever is chosen.
const (
	ExportNothing = "DISABLE"
	ExportProm    = "PROM"

	// RocketMQ's, without an effect.
	exportLog, exportOTLP = "LOG", "OTLP_GRPC"
)

func metricsKeys() []Key {
	const g = GroupMetrics
	toggle := func(name, desc string) Key {
		return Key{Name: name, Group: g, Type: Bool, Default: "true", Applies: Broker, Desc: desc}
	}
	return []Key{
		{Name: "metricsExporterType", Group: g, Type: Enum, Words: []string{ExportNothing, ExportProm, exportOTLP, exportLog}, Default: ExportNothing, Applies: Standalone,
			Desc: "Where metrics go beside /metrics of adminListen, which always has them. PROM: a port of their own (metricsPromExporterPort). OTLP_GRPC and LOG have no effect."},
		{Name: "metricsPromExporterPort", Group: g, Type: Int, Min: 0, Max: 65535, Default: "5557", Applies: Standalone, Desc: "Port for Prometheus with PROM. It serves metrics alone: no profiles."},
		{Name: "metricsPromExporterHost", Group: g, Type: Text, Empty: true, Applies: Standalone, Desc: "Address of that port. Empty: every interface."},
		{Name: "metricsLabel", Group: g, Type: Text, Empty: true, Applies: Broker, Desc: "Labels added to RocketMQ's metrics, as in instance_id:xxx,uid:yyy."},
		{Name: "metricsOtelCardinalityLimit", Group: g, Type: Int, Min: 1, Max: 10_000_000, Default: "50000", Applies: Broker, Desc: "Most series of one of RocketMQ's metrics. What is beyond is counted in hardpoint_metrics_left_out_series."},
		toggle("enableRequestMetrics", "Shows rocketmq_messages_*, rocketmq_throughput_* and rocketmq_message_size."),
		toggle("enableLagAndDlqMetrics", "Shows rocketmq_consumer_lag_* and its like, and dead letters. Lags are what costs at a scrape."),
		toggle("enableConnectionMetrics", "Shows rocketmq_producer_connections and rocketmq_consumer_connections."),
		toggle("enableRemotingMetrics", "Shows rocketmq_rpc_latency."),
		toggle("enableMessageStoreMetrics", "Shows rocketmq_storage_*."),
		toggle("enableStatsMetrics", "Shows rocketmq_topic_number, rocketmq_consumer_group_number and rocketmq_broker_permission."),
	}
}

// Metrics is what is shown, and where.
type Metrics struct {
	ExporterType     string `koanf:"metricsExporterType"`
	PromPort         int    `koanf:"metricsPromExporterPort"`
	PromHost         string `koanf:"metricsPromExporterHost"`
	Label            string `koanf:"metricsLabel"` // Labels reads it
	CardinalityLimit int    `koanf:"metricsOtelCardinalityLimit"`
	Requests         bool   `koanf:"enableRequestMetrics"`
	LagAndDLQ        bool   `koanf:"enableLagAndDlqMetrics"`
	Connections      bool   `koanf:"enableConnectionMetrics"`
	Remoting         bool   `koanf:"enableRemotingMetrics"`
	MessageStore     bool   `koanf:"enableMessageStoreMetrics"`
	Stats            bool   `koanf:"enableStatsMetrics"`
}

// PromAddress is where metrics have a port of their own; empty: nowhere.
func (m *Metrics) PromAddress() string {
	if m.ExporterType != ExportProm {
		return ""
	}
	return net.JoinHostPort(m.PromHost, strconv.Itoa(m.PromPort))
}

var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// reserved are the labels of RocketMQ's metrics that nobody may set.
var reserved = map[string]bool{
	"cluster": true, "node_id": true, "node_type": true, "topic": true, "consumer_group": true, "is_system": true, "is_retry": true, "message_type": true,
	"language": true, "version": true, "consume_mode": true, "protocol_type": true, "request_code": true, "response_code": true, "is_long_polling": true,
	"result": true, "storage_type": true, "storage_medium": true, "le": true, "quantile": true,
}

// Labels are those of metricsLabel; core/config has checked them.
func (m *Metrics) Labels() ([]plugin.Label, error) {
	pairs, err := pairsOf(m.Label)
	if err != nil {
		return nil, err
	}
	out := make([]plugin.Label, 0, len(pairs))
	seen := map[string]bool{}
	for _, p := range pairs {
		switch {
		case !labelName.MatchString(p[0]) || strings.HasPrefix(p[0], "__"):
			return nil, fmt.Errorf("%.40q is no name of a label; allowed are letters, digits and _, not beginning with a digit or __", p[0])
		case reserved[p[0]]:
			return nil, fmt.Errorf("the label %s is one of RocketMQ's own", p[0])
		case seen[p[0]]:
			return nil, fmt.Errorf("the label %s is there twice", p[0])
		}
		seen[p[0]] = true
		out = append(out, plugin.Label{Name: p[0], Value: p[1]})
	}
	return out, nil
}

// pairsOf reads NAME:VALUE pairs separated by commas; a value may have colons.
func pairsOf(text string) ([][2]string, error) {
	var out [][2]string
	for item := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(item) == "" {
			continue
		}
		name, value, ok := strings.Cut(item, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || name == "" || value == "" {
			return nil, fmt.Errorf("%.40q is no pair; write NAME:VALUE pairs separated by commas, as in az:z1,rack:r2", item)
		}
		out = append(out, [2]string{name, value})
	}
	return out, nil
}

// checkMetrics holds the rules between these keys.
func (l *loader) checkMetrics(m *Metrics, refuse func(kind error, key, format string, args ...any)) {
	if _, err := m.Labels(); err != nil {
		refuse(ErrBadValue, "metricsLabel", "%s", err)
	}
	if m.ExporterType == exportLog || m.ExporterType == exportOTLP {
		l.warn("metricsExporterType", l.origin["metricsExporterType"], "%s has no effect: %s", m.ExporterType, noMetrics)
	}
	if m.PromAddress() != "" && !isLoopbackHost(m.PromHost) && m.PromHost != "" {
		l.warn("metricsPromExporterHost", l.origin["metricsPromExporterHost"], "whoever reaches %s can read metrics", m.PromAddress())
	}
}
