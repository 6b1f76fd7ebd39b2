package catalog

import (
	"maps"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
)

// state is the tables. Look-ups are lock-free for topics and groups; changes are
// serialised by mu.
type state struct {
	mu       sync.Mutex
	topics   atomic.Pointer[map[string]*topic]
	groups   atomic.Pointer[map[string]*command.SubscriptionGroupConfig]
	tVersion command.DataVersion
	gVersion command.DataVersion
	oVersion command.DataVersion
	offsets  offsetTable
	locks    lockTable
	values   valueTable
	fences   fences // of the values of their kind; not of a private state
	ends     endTable
	// private: nobody else sees the maps yet, so they are changed in place.
	private bool
}

// topic is a row of the table. A topic that this leader has just created is
// hidden from look-ups until topics.json holds it: nobody may be told that
// something is stored in a topic that another broker on these files would not
// know.
type topic struct {
	kernel.Topic
	hidden atomic.Bool
}

func newState() *state {
	s := &state{}
	s.topics.Store(&map[string]*topic{})
	s.groups.Store(&map[string]*command.SubscriptionGroupConfig{})
	s.offsets.reset()
	s.locks.m, s.locks.dirty = map[lockKey]*lockEntry{}, map[lockKey]struct{}{}
	s.values.m = map[kernel.ValueKey][]byte{}
	return s
}

// newPrivate makes a state in which much is going to be put before others see
// it.
func newPrivate() *state {
	s := newState()
	s.private = true
	return s
}

// replace takes over the tables of a private state, which is not used any more.
// Readers see the old or the new tables, never none. With keep, progress that is
// not in a record yet stays.
func (s *state) replace(from *state, keep bool) {
	s.mu.Lock()
	s.topics.Store(from.topics.Load())
	s.groups.Store(from.groups.Load())
	s.tVersion, s.gVersion, s.oVersion = from.tVersion, from.gVersion, from.oVersion
	s.mu.Unlock()
	s.ends.set(from.ends.m)
	s.offsets.replace(&from.offsets, keep)
	s.locks.replace(&from.locks)
	s.values.replace(&from.values)
}

// writableTopics and writableGroups return a table to change and to store; the
// caller holds mu.
func (s *state) writableTopics() map[string]*topic {
	if s.private {
		return *s.topics.Load()
	}
	return maps.Clone(*s.topics.Load())
}

func (s *state) writableGroups() map[string]*command.SubscriptionGroupConfig {
	if s.private {
		return *s.groups.Load()
	}
	return maps.Clone(*s.groups.Load())
}

// putTopics creates or replaces topics and returns their rows; hide hides those that
// look-ups do not find yet.
func (s *state) putTopics(ts []command.TopicConfig, hide bool) []*topic {
	if len(ts) == 0 {
		return nil
	}
	rows := make([]*topic, len(ts))
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.writableTopics()
	for i, t := range ts {
		if t.Attributes == nil {
			t.Attributes = command.StringMap{}
		}
		n := &topic{Topic: kernel.Topic{Config: t, System: message.IsSystem(t.TopicName), Internal: message.IsInternal(t.TopicName)}}
		old := m[t.TopicName]
		if old == nil {
			s.ends.removeTopic(t.TopicName) // a new topic begins at 0
		}
		n.hidden.Store(hide && (old == nil || old.hidden.Load()))
		m[t.TopicName], rows[i] = n, n
	}
	s.topics.Store(&m)
	return rows
}

// putTopic is putTopics of one that nobody waits for.
func (s *state) putTopic(t command.TopicConfig) { s.putTopics([]command.TopicConfig{t}, false) }

// topic is the row of a name, hidden or not; nil: there is none.
func (s *state) topic(name string) *topic { return (*s.topics.Load())[name] }

func (s *state) removeTopic(name string) {
	s.mu.Lock()
	m := s.writableTopics()
	delete(m, name)
	s.topics.Store(&m)
	s.mu.Unlock()
	s.ends.removeTopic(name)
	s.offsets.removeTopic(name)
	s.locks.removeTopic(name)
	s.values.remove(func(k kernel.ValueKey) bool { return k.Topic == name })
	s.fences.remove(func(p progress) bool { return p.topic == name })
}

func (s *state) putGroup(g command.SubscriptionGroupConfig) *command.SubscriptionGroupConfig {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.writableGroups()
	m[g.GroupName] = &g
	s.groups.Store(&m)
	return &g
}

func (s *state) removeGroup(name string, offsets bool) {
	s.mu.Lock()
	m := s.writableGroups()
	delete(m, name)
	s.groups.Store(&m)
	s.mu.Unlock()
	if offsets {
		s.offsets.removeGroup(name)
	}
	s.locks.removeGroup(name)
	s.values.remove(func(k kernel.ValueKey) bool { return k.Group == name && k.Topic != "" })
	s.fences.remove(func(p progress) bool { return p.group == name })
}

func (s *state) versions() [3]command.DataVersion {
	s.mu.Lock()
	defer s.mu.Unlock()
	return [3]command.DataVersion{s.tVersion, s.gVersion, s.oVersion}
}

// bump moves versions for changes that are read back from the log.
func (s *state) bump(topics, groups bool, ms int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if topics {
		nextVersion(&s.tVersion, ms)
	}
	if groups {
		nextVersion(&s.gVersion, ms)
	}
}

func (s *state) setVersions(v [3]command.DataVersion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tVersion, s.gVersion, s.oVersion = v[0], v[1], v[2]
}

// nextVersion is DataVersion.nextVersion: a new time and a higher counter.
func nextVersion(v *command.DataVersion, nowMs int64) {
	v.Timestamp = nowMs
	v.Counter++
}

// sortedTopics lists all topics by name, hidden ones included.
func (s *state) sortedTopics() []*kernel.Topic {
	m := *s.topics.Load()
	out := make([]*kernel.Topic, 0, len(m))
	for _, t := range m {
		out = append(out, &t.Topic)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Config.TopicName < out[j].Config.TopicName })
	return out
}

func (s *state) sortedGroups() []*command.SubscriptionGroupConfig {
	m := *s.groups.Load()
	out := make([]*command.SubscriptionGroupConfig, 0, len(m))
	for _, g := range m {
		out = append(out, g)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].GroupName < out[j].GroupName })
	return out
}

// dump writes the whole state as entries, but for the ends of queues.
func (s *state) dump(w *writer) error {
	v := s.versions()
	w.versions(v[:]...)
	for _, t := range s.sortedTopics() {
		if err := w.json(entryTopic, t.Config); err != nil {
			return err
		}
	}
	for _, g := range s.sortedGroups() {
		if err := w.json(entryGroup, g); err != nil {
			return err
		}
	}
	s.offsets.dump(w)
	s.locks.dump(w)
	s.values.dump(w)
	return nil
}

// progress is a consumer group's in one topic.
type progress struct{ group, topic string }

// offsetTable is consumer progress: group and topic → queue → next offset.
type offsetTable struct {
	mu    sync.RWMutex
	m     map[string]map[string]map[int32]int64 // group, topic, queue
	dirty map[progress]map[int32]struct{}
	// changed counts changes since the file was written.
	changed int
}

func (o *offsetTable) reset() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.m, o.dirty, o.changed = map[string]map[string]map[int32]int64{}, map[progress]map[int32]struct{}{}, 0
}

// replace takes over the table of a private state.
func (o *offsetTable) replace(from *offsetTable, keep bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if keep {
		for p, ids := range o.dirty {
			for id := range ids {
				if v, ok := o.m[p.group][p.topic][id]; ok {
					from.set(p.group, message.Queue{Topic: p.topic, ID: id}, v, true)
				}
			}
		}
	}
	o.m, o.dirty = from.m, from.dirty
	o.changed += from.changed + 1
}

func (o *offsetTable) get(group string, q message.Queue) (int64, bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	v, ok := o.m[group][q.Topic][q.ID]
	return v, ok
}

// set stores a value; mark makes it part of the next record.
func (o *offsetTable) set(group string, q message.Queue, v int64, mark bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	topics := o.m[group]
	if topics == nil {
		topics = map[string]map[int32]int64{}
		o.m[group] = topics
	}
	queues := topics[q.Topic]
	if queues == nil {
		queues = map[int32]int64{}
		topics[q.Topic] = queues
	}
	if old, ok := queues[q.ID]; ok && old == v {
		return
	}
	queues[q.ID] = v
	o.changed++
	if mark {
		p := progress{group, q.Topic}
		if o.dirty[p] == nil {
			o.dirty[p] = map[int32]struct{}{}
		}
		o.dirty[p][q.ID] = struct{}{}
	}
}

func (o *offsetTable) remove(group, topic string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.m[group], topic)
	delete(o.dirty, progress{group, topic})
	o.changed++
}

func (o *offsetTable) removeGroup(group string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.m, group)
	for p := range o.dirty {
		if p.group == group {
			delete(o.dirty, p)
		}
	}
	o.changed++
}

func (o *offsetTable) removeTopic(topic string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, topics := range o.m {
		delete(topics, topic)
	}
	for p := range o.dirty {
		if p.topic == topic {
			delete(o.dirty, p)
		}
	}
	o.changed++
}

// takeDirty returns the entries of what changed since the last call. What leaves waits:
// it goes with its topic or group, or is part of a later record.
func (o *offsetTable) takeDirty(w *writer, leaves func(progress) bool) (keys int, again func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	taken := o.dirty
	o.dirty = map[progress]map[int32]struct{}{}
	for p, ids := range taken {
		if leaves(p) {
			o.dirty[p] = ids
			delete(taken, p)
			continue
		}
		n := make(map[int32]int64, len(ids))
		for id := range ids {
			if v, ok := o.m[p.group][p.topic][id]; ok {
				n[id] = v
			}
		}
		if len(n) > 0 {
			w.numbers(entryOffsets, []string{p.group, p.topic}, n)
			keys += len(n)
		}
	}
	return keys, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		for p, ids := range taken {
			if o.dirty[p] == nil {
				o.dirty[p] = ids
				continue
			}
			for id := range ids {
				o.dirty[p][id] = struct{}{}
			}
		}
	}
}

func (o *offsetTable) dump(w *writer) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	for group, topics := range o.m {
		for topic, n := range topics {
			w.numbers(entryOffsets, []string{group, topic}, n)
		}
	}
}

// all is the table in RocketMQ's shape, "topic@group" first.
func (o *offsetTable) all() map[string]map[int32]int64 {
	o.mu.RLock()
	defer o.mu.RUnlock()
	out := map[string]map[int32]int64{}
	for group, topics := range o.m {
		for topic, n := range topics {
			out[topic+"@"+group] = maps.Clone(n)
		}
	}
	return out
}

func (o *offsetTable) topicsOf(group string) []string {
	o.mu.RLock()
	defer o.mu.RUnlock()
	var out []string
	for t := range o.m[group] {
		out = append(out, t)
	}
	sort.Strings(out)
	return out
}

func (o *offsetTable) groupsIn(topic string) []string {
	o.mu.RLock()
	defer o.mu.RUnlock()
	var out []string
	for g, topics := range o.m {
		if len(topics[topic]) > 0 {
			out = append(out, g)
		}
	}
	sort.Strings(out)
	return out
}
