package transportmw

import (
	"errors"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// Metrics measures, for any transport, what arrives at the engine and how long
// it keeps the readers, and what it sends. Bytes, and why peers are closed, are
// the transport's own to count.
func Metrics(t transport.Transport, s plugin.Settings) transport.Transport {
	s = s.WithDefaults()
	label := plugin.Label{Name: "transport", Value: s.Name}
	m := &meters{
		clock:   s.Clock,
		arrived: s.Meter.Counter("engine_received_frames_total", "Frames that arrived at the engine.", label),
		reads:   s.Meter.Counter("engine_arrivals_total", "Reads that brought the engine at least one frame.", label),
		handled: s.Meter.Histogram("engine_arrival_seconds", "How long the engine kept a reader for what one read brought.", label),
		settled: s.Meter.Histogram("engine_settle_seconds", "How long the engine kept a reader to settle.", label),
		sends:   s.Meter.Counter("engine_sends_total", "Calls of Send that succeeded.", label),
		refused: s.Meter.Counter("engine_refused_sends_total", "Calls of Send refused because the peer is closed or slow.", label),
	}
	return &wrapped{Base: Base{t}, wrap: func(h transport.Handler) *handler {
		return &handler{
			Handler: &meteredHandler{Handler: h, m: m},
			peer:    func(p transport.Peer) transport.Peer { return &meteredPeer{Peer: p, m: m} },
			session: func(s transport.Session) transport.Session { return &meteredSession{Session: s, m: m} },
		}
	}}
}

type meters struct {
	clock                          plugin.Clock
	arrived, reads, sends, refused plugin.Counter
	handled, settled               plugin.Histogram
}

func (m *meters) since(t time.Time) float64 { return m.clock.Now().Sub(t).Seconds() }

type meteredHandler struct {
	transport.Handler
	m *meters
}

// Settle implements [transport.Handler].
func (h *meteredHandler) Settle() {
	began := h.m.clock.Now()
	h.Handler.Settle()
	h.m.settled.Observe(h.m.since(began))
}

type meteredSession struct {
	transport.Session
	m *meters
}

// Arrived implements [transport.Session].
func (s *meteredSession) Arrived(in []command.Frame) {
	began := s.m.clock.Now()
	s.Session.Arrived(in)
	s.m.handled.Observe(s.m.since(began))
	s.m.reads.Add(1)
	s.m.arrived.Add(uint64(len(in)))
}

type meteredPeer struct {
	transport.Peer
	m *meters
}

// Send implements [transport.Peer].
func (p *meteredPeer) Send(out ...command.Frame) error {
	err := p.Peer.Send(out...)
	if errors.Is(err, transport.ErrClosed) || errors.Is(err, transport.ErrSlow) {
		p.m.refused.Add(1)
	} else if err == nil {
		p.m.sends.Add(1)
	}
	return err
}
