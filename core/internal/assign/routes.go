package assign

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/internal/rarely"
	"github.com/hardpointmq/hardpoint/internal/rpc"
)

const (
	// routeLife is how long a route is taken for true: so long may clients go
	// without a queue that is new, or with an owner that is gone.
	routeLife = 5 * time.Second
	// routeWait bounds asking one name server.
	routeWait = 500 * time.Millisecond
)

// errNoTopic: neither name servers nor this broker know the topic.
var errNoTopic = errors.New("the topic is not known")

// route is where the queues of a topic are; immutable.
type route struct {
	// queues are those that consumers read, sorted as allocators want them.
	queues  []allocate.Queue
	brokers []host // sorted by name
}

type host struct{ name, address string }

// routes are the routes of topics that somebody asked for.
type routes struct {
	k       *kernel.Kernel
	links   *rpc.Links
	servers func() []string
	stale   rarely.Line

	mu sync.Mutex
	m  map[string]*routeEntry
}

type routeEntry struct {
	mu    sync.Mutex // one asks, the others wait for it
	r     *route
	until time.Time
}

// of returns the route of a topic; errNoTopic when there is none. While no name
// server answers, the last route holds. A broker without name servers is alone.
func (s *routes) of(ctx context.Context, topic string) (*route, error) {
	var servers []string
	if s.servers != nil {
		servers = s.servers()
	}
	if len(servers) == 0 {
		return s.own(topic)
	}
	s.mu.Lock()
	if s.m == nil {
		s.m = map[string]*routeEntry{}
	}
	e := s.m[topic]
	if e == nil {
		e = &routeEntry{}
		s.m[topic] = e
	}
	s.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	now := s.k.Clock.Now()
	if e.r != nil && now.Before(e.until) && e.until.Sub(now) <= routeLife {
		return e.r, nil
	}
	r, err := s.ask(ctx, servers, topic)
	switch {
	case err == nil:
		e.r, e.until = r, now.Add(routeLife)
		return r, nil
	case errors.Is(err, errNoTopic):
		s.forget(topic)
		return s.own(topic)
	case e.r != nil:
		e.until = now.Add(time.Second)
		if n := s.stale.Due(now); n > 0 {
			s.k.Log.Warn("no name server answers; queues are assigned by the last known route", "topic", topic, "error", err, "such_since_last_said", n)
		}
		return e.r, nil
	}
	// This broker's own queues may be a part only, and a client that is told of a
	// part gives up the rest.
	s.forget(topic)
	return nil, err
}

// forget drops a topic: anybody can ask for any name, and what is unknown is not
// remembered.
func (s *routes) forget(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, topic)
}

// doubt has a route asked for anew: a broker in it did not answer.
func (s *routes) doubt(topic string) {
	s.mu.Lock()
	e := s.m[topic]
	s.mu.Unlock()
	if e != nil {
		e.mu.Lock()
		e.until = time.Time{}
		e.mu.Unlock()
	}
}

// own is the route when this broker is all there is.
func (s *routes) own(topic string) (*route, error) {
	t := s.k.Topics.Named(topic)
	if t == nil || t.Internal {
		return nil, errNoTopic
	}
	cfg := s.k.Config()
	r := &route{brokers: []host{{cfg.BrokerName, cfg.Advertise.String()}}}
	if t.Config.Perm&cfg.Permission&command.PermRead != 0 {
		for id := range t.Config.ReadQueueNums {
			r.queues = append(r.queues, allocate.Queue{Topic: topic, Broker: cfg.BrokerName, ID: id, Zone: cfg.Zone})
		}
	}
	return r, nil
}

// ask asks one name server after the other.
func (s *routes) ask(ctx context.Context, servers []string, topic string) (*route, error) {
	q := command.RouteRequest{Topic: topic, AcceptStandardJSONOnly: true}
	err := errNoTopic
	for _, server := range servers {
		one, cancel := context.WithTimeout(ctx, routeWait)
		var resp *rpc.Response
		resp, err = s.links.Call(one, server, rpc.Request(command.ReqGetRouteInfoByTopic, q.Append, nil))
		cancel()
		if err == nil {
			err = resp.Err()
		}
		var no *rpc.CodeError
		if errors.As(err, &no) && no.Code == command.RespTopicNotExist {
			return nil, errNoTopic
		}
		if err != nil {
			continue
		}
		var d command.TopicRouteData
		if err = command.DecodeBody(resp.Body, &d); err == nil {
			return newRoute(topic, &d), nil
		}
	}
	return nil, err
}

// maxQueues bounds what a route may name.
const maxQueues = 1 << 20

func newRoute(topic string, d *command.TopicRouteData) *route {
	r := &route{}
	zones := map[string]string{}
	for i := range d.BrokerDatas {
		b := &d.BrokerDatas[i]
		zones[b.BrokerName] = b.ZoneName
		lowest := int64(-1)
		for id := range b.BrokerAddrs {
			if lowest < 0 || id < lowest {
				lowest = id
			}
		}
		if lowest >= 0 {
			r.brokers = append(r.brokers, host{b.BrokerName, b.BrokerAddrs[lowest]})
		}
	}
	for _, q := range d.QueueDatas {
		if q.Perm&command.PermRead == 0 || len(r.queues)+int(q.ReadQueueNums) > maxQueues {
			continue
		}
		for id := range q.ReadQueueNums {
			r.queues = append(r.queues, allocate.Queue{Topic: topic, Broker: q.BrokerName, ID: id, Zone: zones[q.BrokerName]})
		}
	}
	slices.SortFunc(r.brokers, func(a, b host) int { return strings.Compare(a.name, b.name) })
	slices.SortStableFunc(r.queues, func(a, b allocate.Queue) int {
		if c := strings.Compare(a.Broker, b.Broker); c != 0 {
			return c
		}
		return int(a.ID - b.ID)
	})
	r.queues = slices.Compact(r.queues)
	return r
}

// owner is the broker that computes for a group: the one with the highest hash of
// both names. A broker more or less moves only the groups that it gets or had.
func (r *route) owner(group string) host {
	var best host
	var high uint64
	for _, b := range r.brokers {
		sum := sha256.Sum256([]byte(b.name + "\x00" + group))
		if n := binary.BigEndian.Uint64(sum[:]); best.name == "" || n > high {
			best, high = b, n
		}
	}
	return best
}
