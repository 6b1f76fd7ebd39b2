package drain

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

const (
	// askMost bounds asking name servers who else there is, tellMost telling them;
	// each happens twice at most, and is what a drain takes longer than it is set to.
	askMost, tellMost = 5 * time.Second, 5 * time.Second
	// reportEvery is how often the log tells how far it is, and a drain without anybody
	// to lead to looks for somebody.
	reportEvery = 5 * time.Second
)

// Topic is one that the broker registers with write permission.
type Topic struct {
	Name string
	// Own: clients do not send to it by themselves. It is led away like the others,
	// but nobody waits because of it.
	Own bool
}

// Other is what other brokers do with a topic, the best of them.
type Other uint8

// What other brokers do with a topic.
const (
	// Nobody: no other broker has it.
	Nobody Other = iota
	// Keeps: one has it and takes no messages at present, as one that drains does.
	Keeps
	// Takes: one takes messages.
	Takes
)

// Params is what a Drain is made from. All fields but For are needed.
type Params struct {
	plugin.Settings
	// For is how long the broker goes on serving when the name servers know; 0: not
	// at all.
	For time.Duration
	// Topics lists what could be led away.
	Topics func() []Topic
	// Elsewhere tells what other brokers do with topics; those that it does not name
	// nobody has.
	Elsewhere func(ctx context.Context, topics []string) (map[string]Other, error)
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
	some   bool // topics of clients are among them
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
	l := d.leading.Load()
	if l == nil {
		return nil
	}
	what := "its producers are led to other brokers"
	if !l.some {
		what = "no other broker takes messages of its topics at present"
	}
	return fmt.Errorf("it is draining and stops in %v; %s", d.Left().Round(time.Second), what)
}

// Run drains. It returns when the broker may stop: at once when there is nobody to
// lead away or nowhere to lead to, else when the time is over or ctx is, which asks to
// hurry. Where other brokers have the topics and take no messages, as while they drain,
// their producers come here, so the broker goes on for the same time, and leads to the
// first that takes messages again. Call it once.
func (d *Drain) Run(ctx context.Context) {
	if d.p.For <= 0 {
		return
	}
	log := d.p.Logger
	o, err := d.others(ctx, nil)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		log.Warn("stopping without a drain: no name server says who else takes messages, so nobody can be led there", "error", err)
		return
	case !o.some && o.kept == 0:
		log.Info("stopping without a drain: no other broker has the topics here, so waiting would help nobody")
		return
	}
	look := !o.some // two that both take messages would lead to each other in turn
	if o.some {
		// From here on registrations go without the permission; how long it takes until
		// all name servers have one is not known yet.
		until := d.p.Clock.Now().Add(d.p.For)
		d.tell(ctx, log, o, until)
		o = d.confirm(ctx, log, o, until)
	}
	until := d.p.Clock.Now().Add(d.p.For)
	d.leading.Store(&leading{o.led, o.some, until})
	topics := []any{"for", d.p.For, "topics", len(o.led), "topics_of_no_other_broker", o.alone + o.kept}
	switch {
	case o.some:
		log.Info("draining: producers are led to other brokers while this one goes on serving; another signal ends that", topics...)
	case look:
		log.Info("draining: other brokers that have the topics here take no messages at present, as while they drain; this one goes on serving, and leads producers to the first that takes messages again; another signal ends that", topics...)
	default:
		log.Info("draining: other brokers stop as well, so nobody is led away and this one goes on serving; another signal ends that", topics...)
	}
	d.wait(ctx, log, until, look)
}

// tell has the name servers know what is led away.
func (d *Drain) tell(ctx context.Context, log *slog.Logger, o others, until time.Time) {
	d.leading.Store(&leading{o.led, o.some, until})
	telling, cancel := context.WithTimeout(ctx, tellMost)
	defer cancel()
	if err := d.p.Tell(telling); err != nil && ctx.Err() == nil {
		log.Warn("draining although not all name servers know yet for which topics this broker takes messages; they are told as soon as they answer", "error", err)
	}
}

// confirm gives back what nobody else takes messages of any more, by now that the name
// servers know: brokers that stop at the same moment counted on each other, and all of
// them without write permission would fail every send. It returns what is still led
// away.
func (d *Drain) confirm(ctx context.Context, log *slog.Logger, was others, until time.Time) others {
	now, err := d.others(ctx, was.led)
	if err != nil {
		return was // it was so a moment ago
	}
	lost := len(was.led) - len(now.led)
	if lost == 0 {
		return was
	}
	log.Warn("other brokers stop at the same time; topics that only they took messages of stay writable here", "topics", lost)
	d.tell(ctx, log, now, until)
	return now
}

// others is what there is to lead away.
type others struct {
	led  map[string]bool // topics that another broker takes messages of
	some bool            // topics of clients are among them
	// Of the topics of clients that nobody else takes messages of: those that another
	// broker has, and those that none has.
	kept, alone int
}

// others finds who is to be led away, among some topics only unless within is nil.
func (d *Drain) others(ctx context.Context, within map[string]bool) (others, error) {
	topics := d.p.Topics()
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.Name
	}
	ctx, cancel := context.WithTimeout(ctx, askMost)
	defer cancel()
	found, err := d.p.Elsewhere(ctx, names)
	if err != nil {
		return others{}, err
	}
	o := others{led: map[string]bool{}}
	for _, t := range topics {
		switch does := found[t.Name]; {
		case does == Takes && (within == nil || within[t.Name]):
			o.led[t.Name] = true
			o.some = o.some || !t.Own
		case t.Own:
		case does != Nobody:
			o.kept++
		default:
			o.alone++
		}
	}
	return o, nil
}

// wait returns when the time is over, or ctx is, and tells meanwhile what still comes.
// look: as long as nobody is led away it looks for somebody to lead to.
func (d *Drain) wait(ctx context.Context, log *slog.Logger, until time.Time, look bool) {
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
		if look && !d.leading.Load().some {
			d.retry(ctx, log, until, left)
			left = max(until.Sub(d.p.Clock.Now()), 0)
		}
		at, last = now, n
		timer.Reset(min(left, reportEvery))
	}
}

// retry leads producers away for the rest of the time, when another broker takes
// messages by now. It takes no longer than that.
func (d *Drain) retry(ctx context.Context, log *slog.Logger, until time.Time, left time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	o, err := d.others(ctx, nil)
	if err != nil || !o.some {
		return
	}
	d.tell(ctx, log, o, until)
	if o = d.confirm(ctx, log, o, until); !o.some {
		return
	}
	log.Info("another broker takes messages again: producers are led there", "left", d.Left().Round(time.Second), "topics", len(o.led), "topics_of_no_other_broker", o.alone+o.kept)
}

func perSecond(n int64, in time.Duration) int64 {
	if in <= 0 {
		return 0
	}
	return int64(float64(n)/in.Seconds() + 0.5)
}
