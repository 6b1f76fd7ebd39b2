package config

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

// The words of metricsExporterType and tracesExporterType. The admin port serves
// metrics whatever is chosen.
const (
	ExportNothing  = "DISABLE"
	ExportOTLPGRPC = "OTLP_GRPC"
	ExportOTLPHTTP = "OTLP_HTTP"
	ExportProm     = "PROM"

	exportLog = "LOG" // RocketMQ's, without an effect
)

func metricsKeys() []Key {
	const g = GroupMetrics
	toggle := func(name, desc string) Key {
		return Key{Name: name, Group: g, Type: Bool, Default: "true", Applies: Broker, Desc: desc}
	}
	return []Key{
		{Name: "metricsExporterType", Group: g, Type: Enum, Words: []string{ExportNothing, ExportProm, ExportOTLPGRPC, ExportOTLPHTTP, exportLog}, Default: ExportNothing, Applies: Standalone,
			Desc: "Where metrics go beside /metrics of adminListen, which always has them. PROM: a port of their own (metricsPromExporterPort). OTLP_GRPC, OTLP_HTTP: they are sent to a collector (metricsGrpcExporterTarget). LOG has no effect."},
		{Name: "metricsPromExporterPort", Group: g, Type: Int, Min: 0, Max: 65535, Default: "5557", Applies: Standalone, Desc: "Port for Prometheus with PROM. It serves metrics alone: no profiles."},
		{Name: "metricsPromExporterHost", Group: g, Type: Text, Empty: true, Applies: Standalone, Desc: "Address of that port. Empty: every interface."},
		{Name: "metricsGrpcExporterTarget", Group: g, Type: Text, Empty: true, Applies: Standalone, Desc: "Collector to which metrics are sent, and traces unless tracesExporterTarget is set: HOST:PORT or https://HOST:PORT with TLS, http://HOST:PORT without. OTLP_HTTP takes a path, too; without one it is /v1/metrics and /v1/traces."},
		{Name: "metricsGrpcExporterHeader", Group: g, Type: Text, Empty: true, Secret: true, Applies: Standalone, Desc: "Headers of these requests, as in authorization:Bearer xyz,tenant:a. They are never shown."},
		{Name: "metricGrpcExporterTimeOutInMills", Group: g, Type: Duration, Unit: "ms", Min: 10, Max: 600_000, Default: "3000", Applies: Standalone, Desc: "How long one such request, or an attempt to connect, may take."},
		{Name: "metricGrpcExporterIntervalInMills", Group: g, Type: Duration, Unit: "ms", Min: 100, Max: 3_600_000, Default: "60000", Applies: Standalone, Desc: "How often metrics are sent."},
		{Name: "otlpCaFile", Group: g, Type: Path, Empty: true, Applies: Standalone, Desc: "Certificates, in PEM, of those who sign the collector's. Empty: those of the system."},
		{Name: "metricsLabel", Group: g, Type: Text, Empty: true, Applies: Broker, Desc: "Labels added to RocketMQ's metrics, as in instance_id:xxx,uid:yyy."},
		{Name: "metricsOtelCardinalityLimit", Group: g, Type: Int, Min: 1, Max: 10_000_000, Default: "50000", Applies: Broker, Desc: "Most series of one of RocketMQ's metrics. What is beyond is counted in hardpoint_metrics_left_out_series."},
		toggle("enableRequestMetrics", "Shows rocketmq_messages_*, rocketmq_throughput_*, rocketmq_message_size, rocketmq_topic_create_execution_time and rocketmq_consumer_group_create_execution_time."),
		toggle("enableLagAndDlqMetrics", "Shows rocketmq_consumer_lag_* and its like, and dead letters. Lags are what costs at a scrape."),
		toggle("enableConnectionMetrics", "Shows rocketmq_producer_connections and rocketmq_consumer_connections."),
		toggle("enableRemotingMetrics", "Shows rocketmq_rpc_latency."),
		toggle("enableMessageStoreMetrics", "Shows rocketmq_storage_*."),
		toggle("enableStatsMetrics", "Shows rocketmq_topic_number, rocketmq_consumer_group_number and rocketmq_broker_permission."),
		{Name: "tracesExporterType", Group: g, Type: Enum, Words: []string{ExportNothing, ExportOTLPGRPC, ExportOTLPHTTP}, Default: ExportNothing, Applies: Broker, Desc: "Where spans of sends, pulls and acknowledged progress go."},
		{Name: "tracesExporterTarget", Group: g, Type: Text, Empty: true, Applies: Broker, Desc: "Collector to which they are sent, in the form of metricsGrpcExporterTarget. Empty: that one."},
		{Name: "tracesExporterHeader", Group: g, Type: Text, Empty: true, Secret: true, Applies: Broker, Desc: "Headers of these requests. Empty: metricsGrpcExporterHeader."},
		{Name: "tracesSampleRatio", Group: g, Type: Float, Default: "0.001", Applies: Broker, Desc: "Part of the requests without a trace of their own that get a span, from 0 to 1. One that carries traceparent has a span if its trace is sampled."},
	}
}

// Metrics is what is measured, and where metrics and traces go.
type Metrics struct {
	ExporterType     string        `koanf:"metricsExporterType"`
	PromPort         int           `koanf:"metricsPromExporterPort"`
	PromHost         string        `koanf:"metricsPromExporterHost"`
	Target           string        `koanf:"metricsGrpcExporterTarget"`
	Header           plugin.Secret `koanf:"metricsGrpcExporterHeader"` // Headers reads it
	Timeout          time.Duration `koanf:"metricGrpcExporterTimeOutInMills"`
	Interval         time.Duration `koanf:"metricGrpcExporterIntervalInMills"`
	CAFile           string        `koanf:"otlpCaFile"`
	Label            string        `koanf:"metricsLabel"` // Labels reads it
	CardinalityLimit int           `koanf:"metricsOtelCardinalityLimit"`
	Requests         bool          `koanf:"enableRequestMetrics"`
	LagAndDLQ        bool          `koanf:"enableLagAndDlqMetrics"`
	Connections      bool          `koanf:"enableConnectionMetrics"`
	Remoting         bool          `koanf:"enableRemotingMetrics"`
	MessageStore     bool          `koanf:"enableMessageStoreMetrics"`
	Stats            bool          `koanf:"enableStatsMetrics"`
	TracesType       string        `koanf:"tracesExporterType"`
	TracesTarget     string        `koanf:"tracesExporterTarget"`
	TracesHeader     plugin.Secret `koanf:"tracesExporterHeader"`
	SampleRatio      float64       `koanf:"tracesSampleRatio"`
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

// Headers are those of a header key; core/config has checked them. The error tells no
// value.
func Headers(s plugin.Secret) (map[string]string, error) {
	pairs, err := pairsOf(s.Reveal())
	if err != nil {
		return nil, fmt.Errorf("write NAME:VALUE pairs separated by commas, as in authorization:Bearer xyz")
	}
	out := map[string]string{}
	for i, p := range pairs {
		if !headerName.MatchString(p[0]) {
			return nil, fmt.Errorf("name %d of a header has characters that are not allowed there", i+1)
		}
		out[strings.ToLower(p[0])] = p[1]
	}
	return out, nil
}

var headerName = regexp.MustCompile("^[a-zA-Z0-9!#$%&'*+.^_`|~-]+$")

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
	for key, s := range map[string]plugin.Secret{"metricsGrpcExporterHeader": m.Header, "tracesExporterHeader": m.TracesHeader} {
		if _, err := Headers(s); err != nil {
			l.fail(&Error{Kind: ErrBadValue, Key: key, Value: redacted, Source: l.origin[key], Reason: err.Error()})
		}
	}
	if m.SampleRatio < 0 || m.SampleRatio > 1 {
		refuse(ErrBadValue, "tracesSampleRatio", "allowed is a number from 0 to 1")
	}
	for key, target := range map[string]string{"metricsGrpcExporterTarget": m.Target, "tracesExporterTarget": m.TracesTarget} {
		if err := checkTarget(target); err != nil {
			refuse(ErrBadValue, key, "%s", err)
		}
		if strings.HasPrefix(target, "http://") && (m.Header != "" || m.TracesHeader != "") && !isLoopbackHost(hostOf(strings.TrimPrefix(target, "http://"))) {
			l.warn(key, l.origin[key], "the headers go to %s unencrypted; use https://", target)
		}
	}
	if m.ExporterType == exportLog {
		l.warn("metricsExporterType", l.origin["metricsExporterType"], "LOG has no effect: %s", noMetrics)
	}
	if sends(m.ExporterType) && m.Target == "" {
		refuse(ErrConflict, "metricsExporterType", "needs metricsGrpcExporterTarget: where to send metrics")
	}
	if sends(m.TracesType) && m.Target == "" && m.TracesTarget == "" {
		refuse(ErrConflict, "tracesExporterType", "needs tracesExporterTarget or metricsGrpcExporterTarget: where to send traces")
	}
	if m.PromAddress() != "" && !isLoopbackHost(m.PromHost) && m.PromHost != "" {
		l.warn("metricsPromExporterHost", l.origin["metricsPromExporterHost"], "whoever reaches %s can read metrics", m.PromAddress())
	}
}

func sends(exporter string) bool { return exporter == ExportOTLPGRPC || exporter == ExportOTLPHTTP }

// checkTarget says what is wrong with the address of a collector.
func checkTarget(target string) error {
	if target == "" {
		return nil
	}
	rest, scheme := target, ""
	if at := strings.Index(target, "://"); at >= 0 {
		scheme, rest = target[:at], target[at+3:]
	}
	if scheme != "" && scheme != "http" && scheme != "https" {
		return fmt.Errorf("begins with %s://; allowed are http:// and https://, and nothing, which means https", scheme)
	}
	address, _, _ := strings.Cut(rest, "/")
	if strings.Contains(address, "@") {
		return errors.New("names a user, which is not sent; give it as a header in metricsGrpcExporterHeader or tracesExporterHeader: authorization:Basic and the base64 of USER:PASSWORD")
	}
	host, port, err := net.SplitHostPort(address)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || host == "" || bad != nil || n == 0 {
		return fmt.Errorf("has no HOST:PORT with a port from 1 to 65535")
	}
	return nil
}
