package remoting

import (
	"context"
	"time"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// NewStreamFactory makes transports that read and write as on systems without
// raw sockets.
func NewStreamFactory() transport.Factory {
	return changed(func(t *Transport) { t.streams = true })
}

// NewApartFactory makes transports as in a process of their own.
func NewApartFactory() transport.Factory {
	return changed(func(t *Transport) { t.apart = true })
}

func changed(change func(*Transport)) transport.Factory {
	f := NewFactory()
	return transport.NewFactory(Name, func(Config) plugin.Description {
		d, _ := f.Describe(context.Background(), nil)
		return d
	}, NewDefaultConfig, func(ctx context.Context, p transport.Params, c Config) (*Transport, error) {
		t, err := New(ctx, p, c)
		if err == nil {
			change(t)
		}
		return t, err
	})
}

// Hurry changes how long a handshake may take, for how long nobody ends one because
// there are many, and how many are many. Call it before Start.
func Hurry(t *Transport, d, grace time.Duration, most int) {
	t.handshakeTime, t.handshakeGrace, t.maxHandshakes = d, grace, most
}

// Linger changes for how long a closed peer may write its backlog. Call it before Start.
func Linger(t *Transport, d time.Duration) { t.linger = d }

// Crowd is how many times as many handshakes there may be at most.
const Crowd = crowd

// Streams makes a transport read and write as on systems without raw sockets. Call it
// before Start.
func Streams(t *Transport, on bool) { t.streams = on }

// Shaking is how many TLS handshakes of a listener are under way.
func Shaking(l transport.Listener) int {
	h := &l.(*listener).g.shakes
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all.Len()
}

// OpeningTime is how long a listener that is given away waits for peers to be opened.
const OpeningTime = openingTime
