package metrics_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/internal/metrics"
	"github.com/hardpointmq/hardpoint/core/plugin"
)

func gathered(t *testing.T, reg *prometheus.Registry) string {
	t.Helper()
	return gatheredFrom(t, reg, false)
}

func gatheredFrom(t *testing.T, from prometheus.Gatherer, faults bool) string {
	t.Helper()
	fams, err := from.Gather()
	if faults {
		require.Error(t, err)
	} else {
		require.NoError(t, err)
	}
	var b strings.Builder
	for _, f := range fams {
		b.WriteString(f.String())
		b.WriteByte('\n')
	}
	return b.String()
}

func TestInstrumentsReachTheRegistry(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := metrics.New(reg, plugin.Label{Name: "broker", Value: "a"})
	m.Counter("sends_total", "Sends.").Add(2)
	m.Counter("sends_total", "Sends.").Add(3)
	m.Histogram("wait_seconds", "Wait.").Observe(0.5)
	drop := m.Gauge("open", "Open.", func() float64 { return 7 })

	out := gathered(t, reg)
	require.Contains(t, out, `name:"hardpoint_sends_total"`)
	require.Contains(t, out, `counter:{value:5`)
	require.Contains(t, out, `gauge:{value:7`)
	require.Contains(t, out, `name:"hardpoint_wait_seconds"`)
	require.Contains(t, out, `value:"a"`)

	drop()
	drop()
	require.NotContains(t, gathered(t, reg), "hardpoint_open")
}

// The transports of a broker and of a name server in one process are both seen.
func TestGaugesOfOneNameAddUp(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := metrics.New(reg)
	label := plugin.Label{Name: "transport", Value: "remoting"}
	one := m.Gauge("open", "Open.", func() float64 { return 3 }, label)
	two := m.With(label).Gauge("open", "Open.", func() float64 { return 4 })
	require.Contains(t, gathered(t, reg), `gauge:{value:7`)
	one()
	one()
	require.Contains(t, gathered(t, reg), `gauge:{value:4`)
	two()
	require.NotContains(t, gathered(t, reg), "hardpoint_open")

	three := m.Gauge("open", "Open.", func() float64 { return 5 }, label)
	two()
	require.Contains(t, gathered(t, reg), `gauge:{value:5`, "dropped by who has none any more")
	three()

	m.Counter("open", "Open.", label).Add(2)
	m.Gauge("open", "Open.", func() float64 { return 6 }, label)()
	require.Contains(t, gathered(t, reg), `counter:{value:2`, "an instrument of another kind stays")
}

func TestWithSeparatesInstruments(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := metrics.New(reg)
	m.With(plugin.Label{Name: "store", Value: "x"}).Counter("appends_total", "Appends.").Add(1)
	m.With(plugin.Label{Name: "store", Value: "y"}).Counter("appends_total", "Appends.").Add(4)
	out := gathered(t, reg)
	require.Contains(t, out, `value:1`)
	require.Contains(t, out, `value:4`)
}

func BenchmarkCounter(b *testing.B) {
	c := metrics.New(prometheus.NewRegistry()).Counter("n_total", "N.")
	b.ReportAllocs()
	for b.Loop() {
		c.Add(1)
	}
}

// together collects only while another one does.
type together struct {
	meet chan struct{}
	name string
}

func (*together) Describe(chan<- *prometheus.Desc) {}

func (c *together) Collect(out chan<- prometheus.Metric) {
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	select {
	case c.meet <- struct{}{}:
	case <-c.meet:
	case <-limit.C:
		return
	}
	out <- prometheus.MustNewConstMetric(prometheus.NewDesc(c.name, "H.", nil, nil), prometheus.GaugeValue, 1)
}

// What several broker groups expose is collected at the same time.
func TestExposedTogether(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := metrics.New(reg)
	meet := make(chan struct{})
	a, b := m.Expose(&together{meet, "rocketmq_a"}), m.Expose(&together{meet, "rocketmq_b"})
	out := gathered(t, reg)
	require.Contains(t, out, "rocketmq_a")
	require.Contains(t, out, "rocketmq_b")
	a()
	b()
	require.NotContains(t, gathered(t, reg), "rocketmq_")
}
