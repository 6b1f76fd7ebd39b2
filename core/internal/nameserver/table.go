package nameserver

import (
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/plugin"
)

// masterID is the broker id of the master of a group.
const masterID = 0

// maxTimeout bounds what a broker may say of its own silence.
const maxTimeout = 24 * time.Hour

// errRegister: a registration that the rules refuse; the text is RocketMQ's.
var errRegister = errors.New("register broker failed")

// table is what brokers registered. Everything that changes it takes mu; routes
// are read without.
type table struct {
	log    *slog.Logger
	clock  plugin.Clock
	expiry func() time.Duration      // of brokers that do not say it themselves
	order  func(topic string) string // what a route says about an ordered topic

	mu     sync.Mutex
	groups map[string]*group // by broker name

	topics atomic.Pointer[map[string]*topic] // replaced, never changed
	gen    atomic.Uint64                     // grows with each change of a group's view
}

// group is the brokers of one name: a master and its slaves.
type group struct {
	name, cluster string
	actingMaster  bool
	members       map[int64]*member // guarded by table.mu, never empty while in the table
	// view is what routes show; replaced, never changed.
	view atomic.Pointer[command.BrokerData]
}

// member is one broker of a group. Guarded by table.mu.
type member struct {
	addr, haAddr, zone string
	version            command.DataVersion
	seen               time.Time
	timeout            time.Duration
	owner              *session // whose end removes the member
}

// heard notes a sign of life that came through s. The registration is that of the youngest
// session: a broker that changes its connection closes the old one, and what was sent over
// that may be taken late.
func (m *member) heard(now time.Time, s *session) {
	m.seen = now
	if m.owner == nil || s.number > m.owner.number {
		m.owner = s
	}
}

// topic is one entry of the table of topics.
type topic struct {
	queues atomic.Pointer[[]queue] // by broker name, never empty; replaced, never changed
	answer atomic.Pointer[answer]
}

type queue struct {
	group *group
	data  command.QueueData
}

// answer is an encoded route and what it was made of.
type answer struct {
	gen    uint64
	queues *[]queue
	body   []byte
}

func newTable(log *slog.Logger, clock plugin.Clock, expiry func() time.Duration, order func(string) string) *table {
	t := &table{log: log, clock: clock, expiry: expiry, order: order, groups: map[string]*group{}}
	t.topics.Store(&map[string]*topic{})
	return t
}

// registration is a request 103.
type registration struct {
	command.RegisterBrokerRequest
	body  *command.RegisterBrokerBody
	owner *session
}

// register applies a registration. The answer names the master to a slave.
func (t *table) register(r *registration) (command.RegisterBrokerResponse, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, version := r.BrokerID.BrokerID, r.body.Topics.DataVersion
	g := t.groups[r.BrokerName]
	var holder *member
	if g != nil {
		holder = g.members[id]
	}
	if holder != nil && holder.addr != r.BrokerAddr && holder.version.StateVersion > version.StateVersion {
		t.log.Warn("registration ignored: the id is held by a broker of a later term",
			"broker", r.BrokerName, "id", id, "address", r.BrokerAddr, "term", version.StateVersion,
			"holder", holder.addr, "holder_term", holder.version.StateVersion)
		return command.RegisterBrokerResponse{}, nil
	}
	// A broker always has the system topics. One that was forgotten and sends the
	// change of a single topic must register whole first.
	if holder == nil && len(r.body.Topics.TopicConfigTable) == 1 {
		t.log.Warn("registration refused: a broker that is not known yet names a single topic",
			"broker", r.BrokerName, "id", id, "address", r.BrokerAddr)
		return command.RegisterBrokerResponse{}, errRegister
	}
	if g == nil {
		g = &group{name: r.BrokerName, cluster: r.ClusterName, members: map[int64]*member{}}
		t.groups[r.BrokerName] = g
	}
	m, fresh := t.join(g, r)
	changed := fresh || m.version != version
	m.version, m.timeout = version, t.expiry()
	m.heard(t.clock.Now(), r.owner)
	if r.HeartbeatTimeoutMillis > 0 {
		m.timeout = time.Duration(min(r.HeartbeatTimeoutMillis, maxTimeout.Milliseconds())) * time.Millisecond
	}
	if id == masterID || r.EnableActingMaster && id == lowest(g.members) {
		mask := ^int32(0)
		if id != masterID {
			mask = ^command.PermWrite
		}
		t.putTopics(g, r.body.Topics.TopicConfigTable, changed, mask)
	}
	var resp command.RegisterBrokerResponse
	if master := g.members[masterID]; master != nil && id != masterID {
		resp = command.RegisterBrokerResponse{HAServerAddr: master.haAddr, MasterAddr: master.addr}
	}
	return resp, nil
}

// join makes the sender the member of its id and publishes the group if that
// changed it. fresh is false if it was the member already.
func (t *table) join(g *group, r *registration) (m *member, fresh bool) {
	id := r.BrokerID.BrokerID
	for other, m := range g.members {
		if other != id && m.addr == r.BrokerAddr {
			t.log.Info("broker changed its id", "broker", g.name, "address", m.addr, "from", other, "to", id)
			delete(g.members, other)
		}
	}
	if m = g.members[id]; m == nil || m.addr != r.BrokerAddr {
		if m == nil {
			t.log.Info("broker registered", "cluster", r.ClusterName, "broker", g.name, "id", id, "address", r.BrokerAddr)
		} else {
			t.log.Warn("broker id taken over", "broker", g.name, "id", id, "from", m.addr, "to", r.BrokerAddr)
		}
		m, fresh = &member{addr: r.BrokerAddr}, true
		g.members[id] = m
	}
	if g.cluster != r.ClusterName && id == lowest(g.members) {
		t.log.Warn("broker name moved to another cluster", "broker", g.name, "from", g.cluster, "to", r.ClusterName)
		g.cluster = r.ClusterName
	}
	m.haAddr, m.zone, g.actingMaster = r.HAServerAddr, r.ZoneName, r.EnableActingMaster
	t.publish(g)
	return m, fresh
}

// publish makes the view of a group; routes are encoded again if it changed.
func (t *table) publish(g *group) {
	view := &command.BrokerData{
		BrokerAddrs: make(command.BrokerAddrs, len(g.members)), BrokerName: g.name, Cluster: g.cluster,
		EnableActingMaster: g.actingMaster,
	}
	for id, m := range g.members {
		view.BrokerAddrs[id] = m.addr
		if id == lowest(g.members) {
			view.ZoneName = m.zone
		}
	}
	if old := g.view.Load(); old != nil && old.Cluster == view.Cluster && old.ZoneName == view.ZoneName &&
		old.EnableActingMaster == view.EnableActingMaster && maps.Equal(old.BrokerAddrs, view.BrokerAddrs) {
		return
	}
	g.view.Store(view)
	t.gen.Add(1)
}

func lowest(members map[int64]*member) int64 {
	id := int64(-1)
	for i := range members {
		if id < 0 || i < id {
			id = i
		}
	}
	return id
}

// putTopics takes the queues of a broker's topics: all when its data version
// changed, else those not known yet. Topics that it does not name stay: a
// registration may carry the changed ones only.
func (t *table) putTopics(g *group, configs map[string]command.TopicConfig, changed bool, mask int32) {
	known := *t.topics.Load()
	var grown map[string]*topic
	for name, c := range configs {
		data := command.QueueData{
			BrokerName: g.name, Perm: c.Perm & mask, ReadQueueNums: c.ReadQueueNums,
			WriteQueueNums: c.WriteQueueNums, TopicSysFlag: c.TopicSysFlag,
		}
		if tp := known[name]; tp != nil {
			tp.put(queue{g, data}, changed)
			continue
		}
		if grown == nil {
			grown = make(map[string]*topic, len(known)+len(configs))
			maps.Copy(grown, known)
		}
		tp := &topic{}
		tp.queues.Store(&[]queue{{g, data}})
		grown[name] = tp
	}
	if grown != nil {
		t.topics.Store(&grown)
	}
}

// find returns the place of a broker's entry.
func (tp *topic) find(broker string) (qs []queue, at int, found bool) {
	qs = *tp.queues.Load()
	at, found = slices.BinarySearchFunc(qs, broker, func(q queue, name string) int { return cmp.Compare(q.data.BrokerName, name) })
	return qs, at, found
}

// put adds or, if that is wanted, replaces the entry of one broker.
func (tp *topic) put(q queue, replace bool) {
	qs, at, found := tp.find(q.data.BrokerName)
	switch {
	case !found:
		qs = slices.Insert(slices.Clone(qs), at, q)
	case replace && qs[at] != q:
		qs = slices.Clone(qs)
		qs[at] = q
	default:
		return
	}
	tp.queues.Store(&qs)
}

// editQueues calls edit for each entry of group g and drops those for which it
// returns false. It returns how many there were.
func (t *table) editQueues(g *group, edit func(*command.QueueData) bool) int {
	known := *t.topics.Load()
	var gone []string
	n := 0
	for name, tp := range known {
		qs, at, found := tp.find(g.name)
		if !found {
			continue
		}
		n++
		data := qs[at].data
		switch {
		case edit(&data):
			tp.put(queue{g, data}, true)
		case len(qs) == 1:
			gone = append(gone, name)
		default:
			qs = slices.Delete(slices.Clone(qs), at, at+1)
			tp.queues.Store(&qs)
		}
	}
	t.forget(gone...)
	return n
}

// forget removes topics from the table.
func (t *table) forget(names ...string) {
	if len(names) == 0 {
		return
	}
	left := maps.Clone(*t.topics.Load())
	for _, name := range names {
		delete(left, name)
	}
	t.topics.Store(&left)
}

func drop(*command.QueueData) bool { return false }

// unregister removes a broker by its address.
func (t *table) unregister(b command.BrokerID) {
	t.remove("it unregistered", func(g *group, _ int64, m *member) bool {
		return g.name == b.BrokerName && m.addr == b.BrokerAddr
	})
}

// closed removes what a session registered and nobody registered since.
func (t *table) closed(s *session) {
	t.remove("its connection closed", func(_ *group, _ int64, m *member) bool { return m.owner == s })
}

// expire removes the brokers that were silent for too long and closes their
// connections, so that one that only hung registers again.
func (t *table) expire() {
	now := t.clock.Now()
	for _, m := range t.remove("it was silent for too long", func(_ *group, _ int64, m *member) bool {
		return now.Sub(m.seen) > m.timeout
	}) {
		if m.owner != nil {
			_ = m.owner.peer.Close() // an error says that it is closed already
		}
	}
}

// remove takes out the members that match, and with the last one of a group its
// queues.
func (t *table) remove(why string, match func(g *group, id int64, m *member) bool) []*member {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []*member
	for _, g := range t.groups {
		before := len(out)
		for id, m := range g.members {
			if match(g, id, m) {
				t.log.Info("broker removed", "broker", g.name, "id", id, "address", m.addr, "because", why)
				delete(g.members, id)
				out = append(out, m)
			}
		}
		if len(out) == before {
			continue
		}
		if len(g.members) == 0 {
			delete(t.groups, g.name)
			t.editQueues(g, drop)
			continue
		}
		if g.actingMaster && g.members[masterID] == nil {
			t.editQueues(g, func(q *command.QueueData) bool { q.Perm &^= command.PermWrite; return true })
		}
		t.publish(g)
	}
	return out
}

// touch notes a sign of life and moves the registration to the session it came
// from, unless that is the older one. version is what is known of the broker.
func (t *table) touch(b command.BrokerID, s *session) (version command.DataVersion, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[b.BrokerName]
	if g == nil {
		return command.DataVersion{}, false
	}
	for _, m := range g.members {
		if m.addr == b.BrokerAddr {
			m.heard(t.clock.Now(), s)
			return m.version, true
		}
	}
	return command.DataVersion{}, false
}

// setPerm changes the permission of all queues of a broker name and returns
// their number. It lasts until the broker's data version changes.
func (t *table) setPerm(broker string, change func(perm int32) int32) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[broker]
	if g == nil {
		return 0
	}
	return t.editQueues(g, func(q *command.QueueData) bool { q.Perm = change(q.Perm); return true })
}

// deleteTopic removes a topic, of one cluster only if that is not empty.
func (t *table) deleteTopic(name, cluster string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tp := (*t.topics.Load())[name]
	if tp == nil {
		return
	}
	qs := slices.DeleteFunc(slices.Clone(*tp.queues.Load()), func(q queue) bool { return cluster == "" || q.group.cluster == cluster })
	if len(qs) == 0 {
		t.forget(name)
		return
	}
	tp.queues.Store(&qs)
}

// putQueues adds or replaces queues of a topic; unknown broker names are
// ignored.
func (t *table) putQueues(name string, queues []command.QueueData) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range queues {
		if g := t.groups[q.BrokerName]; g != nil {
			t.putTopics(g, map[string]command.TopicConfig{name: {
				Perm: q.Perm, ReadQueueNums: q.ReadQueueNums, WriteQueueNums: q.WriteQueueNums, TopicSysFlag: q.TopicSysFlag,
			}}, true, ^int32(0))
		}
	}
}
