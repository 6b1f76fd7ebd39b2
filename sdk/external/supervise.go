package external

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

// history decides when the next process of a plugin may start, from how those
// before it ended. It has no clock, no lock and no goroutine of its own.
type history struct {
	o      *Options
	jitter func() float64 // in [0,1)

	started time.Time   // of the last process
	recent  []time.Time // deaths, the oldest first; at most Deaths of the Breaker
	row     int         // deaths in a row, without a process that lived for a window between
	total   int         // deaths ever
	cause   string      // of the last one
	due     time.Time   // of the next start
	open    bool        // the circuit breaker is
	since   time.Time   // when it opened
}

func newHistory(o *Options) *history {
	return &history{o: o, jitter: rand.Float64}
}

// begin notes a start.
func (h *history) begin(now time.Time) { h.started = now }

// lived notes that a process ended in order, or is asked for and alive: one that
// lived for a window closes the circuit breaker and forgets the deaths before it.
func (h *history) lived(now time.Time) {
	if now.Sub(h.started) < h.o.Breaker.Window {
		return
	}
	h.open, h.row, h.recent, h.due = false, 0, nil, time.Time{}
}

// die notes a death.
func (h *history) die(now time.Time, cause string) {
	h.lived(now)
	again := h.open // the attempt of a circuit breaker that is half open
	h.total, h.cause = h.total+1, cause
	b := h.o.Breaker
	for len(h.recent) > 0 && now.Sub(h.recent[0]) > b.Window {
		h.recent = h.recent[1:]
	}
	h.recent = append(h.recent, now)
	h.row++
	if again || b.Deaths > 0 && len(h.recent) >= b.Deaths {
		if !again {
			h.open, h.since = true, now
		}
		h.recent = nil
		h.due = now.Add(b.Open)
		return
	}
	delay := h.o.Backoff.First
	for i := 1; i < h.row && delay < h.o.Backoff.Most; i++ {
		delay *= 2
	}
	delay = min(delay, h.o.Backoff.Most)
	// Half of it is random: processes that died of one cause must not come back at
	// once.
	h.due = now.Add(delay/2 + time.Duration(h.jitter()*float64(delay)/2))
}

// next tells how long the next start has to wait. With an open circuit breaker it
// may not start at all yet.
func (h *history) next(now time.Time) (wait time.Duration, refused bool) {
	wait = max(h.due.Sub(now), 0)
	return wait, h.open && wait > 0
}

// state is one of those of the metric.
func (h *history) state(now time.Time) string {
	wait, refused := h.next(now)
	switch {
	case refused:
		return stateOpen
	case h.open:
		return stateHalfOpen
	case wait > 0:
		return stateWaiting
	}
	return stateIdle
}

// The states of a plugin's process.
const (
	stateIdle     = "idle"      // none is needed
	stateRunning  = "running"   // one runs
	stateWaiting  = "waiting"   // it died; the next may start after a while
	stateOpen     = "open"      // it died too often; none may start
	stateHalfOpen = "half_open" // it died too often; one attempt is due
)

// refusal is the error of an Acquire that may not start a process now.
func (h *history) refusal(name, path string, now time.Time) error {
	wait := h.due.Sub(now).Round(time.Millisecond)
	if h.open {
		return fmt.Errorf("%w: plugin %q (%s) is not started: the circuit breaker is open since %s, its process died %d times so far; the next attempt is due in %v, at %s; the last cause: %s",
			plugin.ErrUnavailable, name, path, h.since.Format(time.RFC3339), h.total, wait, h.due.Format(time.RFC3339), h.cause)
	}
	return fmt.Errorf("%w: plugin %q (%s) is not started yet: its process died %d times in a row; the next start is due in %v, and the caller does not wait that long; the last cause: %s",
		plugin.ErrUnavailable, name, path, h.row, wait, h.cause)
}

// health asks the process whether it is there. Any answer is one.
func (p *process) health(ctx context.Context) error {
	_, err := grpc_health_v1.NewHealthClient(p.conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: goplugin.GRPCServiceName})
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return err
	}
	return nil
}

// answer is what became of a health call.
type answer int

const (
	answered answer = iota
	missed          // no answer within the limit
	void            // the host itself was suspended or starved: it says nothing
	ended           // the process has
)

// stopping reports whether the host is.
func (l *launcher) stopping() bool {
	select {
	case <-l.o.Stopping:
		return true
	default:
		return false
	}
}

// asks tells how often a process is asked whether it is there, 0: never, and how long it
// may take to answer. When hurry is closed both have to be asked for anew.
func (l *launcher) asks() (every, limit time.Duration, hurry <-chan struct{}) {
	o := &l.o
	switch {
	case !l.stopping():
		return o.Health, o.HealthLimit, o.Stopping
	case o.StopTimeout > 0: // a pause and two calls
		return min(o.Health, o.StopTimeout/8), min(o.HealthLimit, o.StopTimeout*3/8), nil
	}
	return o.Health, o.HealthLimit, nil
}

// ping makes a health call and waits for the answer up to limit, or until hurry is
// closed.
func (p *process) ping(limit time.Duration, hurry <-chan struct{}) answer {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	clock := p.l.o.Clock
	var err error
	done := make(chan struct{})
	began := clock.Now()
	t := clock.NewTimer(limit)
	defer t.Stop()
	go func() {
		defer close(done)
		err = p.health(ctx)
	}()
	out := answered
	select {
	case <-done:
		if err == nil {
			return answered
		}
		// Its connection broke. It may just be ending; else it counts when the time
		// is up.
		select {
		case <-t.C():
		case <-p.run.exited:
		}
		out = missed
	case <-t.C():
		cancel()
		<-done
		out = missed
	case <-hurry:
		cancel()
		<-done
		out = void
	case <-p.run.exited:
		cancel()
		<-done
	}
	switch {
	case !p.run.alive():
		return ended
	case out == missed && clock.Now().Sub(began) > limit+limit/2:
		return void // the timer itself came late
	}
	return out
}

// watch kills the process when it does not answer, and notes its end.
func (p *process) watch() {
	for o := &p.l.o; ; {
		every, limit, hurry := p.l.asks()
		if every <= 0 || !p.pause(every, hurry) {
			break
		}
		adopt()
		began := o.Clock.Now()
		if p.ping(limit, hurry) != missed {
			continue
		}
		p.log(slog.LevelWarn, "a plugin does not answer; it is asked once more before it is killed", "waited", o.Clock.Now().Sub(began))
		_, limit, hurry = p.l.asks()
		if p.ping(limit, hurry) != missed {
			continue
		}
		p.l.mu.Lock()
		p.hung = fmt.Sprintf("did not answer for %v and was killed", o.Clock.Now().Sub(began).Round(time.Millisecond))
		p.l.mu.Unlock()
		_ = p.run.Kill(context.Background())
		break
	}
	<-p.run.exited
	// A child that it forked may hold the connection open; its calls would wait for
	// their time-outs.
	time.AfterFunc(outputGrace, func() { _ = p.conn.Close() })
	<-p.run.pumps
	p.noteEnd()
}

// pause waits, until hurry is closed at most; it reports false when the process has
// ended.
func (p *process) pause(d time.Duration, hurry <-chan struct{}) bool {
	t := p.l.o.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
		return true
	case <-hurry:
		return true
	case <-p.run.exited:
		return false
	}
}

// noteEnd tells the history how the process ended. One that nobody uses is taken
// away.
func (p *process) noteEnd() {
	fate := p.fate()
	l := p.l
	l.mu.Lock()
	now := l.o.Clock.Now()
	current := l.cur == p
	died := !p.ending && p.installed
	p.noted = true
	var wait time.Duration
	switch {
	case died:
		l.m.deaths.Add(1)
		l.hist.die(now, "it "+fate)
		wait, _ = l.hist.next(now)
	case p.installed:
		l.hist.lived(now)
	}
	unused := p.users == 0
	if unused && current {
		l.cur = nil
	}
	if p.idle != nil {
		p.idle.Stop()
		p.idle = nil
	}
	l.mu.Unlock()
	if died {
		p.log(slog.LevelError, "the process of a plugin died", "cause", fate, "next_start_in", wait)
	}
	close(p.watched)
	if unused {
		p.end()
	}
}

func (p *process) log(level slog.Level, text string, args ...any) {
	if log := p.out.log.Load(); log != nil {
		args = append(args, "plugin", p.l.name, "program", p.cmd.Path, "pid", p.run.ID())
		log.Log(context.Background(), level, text, args...) //nolint:sloglint // the messages are those of the callers
	}
}
