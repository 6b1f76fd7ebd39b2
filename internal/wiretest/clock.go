package wiretest

import (
	"sync"
	"testing"
	"time"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

// Clock is that of the system but for timers of one length, which end when a test says
// so; its time moves with them.
type Clock struct {
	plugin.SystemClock
	step   time.Duration
	timers chan *timer

	mu  sync.Mutex
	now time.Time
}

type timer struct {
	c       chan time.Time
	stopped chan struct{}
	once    sync.Once
}

// NewClock makes a Clock; one timer of the length step runs at a time.
func NewClock(step time.Duration) *Clock {
	return &Clock{step: step, timers: make(chan *timer, 100), now: time.Now()}
}

// Now implements plugin.Clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// NewTimer implements plugin.Clock.
func (c *Clock) NewTimer(d time.Duration) plugin.Timer {
	if d != c.step {
		return c.SystemClock.NewTimer(d)
	}
	t := &timer{c: make(chan time.Time, 1), stopped: make(chan struct{})}
	c.timers <- t
	return t
}

// C implements plugin.Timer.
func (t *timer) C() <-chan time.Time { return t.c }

// Stop implements plugin.Timer.
func (t *timer) Stop() bool {
	t.once.Do(func() { close(t.stopped) })
	return true
}

// Reset implements plugin.Timer; nobody calls it.
func (*timer) Reset(time.Duration) bool { panic("a timer that is not used again") }

// Pass lets by time pass and ends the next timer, for which it waits until over is
// closed or brings something; false then.
func Pass[T any](c *Clock, by time.Duration, over <-chan T) bool {
	for {
		select {
		case t := <-c.timers:
			select {
			case <-t.stopped:
				continue
			default:
			}
			c.mu.Lock()
			c.now = c.now.Add(by)
			now := c.now
			c.mu.Unlock()
			t.c <- now
			return true
		case <-over:
			return false
		}
	}
}

// Outcome lets time pass until over brings what it gives.
func Outcome[T any](tb testing.TB, c *Clock, over <-chan T) T {
	tb.Helper()
	out := make(chan T, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		out <- <-over
	}()
	for Pass(c, c.step, done) {
	}
	return <-out
}
