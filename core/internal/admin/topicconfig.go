package admin

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
)

// maxQueues bounds the queues of a topic: each is a file that stays open.
const maxQueues = 8192

// Check refuses what no topic may be.
func Check(t *command.TopicConfig) error {
	bad := func(format string, args ...any) error {
		return &api.Error{ID: api.InvalidParameter, Text: fmt.Sprintf(format, args...)}
	}
	if err := message.CheckTopic(t.TopicName); err != nil {
		return bad("%s", err)
	}
	if message.IsSystem(t.TopicName) {
		return bad("the topic[%s] is conflict with system topic", t.TopicName)
	}
	if t.ReadQueueNums < 1 || t.ReadQueueNums > maxQueues || t.WriteQueueNums < 1 || t.WriteQueueNums > maxQueues {
		return bad("topic %s: readQueueNums %d and writeQueueNums %d must be from 1 to %d", t.TopicName, t.ReadQueueNums, t.WriteQueueNums, maxQueues)
	}
	switch t.TopicFilterType {
	case "", "SINGLE_TAG", "MULTI_TAG":
	default:
		return bad("topic %s: topicFilterType %.40q must be SINGLE_TAG or MULTI_TAG", t.TopicName, t.TopicFilterType)
	}
	if t.Perm < 0 || t.Perm > 7 {
		return bad("topic %s: perm %d must be from 0 to 7 (4 read, 2 write, 1 inherit)", t.TopicName, t.Perm)
	}
	for k, v := range t.Attributes {
		if err := checkAttribute(k, v); err != nil {
			return err
		}
	}
	return nil
}

// known are the attributes of topics and the values that mean something here;
// nil: a number. What is not served must not look as if it were.
var known = map[string][]string{
	"message.type":   {"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION"},
	"queue.type":     {"SimpleCQ"},
	"cleanup.policy": {"DELETE"},
	"reserve.time":   nil,
}

// checkAttribute refuses what the reference refuses, and the kinds of topics
// that this broker does not have.
func checkAttribute(key, value string) error {
	values, ok := known[key]
	if !ok {
		return &api.Error{ID: api.SystemError, Text: fmt.Sprintf("unsupported key: %q; known attributes are %s", key, strings.Join(slices.Sorted(maps.Keys(known)), ", "))}
	}
	if values == nil {
		if n, err := strconv.ParseInt(value, 10, 64); err != nil || n < -1 {
			return &api.Error{ID: api.SystemError, Text: fmt.Sprintf("attribute %s=%q: allowed are numbers from -1", key, value)}
		}
		return nil
	}
	if !slices.Contains(values, value) {
		return &api.Error{ID: api.SystemError, Text: fmt.Sprintf("attribute %s=%q: this broker serves %s", key, value, strings.Join(values, ", "))}
	}
	return nil
}

// attributes applies "+key=value,-key" to those that the topic has.
func attributes(change string, old *kernel.Topic) (command.StringMap, error) {
	out := command.StringMap{}
	if old != nil {
		for k, v := range old.Config.Attributes {
			out[k] = v
		}
	}
	for part := range strings.SplitSeq(change, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		key, value, ok := strings.Cut(part[1:], "=")
		switch {
		case part[0] == '+' && ok && key != "":
			if err := checkAttribute(key, value); err != nil {
				return nil, err
			}
			out[key] = value
		case part[0] == '-' && !ok && key != "":
			if old == nil {
				return nil, &api.Error{ID: api.SystemError, Text: fmt.Sprintf("only add attribute is supported while creating topic. key: %s", key)}
			}
			delete(out, key)
		default:
			return nil, &api.Error{ID: api.SystemError, Text: fmt.Sprintf("attribute change %q is neither +key=value nor -key", part)}
		}
	}
	return out, nil
}
