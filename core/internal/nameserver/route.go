package nameserver

import (
	"maps"
	"slices"
	"strings"

	"github.com/hardpointmq/hardpoint/core/command"
)

// route returns the encoded route of a topic, nil if there is none. It takes no
// lock and, unless the answer is stale, allocates nothing. The bytes are never
// changed.
func (t *table) route(name []byte) []byte {
	tp := (*t.topics.Load())[string(name)]
	if tp == nil {
		return nil
	}
	gen, queues := t.gen.Load(), tp.queues.Load()
	if a := tp.answer.Load(); a != nil && a.gen == gen && a.queues == queues {
		return a.body
	}
	// The generation was read before what is encoded now: an answer may get less
	// than its age, so that it is encoded once too often, never more.
	route := routeOf(*queues)
	route.OrderTopicConf = t.order(string(name))
	body := route.AppendJSON(nil)
	tp.answer.Store(&answer{gen, queues, body})
	return body
}

// zoneRoute is route, cut to the brokers of a zone. Brokers that lost their master stay:
// their slaves are all that is left of their messages. It is encoded for each query.
func (t *table) zoneRoute(name []byte, zone string) []byte {
	tp := (*t.topics.Load())[string(name)]
	if tp == nil {
		return nil
	}
	all := routeOf(*tp.queues.Load())
	var r command.TopicRouteData
	for i := range all.BrokerDatas {
		b := &all.BrokerDatas[i]
		if _, master := b.BrokerAddrs[masterID]; !master || strings.EqualFold(b.ZoneName, zone) {
			r.BrokerDatas, r.QueueDatas = append(r.BrokerDatas, *b), append(r.QueueDatas, all.QueueDatas[i])
		}
	}
	r.OrderTopicConf = t.order(string(name))
	return r.AppendJSON(nil)
}

func routeOf(queues []queue) command.TopicRouteData {
	var r command.TopicRouteData
	for i := range queues {
		r.BrokerDatas = append(r.BrokerDatas, *queues[i].group.view.Load())
		r.QueueDatas = append(r.QueueDatas, queues[i].data)
	}
	return r
}

// cluster describes all brokers.
func (t *table) cluster() command.ClusterInfo {
	t.mu.Lock()
	defer t.mu.Unlock()
	info := command.ClusterInfo{BrokerAddrTable: map[string]command.BrokerData{}, ClusterAddrTable: map[string][]string{}}
	for name, g := range t.groups {
		info.BrokerAddrTable[name] = *g.view.Load()
		info.ClusterAddrTable[g.cluster] = append(info.ClusterAddrTable[g.cluster], name)
	}
	for _, names := range info.ClusterAddrTable {
		slices.Sort(names)
	}
	return info
}

// memberGroup describes the brokers of one name; without addresses if it is not
// known.
func (t *table) memberGroup(cluster, broker string) command.BrokerMemberGroup {
	m := command.BrokerMemberGroup{BrokerAddrs: command.BrokerAddrs{}, BrokerName: broker, Cluster: cluster}
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.groups[broker]; g != nil {
		m.BrokerAddrs = g.view.Load().BrokerAddrs
	}
	return m
}

// topicNames lists the topics with a queue that want selects, sorted.
func (t *table) topicNames(want func(q *queue) bool) []string {
	var names []string
	for name, tp := range *t.topics.Load() {
		if slices.ContainsFunc(*tp.queues.Load(), func(q queue) bool { return want(&q) }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// systemTopics lists the names of clusters and brokers, which are topics, too,
// and the address of one broker that knows the others.
func (t *table) systemTopics() command.TopicList {
	info := t.cluster()
	var l command.TopicList
	for _, c := range slices.Sorted(maps.Keys(info.ClusterAddrTable)) {
		l.Topics = append(append(l.Topics, c), info.ClusterAddrTable[c]...)
	}
	for _, b := range slices.Sorted(maps.Keys(info.BrokerAddrTable)) {
		addrs := info.BrokerAddrTable[b].BrokerAddrs
		l.BrokerAddr = addrs[slices.Min(slices.Collect(maps.Keys(addrs)))]
		break
	}
	return l
}
