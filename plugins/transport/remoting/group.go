package remoting

import (
	"crypto/tls"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// group is a set of peers with common limits: those of a listener, or dialled
// ones.
type group struct {
	t     *Transport
	lim   transport.Limits
	split command.Limits
	tls   *tls.Config // nil: every connection is plain
	// enforce closes plain connections before anything of them is decoded.
	enforce bool
	shakes  handshakes

	read  budget // of all read buffers
	total budget // of all backlogs
	ended rarely // peers closed for what they did
	// failed are handshakes, plain connections that were refused for it.
	failed, plain rarely

	wg      sync.WaitGroup // readers, accept loop, janitor
	onClose func()         // set before the group is shared
	stop    chan struct{}
	drained chan struct{} // closed when draining and no peer is left

	mu       sync.Mutex
	peers    map[*peer]struct{}
	draining bool
	empty    bool // drained is closed
	closed   bool
}

func (t *Transport) newGroup(lim transport.Limits, conf *tls.Config) *group {
	lim = lim.WithDefaults()
	g := &group{
		t:       t,
		lim:     lim,
		split:   command.Limits{Frame: lim.Frame, Header: lim.Header},
		tls:     conf,
		stop:    make(chan struct{}),
		drained: make(chan struct{}),
		peers:   map[*peer]struct{}{},
		onClose: func() {},
	}
	g.read.limit, g.total.limit = lim.ReadBytes, lim.TotalBytes
	return g
}

// add registers a peer whose reader will call remove; false when the group is
// closed or drained.
func (g *group) add(p *peer) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.draining {
		return false
	}
	g.peers[p] = struct{}{}
	g.wg.Add(1)
	g.t.metrics.peers.Add(1)
	g.t.metrics.opened.Add(1)
	return true
}

// replace puts a peer in the place of another; false when the group is closed or
// drained.
func (g *group) replace(p, by *peer) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.draining {
		return false
	}
	delete(g.peers, p)
	g.peers[by] = struct{}{}
	return true
}

func (g *group) remove(p *peer) {
	g.mu.Lock()
	delete(g.peers, p)
	g.checkDrained()
	g.mu.Unlock()
	g.t.metrics.peers.Add(-1)
	g.wg.Done()
}

func (g *group) checkDrained() {
	if g.draining && len(g.peers) == 0 && !g.empty {
		g.empty = true
		close(g.drained)
	}
}

func (g *group) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.peers)
}

// drain makes readers discard what comes; they stay to notice the end of their
// connection.
func (g *group) drain() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.draining = true
	for p := range g.peers {
		p.discard.Store(true)
	}
	g.checkDrained()
}

// close closes all peers and returns; wg tells when it is done.
func (g *group) close() {
	g.mu.Lock()
	first := !g.closed
	g.closed = true
	var all []*peer
	for p := range g.peers {
		all = append(all, p)
	}
	g.mu.Unlock()
	if first {
		close(g.stop)
		g.onClose()
	}
	for _, p := range all {
		p.fail(transport.ErrClosed)
	}
	g.t.mu.Lock()
	if !g.t.running {
		g.t.mu.Unlock()
		return // Shutdown has its own list and waits for it
	}
	delete(g.t.groups, g)
	g.t.mu.Unlock()
}

// janitorTicks is into how many parts Limits.Idle is cut: a peer is closed when
// it was silent for so many of them, that is at most a part later than Idle.
const janitorTicks = 4

// startJanitor watches for peers that are silent or do not read. It replaces
// a read deadline per connection, which would cost a timer at each read.
func (g *group) startJanitor() {
	if g.lim.Idle < 0 {
		return
	}
	period := max(g.lim.Idle/janitorTicks, time.Millisecond)
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		timer := g.t.set.Clock.NewTimer(period)
		defer timer.Stop()
		for {
			select {
			case <-g.stop:
				return
			case <-timer.C():
			}
			g.tick()
			timer.Reset(period)
		}
	}()
}

func (g *group) tick() {
	var dead []*peer
	var causes []error
	g.mu.Lock()
	for p := range g.peers {
		if err := p.tick(g.lim.Idle); err != nil {
			dead, causes = append(dead, p), append(causes, err)
		}
	}
	g.mu.Unlock()
	for i, p := range dead {
		p.fail(causes[i])
	}
}
