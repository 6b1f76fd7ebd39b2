package client

import (
	"context"
	"maps"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/filter"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/internal/rarely"
)

// scanInterval is how often silent clients are looked for.
const scanInterval = 10 * time.Second

// maxMemberships bounds in how many groups, as how many clients, one connection
// may be at a time: a frame of 16 MiB names 600,000.
const maxMemberships = 1 << 16

// Member is a client of a group.
type Member struct {
	ClientID string
	Conn     *kernel.Conn
	Language command.Language
	Version  int32
	LastSeen time.Time
	// Zone is what the client says of itself (__ZONE_NAME); empty: nothing.
	Zone string
}

// Subscription is what a group wants of a topic.
type Subscription struct {
	Data command.SubscriptionData
	// Tags is the compiled expression; nil when it is no tag expression.
	Tags *filter.Tags
}

// group is the live part of a consumer group. It is guarded by Manager.mu.
type group struct {
	members map[string]*Member
	subs    map[string]*Subscription
	kind    command.ConsumeType
	model   command.MessageModel
	from    command.ConsumeFromWhere
}

// membership is one client in one group.
type membership struct {
	producer  bool
	group, id string
}

// Manager is the behaviour.
type Manager struct {
	k     *kernel.Kernel
	cache filter.Cache

	mu        sync.RWMutex
	consumers map[string]*group
	producers map[string]map[string]*Member
	// of is what each connection is in, so that one that ends costs no look at
	// all the others.
	of map[*kernel.Conn]map[membership]struct{}

	failed rarely.Line // groups of heartbeats that could not be created

	quit chan struct{}
	wg   sync.WaitGroup
}

// New makes the behaviour and registers it.
func New(k *kernel.Kernel) *Manager {
	m := &Manager{
		k: k, consumers: map[string]*group{}, producers: map[string]map[string]*Member{},
		of: map[*kernel.Conn]map[membership]struct{}{}, quit: make(chan struct{}),
	}
	k.Handle(command.ReqHeartBeat, m.heartbeat)
	k.Handle(command.ReqUnregisterClient, m.unregister)
	k.Handle(command.ReqGetConsumerListByGroup, m.list)
	k.Handle(command.ReqCheckClientConfig, m.checkConfig)
	k.Hooks.OnDisconnect(m.disconnected)
	k.Hooks.OnGroupRemoved(m.forget)
	k.Hooks.OnStart(m.start)
	k.Hooks.OnStop(m.stop)
	return m
}

func (m *Manager) start(context.Context) error {
	m.wg.Add(1)
	go func() {
		defer m.wg.Done()
		t := m.k.Clock.NewTimer(scanInterval)
		defer t.Stop()
		for {
			select {
			case <-t.C():
				m.expire(m.k.Clock.Now())
				t.Reset(scanInterval)
			case <-m.quit:
				return
			}
		}
	}()
	return nil
}

func (m *Manager) stop(context.Context) error {
	select {
	case <-m.quit:
	default:
		close(m.quit)
	}
	m.wg.Wait()
	return nil
}

// Subscribed returns what a group wants of a topic, nil when it does not
// subscribe it, and whether the group is known at all.
func (m *Manager) Subscribed(groupName, topic string) (sub *Subscription, model command.MessageModel, known bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	g := m.consumers[groupName]
	if g == nil {
		return nil, "", false
	}
	return g.subs[topic], g.model, true
}

// Members returns the members of a consumer group, sorted by client id.
func (m *Manager) Members(groupName string) []Member {
	m.mu.RLock()
	defer m.mu.RUnlock()
	g := m.consumers[groupName]
	if g == nil {
		return nil
	}
	return sorted(g.members)
}

// Live is a consumer group as its members say.
type Live struct {
	Kind  command.ConsumeType
	Model command.MessageModel
	From  command.ConsumeFromWhere
	// Subscriptions are by topic, Members sorted by client id.
	Subscriptions map[string]command.SubscriptionData
	Members       []Member
}

// Group returns a consumer group that has members; false: it has none.
func (m *Manager) Group(name string) (Live, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	g := m.consumers[name]
	if g == nil {
		return Live{}, false
	}
	out := Live{Kind: g.kind, Model: g.model, From: g.from, Members: sorted(g.members), Subscriptions: make(map[string]command.SubscriptionData, len(g.subs))}
	for topic, s := range g.subs {
		out.Subscriptions[topic] = s.Data
	}
	return out, true
}

// Subscribers lists the consumer groups with members that subscribe a topic, sorted.
func (m *Manager) Subscribers(topic string) []string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var out []string
	for name, g := range m.consumers {
		if g.subs[topic] != nil {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// ProducerGroups returns all producer groups with their members, sorted by client id.
func (m *Manager) ProducerGroups() map[string][]Member {
	m.mu.RLock()
	defer m.mu.RUnlock()
	out := make(map[string][]Member, len(m.producers))
	for name, g := range m.producers {
		out[name] = sorted(g)
	}
	return out
}

// Member returns one member of a consumer group.
func (m *Manager) Member(groupName, clientID string) (Member, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if g := m.consumers[groupName]; g != nil {
		if x := g.members[clientID]; x != nil {
			return *x, true
		}
	}
	return Member{}, false
}

// Producers returns the members of a producer group, sorted by client id.
func (m *Manager) Producers(groupName string) []Member {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return sorted(m.producers[groupName])
}

func sorted(members map[string]*Member) []Member {
	out := make([]Member, 0, len(members))
	for _, x := range members {
		out = append(out, *x)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].ClientID < out[j].ClientID })
	return out
}

// register takes one consumer entry of a heartbeat; changed tells whether the
// others have to share anew.
func (m *Manager) register(c *command.ConsumerData, who Member, withoutSub bool) (changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.consumers[c.GroupName]
	if g == nil {
		g = &group{members: map[string]*Member{}, subs: map[string]*Subscription{}}
		m.consumers[c.GroupName] = g
	}
	g.kind, g.model, g.from = c.ConsumeType, c.MessageModel, c.ConsumeFromWhere
	old := g.members[who.ClientID]
	changed = m.joins(membership{false, c.GroupName, who.ClientID}, old, who.Conn)
	g.members[who.ClientID] = &who
	if withoutSub {
		return changed
	}
	keep := make(map[string]struct{}, len(c.SubscriptionDataSet))
	for i := range c.SubscriptionDataSet {
		d := c.SubscriptionDataSet[i]
		keep[d.Topic] = struct{}{}
		old := g.subs[d.Topic]
		if old != nil && d.SubVersion <= old.Data.SubVersion {
			continue // the last change wins, not the last heartbeat
		}
		if old == nil {
			changed = true
		}
		g.subs[d.Topic] = m.compile(d)
	}
	for topic := range g.subs {
		if _, ok := keep[topic]; !ok {
			delete(g.subs, topic)
			changed = true
		}
	}
	return changed
}

// compile keeps a subscription even when its expression cannot be used: the
// pull that needs it gets the error.
func (m *Manager) compile(d command.SubscriptionData) *Subscription {
	s := &Subscription{Data: d}
	if filter.CheckType(d.ExpressionType) == nil {
		if t, err := m.cache.Get([]byte(d.SubString)); err == nil {
			s.Tags = t
		}
	}
	return s
}

func (m *Manager) registerProducer(groupName string, who Member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.producers[groupName]
	if g == nil {
		g = map[string]*Member{}
		m.producers[groupName] = g
	}
	m.joins(membership{true, groupName, who.ClientID}, g[who.ClientID], who.Conn)
	g[who.ClientID] = &who
}

// joins notes that a membership is c's; false if it was. The caller holds mu.
func (m *Manager) joins(x membership, old *Member, c *kernel.Conn) bool {
	if old != nil {
		if old.Conn == c {
			return false
		}
		m.leaves(x, old.Conn)
	}
	if m.of[c] == nil {
		m.of[c] = map[membership]struct{}{}
	}
	m.of[c][x] = struct{}{}
	return true
}

// leaves is the end of that.
func (m *Manager) leaves(x membership, c *kernel.Conn) {
	delete(m.of[c], x)
	if len(m.of[c]) == 0 {
		delete(m.of, c)
	}
}

// room tells whether what a heartbeat names is within maxMemberships.
func (m *Manager) room(c *kernel.Conn, hb *command.HeartbeatData) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	is := m.of[c]
	n := len(is)
	for i := range hb.ConsumerDataSet {
		if _, ok := is[membership{false, hb.ConsumerDataSet[i].GroupName, hb.ClientID}]; !ok {
			n++
		}
	}
	for i := range hb.ProducerDataSet {
		if _, ok := is[membership{true, hb.ProducerDataSet[i].GroupName, hb.ClientID}]; !ok {
			n++
		}
	}
	return n <= maxMemberships
}

// drop takes one member out and tells whether it was there. The caller holds mu.
func (m *Manager) drop(x membership, c *kernel.Conn) bool {
	members := m.producers[x.group]
	if !x.producer {
		members = nil
		if g := m.consumers[x.group]; g != nil {
			members = g.members
		}
	}
	if old := members[x.id]; old == nil || old.Conn != c {
		return false
	}
	m.leaves(x, c)
	delete(members, x.id)
	switch {
	case len(members) > 0:
	case x.producer:
		delete(m.producers, x.group)
	default:
		delete(m.consumers, x.group)
	}
	return true
}

// remove takes members out of all groups and returns the consumer groups that
// lost one. The caller holds mu.
func (m *Manager) remove(gone func(*Member) bool) []string {
	var changed []string
	for name, g := range m.consumers {
		lost := false
		for id, x := range g.members {
			if gone(x) {
				lost = m.drop(membership{false, name, id}, x.Conn) || lost
			}
		}
		if lost {
			changed = append(changed, name)
		}
	}
	for name, g := range m.producers {
		for id, x := range g {
			if gone(x) {
				m.drop(membership{true, name, id}, x.Conn)
			}
		}
	}
	return changed
}

func (m *Manager) disconnected(c *kernel.Conn) {
	lost := map[string]struct{}{}
	m.mu.Lock()
	for x := range m.of[c] {
		if m.drop(x, c) && !x.producer {
			lost[x.group] = struct{}{}
		}
	}
	m.mu.Unlock()
	m.Notify(slices.Collect(maps.Keys(lost))...)
}

func (m *Manager) expire(now time.Time) {
	limit := m.k.Config().ChannelExpired
	if limit <= 0 {
		return
	}
	var silent []*kernel.Conn
	m.mu.Lock()
	changed := m.remove(func(x *Member) bool {
		if now.Sub(x.LastSeen) <= limit {
			return false
		}
		silent = append(silent, x.Conn)
		return true
	})
	m.mu.Unlock()
	for _, c := range silent {
		m.k.Log.Warn("closing the connection of a client that sent no heartbeat", "peer", c.Peer.Remote(), "for", limit)
		_ = c.Peer.Close()
	}
	m.Notify(changed...)
}

func (m *Manager) forget(groupName string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if g := m.consumers[groupName]; g != nil {
		for id, x := range g.members {
			m.leaves(membership{false, groupName, id}, x.Conn)
		}
	}
	delete(m.consumers, groupName)
}

// Notify tells the members of groups to share their queues anew.
func (m *Manager) Notify(groups ...string) {
	if !m.k.Config().NotifyIDs {
		return
	}
	for _, name := range groups {
		if cfg := m.k.Groups.Named(name); cfg != nil && !cfg.NotifyConsumerIDsChangedEnable {
			continue
		}
		m.mu.RLock()
		g := m.consumers[name]
		// A connection that is there as many clients is told once.
		to := map[*kernel.Conn]struct{}{}
		if g != nil && g.model != command.Broadcasting {
			for _, x := range g.members {
				to[x.Conn] = struct{}{}
			}
		}
		m.mu.RUnlock()
		r := command.ConsumerGroupRequest{ConsumerGroup: []byte(name)}
		for c := range to {
			if err := c.Notify(command.ReqNotifyConsumerIDsChanged, r.Append, nil); err != nil {
				m.k.Log.Debug("a member could not be told that its group changed", "group", name, "peer", c.Peer.Remote(), "error", err)
			}
		}
	}
}

// ConnectionKey is what connections are counted by.
type ConnectionKey struct {
	Group    string // of consumers; empty for producers
	Kind     command.ConsumeType
	Language command.Language
	Version  int32
}

// Connections counts the members of consumer groups, and those of all producer
// groups.
func (m *Manager) Connections() (consumers, producers map[ConnectionKey]int) {
	consumers, producers = map[ConnectionKey]int{}, map[ConnectionKey]int{}
	m.mu.RLock()
	defer m.mu.RUnlock()
	for name, g := range m.consumers {
		for _, x := range g.members {
			consumers[ConnectionKey{name, g.kind, x.Language, x.Version}]++
		}
	}
	for _, g := range m.producers {
		for _, x := range g {
			producers[ConnectionKey{Language: x.Language, Version: x.Version}]++
		}
	}
	return consumers, producers
}

// ConsumerGroups lists the groups that have members, sorted.
func (m *Manager) ConsumerGroups() []string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.Sorted(maps.Keys(m.consumers))
}

// Topics lists what a consumer group with members subscribes, sorted; at most so
// many, and how many there are.
func (m *Manager) Topics(groupName string, most int) (topics []string, n int) {
	m.mu.RLock()
	g := m.consumers[groupName]
	if g == nil {
		m.mu.RUnlock()
		return nil, 0
	}
	topics = slices.Collect(maps.Keys(g.subs))
	m.mu.RUnlock()
	slices.Sort(topics)
	return topics[:min(most, len(topics))], len(topics)
}
