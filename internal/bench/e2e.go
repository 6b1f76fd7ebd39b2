package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hardpointmq/hardpoint/internal/rpc"
)

// EndToEnd produces and consumes at once. The latency of a message is from when
// it was due (in a closed loop: sent) until a consumer that waits at the end of
// the queue has it. The clock is that of this process, so both run in it.
func EndToEnd(ctx context.Context, o Options) (*Result, error) {
	o = o.sending()
	if o.Size < minStamped {
		return nil, fmt.Errorf("%w: size is %d bytes; end to end a body carries a time stamp of %d", ErrOptions, o.Size, minStamped)
	}
	if err := errors.Join(o.check(), checkPIDs(o.PIDs)); err != nil {
		return nil, err
	}
	t, err := locate(ctx, &o, true)
	if err != nil {
		return nil, err
	}
	if err := touch(ctx, o, t); err != nil {
		return nil, err
	}
	if o.NameServer != "" && !o.CreateTopic {
		// The first message may have made the topic, with queues of its own.
		if again, err := locate(ctx, &o, true); err == nil {
			t = again
		}
	}
	send := newRun(&o)
	defer send.close()
	nonce := rand.Uint64() | 1
	if err := send.producers(ctx, t, nonce); err != nil {
		return nil, err
	}

	ro := o
	ro.Rate, ro.Duration, ro.Count, ro.Progress, ro.PIDs, ro.Warmup = 0, 0, 0, nil, nil, 0
	recv := newRun(&ro)
	defer recv.close()
	cs, err := recv.consumers(ctx, t, len(t.queues), FromEnd)
	if err != nil {
		return nil, err
	}
	var received atomic.Int64
	for _, c := range cs {
		c.nonce, c.e2e = nonce, newHistogram(&o)
		c.from, c.to = func() int64 { return send.from }, send.to.Load
		seen := int64(0)
		c.enough = func(n int64) bool {
			received.Add(n - seen)
			seen = n
			return false
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(gctx, recv.finish)
	defer stop()
	base := time.Now()
	recv.begin(base)
	for _, c := range recv.conns {
		g.Go(c.closed)
	}
	missing := int64(0)
	g.Go(func() error {
		defer recv.finish()
		err := send.drive(gctx, base)
		if err != nil {
			return err
		}
		// What is under way still comes.
		sent := send.messages()
		limit := time.NewTimer(o.Timeout)
		defer limit.Stop()
		poll := time.NewTicker(5 * time.Millisecond)
		defer poll.Stop()
		for received.Load() < sent {
			select {
			case <-poll.C:
			case <-limit.C:
				missing = sent - received.Load()
				return nil
			case <-gctx.Done():
				return nil
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	res := send.result("e2e", t)
	all := newHistogram(&o)
	for _, c := range cs {
		all.Merge(c.e2e)
	}
	l := res.Latency
	res.SendLatency, res.Latency, res.Missing = &l, latencyOf(all), missing
	return res, nil
}

// touch sends one message to each broker, so that the topic exists.
func touch(ctx context.Context, o Options, t *target) error {
	o.Connections, o.Depth, o.Rate, o.Duration, o.Warmup, o.Progress = len(t.brokers), 1, 0, 0, 0, nil
	o.Count = int64(len(t.brokers))
	r := newRun(&o)
	defer r.close()
	if err := r.producers(ctx, t, 0); err != nil {
		return err
	}
	if err := r.drive(ctx, time.Now()); err != nil {
		return err
	}
	for _, e := range r.errors {
		return fmt.Errorf("sending to %s: %w", o.Topic, &rpc.CodeError{Code: e.Code, Remark: e.First})
	}
	return nil
}
