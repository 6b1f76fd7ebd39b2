package data

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/sdk/wire"
)

// ErrSilent: the other end owes an answer, and was silent for too long.
var ErrSilent = errors.New("a plugin is silent on its data socket")

// ErrLie: the other end speaks the protocol, and says what cannot be.
var ErrLie = errors.New("a plugin says what cannot be true")

// GivenUp reports whether a connection ended because nothing that the other end says
// can be relied on, or because it says nothing.
func GivenUp(why error) bool {
	return errors.Is(why, ErrFrame) || errors.Is(why, ErrLie) || errors.Is(why, ErrSilent)
}

// Line is a connection as seen by who waits for the other end.
type Line struct {
	moved atomic.Uint64
	// Owes says what the other end has to do, such as "answer Append", "" when nothing.
	// It is asked a few times per limit.
	Owes func() string
}

// Moved notes that the other end did something.
func (l *Line) Moved() { l.moved.Add(1) }

// Hear is r, noting what it brings.
func (l *Line) Hear(r io.Reader) io.Reader { return ear{r, l} }

type ear struct {
	io.Reader
	l *Line
}

func (e ear) Read(b []byte) (int, error) {
	n, err := e.Reader.Read(b)
	if n > 0 {
		e.l.Moved()
	}
	return n, err
}

// looks is how often a line is looked at within the limit.
const looks = 8

// leastStep is the least time between them. With less each look would be late on a
// machine that does other things, and no limit would ever be over.
const leastStep = 5 * time.Millisecond

// Limits are how long a line may owe something.
type Limits struct {
	Call time.Duration // 0 or less: for ever
	// Stop counts instead when it is shorter and Stopping is closed; 0: it does not.
	Stop     time.Duration
	Stopping <-chan struct{}
}

// LimitsOf are those of a process.
func LimitsOf(p wire.Process) Limits { return Limits{p.CallTimeout(), p.StopTimeout(), p.Stopping()} }

// Watch returns when one of the lines owed something for as long as the limits say
// without moving, with an error that matches ErrSilent; nil when until is closed first,
// at once when there never is a limit. Time in which this process itself did not run,
// suspended or starved, is not counted.
func Watch(clock plugin.Clock, l Limits, until <-chan struct{}, lines ...*Line) error {
	limit, because, hurry := l.Call, "pluginCallTimeout is the limit", l.Stopping
	if l.Stop <= 0 {
		hurry = nil
	}
	for {
		if limit <= 0 && hurry != nil {
			select {
			case <-hurry:
			case <-until:
				return nil
			}
		} else if owed, over := watch(clock, limit, until, hurry, lines); over {
			if owed == "" {
				return nil
			}
			return fmt.Errorf("%w: it did not %s for %v, though it answers health calls; %s", ErrSilent, owed, limit, because)
		}
		hurry = nil
		if limit <= 0 || l.Stop < limit {
			limit, because = l.Stop, "the host is stopping, and pluginStopTimeout is the limit"
		}
	}
}

// watch is Watch with one limit; it is not over when hurry was closed.
func watch(clock plugin.Clock, limit time.Duration, until, hurry <-chan struct{}, lines []*Line) (owed string, over bool) {
	if limit <= 0 {
		return "", true
	}
	step := max(limit/looks, leastStep)
	quiet := make([]int, len(lines))   // looks in a row that found a debt and nothing new
	seen := make([]uint64, len(lines)) // moved, at the last look
	for last := clock.Now(); ; {
		t := clock.NewTimer(step)
		select {
		case <-t.C():
		case <-until:
			t.Stop()
			return "", true
		case <-hurry:
			t.Stop()
			return "", false
		}
		now := clock.Now()
		late := now.Sub(last) > 2*step
		last = now
		for i, l := range lines {
			owed, moved := l.Owes(), l.moved.Load()
			if owed == "" || moved != seen[i] || late {
				quiet[i], seen[i] = 0, moved
				continue
			}
			// What is owed at the first look may have been asked for just before it.
			if quiet[i]++; quiet[i] > looks {
				return owed, true
			}
		}
	}
}
