package catalog

import (
	"context"
	"fmt"
	"slices"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
)

// Lookup implements kernel.Topics.
func (c *Catalog) Lookup(name []byte) *kernel.Topic {
	return visible((*c.s.topics.Load())[string(name)])
}

// Named implements kernel.Topics.
func (c *Catalog) Named(name string) *kernel.Topic { return visible(c.s.topic(name)) }

func visible(t *topic) *kernel.Topic {
	if t == nil || t.hidden.Load() {
		return nil
	}
	return &t.Topic
}

// AutoCreate implements kernel.Topics by the rules of
// TopicConfigManager.createTopicInSendMessageMethod.
func (c *Catalog) AutoCreate(ctx context.Context, name, template string, queues int32, unit bool) (*kernel.Topic, error) {
	if !c.k.Config().AutoCreateTopic && template == message.AutoCreateTopic {
		return nil, notFound("topic", name)
	}
	from := c.Named(template)
	if from == nil || from.Config.Perm&command.PermInherit == 0 {
		return nil, notFound("topic", name)
	}
	n := max(min(queues, from.Config.WriteQueueNums), 1)
	t := command.TopicConfig{
		TopicName: name, ReadQueueNums: n, WriteQueueNums: n,
		Perm: from.Config.Perm &^ command.PermInherit, TopicFilterType: from.Config.TopicFilterType,
	}
	if unit {
		t.TopicSysFlag = 1
	}
	return c.Ensure(ctx, t)
}

// Ensure implements kernel.Topics.
func (c *Catalog) Ensure(ctx context.Context, t command.TopicConfig) (*kernel.Topic, error) {
	if got := c.Named(t.TopicName); got != nil {
		return got, nil
	}
	got, err := c.ensure(ctx, t)
	if err != nil {
		return nil, err
	}
	c.files.settle(ctx, got)
	return &got.Topic, nil
}

// ensure is Ensure without the files.
func (c *Catalog) ensure(ctx context.Context, t command.TopicConfig) (*topic, error) {
	defer c.lockKey(topicKey(t.TopicName))()
	got := c.s.topic(t.TopicName)
	if got == nil {
		if _, err := c.putTopics(ctx, t); err != nil {
			return nil, err
		}
		got = c.s.topic(t.TopicName)
	}
	if got == nil {
		return nil, &api.Error{ID: api.ServiceNotAvailable, Text: fmt.Sprintf("the topic[%s] was created in an office that is over", t.TopicName)}
	}
	return got, nil
}

// Put implements kernel.Topics. A list that is too long to be stored at once is stored
// in pieces, in its order.
func (c *Catalog) Put(ctx context.Context, ts ...command.TopicConfig) error {
	names := make([]string, len(ts))
	for i, t := range ts {
		names[i] = t.TopicName
	}
	stored, err := func() (int, error) {
		slices.Sort(names) // two lists at once must not wait for each other
		for _, name := range slices.Compact(names) {
			defer c.lockKey(topicKey(name))()
		}
		return c.putTopics(ctx, ts...)
	}()
	if stored == 0 {
		return err
	}
	rows := make([]*topic, 0, stored)
	for _, t := range ts[:stored] {
		if row := c.s.topic(t.TopicName); row != nil {
			rows = append(rows, row)
		}
	}
	c.files.settle(ctx, rows...)
	return err
}

// putTopics is Put without the files; the caller holds the keys. It tells how many of
// them, from the first on, are stored for certain, also with an error.
func (c *Catalog) putTopics(ctx context.Context, ts ...command.TopicConfig) (stored int, err error) {
	w := &writer{}
	for _, t := range ts {
		if err := message.CheckTopic(t.TopicName); err != nil {
			return 0, &api.Error{ID: api.InvalidParameter, Text: err.Error()}
		}
		if message.IsInternal(t.TopicName) {
			return 0, &api.Error{ID: api.InvalidParameter, Text: fmt.Sprintf("the topic[%s] is conflict with system topic", t.TopicName)}
		}
		if t.TopicFilterType == "" {
			t.TopicFilterType = "SINGLE_TAG"
		}
		if err := w.json(entryTopic, t); err != nil {
			return 0, err
		}
	}
	for _, group := range split(w.buf, c.images.groupSize()) {
		if err = c.changeThen(ctx, group, split(group, c.images.partSize()), true, false, func() {}); err != nil {
			break
		}
		_ = entries(group, func(byte, []byte) error { // which were made here
			stored++
			return nil
		})
	}
	for _, t := range ts[:stored] {
		c.k.Hooks.TopicChanged(t.TopicName, false)
	}
	if err != nil && stored > 0 {
		err = fmt.Errorf("%d of %d topics are stored, up to %s; %s and those behind it in the list are not: %w",
			stored, len(ts), ts[stored-1].TopicName, ts[stored].TopicName, err)
	}
	return stored, err
}

// Remove implements kernel.Topics.
func (c *Catalog) Remove(ctx context.Context, name string) error {
	if message.IsSystem(name) {
		return &api.Error{ID: api.InvalidParameter, Text: fmt.Sprintf("the topic[%s] is conflict with system topic", name)}
	}
	err := c.removeTopic(ctx, name)
	if err == nil {
		c.files.settle(ctx)
	}
	return err
}

func (c *Catalog) removeTopic(ctx context.Context, name string) error {
	defer c.lockKey(topicKey(name))()
	if c.s.topic(name) == nil {
		return nil
	}
	w := &writer{}
	w.names(entryTopicRemoved, name)
	if err := c.remove(ctx, topicKey(name), w, true, false); err != nil {
		return err
	}
	c.k.Hooks.TopicChanged(name, true)
	return nil
}

// Touch implements kernel.Topics.
func (c *Catalog) Touch() { c.touch(true, false) }

// All implements kernel.Topics.
func (c *Catalog) All() ([]*kernel.Topic, command.DataVersion) {
	all := c.s.sortedTopics()
	out := all[:0]
	for _, t := range all {
		if !t.Internal {
			out = append(out, t)
		}
	}
	return out, c.s.versions()[0]
}

// groups is the catalog as kernel.Groups.
type groups struct{ c *Catalog }

// Named implements kernel.Groups.
func (g groups) Named(name string) *command.SubscriptionGroupConfig {
	return (*g.c.s.groups.Load())[name]
}

// Ensure implements kernel.Groups.
func (g groups) Ensure(ctx context.Context, name string) (*command.SubscriptionGroupConfig, error) {
	if got := g.Named(name); got != nil {
		return got, nil
	}
	if !g.c.k.Config().AutoCreateGroup {
		return nil, &api.Error{ID: api.GroupNotExist, Text: fmt.Sprintf("subscription group [%s] does not exist, and autoCreateSubscriptionGroup is false", name)}
	}
	defer g.c.lockKey(groupKey(name))()
	if got := g.Named(name); got != nil {
		return got, nil
	}
	fresh := command.DefaultSubscriptionGroup(name)
	if err := g.put(ctx, fresh); err != nil {
		if api.IDOf(err) == api.ServiceNotAvailable {
			// Reading goes on while the disk is full or the broker read-only: the
			// group has its defaults, and is stored when that is possible again.
			return &fresh, nil
		}
		return nil, err
	}
	return g.Named(name), nil
}

// Put implements kernel.Groups.
func (g groups) Put(ctx context.Context, cfg command.SubscriptionGroupConfig) error {
	defer g.c.lockKey(groupKey(cfg.GroupName))()
	return g.put(ctx, cfg)
}

func (g groups) put(ctx context.Context, cfg command.SubscriptionGroupConfig) error {
	if err := message.CheckGroup(cfg.GroupName); err != nil {
		return &api.Error{ID: api.InvalidParameter, Text: err.Error()}
	}
	w := &writer{}
	if err := w.json(entryGroup, cfg); err != nil {
		return err
	}
	return g.c.change(ctx, w, false, true)
}

// Remove implements kernel.Groups.
func (g groups) Remove(ctx context.Context, name string, cleanOffsets bool) error {
	defer g.c.lockKey(groupKey(name))()
	if g.Named(name) == nil && !cleanOffsets {
		return nil
	}
	w := &writer{}
	p := str(nil, name)
	if cleanOffsets {
		p = append(p, 1)
	} else {
		p = append(p, 0)
	}
	w.entry(entryGroupRemoved, p)
	if err := g.c.remove(ctx, groupKey(name), w, false, true); err != nil {
		return err
	}
	g.c.k.Hooks.GroupRemoved(name)
	return nil
}

// All implements kernel.Groups.
func (g groups) All() ([]*command.SubscriptionGroupConfig, command.DataVersion) {
	return g.c.s.sortedGroups(), g.c.s.versions()[1]
}

// offsets is the catalog as kernel.Offsets.
type offsets struct{ c *Catalog }

// Committed implements kernel.Offsets.
func (o offsets) Committed(group string, q message.Queue) (int64, bool) {
	if n, ok := o.c.s.fences.get(group, q); ok {
		return n, true
	}
	return o.c.s.offsets.get(group, q)
}

// Commit implements kernel.Offsets.
func (o offsets) Commit(group string, q message.Queue, offset int64) bool {
	if o.c.s.fences.keeps(group, q, offset) {
		return false
	}
	if o.c.s.topic(q.Topic) == nil {
		return true
	}
	o.c.s.offsets.set(group, q, offset, true)
	// Once more: a removal takes the topic away first, then its progress.
	if o.c.s.topic(q.Topic) == nil {
		o.c.s.offsets.remove(group, q.Topic)
	}
	return true
}

// All implements kernel.Offsets.
func (o offsets) All() (map[string]map[int32]int64, command.DataVersion) {
	return o.c.s.offsets.all(), o.c.s.versions()[2]
}

// Of implements kernel.Offsets.
func (o offsets) Of(group string) []string { return o.c.s.offsets.topicsOf(group) }

// In implements kernel.Offsets.
func (o offsets) In(topic string) []string { return o.c.s.offsets.groupsIn(topic) }
