package wire

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/sdk/wire/pluginpb"
)

func byName(r *pluginpb.MetricsResponse) map[string]*pluginpb.Series {
	out := map[string]*pluginpb.Series{}
	for _, s := range r.GetSeries() {
		out[s.GetName()] = s
	}
	return out
}

func TestMeter(t *testing.T) {
	m := NewMeter()
	a, b := plugin.Label{Name: "a", Value: "1"}, plugin.Label{Name: "b", Value: "2"}
	m.Counter("n", "N.", a, b).Add(2)
	m.Counter("n", "N.", b, a).Add(3)
	h := m.Histogram("h", "H.")
	for _, v := range []float64{0.0001, 0.5, 1e9} {
		h.Observe(v)
	}
	drop := m.Gauge("g", "G.", func() float64 { return 4 })
	other := m.Gauge("g", "G.", func() float64 { return 5 })
	m.Gauge("n", "N.", func() float64 { return 0 }, a, b)() // of another kind: it is not seen
	m.Histogram("n", "N.", a, b).Observe(1)
	m.Counter("g", "").Add(1)

	got := byName(m.collect(MaxSeries))
	require.Len(t, got, 3)
	require.InDelta(t, 5, got["n"].GetCounter(), 0)
	require.Len(t, got["n"].GetLabels(), 2)
	require.InDelta(t, 9, got["g"].GetGauge(), 0)
	require.Equal(t, "H.", got["h"].GetHelp())
	require.EqualValues(t, 3, got["h"].GetHistogram().GetCount())
	require.InDelta(t, 1e9+0.5001, got["h"].GetHistogram().GetSum(), 1e-6)
	buckets := got["h"].GetHistogram().GetBuckets()
	require.EqualValues(t, 1, buckets[0].GetCount())
	require.EqualValues(t, 2, buckets[len(buckets)-1].GetCount())

	drop()
	drop()
	require.InDelta(t, 5, byName(m.collect(MaxSeries))["g"].GetGauge(), 0)
	other()
	require.NotContains(t, byName(m.collect(MaxSeries)), "g")
	require.EqualValues(t, 1, m.collect(1).GetLeftOut())
}

func TestMeterIsBounded(t *testing.T) {
	m := NewMeter()
	for i := range MaxSeries + 7 {
		m.Counter("n", "", plugin.Label{Name: "i", Value: fmt.Sprint(i)}).Add(1)
	}
	r := m.collect(MaxSeries)
	require.Len(t, r.GetSeries(), MaxSeries)
	require.EqualValues(t, 7, r.GetLeftOut())
}

func TestMeterAtOnce(t *testing.T) {
	m := NewMeter()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 200 {
				m.Counter("n", "").Add(1)
				m.Histogram("h", "").Observe(1)
				m.Gauge(fmt.Sprint("g", i%5), "", func() float64 { return 1 })()
				m.collect(MaxSeries)
			}
		})
	}
	all.Wait()
	got := byName(m.collect(MaxSeries))
	require.InDelta(t, 1600, got["n"].GetCounter(), 0)
	require.EqualValues(t, 1600, got["h"].GetHistogram().GetCount())
	require.Len(t, got, 2)
}

func BenchmarkMeter(b *testing.B) {
	m := NewMeter()
	c, h := m.Counter("n", ""), m.Histogram("h", "")
	b.ReportAllocs()
	for b.Loop() {
		c.Add(1)
		h.Observe(0.01)
	}
}
