package remoting_test

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// meter counts by name.
type meter struct {
	plugin.NopMeter
	mu     sync.Mutex
	counts map[string]*counter
	gauges map[string]func() float64
}

type counter struct{ atomic.Uint64 }

func (c *counter) Add(n uint64) { c.Uint64.Add(n) }

func (m *meter) Counter(name, _ string, _ ...plugin.Label) plugin.Counter {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counts[name] == nil {
		m.counts[name] = &counter{}
	}
	return m.counts[name]
}

func (m *meter) Gauge(name, _ string, read func() float64, _ ...plugin.Label) func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gauges[name] = read
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.gauges, name)
	}
}

func newMeter() *meter {
	return &meter{counts: map[string]*counter{}, gauges: map[string]func() float64{}}
}

func (m *meter) count(name string) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts[name].Load()
}

func (m *meter) gauge(name string) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gauges[name]()
}

func TestMetrics(t *testing.T) {
	m := newMeter()
	tr := start(t, plugin.Settings{Name: "x", Meter: m})
	srv := newProbe()
	srv.echo = true
	ln := serve(t, tr, transport.Listen{Limits: transport.Limits{Connections: 1}}, srv)
	c, err := net.Dial("tcp", ln.Address())
	require.NoError(t, err)
	defer c.Close()
	f := frame(100)
	wire := f.Append(f.Append(nil))
	_, err = c.Write(wire)
	require.NoError(t, err)
	_, err = io.ReadFull(c, wire)
	require.NoError(t, err)
	s := <-srv.opened
	s.takes(t, len(wire))
	require.InEpsilon(t, 1.0, m.gauges["transport_connections"](), 1e-9)

	refused, err := net.Dial("tcp", ln.Address())
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, refused)
	refused.Close()
	_, err = c.Write([]byte("garbage!"))
	require.NoError(t, err)
	t.Log("closed because of:", <-s.closed)
	require.NoError(t, tr.Shutdown(t.Context()))

	require.Empty(t, m.gauges)
	for name, want := range map[string]int{
		"transport_connections_total": 1, "transport_connections_refused_total": 1,
		"transport_received_frames_total": 2, "transport_sent_frames_total": 2,
		"transport_received_bytes_total": len(wire) + 8, "transport_sent_bytes_total": len(wire),
		"transport_limit_closes_total": 1, "transport_slow_closes_total": 0, "transport_idle_closes_total": 0,
	} {
		require.EqualValues(t, want, m.counts[name].Load(), name)
	}
}
