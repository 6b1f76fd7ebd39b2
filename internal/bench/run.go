package bench

import (
	"context"
	"errors"
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hardpointmq/hardpoint/core/command"
)

const tick = 200 * time.Millisecond

// errFinished ends a connection that has nothing more to wait for.
var errFinished = errors.New("finished")

// run is one load under way. Its clock counts nanoseconds since base.
type run struct {
	o      *Options
	base   time.Time
	baseMs int64
	// from and to are the measured window; to is moved when a run ends early.
	from     int64
	to       atomic.Int64
	budget   atomic.Int64
	finished atomic.Bool

	mu     sync.Mutex
	conns  []*conn
	errors map[int32]*ErrorCount

	atFrom, atTo usage // of the server
	ownFrom      usage
	ownTo        usage
	interrupted  bool
}

func newRun(o *Options) *run {
	r := &run{o: o, from: int64(o.Warmup), errors: map[int32]*ErrorCount{}}
	r.begin(time.Now())
	r.to.Store(math.MaxInt64)
	if o.Duration > 0 {
		r.to.Store(int64(o.Warmup + o.Duration))
	}
	r.budget.Store(math.MaxInt64)
	if o.Count > 0 {
		r.budget.Store(o.Count)
	}
	return r
}

// begin sets the clock to zero, so that connecting does not count.
func (r *run) begin(now time.Time) { r.base, r.baseMs = now, now.UnixMilli() }

func (r *run) now() int64 { return int64(time.Since(r.base)) }

// measured tells whether an answer counts: in a closed loop by when it came, in
// an open one by when it was due.
func (r *run) measured(due, now int64) bool {
	if r.o.Rate > 0 && !r.o.FromSend {
		now = due
	}
	return now >= r.from && now <= r.to.Load()
}

// spend takes one message off the budget of Count.
func (r *run) spend(now int64) bool {
	if r.o.Count == 0 || now < r.from {
		return true
	}
	return r.budget.Add(-1) >= 0
}

func (r *run) isError(code int32) bool {
	switch code {
	case command.RespSuccess, command.RespPullNotFound, command.RespPullRetryImmediately, command.RespPullOffsetMoved:
		return false
	}
	return true
}

func (r *run) note(code int32, remark string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.errors[code]
	if e == nil {
		e = &ErrorCount{Code: code, Name: command.ResponseName(code), First: remark}
		r.errors[code] = e
	}
	e.Count++
}

// finish ends the connections of cs, which wait for answers that need not come.
func (r *run) finish() {
	r.finished.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		_ = c.nc.SetReadDeadline(time.Unix(1, 0))
	}
}

func (r *run) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		_ = c.nc.Close()
	}
}

// watch samples, shows progress and ends connections that wait too long, until
// done is closed. When ctx ends it ends the measured window.
func (r *run) watch(ctx context.Context, done <-chan struct{}) {
	t := time.NewTicker(tick)
	defer t.Stop()
	start := time.NewTimer(r.o.Warmup)
	defer start.Stop()
	over := (<-chan time.Time)(nil)
	if to := r.to.Load(); to != math.MaxInt64 {
		end := time.NewTimer(time.Duration(to - r.now()))
		defer end.Stop()
		over = end.C
	}
	cancelled := ctx.Done()
	began := int64(0)
	ended := false
	end := func() {
		if !ended {
			ended = true
			r.atTo, r.ownTo = r.sample()
		}
	}
	defer end()
	for {
		select {
		case <-start.C:
			r.atFrom, r.ownFrom = r.sample()
			began = r.messages()
		case <-over:
			end()
		case <-cancelled:
			cancelled = nil
			r.interrupted = true
			r.to.Store(min(r.to.Load(), r.now()))
			end()
		case <-t.C:
			r.late()
			r.tell(began)
		case <-done:
			return
		}
	}
}

func (r *run) sample() (server, own usage) {
	own, _ = usageOf(os.Getpid())
	for i, pid := range r.o.PIDs {
		u, err := usageOf(pid)
		if err != nil {
			return usage{}, own // it ended meanwhile: half a sum would mislead
		}
		if i == 0 {
			server = u
		} else {
			server = server.plus(u)
		}
	}
	return server, own
}

func (r *run) messages() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := int64(0)
	for _, c := range r.conns {
		n += c.total.Load()
	}
	return n
}

// late ends connections whose answers are overdue.
func (r *run) late() {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		if c.inflight.Load() > 0 && now-c.lastRead.Load() > int64(r.o.Timeout) {
			_ = c.nc.SetReadDeadline(time.Unix(1, 0))
		}
	}
}

func (r *run) tell(began int64) {
	if r.o.Progress == nil {
		return
	}
	now := r.now()
	p := Progress{Phase: "warm-up", Elapsed: time.Duration(now)}
	n := r.messages()
	if now < r.from {
		p.Part, p.PerSec = float64(now)/float64(r.from), float64(n)/(float64(now)/1e9)
	} else {
		p.Phase = "run"
		switch to := r.to.Load(); {
		case r.o.Count > 0:
			p.Part = float64(n-began) / float64(r.o.Count)
		case to != math.MaxInt64 && to > r.from:
			p.Part = float64(now-r.from) / float64(to-r.from)
		}
		p.Part = min(p.Part, 1)
		p.PerSec = float64(n-began) / (float64(now-r.from+1) / 1e9)
	}
	r.o.Progress(p)
}

// drive runs all connections from base on and watches them; it returns when all
// are done.
func (r *run) drive(ctx context.Context, base time.Time) error {
	r.begin(base)
	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() { r.watch(ctx, done) })
	defer watcher.Wait()
	defer close(done)
	if r.o.Rate > 0 {
		return r.openLoop(ctx)
	}
	return r.closedLoops(ctx)
}

func (r *run) closedLoops(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	defer context.AfterFunc(ctx, r.finish)()
	for _, c := range r.conns {
		g.Go(c.closed)
	}
	return g.Wait()
}

// openLoop sends at the fixed rate and returns when all is answered.
func (r *run) openLoop(ctx context.Context) error {
	cs := r.conns
	interval := 1e9 / r.o.Rate
	g, ctx := errgroup.WithContext(ctx)
	defer context.AfterFunc(ctx, r.finish)()
	for _, c := range cs {
		c.free = make(chan int32, len(c.due))
		for slot := range c.due {
			c.due[slot] = -1
			c.free <- int32(slot)
		}
		g.Go(c.answers)
	}
	pacers := min(len(cs), max(1, runtime.GOMAXPROCS(0)))
	var senders sync.WaitGroup
	for p := range pacers {
		senders.Add(1)
		g.Go(func() error {
			defer senders.Done()
			var mine []*conn
			for i := p; i < len(cs); i += pacers {
				mine = append(mine, cs[i])
			}
			return r.pace(ctx, mine, p, pacers, interval)
		})
	}
	g.Go(func() error {
		senders.Wait()
		// All slots free again: everything is answered.
		for _, c := range cs {
			for range c.due {
				select {
				case <-c.free:
				case <-ctx.Done():
					return nil
				}
			}
		}
		r.finish()
		return nil
	})
	return g.Wait()
}

// pace sends what is due on its connections in turn.
func (r *run) pace(ctx context.Context, cs []*conn, first, stride int, interval float64) error {
	flush := func() error {
		for _, c := range cs {
			if err := c.write(); err != nil {
				return err
			}
		}
		return nil
	}
	s := newSleeper()
	defer s.stop()
	began := r.now()
	for k := 0; ; k++ {
		due := began + int64(float64(k*stride+first)*interval)
		if due >= r.to.Load() {
			return flush()
		}
		if r.now() < due {
			if err := flush(); err != nil {
				return err
			}
			for now := r.now(); now < due; now = r.now() {
				if ctx.Err() != nil || due >= r.to.Load() {
					return nil
				}
				s.sleep(ctx, time.Duration(due-now))
			}
		}
		c := cs[k%len(cs)]
		var slot int32
		select {
		case slot = <-c.free:
		default:
			// No slot is left: what waits here is charged to the messages that
			// are due meanwhile.
			if err := flush(); err != nil {
				return err
			}
			select {
			case slot = <-c.free:
			case <-ctx.Done():
				return nil
			}
		}
		at := due
		if r.o.FromSend {
			at = r.now()
		}
		if !c.ask(int(slot), at) {
			c.free <- slot
			return flush()
		}
		// After the slot is written: the reader looks at inflight before slots.
		if c.inflight.Add(1) == 1 {
			c.lastRead.Store(r.now())
		}
		if len(c.out) >= flushSize {
			if err := c.write(); err != nil {
				return err
			}
		}
	}
}
