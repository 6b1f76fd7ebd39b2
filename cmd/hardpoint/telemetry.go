package main

import (
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"

	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/wiring"
	"github.com/hardpointmq/hardpoint/internal/telemetry"
)

// tracesOf sends spans to a collector. It starts before the brokers and stops after
// them.
func tracesOf(n *node) fx.Option {
	m := &n.Config.Metrics
	if n.Mode&config.Broker == 0 || m.TracesType == config.ExportNothing {
		return fx.Options()
	}
	t := target(m, m.TracesType)
	if m.TracesTarget != "" {
		t.Address = m.TracesTarget
	}
	if m.TracesHeader != "" {
		t.Headers = m.TracesHeader
	}
	n.traces = telemetry.NewTraces(n.telemetrySettings(), t, n.identity())
	return fx.Module("traces", fx.Invoke(func(life *wiring.Lifecycle) { life.Add("traces", n.traces, 1) }))
}

// metricsOf sends metrics to a collector. It starts after the brokers and stops before
// them, so that it sends what they counted last.
func metricsOf(n *node) fx.Option {
	m := &n.Config.Metrics
	if m.ExporterType != config.ExportOTLPGRPC && m.ExporterType != config.ExportOTLPHTTP {
		return fx.Options()
	}
	x := telemetry.NewMetrics(n.telemetrySettings(), target(m, m.ExporterType), m.Interval, n.metrics.Gatherer(), n.identity())
	return fx.Module("metrics", fx.Invoke(func(life *wiring.Lifecycle) { life.Add("metrics", x, 1) }))
}

func target(m *config.Metrics, exporter string) telemetry.Target {
	return telemetry.Target{
		HTTP: exporter == config.ExportOTLPHTTP, Address: m.Target, Headers: m.Header, CAFile: m.CAFile, Timeout: m.Timeout,
	}
}

func (n *node) telemetrySettings() plugin.Settings {
	return plugin.Settings{Name: "telemetry", Logger: n.log, Meter: n.groups[0].meterOfProcess()}
}

// identity is what a collector sees of this process: the first broker group's name.
func (n *node) identity() telemetry.Identity {
	if n.Mode&config.Broker == 0 {
		return telemetry.Identity{}
	}
	return telemetry.Identity{Instance: n.Config.Broker.Name}
}

// tracer makes the spans of the brokers; nil: there are none.
func (n *node) tracer() trace.TracerProvider {
	if n.traces == nil {
		return nil
	}
	return n.traces.Provider()
}
