package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sync/errgroup"
)

// Loop is one of the loops of a load that speaks another protocol. More and Done may be
// called by two goroutines, each by one.
type Loop struct {
	Index int
	c     *conn
}

// More tells whether the loop goes on: the time is not over and the count not reached.
func (l *Loop) More() bool {
	now := l.c.r.now()
	return now < l.c.r.to.Load() && l.c.r.spend(now)
}

// Done books an answer to what was asked at a time; messages came or went with it.
func (l *Loop) Done(messages, bytes int64, asked time.Time) {
	c := l.c
	now := c.r.now()
	c.total.Add(messages)
	if !c.r.measured(now, now) {
		return
	}
	c.last = now
	c.requests++
	c.messages += messages
	c.bytes += bytes
	_ = c.hist.RecordValue(int64(time.Since(asked)))
}

// Outside measures a load that another client drives, of another protocol, in the terms of
// this package: the same warm-up, histogram, and CPU and memory of the server. It runs
// Connections loops until each returns; they end when More says so. Name servers, topics
// and rates are none of its business.
func Outside(ctx context.Context, o Options, command string, loop func(ctx context.Context, l *Loop) error) (*Result, error) {
	o = o.sending()
	if o.Rate != 0 || o.NameServer != "" {
		return nil, fmt.Errorf("%w: this load has neither a rate nor a name server", ErrOptions)
	}
	if err := errors.Join(o.check(), checkPIDs(o.PIDs)); err != nil {
		return nil, err
	}
	r := newRun(&o)
	defer r.close()
	var loops []*Loop
	for i := range o.Connections {
		nc, other := net.Pipe() // what run closes; the loop has connections of its own
		_ = other.Close()
		l := &Loop{Index: i, c: &conn{r: r, nc: nc, hist: newHistogram(&o)}}
		loops = append(loops, l)
		r.conns = append(r.conns, l.c)
	}
	r.begin(time.Now())
	done := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		r.watch(ctx, done)
	}()
	g, gctx := errgroup.WithContext(ctx)
	for _, l := range loops {
		g.Go(func() error { return loop(gctx, l) })
	}
	err := g.Wait()
	close(done)
	<-watched
	if err != nil {
		return nil, err
	}
	return r.result(command, &target{brokers: []string{o.Broker}}), nil
}
