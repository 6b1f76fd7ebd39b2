//go:build unix

package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
)

var updateMetrics = flag.Bool("update-metrics", false, "write the tables of docs/metrics.md")

// exchange sends a request and returns the body of its answer.
func exchange(t *testing.T, conn net.Conn, opaque, code int32, fill func(*command.Writer), body []byte) []byte {
	t.Helper()
	w := command.Begin(nil, command.JSON, code, opaque, 0)
	if fill != nil {
		fill(&w)
	}
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err := conn.Write(append(w.End(len(body)), body...))
	require.NoError(t, err)
	var in []byte
	for {
		buf := make([]byte, 64<<10)
		n, err := conn.Read(buf)
		require.NoError(t, err)
		in = append(in, buf[:n]...)
		frames, _, _, err := command.Split(in, nil, command.DefaultLimits())
		require.NoError(t, err)
		for i := range frames {
			var h command.Header
			require.NoError(t, h.Decode(&frames[i]))
			if h.IsResponse() && h.Opaque == opaque {
				require.Zero(t, h.Code, "%s", h.Remark())
				return frames[i].Body
			}
		}
	}
}

// metric is one as /metrics has it.
type metric struct {
	kind, help string
	labels     map[string]bool
}

var sample = regexp.MustCompile(`^(\w+)(?:\{(.*)\})? \S+$`)

// parseMetrics reads the text form. Parts of histograms are under their own names,
// too, with the labels that they have.
func parseMetrics(t *testing.T, text string) (families, names map[string]*metric) {
	t.Helper()
	families, names = map[string]*metric{}, map[string]*metric{}
	of := func(m map[string]*metric, name string) *metric {
		if m[name] == nil {
			m[name] = &metric{labels: map[string]bool{}}
		}
		return m[name]
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, _ := strings.Cut(rest, " ")
			of(families, name).help = help
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			of(families, name).kind = kind
			continue
		}
		f := sample.FindStringSubmatch(line)
		require.NotNil(t, f, line)
		family := f[1]
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			if base, ok := strings.CutSuffix(family, part); ok && families[base] != nil {
				family = base
			}
		}
		for _, l := range regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`).FindAllStringSubmatch(f[2], -1) {
			of(names, f[1]).labels[l[1]] = true
			if l[1] != "le" {
				of(families, family).labels[l[1]] = true
			}
		}
		of(names, f[1])
	}
	return families, names
}

// words of PromQL that the queries use; whatever else is no metric is refused.
var words = map[string]bool{
	"sum": true, "max": true, "rate": true, "increase": true, "histogram_quantile": true, "label_values": true, "by": true, "time": true,
}

var (
	matchers = regexp.MustCompile(`\{[^{}]*\}`)
	oneMatch = regexp.MustCompile(`^\s*(\w+)\s*(=~|!~|!=|=)\s*"[^"]*"\s*$`)
	grouping = regexp.MustCompile(`\bby \(([^()]*)\)`)
	ranges   = regexp.MustCompile(`\[[^\[\]]*\]`)
	word     = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*`)
)

// checkQuery says what a query names that was not scraped.
func checkQuery(names map[string]*metric, query string) error {
	labels := map[string]bool{}
	for _, m := range matchers.FindAllString(query, -1) {
		for part := range strings.SplitSeq(strings.Trim(m, "{}"), ",") {
			f := oneMatch.FindStringSubmatch(part)
			if f == nil {
				return fmt.Errorf("%q is no matcher of a label", part)
			}
			labels[f[1]] = true
		}
	}
	rest := ranges.ReplaceAllString(matchers.ReplaceAllString(query, ""), "")
	for _, g := range grouping.FindAllStringSubmatch(rest, -1) {
		for l := range strings.SplitSeq(g[1], ",") {
			labels[strings.TrimSpace(l)] = true
		}
	}
	rest = grouping.ReplaceAllString(rest, "")
	if inner, ok := strings.CutPrefix(rest, "label_values("); ok {
		name, label, _ := strings.Cut(strings.TrimSuffix(inner, ")"), ",")
		labels[strings.TrimSpace(label)], rest = true, name
	}
	found := ""
	for _, w := range word.FindAllString(rest, -1) {
		switch {
		case words[w]:
		case names[w] == nil:
			return fmt.Errorf("%s is not scraped", w)
		case found != "" && found != w:
			return fmt.Errorf("it has two metrics, %s and %s", found, w)
		default:
			found = w
		}
	}
	if found == "" {
		return fmt.Errorf("it has no metric")
	}
	for l := range labels {
		if !names[found].labels[l] {
			return fmt.Errorf("%s has no label %s, but %v", found, l, slices.Sorted(maps.Keys(names[found].labels)))
		}
	}
	return nil
}

func TestCheckQuery(t *testing.T) {
	names := map[string]*metric{"a_total": {labels: map[string]bool{"x": true, "y": true}}}
	for _, good := range []string{`a_total`, `sum by (x, y) (rate(a_total{x="1",y=~"$y"}[5m])) > 1`, `label_values(a_total, x)`} {
		require.NoError(t, checkQuery(names, good), good)
	}
	for _, bad := range []string{``, `b_total`, `a_total{z="1"}`, `sum by (z) (a_total)`, `label_values(a_total, z)`, `avg(a_total)`, `a_total{x}`, `a_total / b_total`} {
		require.Error(t, checkQuery(names, bad), bad)
	}
}

// TestDashboard holds the dashboard, the rules and docs/metrics.md against a live
// broker with traffic, a group that lags, a dead letter, a plugin in a process and a
// collector that is away.
func TestDashboard(t *testing.T) {
	s := standalone(t, t.TempDir(), "--storage", "pebble", "--storage-process",
		"--set", "metricsExporterType=OTLP_HTTP", "--set", "metricsGrpcExporterTarget=http://127.0.0.1:1", "--set", "tracesExporterType=OTLP_HTTP")
	produce(t, s, 10)
	member := join(t, s, "id", 4)
	pull := command.PullRequest{ConsumerGroup: []byte("G"), Topic: []byte("T"), MaxMsgNums: 32}
	var body []byte
	for q := int32(0); len(body) == 0 && q < 4; q++ {
		pull.QueueID = q
		body = exchange(t, member.conn, 1000+q, command.ReqPullMessage, pull.Append, nil)
	}
	var v message.View
	require.NoError(t, message.Parse(body, &v))
	dead := command.SendBackRequest{Group: []byte("G"), Offset: int64(v.Position), DelayLevel: -1, MaxReconsumeTimes: 16}
	exchange(t, member.conn, 2000, command.ReqConsumerSendMsgBack, dead.Append, nil)
	exchange(t, member.conn, 2002, command.ReqUpdateAndCreateSubscriptionGroup, nil, encoded(t, command.SubscriptionGroupConfig{GroupName: "H"}))
	exchange(t, member.conn, 2001, command.ReqHeartBeat, nil, encoded(t, command.HeartbeatData{ClientID: "p", ProducerDataSet: []command.ProducerData{{GroupName: "P"}}}))

	var families, names map[string]*metric
	require.Eventually(t, func() bool { // the broker registers beside all that
		code, text := fetch(t, "http://"+s.addr("admin")+"/metrics")
		require.Equal(t, http.StatusOK, code)
		families, names = parseMetrics(t, text)
		return families["rocketmq_consumer_lag_messages"] != nil && families["hardpoint_broker_registered"] != nil && families["rocketmq_storage_message_reserve_time_milliseconds"] != nil &&
			families["hardpoint_plugin_metrics_left_out"] != nil // the process of the store has answered
	}, patience, 50*time.Millisecond)

	text, err := os.ReadFile("../../docs/grafana/hardpoint.json")
	require.NoError(t, err)
	var dash struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct {
				Name, Type string
				Query      json.RawMessage
			}
		}
	}
	require.NoError(t, json.Unmarshal(text, &dash))
	require.NotEmpty(t, dash.Panels)
	for _, p := range dash.Panels {
		require.NotEmpty(t, p.Targets, p.Title)
		for _, x := range p.Targets {
			require.NoError(t, checkQuery(names, x.Expr), "%s: %s", p.Title, x.Expr)
		}
	}
	for _, l := range dash.Templating.List {
		if l.Type != "query" {
			continue
		}
		var q struct{ Query string }
		require.NoError(t, json.Unmarshal(l.Query, &q))
		require.NoError(t, checkQuery(names, q.Query), q.Query)
	}

	rules, err := os.ReadFile("../../docs/grafana/alerts.yml")
	require.NoError(t, err)
	exprs := regexp.MustCompile(`(?m)^ +expr: (.*)$`).FindAllStringSubmatch(string(rules), -1)
	require.Len(t, exprs, strings.Count(string(rules), "- alert:"))
	for _, x := range exprs {
		require.NoError(t, checkQuery(names, x[1]), x[1])
	}
	checkMetricsPage(t, families)
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	b, err := command.EncodeBody(v)
	require.NoError(t, err)
	return b
}

const metricsBegin, metricsEnd = "<!-- begin: go test ./cmd/hardpoint -run TestDashboard -update-metrics -->\n", "<!-- end -->\n"

// checkMetricsPage compares the tables of docs/metrics.md with what was scraped.
func checkMetricsPage(t *testing.T, families map[string]*metric) {
	t.Helper()
	const page = "../../docs/metrics.md"
	old, err := os.ReadFile(page)
	require.NoError(t, err)
	head, rest, ok := strings.Cut(string(old), metricsBegin)
	require.True(t, ok)
	_, tail, ok := strings.Cut(rest, metricsEnd)
	require.True(t, ok)
	var b strings.Builder
	for _, x := range []struct{ prefix, title string }{{"rocketmq_", "RocketMQ's"}, {"hardpoint_", "Hardpoint's"}} {
		fmt.Fprintf(&b, "\n## %s\n\n| Metric | Type | Unit | Labels | Meaning |\n|---|---|---|---|---|\n", x.title)
		for _, name := range slices.Sorted(maps.Keys(families)) {
			if f := families[name]; strings.HasPrefix(name, x.prefix) {
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", name, f.kind, unitOf(name), strings.Join(slices.Sorted(maps.Keys(f.labels)), ", "), f.help)
			}
		}
	}
	b.WriteByte('\n')
	fresh := head + metricsBegin + b.String() + metricsEnd + tail
	if *updateMetrics {
		require.NoError(t, os.WriteFile(page, []byte(fresh), 0o644))
		return
	}
	require.Equal(t, string(old), fresh, "run: go test ./cmd/hardpoint -run TestDashboard -update-metrics")
}

// unitOf is the unit that a name says.
func unitOf(name string) string {
	name = strings.TrimSuffix(name, "_total")
	for suffix, unit := range map[string]string{
		"_milliseconds": "ms", "_seconds": "s", "_bytes": "bytes", "_hours": "h", "_ratio": "0 to 1", "throughput_in": "bytes", "throughput_out": "bytes", "message_size": "bytes",
	} {
		if strings.HasSuffix(name, suffix) {
			return unit
		}
	}
	return cmp.Or(map[string]string{"rocketmq_broker_permission": "bits"}[name], "1")
}
