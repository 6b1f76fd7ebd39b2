// Package adminport serves the port for operators: health, readiness, metrics in
// Prometheus's text form, and Go's profiles. It is not for clients and has no
// access control; by default it listens on loopback.
//
//	/healthz       200 as long as the process answers
//	/readyz        200 when every check passes, else 503 with the reasons
//	/metrics       what the broker, the plugins, Go and the process count
//	/debug/pprof/  profiles
package adminport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/hardpointmq/hardpoint/core/internal/metrics"
	"github.com/hardpointmq/hardpoint/core/plugin"
)

// Off as an address opens no port.
const Off = "off"

const (
	// readHeader is how long a request may take to arrive.
	readHeader = 10 * time.Second
	// idle is how long a connection may wait for its next request: one that is
	// forgotten must not keep a descriptor for ever.
	idle = 2 * time.Minute
	// scrapes is how many requests for metrics a port serves at once; further ones are
	// answered 503. A scrape of a large broker takes hundreds of megabytes, and whoever
	// reaches the port can ask.
	scrapes = 4
	// scraped is how long one of them may take, so that who does not read the answer
	// leaves room for others.
	scraped = time.Minute
	// lastAnswers is how long a stop waits for requests under way; a profile of
	// minutes must not hold it up.
	lastAnswers = time.Second
)

// Metrics are the metrics of a process.
type Metrics struct {
	reg   *prometheus.Registry
	meter *metrics.Meter
}

// NewMetrics makes an empty set with what Go and the process tell of themselves.
func NewMetrics() *Metrics {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &Metrics{reg, metrics.New(reg)}
}

// Meter makes instruments that appear under /metrics with these labels. All metrics of
// one name must have the same ones; a value may be empty.
func (m *Metrics) Meter(labels ...plugin.Label) plugin.Meter { return m.meter.With(labels...) }

// Gatherer is everything that /metrics shows.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.meter.Gatherer() }

// Port is the admin port. It implements plugin.Component; add it first, so that
// it answers while the others start and stop.
type Port struct {
	settings plugin.Settings
	address  string
	key      string // of the configuration, for errors
	server   *http.Server

	mu       sync.Mutex
	checks   []check
	listener net.Listener
	done     chan error
}

type check struct {
	name string
	ok   func() error
}

var _ plugin.Component = (*Port)(nil)

// index is what a person sees who opens the port in a browser.
const index = `/healthz       the process answers
/readyz        it serves clients, or why not
/metrics       for Prometheus
/debug/pprof/  profiles`

// NewMetricsPort makes a port that serves /metrics alone, for a Prometheus that must not
// reach the rest. It does no I/O.
func NewMetricsPort(s plugin.Settings, address string, m *Metrics) *Port {
	p := &Port{settings: s.WithDefaults(), address: address, key: "metricsPromExporterHost and metricsPromExporterPort"}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.handler())
	p.server = &http.Server{Handler: mux, ReadHeaderTimeout: readHeader, IdleTimeout: idle}
	return p
}

func (m *Metrics) handler() http.Handler {
	h := promhttp.HandlerFor(m.meter.Gatherer(), promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: scrapes})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w) // whose errors say that there is no connection
		_ = c.SetWriteDeadline(time.Now().Add(scraped))
		h.ServeHTTP(w, r)
		_ = c.SetWriteDeadline(time.Time{})
	})
}

// New makes an admin port for host:port, or none for [Off]. It does no I/O.
func New(s plugin.Settings, address string, m *Metrics) *Port {
	p := &Port{settings: s.WithDefaults(), address: address, key: "adminListen"}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, index) })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", p.ready)
	mux.Handle("GET /metrics", m.handler())
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	// Of the command line the program alone: --set may hold passwords, and whoever
	// reaches the port can ask.
	mux.HandleFunc("/debug/pprof/cmdline", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, os.Args[0]) })
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	p.server = &http.Server{Handler: mux, ReadHeaderTimeout: readHeader, IdleTimeout: idle}
	return p
}

// Check adds a condition of readiness; ok must be quick and must not block.
func (p *Port) Check(name string, ok func() error) {
	p.mu.Lock()
	p.checks = append(p.checks, check{name, ok})
	p.mu.Unlock()
}

// Handler is what the port serves, for a server of the embedder's own.
func (p *Port) Handler() http.Handler { return p.server.Handler }

func (p *Port) ready(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	checks := p.checks
	p.mu.Unlock()
	var faults []string
	for _, c := range checks {
		if err := c.ok(); err != nil {
			faults = append(faults, c.name+": "+err.Error())
		}
	}
	if len(faults) > 0 {
		answer(w, http.StatusServiceUnavailable, strings.Join(faults, "\n"))
		return
	}
	answer(w, http.StatusOK, "ready")
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintln(w, text)
}

// Start implements plugin.Component.
func (p *Port) Start(ctx context.Context) error {
	if p.address == Off {
		return nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", p.address)
	if err != nil {
		return fmt.Errorf("%s %s: %w; choose another address, or off for none", p.key, p.address, err)
	}
	done := make(chan error, 1)
	p.mu.Lock()
	p.listener, p.done = l, done
	p.mu.Unlock()
	go func() {
		err := p.server.Serve(l)
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		} else {
			p.settings.Logger.Error("the admin port stopped serving", "error", err)
		}
		done <- err
	}()
	return nil
}

// Address is where it listens, with the real port; empty before Start and when
// it is off.
func (p *Port) Address() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil {
		return ""
	}
	return p.listener.Addr().String()
}

// Shutdown implements plugin.Component: requests under way are answered, what
// is left after a second is cut off.
func (p *Port) Shutdown(ctx context.Context) error {
	p.mu.Lock()
	done := p.done
	p.listener, p.done = nil, nil
	p.mu.Unlock()
	if done == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lastAnswers)
	defer cancel()
	err := p.server.Shutdown(ctx)
	if err != nil {
		err = p.server.Close()
	}
	return errors.Join(err, <-done)
}
