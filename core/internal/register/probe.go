package register

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/internal/rpc"
)

const (
	// askPatience is how long the answer to a question may take before the name server is
	// asked over another connection, too. With askPeriod and what dialing takes that is
	// less than two seconds.
	askPatience = 500 * time.Millisecond
	// registerPatience is the same of a registration, if they are done in half of it there.
	// firstPatience is that of the first one: nobody knows what it takes.
	registerPatience, firstPatience = time.Second, 5 * time.Second
	// probePeriod is how often one more connection is tried, and probeTimeout what each has.
	probePeriod, probeTimeout = time.Second, 5 * time.Second
)

// errLost: the name server did not answer over the link, but over another connection, which
// is the link now. What was asked for is to be registered there.
var errLost = errors.New("the connection was lost without a word")

// request is one that the name server gets over the link.
type request struct {
	code int32
	fill func(*command.Writer)
	body []byte
	// patience is for how long nothing but the answer is waited for.
	patience time.Duration
	// known: a name server that knows the broker has all the time it wants.
	known bool
}

// call returns the answer to a request over the link; one other than success is a
// *rpc.CodeError. A name server that lost power, or to which the network let nothing
// through, closes no connection: when it runs again, with nothing in its memory, nothing
// comes over the old one. So when the answer is late, others are tried; see probe.
func (k *keeper) call(ctx context.Context, q request) (*rpc.Response, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var other *rpc.Client
	var wg sync.WaitGroup
	wg.Go(func() {
		if other = k.probe(ctx, q); other != nil {
			cancel()
		}
	})
	resp, err := send(ctx, k.link, q.code, q.fill, q.body)
	cancel()
	wg.Wait()
	if other == nil {
		return resp, err
	}
	if err == nil || isAnswer(err) {
		_ = other.Close() // an error says that it is closed already
		return resp, err
	}
	k.r.p.Logger.Warn("name server answers over a new connection only; registering over that", "nameserver", k.addr)
	_ = k.link.Close() // the same
	k.use(other)
	return nil, errLost
}

// probe asks the name server from time to time over another connection whether it knows
// the broker, for the first time when patience with q is over. It returns the connection
// over which the answer calls for a registration, or nil when ctx ends. Questions that are
// open do not hold up the next ones: what they wait for may be gone as well.
func (k *keeper) probe(ctx context.Context, q request) *rpc.Client {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	found := make(chan *rpc.Client)
	timer := k.r.p.Clock.NewTimer(q.patience)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case l := <-found:
			return l
		case <-timer.C():
			timer.Reset(probePeriod)
		}
		wg.Go(func() {
			l, known := k.look(ctx)
			if l == nil {
				return
			}
			if known && q.known {
				_ = l.Close() // an error says that it is closed already
				return
			}
			select {
			case found <- l:
			case <-ctx.Done():
				_ = l.Close() // the same
			}
		})
	}
}

// look connects anew and tells whether the name server knows this broker; nil: it does not
// answer. The question, request 106, is one that every name server answers and that leaves
// everything as it was: by request 322 the broker would belong to the new connection at
// some name servers, and stay with the old one at others.
func (k *keeper) look(ctx context.Context) (l *rpc.Client, known bool) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	l, err := k.connect(ctx)
	if err != nil {
		return nil, false
	}
	var all command.ClusterInfo
	r, err := send(ctx, l, command.ReqGetBrokerClusterInfo, nil, nil)
	if err == nil {
		err = command.DecodeBody(r.Body, &all)
	}
	if err != nil {
		_ = l.Close() // an error says that it is closed already
		return nil, false
	}
	id := k.r.p.Identity()
	for _, addr := range all.BrokerAddrTable[id.Name].BrokerAddrs {
		known = known || addr == id.Addr
	}
	return l, known
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
				l, err := k.connect(ctx)
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
func (k *keeper) connect(ctx context.Context) (*rpc.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, k.r.p.ConnectTimeout)
	defer cancel()
	return rpc.Dial(ctx, k.r.p.Dialer, k.addr, rpc.Options{
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
