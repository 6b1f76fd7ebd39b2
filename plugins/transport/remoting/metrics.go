package remoting

import (
	"sync"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

// metrics are a transport's instruments.
type metrics struct {
	meter plugin.Meter
	label plugin.Label
	peers atomic.Int64

	opened, refused, slow, limit, idle plugin.Counter
	bytesIn, bytesOut                  plugin.Counter
	framesIn, framesOut                plugin.Counter

	handshakes, handshakesFailed, plainRefused plugin.Counter
	reloads, reloadsFailed                     plugin.Counter

	mu   sync.Mutex
	drop func()
}

func (m *metrics) init(meter plugin.Meter, name string) {
	m.meter, m.label = meter, plugin.Label{Name: "transport", Value: name}
	count := func(name, help string) plugin.Counter { return meter.Counter(name, help, m.label) }
	m.opened = count("transport_connections_total", "Connections that were opened.")
	m.refused = count("transport_connections_refused_total", "Connections closed at once because there were too many.")
	m.slow = count("transport_slow_closes_total", "Peers closed because they did not read what they were sent.")
	m.limit = count("transport_limit_closes_total", "Peers closed because of a malformed frame or a limit.")
	m.idle = count("transport_idle_closes_total", "Peers closed because they were silent.")
	m.bytesIn = count("transport_received_bytes_total", "Bytes read from peers.")
	m.bytesOut = count("transport_sent_bytes_total", "Bytes accepted for peers.")
	m.framesIn = count("transport_received_frames_total", "Frames read from peers.")
	m.handshakes = count("transport_tls_handshakes_total", "TLS handshakes of clients that succeeded.")
	m.handshakesFailed = count("transport_tls_handshake_failures_total", "TLS handshakes of clients that failed, took too long or were ended because too many were under way.")
	m.plainRefused = count("transport_plain_refused_total", "Plain connections closed before anything was decoded, because tls.server.mode is enforcing.")
	m.reloads = count("transport_tls_reloads_total", "New TLS files that were taken into use.")
	m.reloadsFailed = count("transport_tls_reload_failures_total", "New TLS files that could not be used; the old ones count on.")
	m.framesOut = count("transport_sent_frames_total", "Frames, or encoded runs of them, accepted for peers.")
}

func (m *metrics) open() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.drop == nil {
		m.drop = m.meter.Gauge("transport_connections", "Open connections.", func() float64 { return float64(m.peers.Load()) }, m.label)
	}
}

func (m *metrics) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.drop != nil {
		m.drop()
		m.drop = nil
	}
}
