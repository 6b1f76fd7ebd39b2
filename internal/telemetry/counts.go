package telemetry

import (
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

// quiet is how long the log keeps silent about a collector after it said something.
const quiet = time.Minute

// counts tell what became of one signal.
type counts struct {
	set             plugin.Settings
	signal, address string
	sent, failed    plugin.Counter
	dropped         plugin.Counter // spans; nil for metrics, which the next request has anew

	mu       sync.Mutex
	said     time.Time
	failures int // failures since the last line
	down     bool
}

func newCounts(s plugin.Settings, signal, address string) *counts {
	l := plugin.Label{Name: "signal", Value: signal}
	return &counts{
		set: s, signal: signal, address: address,
		sent:   s.Meter.Counter("otlp_exports_total", "Requests that a collector took.", l),
		failed: s.Meter.Counter("otlp_export_failures_total", "Requests that a collector did not take, or not in time.", l),
	}
}

// newSpanCounts is newCounts for what is lost when it is not taken.
func newSpanCounts(s plugin.Settings, signal, address string) *counts {
	c := newCounts(s, signal, address)
	c.dropped = s.Meter.Counter("otlp_dropped_spans_total", "Spans that were dropped: the collector is too slow, or away.", plugin.Label{Name: "signal", Value: signal})
	return c
}

// done counts a request with so many spans, and says it when the collector went or came.
func (c *counts) done(err error, spans int) {
	if err == nil {
		c.sent.Add(1)
	} else {
		c.failed.Add(1)
		if c.dropped != nil {
			c.dropped.Add(uint64(spans))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		if c.down {
			c.down = false
			c.set.Logger.Info("the OTLP collector takes what it is sent again", "signal", c.signal, "target", c.address)
		}
		return
	}
	c.failures++
	if now := c.set.Clock.Now(); !c.down || now.Sub(c.said) >= quiet {
		if !c.said.IsZero() && now.Sub(c.said) < quiet {
			return // it comes and goes
		}
		c.set.Logger.Warn("the OTLP collector did not take what it was sent; the broker goes on without it",
			"signal", c.signal, "target", c.address, "failures", c.failures, "error", err)
		c.said, c.down, c.failures = now, true, 0
	}
}
