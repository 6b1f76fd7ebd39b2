package remoting

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/transport"
)

// listener implements [transport.Listener].
type listener struct {
	g  *group
	nl net.Listener
	h  transport.Handler

	refused rarely
	ended   chan struct{} // closed when nothing is accepted any more
	opening opening
	drop    func() // the gauge of its certificate; set before it is shared
}

// Address implements [transport.Listener].
func (l *listener) Address() string { return l.nl.Addr().String() }

// Close implements [transport.Listener]. It must not be called by a session,
// for whose Closed it waits.
func (l *listener) Close() error {
	l.g.close()
	l.g.wg.Wait()
	return nil
}

// Drain implements [transport.Listener]. Peers close themselves, or the engine
// closes them when it has sent its last answer.
func (l *listener) Drain(ctx context.Context) error {
	l.g.drain()
	_ = l.nl.Close()
	select {
	case <-l.g.drained:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("draining %s: %d peers are still connected: %w", l.Address(), l.g.count(), context.Cause(ctx))
	}
}

// Waits between attempts to accept when the system has no more descriptors.
const (
	firstBackoff = 5 * time.Millisecond
	lastBackoff  = time.Second
	reportEvery  = 10 * time.Second
)

func (l *listener) accept() {
	defer l.g.wg.Done()
	defer close(l.ended)
	t := l.g.t
	wait := firstBackoff
	for {
		c, err := l.nl.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			t.log.Warn("cannot accept a connection; if descriptors are used up, raise the limit of open files (ulimit -n)",
				slog.String("listener", l.Address()), slog.Duration("retry_in", wait), slog.Any("error", err))
			timer := t.set.Clock.NewTimer(wait)
			select {
			case <-l.g.stop:
				timer.Stop()
				return
			case <-timer.C():
			}
			wait = min(2*wait, lastBackoff)
			continue
		}
		wait = firstBackoff
		if l.g.count() >= l.g.lim.Connections { // only this goroutine adds
			_ = c.Close()
			l.reportRefused()
			continue
		}
		p := t.newPeer(l.g, l.h, c)
		if !l.g.add(p) {
			_ = c.Close()
			return
		}
		l.opening.begin(p)
		go p.serve()
	}
}

// opening are the peers that are accepted and not opened yet.
type opening struct {
	all sync.WaitGroup

	mu     sync.Mutex
	silent map[*peer]struct{} // those that have to say first whether they speak TLS
}

func (o *opening) begin(p *peer) {
	o.all.Add(1)
	p.hello.opening = o
	if p.g.tls == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.silent == nil {
		o.silent = map[*peer]struct{}{}
	}
	o.silent[p] = struct{}{}
}

// speaks is called when the first byte of p is there; false when p is given up.
func (o *opening) speaks(p *peer) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.silent[p]
	delete(o.silent, p)
	return ok
}

// giveUp gives all that are silent.
func (o *opening) giveUp() (all []*peer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p := range o.silent {
		all = append(all, p)
	}
	clear(o.silent)
	return all
}

// openingTime is how long a listener that is given away waits for peers to be opened.
const openingTime = time.Second

// settle waits until every peer that was accepted is opened, when nothing is accepted any
// more. A silent one is closed in the end: what it says later would be done by a process
// that ends before it has answered.
func (l *listener) settle() {
	settled := make(chan struct{})
	go func() {
		<-l.ended
		l.opening.all.Wait()
		close(settled)
	}()
	timer := l.g.t.set.Clock.NewTimer(openingTime)
	defer timer.Stop()
	select {
	case <-settled:
	case <-timer.C():
	}
	for _, p := range l.opening.giveUp() {
		p.fail(transport.ErrClosed)
	}
}

func (l *listener) reportRefused() {
	t := l.g.t
	t.metrics.refused.Add(1)
	if n := l.refused.due(t.set.Clock.Now()); n > 0 {
		t.log.Warn("connections are refused: there are too many; raise maxConnections (Limits.Connections) or find out who opens them",
			slog.String("listener", l.Address()), slog.Int("limit", l.g.lim.Connections), slog.Int("refused", n))
	}
}

// rarely keeps what strangers cause from filling the log.
type rarely struct {
	mu   sync.Mutex
	n    int
	last time.Time
}

// due counts an event. It returns how many there were since the last line when
// it is time for another one, else 0.
func (r *rarely) due(now time.Time) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	if !r.last.IsZero() && now.Sub(r.last) < reportEvery {
		return 0
	}
	n := r.n
	r.n, r.last = 0, now
	return n
}
