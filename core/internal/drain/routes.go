package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/internal/rpc"
)

// atOnce is how many routes are asked for at a time: a broker may have thousands of
// topics.
const atOnce = 16

// Routes asks name servers for routes.
type Routes struct {
	Dialer  transport.Dialer
	Servers []string
	// Leaving are the names of the broker groups that stop together with this one,
	// and its own: nobody is led to them.
	Leaving []string
}

var errNoServer = errors.New("this broker registers with no name server")

// Elsewhere tells what other brokers do with topics, as the name server says that
// answers first: all are asked at once, since one that is silent
// must not use up the time of the others. The error is that of all of them, or ctx's.
func (r *Routes) Elsewhere(ctx context.Context, topics []string) (map[string]Other, error) {
	if len(r.Servers) == 0 {
		return nil, errNoServer
	}
	ctx, cancel := context.WithCancel(ctx)
	type answer struct {
		found map[string]Other
		err   error
	}
	answers := make(chan answer, len(r.Servers))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for _, s := range r.Servers {
		wg.Go(func() {
			found, err := r.at(ctx, s, topics)
			if err != nil {
				err = fmt.Errorf("name server %s: %w", s, err)
			}
			answers <- answer{found, err}
		})
	}
	var errs []error
	for range r.Servers {
		a := <-answers
		if a.err == nil {
			return a.found, nil
		}
		errs = append(errs, a.err)
	}
	return nil, errors.Join(errs...)
}

// at asks one name server.
func (r *Routes) at(ctx context.Context, server string, topics []string) (map[string]Other, error) {
	c, err := rpc.Dial(ctx, r.Dialer, server, rpc.Options{})
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = c.Close() // an error says that it is closed already
		<-c.Done()
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		found = map[string]Other{}
		next  = make(chan string)
	)
	for range min(atOnce, len(topics)) {
		wg.Go(func() {
			for t := range next {
				does, err := r.does(ctx, c, t)
				if err != nil {
					cancel(err)
					continue
				}
				if does != Nobody {
					mu.Lock()
					found[t] = does
					mu.Unlock()
				}
			}
		})
	}
	for _, t := range topics {
		next <- t // those who take it fail at once when ctx is over
	}
	close(next)
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return found, nil
}

// does asks what other brokers do with a topic.
func (r *Routes) does(ctx context.Context, c *rpc.Client, topic string) (Other, error) {
	q := command.RouteRequest{Topic: topic, AcceptStandardJSONOnly: true}
	resp, err := c.Call(ctx, rpc.Request(command.ReqGetRouteInfoByTopic, q.Append, nil))
	if err != nil {
		return Nobody, err
	}
	var no *rpc.CodeError
	if err = resp.Err(); errors.As(err, &no) && no.Code == command.RespTopicNotExist {
		return Nobody, nil
	}
	if err != nil {
		return Nobody, err
	}
	var d command.TopicRouteData
	if err := command.DecodeBody(resp.Body, &d); err != nil {
		return Nobody, fmt.Errorf("the route of topic %s: %w", topic, err)
	}
	return r.offers(&d), nil
}

// offers tells whether a client finds a queue to write to at another broker, what a
// master registered with write permission, or one to which there may be something to
// write again.
func (r *Routes) offers(d *command.TopicRouteData) Other {
	best := Nobody
	if d.OrderTopicConf != "" {
		return best
	}
	for i := range d.QueueDatas {
		q := &d.QueueDatas[i]
		if q.WriteQueueNums <= 0 || slices.Contains(r.Leaving, q.BrokerName) {
			continue
		}
		for j := range d.BrokerDatas {
			if b := &d.BrokerDatas[j]; b.BrokerName != q.BrokerName || b.BrokerAddrs[0] == "" {
				continue
			}
			if q.Perm&command.PermWrite != 0 {
				return Takes
			}
			best = Keeps
		}
	}
	return best
}
