package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/drain"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/internal/stats"
	"github.com/hardpointmq/hardpoint/core/message"
)

// underWay bounds how long a stop waits for requests that were read.
const underWay = 10 * time.Second

func (b *Broker) newDrain(st *stats.Stats) *drain.Drain {
	d := drain.New(drain.Params{
		Settings:  b.settings("part", "drain", ""),
		For:       b.p.Config.Node.DrainTimeout,
		Topics:    b.drainable,
		Elsewhere: b.elsewhere,
		Tell: func(ctx context.Context) error {
			b.k.Topics.Touch()
			return b.reg.Load().Sync(ctx)
		},
		Sent: st.Put,
	})
	drop := b.p.Meter.Gauge("broker_drain_left_seconds", "For how long a broker that drains goes on serving; 0: it does not drain.",
		func() float64 { return d.Left().Seconds() })
	b.k.Hooks.OnStop(func(context.Context) error {
		drop()
		return nil
	})
	return d
}

// Drain prepares a stop. It takes the broker out of the routes by which producers
// choose, where they find another one, and returns when they know that: after
// drainTimeout, in which everything goes on as before. So it does where other brokers
// have topics that are here and take no messages, as while they drain: their producers
// come here. It returns at once when nobody can be led anywhere: no other broker has
// topics that are here, there is no name server or none answers, or the broker takes no
// messages. The end of ctx
// asks to hurry. Call it once, before Shutdown.
func (b *Broker) Drain(ctx context.Context) {
	if b.reg.Load() == nil || b.Ready() != nil || b.k.Sendable() != nil {
		return
	}
	b.drain.Run(ctx)
}

// permission is what a topic may have of its own permission in a registration.
func (b *Broker) permission(topic string) int32 {
	p := b.k.Config().Permission | command.PermInherit
	if b.drain.Led(topic) {
		p &^= command.PermWrite
	}
	return p
}

// drainable are the topics that are registered with write permission.
func (b *Broker) drainable() []drain.Topic {
	all, _ := b.k.Topics.All()
	var out []drain.Topic
	for _, t := range all {
		if t.Config.Perm&b.k.Config().Permission&command.PermWrite != 0 {
			out = append(out, drain.Topic{Name: t.Config.TopicName, Own: !b.ofClients(t)})
		}
	}
	return out
}

// ofClients reports whether a topic is one that clients made for their messages.
func (b *Broker) ofClients(t *kernel.Topic) bool {
	cfg, name := b.k.Config(), t.Config.TopicName
	switch name {
	case cfg.ClusterName, cfg.BrokerName, cfg.ClusterName + message.ReplyTopicSuffix:
		return false
	}
	return !t.System && !strings.HasPrefix(name, message.RetryPrefix) && !strings.HasPrefix(name, message.DLQPrefix)
}

func (b *Broker) elsewhere(ctx context.Context, topics []string) (map[string]drain.Other, error) {
	r := drain.Routes{Dialer: b.trans.Capabilities().Dialer, Servers: b.nameServers(), Leaving: append([]string{b.Name()}, b.p.leaving...)}
	return r.Elsewhere(ctx, topics)
}

// stopListeners lets answers under way out, then closes the peers.
func (b *Broker) stopListeners(ctx context.Context) error {
	b.k.Refuse("broker " + b.k.Config().BrokerName + " is shutting down")
	b.mu.Lock()
	ls := b.listeners
	b.listeners = nil
	b.mu.Unlock()
	wait, cancel := context.WithTimeout(ctx, underWay)
	defer cancel()
	// Drained listeners read no more. Once everything that was read has its
	// answer there is nothing to wait for: clients keep idle connections open.
	var drains sync.WaitGroup
	for _, l := range ls {
		drains.Go(func() { _ = l.Drain(wait) })
	}
	errs := []error{b.queue.Idle(wait)}
	cancel()
	drains.Wait()
	b.k.Hooks.Leave()
	b.k.Release() // nobody waits for the log any more
	closed := make(chan error, len(ls))
	for _, l := range ls {
		go func() { closed <- l.Close() }()
	}
	for range ls {
		select {
		case err := <-closed:
			errs = append(errs, err)
		case <-ctx.Done():
			return errors.Join(append(errs, fmt.Errorf("closing the listeners: %w", ctx.Err()))...)
		}
	}
	return errors.Join(errs...)
}
