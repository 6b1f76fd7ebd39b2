// Package stats counts what operators ask a broker about by RocketMQ's names
// (BrokerStatsManager): how much was put into topics and got by groups in the last
// minute, hour and day.
//
// Nothing is counted per message: records are counted when a batch of them is
// published, and what consumers get with each answer. A goroutine looks at the sums
// every ten seconds.
package stats

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
)

// Names of what is counted, with the keys that tools use.
const (
	TopicPutNums    = "TOPIC_PUT_NUMS"  // topic
	TopicPutSize    = "TOPIC_PUT_SIZE"  // topic; bytes as stored
	GroupGetNums    = "GROUP_GET_NUMS"  // topic@group
	GroupGetSize    = "GROUP_GET_SIZE"  // topic@group; bytes as stored
	SendBackPutNums = "SNDBCK_PUT_NUMS" // topic@group
	BrokerPutNums   = "BROKER_PUT_NUMS" // cluster
	BrokerGetNums   = "BROKER_GET_NUMS" // cluster
)

// How often samples are taken, and how many are kept: over a minute, an hour and a
// day, both ends counted.
const (
	minuteStep = 10 * time.Second
	hourStep   = 10 * time.Minute
	dayStep    = time.Hour

	minutes, hours, days = 7, 7, 25
)

// counter is one thing that is counted.
type counter struct {
	sum, times atomic.Int64
	history    history // guarded by Stats.mu
}

func (c *counter) add(n, times int64) {
	c.sum.Add(n)
	c.times.Add(times)
}

// topic is what was put into a topic.
type topic struct{ nums, size counter }

// got is what a group got of a topic.
type got struct {
	nums, size, back counter
	dead             atomic.Int64

	mu   sync.Mutex
	next map[int32]int64 // by queue, behind the last message handed out
}

type pair struct{ topic, group string }

// Stats is the behaviour.
type Stats struct {
	k    *kernel.Kernel
	boot time.Time

	mu     sync.RWMutex
	topics map[string]*topic
	gots   map[pair]*got
	// incoming is what clients sent; topics counts what was published.
	incoming map[incomingKey]*Incoming

	creations creations

	at     moments
	put    counter // messages
	size   counter // bytes
	get    counter // messages that were handed out
	found  counter // pulls that got some
	missed counter // pulls that got none
	// mornings are those of put and get.
	mornings [2]Mornings

	// recent is of topics, by message.Queue.Slot; only the published hook, which the
	// store calls in order, uses it.
	recent [256]struct {
		name  string
		topic *topic
	}
	forgot atomic.Bool // a topic went: recent is stale

	quit chan struct{}
	once sync.Once
	wg   sync.WaitGroup
}

// New makes the behaviour and registers it.
func New(k *kernel.Kernel) *Stats {
	s := &Stats{k: k, boot: k.Clock.Now(), topics: map[string]*topic{}, gots: map[pair]*got{}, incoming: map[incomingKey]*Incoming{}, quit: make(chan struct{})}
	s.at.start(s.boot)
	k.Hooks.OnPublished(s.published)
	k.Hooks.OnTopicRemoved(s.removeTopic)
	k.Hooks.OnGroupRemoved(s.removeGroup)
	k.Hooks.OnOffsetReset(s.rewind)
	k.Hooks.OnStart(s.start)
	k.Hooks.OnStop(s.stop)
	return s
}

// published counts a batch.
func (s *Stats) published(_ message.Position, units []message.Unit) {
	if s.forgot.CompareAndSwap(true, false) {
		clear(s.recent[:])
	}
	var of *topic
	var n, size, all, bytes int64
	for i := range units {
		u := &units[i]
		r := &s.recent[u.Queue.Slot()]
		if r.topic == nil || r.name != u.Queue.Topic {
			r.name, r.topic = u.Queue.Topic, s.topicOf(u.Queue.Topic)
		}
		if r.topic != of {
			of.put(n, size)
			of, n, size = r.topic, 0, 0
		}
		n++
		size += int64(u.Size)
		if of != &internal {
			all++
			bytes += int64(u.Size)
		}
	}
	of.put(n, size)
	if all > 0 {
		s.put.add(all, all)
		s.size.add(bytes, all)
	}
}

// internal takes what is the broker's own.
var internal topic

// Put is how many messages were put into topics since the start.
func (s *Stats) Put() int64 { return s.put.sum.Load() }

func (t *topic) put(n, size int64) {
	if t != nil && t != &internal {
		t.nums.add(n, n)
		t.size.add(size, n)
	}
}

func (s *Stats) topicOf(name string) *topic {
	if message.IsInternal(name) {
		return &internal
	}
	s.mu.RLock()
	t := s.topics[name]
	s.mu.RUnlock()
	if t != nil {
		return t
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t = s.topics[name]; t == nil {
		t = &topic{}
		s.topics[strings.Clone(name)] = t
	}
	return t
}

func (s *Stats) gotOf(group, topic string) *got {
	s.mu.RLock()
	g := s.gots[pair{topic, group}]
	s.mu.RUnlock()
	if g != nil {
		return g
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g = s.gots[pair{topic, group}]; g == nil {
		g = &got{next: map[int32]int64{}}
		s.gots[pair{topic, group}] = g
	}
	return g
}

// Got counts an answer with n messages of so many bytes to a group; next is the
// offset behind them. The strings are kept.
func (s *Stats) Got(group string, q message.Queue, n int, bytes, next int64) {
	g := s.gotOf(group, q.Topic)
	g.nums.add(int64(n), 1)
	g.size.add(bytes, 1)
	g.mu.Lock()
	g.next[q.ID] = next
	g.mu.Unlock()
	s.get.add(int64(n), 1)
	s.found.add(1, 1)
}

// Missed counts a pull that got no message.
func (s *Stats) Missed() { s.missed.add(1, 1) }

// Back counts a message of a topic that a group sent back.
func (s *Stats) Back(group, topic string) { s.gotOf(group, topic).back.add(1, 1) }

// Pulled is the offset behind the last message of a queue that a group got since the
// broker started; 0: none.
func (s *Stats) Pulled(group string, q message.Queue) int64 {
	s.mu.RLock()
	g := s.gots[pair{q.Topic, group}]
	s.mu.RUnlock()
	if g == nil {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.next[q.ID]
}

// rewind forgets what was pulled of a queue behind the offset to which it was reset.
func (s *Stats) rewind(group string, q message.Queue) {
	s.mu.RLock()
	g := s.gots[pair{q.Topic, group}]
	s.mu.RUnlock()
	if g == nil {
		return
	}
	offset, _ := s.k.Offsets.Committed(group, q)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.next[q.ID] = min(g.next[q.ID], offset)
}

func (s *Stats) removeTopic(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.topics, name)
	delete(s.incoming, incomingKey{name, Normal})
	delete(s.incoming, incomingKey{name, FIFO})
	for p := range s.gots {
		if p.topic == name {
			delete(s.gots, p)
		}
	}
	s.forgot.Store(true)
}

func (s *Stats) removeGroup(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.gots {
		if p.group == name {
			delete(s.gots, p)
		}
	}
}

// Data answers VIEW_BROKER_STATS_DATA; false: nothing was counted by this name.
func (s *Stats) Data(name, key string) (command.BrokerStatsData, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := s.counter(name, key)
	if c == nil {
		return command.BrokerStatsData{}, false
	}
	return command.BrokerStatsData{
		StatsMinute: between(c.history.minute[:], s.at.minute[:]),
		StatsHour:   between(c.history.hour[:], s.at.hour[:]),
		StatsDay:    between(c.history.day[:], s.at.day[:]),
	}, true
}

// counter finds what a name and a key mean; nil: nothing. The caller holds mu.
func (s *Stats) counter(name, key string) *counter {
	switch name {
	case TopicPutNums, TopicPutSize:
		t := s.topics[key]
		switch {
		case t == nil:
			return nil
		case name == TopicPutNums:
			return &t.nums
		}
		return &t.size
	case GroupGetNums, GroupGetSize, SendBackPutNums:
		at := strings.LastIndexByte(key, '@')
		if at < 0 {
			return nil
		}
		g := s.gots[pair{key[:at], key[at+1:]}]
		switch {
		case g == nil:
			return nil
		case name == GroupGetNums:
			return &g.nums
		case name == GroupGetSize:
			return &g.size
		}
		return &g.back
	case BrokerPutNums, BrokerGetNums:
		switch {
		case key != s.k.Config().ClusterName:
			return nil
		case name == BrokerPutNums:
			return &s.put
		}
		return &s.get
	}
	return nil
}

// PutTps is how many messages a second came into a topic in the last minute.
func (s *Stats) PutTps(name string) float64 {
	d, _ := s.Data(TopicPutNums, name)
	return float64(d.StatsMinute.Tps)
}

// GetTps is how many messages of a topic a second a group got in the last minute.
func (s *Stats) GetTps(group, topic string) float64 {
	d, _ := s.Data(GroupGetNums, topic+"@"+group)
	return float64(d.StatsMinute.Tps)
}

func (s *Stats) start(context.Context) error {
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		t := s.k.Clock.NewTimer(minuteStep)
		defer t.Stop()
		for {
			select {
			case <-t.C():
				s.sample(s.k.Clock.Now())
				t.Reset(minuteStep)
			case <-s.quit:
				return
			}
		}
	}()
	return nil
}

func (s *Stats) stop(context.Context) error {
	s.once.Do(func() { close(s.quit) })
	s.wg.Wait()
	return nil
}
