package catalog

import (
	"errors"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
)

// parseModes replaces the request modes by those of messageRequestMode.json, or
// changes nothing. What Apache's broker has no field for, allocator and weights,
// stays as it is for a group that the file still names: Apache's broker drops what
// it does not know whenever it writes the file.
func (f *files) parseModes(b []byte) error {
	var w command.MessageRequestModes
	if err := command.DecodeBody(b, &w); err != nil {
		return err
	}
	if w.Modes == nil {
		return errors.New("no messageRequestModeMap")
	}
	old := kernel.RequestModes(f.c)
	fresh := map[kernel.ValueKey][]byte{}
	for topic, groups := range w.Modes {
		for group, m := range groups {
			if topic == "" || group == "" {
				continue
			}
			m.Topic, m.ConsumerGroup = topic, group
			if m.Mode == "" {
				m.Mode = command.ModePull // RocketMQ's default
			}
			if had := old.Modes[topic][group]; m.Allocator == "" && m.Weights == "" {
				m.Allocator, m.Weights = had.Allocator, had.Weights
			}
			v, err := command.EncodeBody(m)
			if err != nil {
				return err
			}
			fresh[kernel.ValueKey{Kind: kernel.ValueRequestMode, Group: group, Topic: topic}] = v
		}
	}
	t := &f.c.s.values
	t.remove(func(k kernel.ValueKey) bool { return k.Kind == kernel.ValueRequestMode })
	for k, v := range fresh {
		t.put(k, v)
	}
	return nil
}

// warnOfPop names the groups that another broker served by POP.
func (f *files) warnOfPop(path string) {
	for topic, groups := range kernel.RequestModes(f.c).Modes {
		for group, m := range groups {
			if m.Mode == command.ModePop {
				f.c.k.Log.Warn("a group has the request mode POP, which this broker does not serve yet: its members pull", "group", group, "topic", topic, "file", path)
			}
		}
	}
}
