package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
)

// Default depths: what a closed loop keeps in flight, and what an open loop
// allows for before it waits.
const (
	closedDepth = 64
	openDepth   = 1024
)

// producer is the work of a connection that sends.
type producer struct {
	r         *run
	templates []*template // by turn
	turn      int
	key       uint64
	stamped   bool
	size      int64
}

func (p *producer) next(buf []byte, _ int, opaque int32, due int64) ([]byte, bool) {
	if !p.r.spend(due) {
		return buf, false
	}
	t := p.templates[p.turn]
	if p.turn++; p.turn == len(p.templates) {
		p.turn = 0
	}
	p.key++
	stamp := int64(-1)
	if p.stamped {
		stamp = due
	}
	return t.append(buf, opaque, p.r.baseMs+due/int64(time.Millisecond), p.key, stamp), true
}

func (p *producer) answered(_ int, code int32, _ *command.Frame, _ *command.Header, _ int64) (tally, error) {
	switch code {
	case command.RespSuccess, command.RespFlushDiskTimeout, command.RespFlushSlaveTimeout, command.RespSlaveNotAvailable:
		return tally{1, p.size, true}, nil // stored, whatever else was promised
	}
	return tally{}, nil
}

// producers connects everything that sends.
func (r *run) producers(ctx context.Context, t *target, nonce uint64) error {
	o := r.o
	made := map[int32]*template{}
	for i := range o.Connections {
		broker := t.brokers[i%len(t.brokers)]
		p := &producer{r: r, stamped: nonce != 0, size: int64(o.Size), key: uint64(i) << 32}
		for _, id := range t.on(broker) {
			tpl := made[id]
			if tpl == nil {
				var err error
				if tpl, err = newTemplate(o, id, 1); err != nil {
					return err
				}
				tpl.nonce = nonce
				made[id] = tpl
			}
			p.templates = append(p.templates, tpl)
		}
		if len(p.templates) == 0 {
			return fmt.Errorf("topic %s has no queue to write on %s", o.Topic, broker)
		}
		p.turn = i % len(p.templates)
		if _, err := r.dial(ctx, broker, o.Depth, p); err != nil {
			return err
		}
	}
	return nil
}

// Produce sends and measures until ctx ends, the count or the time is reached.
func Produce(ctx context.Context, o Options) (*Result, error) {
	o = o.sending()
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := checkPIDs(o.PIDs); err != nil {
		return nil, err
	}
	t, err := locate(ctx, &o, true)
	if err != nil {
		return nil, err
	}
	r := newRun(&o)
	defer r.close()
	if err := r.producers(ctx, t, 0); err != nil {
		return nil, err
	}
	if err := r.drive(ctx, time.Now()); err != nil {
		return nil, err
	}
	return r.result("produce", t), nil
}

func checkPIDs(pids []int) error {
	for _, pid := range pids {
		if _, err := usageOf(pid); err != nil {
			return fmt.Errorf("process %d: %w", pid, err)
		}
	}
	return nil
}
