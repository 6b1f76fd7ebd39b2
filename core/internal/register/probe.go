package register

import (
	"context"
	"crypto/tls"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/internal/rpc"
)

const (
	// askPatience is how long the answer to a question may take before the name server is
	// asked over another connection, too, if it did not take half of that the last time.
	// With askPeriod and what dialing takes that is less than two seconds.
	askPatience = 500 * time.Millisecond
	// registerPatience is the same of a registration. firstPatience is that of the first one
	// over a connection: nobody knows what it takes. It is also the most for a question, and
	// the least for a registration with a name server that knows the broker.
	registerPatience, firstPatience = time.Second, 5 * time.Second
	// probePeriod is how often one more connection is tried, at most maxProbePeriod if the
	// name server can be reached, and probeTimeout what each has.
	probePeriod, maxProbePeriod, probeTimeout = time.Second, 4 * time.Second, 5 * time.Second
)

// errLost: the name server did not answer over the link, but over another connection, which
// is the link now. What was asked for is to be registered there.
var errLost = errors.New("the connection was lost without a word")

// request is one that the name server gets over the link.
type request struct {
	code int32
	fill func(*command.Writer)
	body []byte
	// patience is for how long nothing but the answer is waited for, grows that it grows
	// if it was too short.
	patience time.Duration
	grows    bool
	// moves tells of a name server that knows the broker, and is only slow as it seems,
	// whether the broker registers over another connection nevertheless.
	moves func(waited time.Duration) bool
}

// sent is a request on its way.
type sent struct {
	over *rpc.Client
	done chan struct{}
	// Valid when done is closed.
	resp *rpc.Response
	err  error
}

// send has q on its way until it is answered, the link ends, or it took too long.
func (k *keeper) send(q request) *sent {
	s := &sent{over: k.link, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		ctx, cancel := context.WithTimeout(context.Background(), k.r.p.Timeout)
		defer cancel()
		s.resp, s.err = send(ctx, s.over, q.code, q.fill, q.body)
	}()
	return s
}

// call returns the answer to a request over the link; one other than success is a
// *rpc.CodeError. A name server that lost power, or to which the network let nothing
// through, closes no connection: when it runs again, with nothing in its memory, nothing
// comes over the old one. So when the answer is late, others are tried; see probe.
func (k *keeper) call(ctx context.Context, q request) (*rpc.Response, error) {
	s := k.send(q)
	probing, cancel := context.WithCancel(ctx)
	defer cancel()
	found := make(chan *rpc.Client, 1)
	go func() { found <- k.probe(probing, q) }()
	var other *rpc.Client
	select {
	case <-s.done:
		cancel()
		other = <-found
	case other = <-found: // nil: ctx ended
	}
	select {
	case <-s.done:
		if other == nil || s.err == nil || isAnswer(s.err) {
			if other != nil {
				_ = other.Close() // an error says that it is closed already
			}
			return s.resp, s.err
		}
	default:
	}
	k.former = append(k.former, s)
	if other == nil {
		return nil, ctx.Err()
	}
	k.r.p.Logger.Warn("name server answers over a new connection only; registering over that", "nameserver", k.addr)
	if q.grows {
		k.wait *= 4 // perhaps it is only that slow
	}
	k.use(other)
	return nil, errLost
}

// settled are the former links over which nothing is under way any more.
func (k *keeper) settled() (out []*sent) {
	for _, s := range k.former {
		select {
		case <-s.done:
			out = append(out, s)
		default:
		}
	}
	return out
}

// retire closes former links. Name servers forget a broker when the connection closes over
// which they heard of it last, so a former link is kept until the broker was registered
// over the new one, after whatever was under way over the old one had ended.
func (k *keeper) retire(which []*sent) {
	for _, s := range which {
		_ = s.over.Close() // an error says that it is closed already
		<-s.done
	}
	k.former = slices.DeleteFunc(k.former, func(s *sent) bool { return slices.Contains(which, s) })
}

// sight is what a look at the name server found.
type sight struct {
	l     *rpc.Client
	known bool // the name server knows this broker
}

// probe asks the name server from time to time over another connection whether it knows
// the broker, for the first time when patience with q is over. It returns the connection
// over which the broker is to be registered, or nil when ctx ends. Questions that are
// open do not hold up the next ones: what they wait for may be gone as well. One that can
// be reached is asked more and more seldom: it may be slow because it has much to do.
func (k *keeper) probe(ctx context.Context, q request) *rpc.Client {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var open atomic.Int32 // connections over which an answer is awaited
	found := make(chan sight)
	began, period := k.r.p.Clock.Now(), probePeriod
	timer := k.r.p.Clock.NewTimer(q.patience)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case s := <-found:
			if !s.known || q.moves(k.r.p.Clock.Now().Sub(began)) {
				return s.l
			}
			_ = s.l.Close() // an error says that it is closed already
			period = min(2*period, maxProbePeriod)
			timer.Reset(period)
			continue
		case <-timer.C():
		}
		if open.Load() > 0 {
			period = min(2*period, maxProbePeriod)
		}
		timer.Reset(period)
		wg.Go(func() {
			s := k.look(ctx, &open)
			if s.l == nil {
				return
			}
			select {
			case found <- s:
			case <-ctx.Done():
				_ = s.l.Close() // an error says that it is closed already
			}
		})
	}
}

// look connects anew and tells whether the name server knows this broker; no connection: it
// does not answer.
func (k *keeper) look(ctx context.Context, open *atomic.Int32) sight {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	l, err := k.again(ctx)
	if err != nil {
		return sight{}
	}
	open.Add(1)
	defer open.Add(-1)
	known, err := k.isKnown(ctx, l)
	if err != nil {
		_ = l.Close() // an error says that it is closed already
		return sight{}
	}
	return sight{l, known}
}

// again connects to the name server that the link leads to. A name may stand for several of
// them, and what another one knows of this broker says nothing about the first, unless that
// one is gone.
func (k *keeper) again(ctx context.Context) (*rpc.Client, error) {
	l, err := k.connect(ctx, k.addr)
	if err != nil || remote(l.Peer()) == remote(k.link.Peer()) || !k.leadsTo(ctx, remote(k.link.Peer())) {
		return l, err
	}
	there := netip.AddrPortFrom(k.link.Peer().Remote().Addr().Unmap(), k.link.Peer().Remote().Port())
	first, err := k.connect(ctx, there.String())
	var untrusted *tls.CertificateVerificationError
	if err != nil && ctx.Err() == nil && !errors.As(err, &untrusted) {
		return l, nil // it takes no connections any more
	}
	_ = l.Close() // an error says that it is closed already
	return first, err
}

// leadsTo tells whether the host name of the name server still stands for an address.
func (k *keeper) leadsTo(ctx context.Context, a netip.Addr) bool {
	now, err := k.r.p.Resolve(ctx, hostName(k.addr))
	return err != nil || slices.ContainsFunc(now, func(n netip.Addr) bool { return plain(n) == a })
}

// isKnown asks over l whether the name server knows this broker. The question is one that
// leaves everything as it was: by request 322 the broker would belong to that connection at
// some name servers, and stay with the old one at others. Request 901 came with RocketMQ 5;
// 106, which every name server answers, is about all brokers.
func (k *keeper) isKnown(ctx context.Context, l *rpc.Client) (bool, error) {
	id := k.r.p.Identity()
	var members command.BrokerAddrs
	group := command.MemberGroupRequest{ClusterName: id.Cluster, BrokerName: id.Name}
	r, err := send(ctx, l, command.ReqGetBrokerMemberGroup, group.Append, nil)
	var no *rpc.CodeError
	switch {
	case errors.As(err, &no) && no.Code == command.RespRequestCodeNotSupported:
		if r, err = send(ctx, l, command.ReqGetBrokerClusterInfo, nil, nil); err != nil {
			return false, err
		}
		var all command.ClusterInfo
		if err := command.DecodeBody(r.Body, &all); err != nil {
			return false, err
		}
		members = all.BrokerAddrTable[id.Name].BrokerAddrs
	case err != nil:
		return false, err
	default:
		var answer command.MemberGroupResponse
		if err := command.DecodeBody(r.Body, &answer); err != nil {
			return false, err
		}
		if answer.Group != nil {
			members = answer.Group.BrokerAddrs
		}
	}
	for _, addr := range members {
		if addr == id.Addr {
			return true, nil
		}
	}
	return false, nil
}

// dial connects. While there is no answer, one more attempt is made every maxPause: what
// was sent while packets vanished is sent again by the system, but ever more seldom.
// k.tried is when the last attempt began.
func (k *keeper) dial(ctx context.Context) (*rpc.Client, error) {
	type result struct {
		l   *rpc.Client
		err error
	}
	limit := k.r.p.ConnectTimeout
	results := make(chan result, limit/maxPause+2) // as many as there can be
	var wg sync.WaitGroup
	defer func() {
		wg.Wait()
		close(results)
		for r := range results {
			if r.err == nil {
				_ = r.l.Close() // an error says that it is closed already
			}
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := k.r.p.Clock.Now()
	timer := k.r.p.Clock.NewTimer(0)
	defer timer.Stop()
	var first error
	for open := 0; ; {
		select {
		case <-timer.C():
			now := k.r.p.Clock.Now()
			if open > 0 && limit-now.Sub(began) < maxPause/2 {
				continue // the next one belongs to the next call
			}
			k.tried = now
			open++
			wg.Go(func() {
				l, err := k.connect(ctx, k.addr)
				results <- result{l, err}
			})
			timer.Reset(maxPause)
		case r := <-results:
			if r.err == nil {
				return r.l, nil
			}
			if first == nil {
				first = r.err
			}
			if open--; open == 0 {
				return nil, first
			}
		}
	}
}

// connect makes one connection. What a name server asks by itself (it may tell of other
// brokers) needs no answer.
func (k *keeper) connect(ctx context.Context, addr string) (*rpc.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, k.r.p.ConnectTimeout)
	defer cancel()
	return rpc.Dial(ctx, k.r.p.Dialer, addr, rpc.Options{
		Requests: func(transport.Peer, *command.Header, *command.Frame) {},
	})
}

func send(ctx context.Context, l *rpc.Client, code int32, fill func(*command.Writer), body []byte) (*rpc.Response, error) {
	resp, err := l.Call(ctx, rpc.Request(code, fill, body))
	if err == nil {
		err = resp.Err()
	}
	return resp, err
}

// isAnswer tells an error that a name server answered.
func isAnswer(err error) bool {
	var no *rpc.CodeError
	return errors.As(err, &no)
}
