package drain

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

const (
	// askMost bounds asking name servers who else there is, tellMost telling them;
	// each happens twice at most, and is what a drain takes longer than it is set to.
	askMost, tellMost = 5 * time.Second, 5 * time.Second
	// reportEvery is how often the log tells how far it is.
	reportEvery = 5 * time.Second
)

// Topic is one that the broker registers with write permission.
type Topic struct {
	Name string
	// Own: clients do not send to it by themselves. It is led away like the others,
	// but nobody waits because of it.
	Own bool
}

// Params is what a Drain is made from. All fields but For are needed.
type Params struct {
	plugin.Settings
	// For is how long the broker goes on serving when the name servers know; 0: not
	// at all.
	For time.Duration
	// Topics lists what could be led away.
	Topics func() []Topic
	// Elsewhere tells, of topics, those that another broker takes messages of.
	Elsewhere func(ctx context.Context, topics []string) (map[string]bool, error)
	// Tell registers anew. It returns when the name servers that are up know, or with
	// ctx's error.
	Tell func(ctx context.Context) error
	// Sent is how many messages were sent to the broker so far.
	Sent func() int64

	_ struct{}
}

// Drain is a broker's. All methods are safe for concurrent use.
type Drain struct {
	p       Params
	leading atomic.Pointer[leading]
}

// leading is a drain under way, or one that is over; immutable.
type leading struct {
	topics map[string]bool
	until  time.Time
}

// New makes a Drain; it does nothing yet.
func New(p Params) *Drain {
	p.Settings = p.Settings.WithDefaults()
	return &Drain{p: p}
}

// Led reports whether producers of a topic are led away: it is to be registered
// without write permission.
func (d *Drain) Led(topic string) bool {
	l := d.leading.Load()
	return l != nil && l.topics[topic]
}

// Left is for how long the broker still serves, 0 before and after that. It does not
// block.
func (d *Drain) Left() time.Duration {
	l := d.leading.Load()
	if l == nil {
		return 0
	}
	return max(l.until.Sub(d.p.Clock.Now()), 0)
}

// Ready returns nil unless producers are being led away.
func (d *Drain) Ready() error {
	if d.leading.Load() == nil {
		return nil
	}
	return fmt.Errorf("it is draining and stops in %v; its producers are led to other brokers", d.Left().Round(time.Second))
}

// Run drains. It returns when the broker may stop: at once when there is nobody to
// lead away or nowhere to lead to, else when the time is over or ctx is, which asks to
// hurry. Call it once.
func (d *Drain) Run(ctx context.Context) {
	if d.p.For <= 0 {
		return
	}
	log := d.p.Logger
	led, alone, err := d.others(ctx)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		log.Warn("stopping without a drain: no name server says who else takes messages, so nobody can be led there", "error", err)
		return
	case led == nil:
		log.Info("stopping without a drain: no other broker takes messages of the topics here")
		return
	}
	// From here on registrations go without the permission; how long it takes until
	// all name servers have one is not known yet.
	d.leading.Store(&leading{led, d.p.Clock.Now().Add(d.p.For)})
	tell, cancel := context.WithTimeout(ctx, tellMost)
	err = d.p.Tell(tell)
	cancel()
	if err != nil && ctx.Err() == nil {
		log.Warn("draining although not all name servers know yet; they are told as soon as they answer", "error", err)
	}
	led = d.confirm(ctx, log, led)
	until := d.p.Clock.Now().Add(d.p.For)
	d.leading.Store(&leading{led, until})
	log.Info("draining: producers are led to other brokers while this one goes on serving; another signal ends that",
		"for", d.p.For, "topics", len(led), "topics_of_no_other_broker", alone)
	d.wait(ctx, log, until)
}

// confirm gives back what nobody else takes messages of any more, by now that the name
// servers know: brokers that stop at the same moment counted on each other, and all of
// them without write permission would fail every send. It returns what is still led
// away.
func (d *Drain) confirm(ctx context.Context, log *slog.Logger, led map[string]bool) map[string]bool {
	asking, cancel := context.WithTimeout(ctx, askMost)
	defer cancel()
	still, err := d.p.Elsewhere(asking, slices.Sorted(maps.Keys(led)))
	if err != nil || len(still) == len(led) {
		return led // it was so a moment ago
	}
	log.Warn("other brokers stop at the same time; topics that only they took messages of stay writable here", "topics", len(led)-len(still))
	d.leading.Store(&leading{still, d.p.Clock.Now().Add(d.p.For)})
	telling, cancel := context.WithTimeout(ctx, tellMost)
	defer cancel()
	if err := d.p.Tell(telling); err != nil && ctx.Err() == nil {
		log.Warn("not all name servers know yet which topics stay writable; they are told as soon as they answer", "error", err)
	}
	return still
}

// others finds who is to be led away. led is nil when there is nobody; alone is how
// many topics of clients only this broker takes messages of.
func (d *Drain) others(ctx context.Context) (led map[string]bool, alone int, err error) {
	topics := d.p.Topics()
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.Name
	}
	ctx, cancel := context.WithTimeout(ctx, askMost)
	defer cancel()
	if led, err = d.p.Elsewhere(ctx, names); err != nil {
		return nil, 0, err
	}
	some := false
	for _, t := range topics {
		switch {
		case t.Own:
		case led[t.Name]:
			some = true
		default:
			alone++
		}
	}
	if !some {
		return nil, alone, nil
	}
	return led, alone, nil
}

// wait returns when the time is over, or ctx is, and tells meanwhile what still comes.
func (d *Drain) wait(ctx context.Context, log *slog.Logger, until time.Time) {
	timer := d.p.Clock.NewTimer(min(until.Sub(d.p.Clock.Now()), reportEvery))
	defer timer.Stop()
	at, sent := d.p.Clock.Now(), d.p.Sent()
	last := sent // when the newest report was made
	for {
		select {
		case <-ctx.Done():
			log.Info("the drain is cut short", "left", d.Left().Round(time.Second), "messages", d.p.Sent()-sent)
			return
		case <-timer.C():
		}
		now, n := d.p.Clock.Now(), d.p.Sent()
		left, rate := until.Sub(now), perSecond(n-last, now.Sub(at))
		if left <= 0 {
			log.Info("drained", "messages", n-sent, "messages_per_second_at_the_end", rate)
			return
		}
		log.Info("draining", "left", left.Round(time.Second), "messages_per_second", rate)
		at, last = now, n
		timer.Reset(min(left, reportEvery))
	}
}

func perSecond(n int64, in time.Duration) int64 {
	if in <= 0 {
		return 0
	}
	return int64(float64(n)/in.Seconds() + 0.5)
}
