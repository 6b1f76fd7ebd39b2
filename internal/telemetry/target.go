package telemetry

import (
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/internal/tlsfiles"
)

// Target is a collector.
type Target struct {
	// HTTP: OTLP over HTTP with protobuf, not gRPC.
	HTTP bool
	// Address is HOST:PORT, for HTTP with a path of its own behind it or none;
	// http:// before it means no TLS, https:// or nothing TLS, as RocketMQ has it.
	Address string
	// Headers go with each request.
	Headers plugin.Secret
	// CAFile has the certificates that the collector's may be signed with; empty: those
	// of the system.
	CAFile string
	// Timeout bounds each request.
	Timeout time.Duration
	// Last bounds all that is sent while the sender is shut down [2 s]: a process must
	// not stop late because of a collector that does not answer.
	Last time.Duration

	_ struct{}
}

const last = 2 * time.Second

func (t Target) withDefaults() Target {
	if t.Last == 0 {
		t.Last = last
	}
	return t
}

// parsed is a Target as exporters take it.
type parsed struct {
	host, path string
	tls        *tls.Config // nil: none
	headers    map[string]string
}

func (t *Target) parse() (*parsed, error) {
	p := &parsed{}
	rest, plain := strings.CutPrefix(t.Address, "http://")
	rest = strings.TrimPrefix(rest, "https://")
	p.host, p.path, _ = strings.Cut(rest, "/")
	var err error
	if p.headers, err = config.Headers(t.Headers); err != nil {
		return nil, err
	}
	if plain {
		return p, nil
	}
	k, err := tlsfiles.NewClient(tlsfiles.Client{VerifyServer: true, CAFile: t.CAFile})
	if err != nil {
		return nil, fmt.Errorf("otlpCaFile: %w", err)
	}
	p.tls = k.Config()
	return p, nil
}
