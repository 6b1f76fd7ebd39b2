package register

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/internal/rpc"
)

// state is what one name server is to the broker.
type state uint8

const (
	unknown     state = iota // nothing was tried yet
	registered               // it knows this broker
	unreachable              // no connection, or no answer
	refused                  // it answers, but does not take the registration
	left                     // shut down
)

// keeper keeps the broker registered with one name server.
type keeper struct {
	r    *Registrar
	addr string
	kick chan struct{} // a change is to be registered
	// resolved brings what the host name of addr stands for now; see watch.
	resolved chan []netip.Addr

	// Guarded by r.mu.
	state   state
	covered uint64 // of r.wanted, what was registered

	// Of run alone.
	link  *rpc.Client
	since time.Time // when link was made
	// former are links that others took the place of while something was under way there;
	// see retire.
	former []*sent
	tried  time.Time // when the last attempt to connect began
	pause  time.Duration
	took   time.Duration       // the last registration
	asked  time.Duration       // how long the last answer to ask took
	wait   time.Duration       // for the answer to a registration; see call
	due    time.Time           // of the next registration; until then the name server is only asked
	known  command.DataVersion // what was registered last
}

// run ends when ctx does.
func (k *keeper) run(ctx context.Context) {
	timer := k.r.p.Clock.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		timer.Reset(k.round(ctx))
		// Without a connection a change has nowhere to go, and dialing sooner for
		// it would only hammer a name server that is down.
		var kick chan struct{}
		var lost <-chan struct{}
		if k.link != nil {
			kick, lost = k.kick, k.link.Done()
		}
		select {
		case <-ctx.Done():
		case now := <-k.resolved:
			k.follow(ctx, now)
		case <-kick:
			if k.r.wanted.Load() == k.covered {
				continue // by a registration that was due anyhow
			}
			k.due = time.Time{}
			// Changes of a large table come faster than it can be sent: at least
			// half of the time is for others.
			timer.Reset(min(k.took, maxPause))
			select {
			case <-ctx.Done():
			case <-timer.C():
			}
		case <-timer.C():
		case <-lost:
			if k.drop(k.link.Err()) {
				continue // at once: until then clients do not find this broker
			}
			timer.Reset(k.nextPause())
			select {
			case <-ctx.Done():
			case <-timer.C():
			}
		}
	}
	k.leave()
}

// round connects if needed, registers if that is due, asks otherwise whether the name
// server still knows this broker, and returns when to do it again.
func (k *keeper) round(ctx context.Context) time.Duration {
	if k.link == nil {
		l, err := k.dial(ctx)
		if err != nil {
			k.report(ctx, unreachable, err)
			return max(k.nextPause()-k.r.p.Clock.Now().Sub(k.tried), 0)
		}
		k.use(l)
	}
	if left := k.due.Sub(k.r.p.Clock.Now()); left > 0 {
		forgotten, err := k.ask(ctx)
		switch {
		case ctx.Err() != nil: // leave says goodbye over the connection
			return 0
		case err != nil:
			k.drop(err)
			k.report(ctx, unreachable, err)
			return k.nextPause()
		case !forgotten:
			return min(left, askPeriod)
		}
	}
	covers, from := k.r.wanted.Load(), k.r.p.Clock.Now()
	err := k.register(ctx)
	for errors.Is(err, errLost) && ctx.Err() == nil {
		covers, from = k.r.wanted.Load(), k.r.p.Clock.Now()
		err = k.register(ctx)
	}
	k.took = max(k.r.p.Clock.Now().Sub(from), 0)
	switch {
	case ctx.Err() != nil: // leave says goodbye over the connection
		return 0
	case err == nil:
		k.report(ctx, registered, nil)
		k.r.update(func() { k.covered = covers })
		k.r.succeeded()
		k.due, k.wait = k.r.p.Clock.Now().Add(k.r.p.Period), min(max(2*k.took, registerPatience), k.r.p.Timeout)
		return askPeriod
	case isAnswer(err):
		k.report(ctx, refused, err)
	default:
		k.drop(err)
		k.report(ctx, unreachable, err)
	}
	return k.nextPause()
}

// use makes l the connection, over which everything is to be registered. That may take
// longer than before: a name server that returned has all brokers at once.
func (k *keeper) use(l *rpc.Client) {
	k.link, k.since, k.due = l, k.r.p.Clock.Now(), time.Time{}
	k.wait = min(max(k.wait, firstPatience), k.r.p.Timeout)
}

// ask tells whether the name server forgot what was registered last. A name server that
// was replaced behind an address that stays (another machine, a balancer) closes no
// connection, and one of Apache's forgets a broker when an old connection of it ends late:
// without asking, clients would not find the broker for up to Period. The error is that of
// a connection that is of no use any more.
func (k *keeper) ask(ctx context.Context) (forgotten bool, err error) {
	body, err := command.EncodeBody(k.known)
	if err != nil {
		return false, err
	}
	id := command.QueryDataVersionRequest{BrokerID: brokerID(k.r.p.Identity())}
	from := k.r.p.Clock.Now()
	r, err := k.call(ctx, request{
		code: command.ReqQueryDataVersion, fill: id.Append, body: body, patience: min(max(2*k.asked, askPatience), firstPatience),
		moves: func(time.Duration) bool { return k.r.wanted.Load() != k.covered },
	})
	k.asked = max(k.r.p.Clock.Now().Sub(from), 0)
	switch {
	case errors.Is(err, errLost):
		return true, nil
	case isAnswer(err):
		return false, nil // it does not want to say; the next registration comes anyhow
	case err != nil:
		return false, err
	}
	var resp command.QueryDataVersionResponse
	if err := resp.Decode(&r.Header); err != nil {
		return false, err
	}
	if resp.Changed {
		k.r.p.Logger.Info("name server does not know this broker any more; registering again", "nameserver", k.addr)
	}
	return resp.Changed, nil
}

// nextPause grows with each failure; a connection that lasted starts it anew.
func (k *keeper) nextPause() time.Duration {
	k.pause = min(max(2*k.pause, firstPause), maxPause)
	return k.pause
}

// drop gives the connection up and tells whether it had lasted.
func (k *keeper) drop(err error) (lasted bool) {
	_ = k.link.Close() // an error says that it is closed already
	k.link = nil
	if lasted = k.r.p.Clock.Now().Sub(k.since) > maxPause; lasted {
		k.pause = 0
	}
	k.report(context.Background(), unreachable, err)
	return lasted
}

// report notes the state and logs it if it is a new one.
func (k *keeper) report(ctx context.Context, s state, err error) {
	if ctx.Err() != nil && s != left {
		return // what fails because of our end is no news
	}
	was := k.state // written by this goroutine only
	k.r.update(func() { k.state = s })
	if was == s {
		return
	}
	log := k.r.p.Logger.With("nameserver", k.addr)
	switch s {
	case registered:
		id := k.r.p.Identity()
		log.Info("registered with name server", "cluster", id.Cluster, "broker", id.Name, "id", id.ID, "address", id.Addr)
	case unreachable:
		log.Warn("name server does not answer; clients that use it do not find this broker. Trying again", "error", err)
	case refused:
		log.Error("name server refused this broker; clients that use it do not find it. Trying again", "error", err)
	}
}

// update changes what r.mu guards and wakes those who wait for it.
func (r *Registrar) update(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	close(r.moved)
	r.moved = make(chan struct{})
}

func (k *keeper) gauge() float64 {
	k.r.mu.Lock()
	defer k.r.mu.Unlock()
	if k.state == registered {
		return 1
	}
	return 0
}

// register sends one registration.
func (k *keeper) register(ctx context.Context) error {
	p := &k.r.p
	id := p.Identity()
	head := command.RegisterBrokerRequest{BrokerID: brokerID(id), HAServerAddr: id.HAAddr, ZoneName: id.Zone, EnableActingMaster: id.EnableActingMaster}
	topics, version := p.Source()
	k.known = version
	body, err := encode(&head, topics, version, p.Permission)
	if err != nil {
		return err
	}
	settled := k.settled()
	r, err := k.call(ctx, request{
		code: command.ReqRegisterBroker, fill: head.Append, body: body, patience: k.wait, grows: true,
		moves: func(waited time.Duration) bool { return waited >= max(4*k.took, firstPatience) },
	})
	if err != nil {
		return err
	}
	k.retire(settled)
	if p.Answered == nil {
		return nil
	}
	var resp command.RegisterBrokerResponse
	if err := resp.Decode(&r.Header); err != nil {
		return err
	}
	a := Answer{NameServer: k.addr, MasterAddr: resp.MasterAddr, HAAddr: resp.HAServerAddr}
	if len(r.Body) > 0 {
		var kv command.KVTable
		if err := command.DecodeBody(r.Body, &kv); err != nil {
			return fmt.Errorf("answer to the registration: %w", err)
		}
		a.OrderTopics = kv.Table
	}
	p.Answered(a)
	return nil
}

func brokerID(id Identity) command.BrokerID {
	return command.BrokerID{BrokerName: id.Name, BrokerAddr: id.Addr, ClusterName: id.Cluster, BrokerID: id.ID}
}

// leave unregisters and closes the connections.
func (k *keeper) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), unregisterTimeout)
	defer cancel()
	if k.link != nil {
		id := brokerID(k.r.p.Identity())
		if _, err := send(ctx, k.link, command.ReqUnregisterBroker, id.Append, nil); err != nil {
			k.r.p.Logger.Warn("name server was not told that this broker leaves; it notices by the closed connection",
				"nameserver", k.addr, "error", err)
		}
		_ = k.link.Close() // an error says that it is closed already
	}
	k.retire(k.former)
	k.report(ctx, left, nil)
}
