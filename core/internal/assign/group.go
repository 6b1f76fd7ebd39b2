package assign

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
)

// table is an assignment; immutable.
type table struct {
	command.GroupAssignment
	// stamp tells it from all others of the topic, those of other brokers, too.
	stamp string
}

func newTable(g command.GroupAssignment) *table {
	t := &table{GroupAssignment: g}
	b, err := json.Marshal(g)
	if err != nil {
		b = nil // there is nothing in it that cannot be written
	}
	sum := sha256.Sum256(b)
	t.stamp = fmt.Sprintf("%d-%s", g.Generation, hex.EncodeToString(sum[:8]))
	return t
}

// of is what a client has; nil: it is not in the table.
func (t *table) of(topic, id string) []command.MessageQueueAssignment {
	brokers, ok := t.Owners[id]
	if !ok {
		return nil
	}
	out := []command.MessageQueueAssignment{}
	for broker, ids := range brokers {
		for _, n := range ids {
			out = append(out, pulled(topic, broker, n))
		}
	}
	slices.SortFunc(out, func(a, b command.MessageQueueAssignment) int {
		if c := strings.Compare(a.MessageQueue.BrokerName, b.MessageQueue.BrokerName); c != 0 {
			return c
		}
		return int(a.MessageQueue.QueueID - b.MessageQueue.QueueID)
	})
	return out
}

// group is what this broker remembers of a group's assignments.
type group struct {
	mu         sync.Mutex
	generation uint64
	shares     map[string]*share // by topic
}

func (g *group) forget(topic string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.shares, topic)
}

// next is a new generation.
func (g *group) next() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.generation++
	return g.generation
}

// seen notes a generation from elsewhere: the next one is later.
func (g *group) seen(n uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.generation = max(g.generation, n)
}

// share is a group's assignment of a topic.
type share struct {
	group, topic string
	of           *group

	// computing is held while the allocator works: who comes meanwhile gets the
	// same answer.
	computing sync.Mutex
	// done is the last result of each allocator, for groups whose members have
	// different strategies. Guarded by computing.
	done map[string]*result

	mu      sync.Mutex
	present *table // the last one, from here or from the owner
	learned int    // how often it came from the owner
	saved   string // the stamp of what the catalog holds
	saving  sync.Mutex
}

// result is what an allocator said, and to what.
type result struct {
	inputs  string
	learned int // of the share then: what another broker said since is newer
	table   *table
	// Of an allocator that failed: it is not asked the same again until then.
	failed string
	quiet  time.Time
	err    error
}

// maxStrategies bounds share.done.
const maxStrategies = 16

// share returns the share of a group in a topic, with what the catalog holds.
func (a *Assign) share(name, topic string) *share {
	a.mu.Lock()
	g := a.groups[name]
	if g == nil {
		g = &group{shares: map[string]*share{}}
		a.groups[name] = g
	}
	a.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.shares[topic]
	if s == nil {
		s = &share{group: name, topic: topic, of: g, done: map[string]*result{}}
		if v := a.k.Values.Value(s.key()); v != nil {
			var c command.GroupAssignment
			if err := json.Unmarshal(v, &c); err != nil {
				a.k.Log.Error("the last assignment of a group cannot be read; its queues are shared anew", "group", name, "topic", topic, "error", err)
			} else {
				s.present = newTable(c)
				s.saved = s.present.stamp
				g.generation = max(g.generation, c.Generation)
			}
		}
		g.shares[topic] = s
	}
	return s
}

func (s *share) key() kernel.ValueKey {
	return kernel.ValueKey{Kind: kindAssignment, Group: s.group, Topic: s.topic}
}

// last is the assignment in force and how often it came from elsewhere; of no
// share there is none.
func (s *share) last() (*table, int) {
	if s == nil {
		return nil, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.present, s.learned
}

func (s *share) set(t *table) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.present = t
}

// learn takes over what the owner said.
func (s *share) learn(g *command.GroupAssignment) {
	s.of.seen(g.Generation)
	t := newTable(*g)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.present = t
	s.learned++
}

// remembered is the share of a group that is one: anybody can ask for any name.
func (a *Assign) remembered(name, topic string) *share {
	if a.k.Groups.Named(name) == nil && len(a.p.Clients.Members(name)) == 0 {
		return nil
	}
	return a.share(name, topic)
}

// save brings a new assignment into the catalog. Nobody waits for it: if it does
// not get there, a restarted broker goes by the one before.
func (a *Assign) save(q *question) {
	s := q.computed
	if s == nil {
		return
	}
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	t, saved := s.present, s.saved
	s.mu.Unlock()
	if t == nil || t.stamp == saved || a.k.Writable() != nil {
		return
	}
	body, err := command.EncodeBody(t.GroupAssignment)
	if err == nil {
		ctx, cancel := a.k.Waiting()
		defer cancel()
		err = a.k.Values.PutValue(ctx, s.key(), body)
	}
	if err != nil {
		if n := a.unsaved.Due(a.k.Clock.Now()); n > 0 {
			a.k.Log.Warn("the assignment of a group did not reach the log; it holds as long as the broker runs", "group", s.group, "topic", s.topic, "error", err, "such_since_last_said", n)
		}
		return
	}
	s.mu.Lock()
	s.saved = t.stamp
	s.mu.Unlock()
}

// assigned returns the present assignment, made anew if need be. nil: there is
// none, and note says why.
func (a *Assign) assigned(ctx context.Context, q *question, r *route) (*share, *table, string) {
	set := a.setting(q.ConsumerGroup, q.Topic)
	members := a.members(q.ConsumerGroup, set.Weights)
	if len(members) == 0 {
		return nil, nil, fmt.Sprintf("group %s has no member that this broker knows", q.ConsumerGroup)
	}
	name := pluginName(set.Allocator)
	if name == "" {
		name = pluginName(q.StrategyName)
	}
	inst, err := a.p.Allocator(ctx, name)
	if errors.Is(err, ErrUnknown) {
		return nil, nil, fmt.Sprintf("strategy %.120q: %v", name, err)
	}
	s := a.share(q.ConsumerGroup, q.Topic)
	s.computing.Lock()
	defer s.computing.Unlock()
	res := s.done[name]
	if res == nil {
		if len(s.done) >= maxStrategies {
			clear(s.done)
		}
		res = &result{}
		s.done[name] = res
	}
	now := a.k.Clock.Now()
	inputs := fingerprint(r.queues, members, name, inst.Version)
	last, learned := s.last()
	switch {
	case err == nil && res.table != nil && res.inputs == inputs && res.learned == learned:
		return s, res.table, ""
	case res.failed == inputs && now.Before(res.quiet):
		err = res.err
	case err == nil:
		req := request(q.ConsumerGroup, s.of.next(), r.queues, members, last)
		var made allocate.Assignment
		if made, err = a.allocated(ctx, name, inst, req); err == nil {
			t := tabulate(req, made, name, inst.Version)
			*res = result{inputs: inputs, learned: learned, table: t}
			s.set(t)
			a.tell(req, made, t)
			return s, t, ""
		}
		fallthrough
	default:
		res.failed, res.quiet, res.err = inputs, now.Add(retryAfter), err
	}
	if n := a.failed.Due(now); n > 0 {
		a.k.Log.Warn("an allocator failed; the last assignment stays", "allocator", name, "group", q.ConsumerGroup, "topic", q.Topic, "has_last", last != nil, "error", err, "such_since_last_said", n)
	}
	if last == nil {
		return nil, nil, fmt.Sprintf("allocator %s: %v", name, err)
	}
	return s, last, fmt.Sprintf("allocator %s failed (%v); this is the assignment of generation %d", name, err, last.Generation)
}

// tell says what a new generation changed: who has which queue is the first
// question when a group is stuck.
func (a *Assign) tell(r *allocate.Request, made allocate.Assignment, t *table) {
	moved, unowned := 0, 0
	for i := range r.Members {
		for _, q := range r.Members[i].Owned {
			if o := made.Owner[q]; o != i && o >= 0 {
				moved++
			}
		}
	}
	for _, o := range made.Owner {
		if o < 0 {
			unowned++
		}
	}
	a.generations.Add(1)
	a.moves.Add(uint64(moved))
	topic := ""
	if len(r.Queues) > 0 {
		topic = r.Queues[0].Topic
	}
	a.k.Log.Info("the queues of a group are shared anew", "group", r.Group, "topic", topic, "generation", t.Generation, "allocator", t.Allocator,
		"members", len(r.Members), "queues", len(r.Queues), "moved", moved, "without_owner", unowned)
}

// members are the members that send heartbeats here, sorted by client id.
func (a *Assign) members(group, weights string) []allocate.Member {
	rules, err := parseWeights(weights)
	if err != nil {
		if n := a.refused.Due(a.k.Clock.Now()); n > 0 {
			a.k.Log.Warn("the weights of a group cannot be read; all members weigh 1", "group", group, "error", err, "such_since_last_said", n)
		}
	}
	all := a.p.Clients.Members(group)
	out := make([]allocate.Member, len(all))
	for i, m := range all {
		out[i] = allocate.Member{ClientID: m.ClientID, Zone: m.Zone, Weight: weightOf(rules, m.ClientID)}
	}
	return out
}

// fingerprint is the same for the same inputs of an allocation. It is taken for each
// question, thousands a second in a large group that is asked to share anew.
func fingerprint(queues []allocate.Queue, members []allocate.Member, name, version string) string {
	size := len(name) + len(version) + 64
	for i := range queues {
		size += len(queues[i].Broker) + len(queues[i].Zone) + 16
	}
	for i := range members {
		size += len(members[i].ClientID) + len(members[i].Zone) + 16
	}
	b := make([]byte, 0, size)
	text := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	text(name)
	text(version)
	b = binary.AppendUvarint(b, uint64(len(queues)))
	for i := range queues {
		q := &queues[i]
		text(q.Broker)
		text(q.Zone)
		b = binary.AppendVarint(b, int64(q.ID))
	}
	for i := range members {
		m := &members[i]
		text(m.ClientID)
		text(m.Zone)
		b = binary.AppendUvarint(b, uint64(m.Weight))
	}
	sum := sha256.Sum256(b)
	return string(sum[:])
}

// request is the question to the allocator, with what members have now.
func request(group string, generation uint64, queues []allocate.Queue, members []allocate.Member, now *table) *allocate.Request {
	r := &allocate.Request{Group: group, Generation: generation, Queues: queues, Members: slices.Clone(members)}
	if now == nil {
		return r
	}
	at := make(map[command.MessageQueue]int, len(queues))
	for i, q := range queues {
		at[command.MessageQueue{BrokerName: q.Broker, QueueID: q.ID}] = i
	}
	for i := range r.Members {
		m := &r.Members[i]
		for broker, ids := range now.Owners[m.ClientID] {
			for _, id := range ids {
				if n, ok := at[command.MessageQueue{BrokerName: broker, QueueID: id}]; ok {
					m.Owned = append(m.Owned, n)
				}
			}
		}
		slices.Sort(m.Owned)
	}
	return r
}

// allocated asks the allocator and checks what it says: it may be anybody's. One
// that does not look at its context is left behind when the time is over; while some
// calls of it are, it is not asked.
func (a *Assign) allocated(ctx context.Context, name string, inst Instance, r *allocate.Request) (allocate.Assignment, error) {
	a.mu.Lock()
	lost := a.lost[name]
	a.mu.Unlock()
	if lost >= maxLost {
		return allocate.Assignment{}, fmt.Errorf("%d calls of it have not come back yet; it is not asked before one does", lost)
	}
	ctx, cancel := context.WithTimeout(ctx, allocateWait)
	type answer struct {
		made allocate.Assignment
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		defer cancel()
		defer func() {
			if p := recover(); p != nil { // the stack is for who runs the broker, not for its clients
				if n := a.panicked.Due(a.k.Clock.Now()); n > 0 {
					a.k.Log.Error("an allocator panicked", "allocator", name, "group", r.Group, "panic", p, "stack", string(debug.Stack()), "such_since_last_said", n)
				}
				done <- answer{err: fmt.Errorf("it panicked: %v", p)}
			}
		}()
		made, err := inst.Plugin.Allocate(ctx, r)
		if err == nil {
			err = made.Check(r)
		}
		done <- answer{made, err}
	}()
	select {
	case one := <-done:
		return one.made, one.err
	case <-ctx.Done():
	}
	// What looks at its context says so at once, and better.
	timer := a.k.Clock.NewTimer(answerGrace)
	defer timer.Stop()
	select {
	case one := <-done:
		if one.err != nil {
			one.err = fmt.Errorf("it has not answered for %v: %w", allocateWait, one.err)
		}
		return one.made, one.err
	case <-timer.C():
	}
	a.mu.Lock()
	a.lost[name]++
	a.mu.Unlock()
	go func() {
		<-done
		a.mu.Lock()
		defer a.mu.Unlock()
		a.lost[name]--
	}()
	return allocate.Assignment{}, fmt.Errorf("it has not answered for %v", allocateWait)
}

func tabulate(r *allocate.Request, made allocate.Assignment, name, version string) *table {
	g := command.GroupAssignment{Generation: r.Generation, Allocator: name, Version: version, Owners: make(map[string]map[string][]int32, len(r.Members))}
	for i := range r.Members {
		g.Owners[r.Members[i].ClientID] = map[string][]int32{}
	}
	for i, o := range made.Owner {
		if o >= 0 {
			q, of := r.Queues[i], g.Owners[r.Members[o].ClientID]
			of[q.Broker] = append(of[q.Broker], q.ID)
		}
	}
	return newTable(g)
}
