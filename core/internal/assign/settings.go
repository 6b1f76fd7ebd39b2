package assign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hardpointmq/hardpoint/core/allocate/allocatekit"
	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
)

// Attributes of subscription groups.
const (
	// AttrAllocator is the name of the group's allocator.
	AttrAllocator = "allocator"
	// AttrWeights gives members weights by client id: "PATTERN=WEIGHT;…", the
	// first pattern that matches counts, others weigh 1.
	AttrWeights = "allocator.weights"
)

// kindAssignment is the kind of the catalog's values that are the last assignments.
const kindAssignment = "assignment"

// strategies are the names that clients' strategies have.
var strategies = map[string]string{
	"AVG": "averagely", "AVG_BY_CIRCLE": "circle", "CONSISTENT_HASH": "consistenthash",
	"MACHINE_ROOM": "machineroom", "CONFIG": "config",
}

// pluginName is the allocator of a strategy, or of its own name.
func pluginName(strategy string) string {
	if name, ok := strategies[strategy]; ok {
		return name
	}
	return strategy
}

// set is what SET_MESSAGE_REQUEST_MODE said of the group in the topic; the zero value:
// nothing.
func (a *Assign) set(group, topic string) (s command.SetMessageRequestModeBody) {
	if v := a.k.Values.Value(kernel.ValueKey{Kind: kernel.ValueRequestMode, Group: group, Topic: topic}); v != nil {
		if err := json.Unmarshal(v, &s); err != nil {
			a.k.Log.Error("the request mode of a group cannot be read and is taken for unset", "group", group, "topic", topic, "error", err)
			s = command.SetMessageRequestModeBody{}
		}
	}
	return s
}

// completed fills what a setting leaves open by the attributes of the group.
func (a *Assign) completed(group string, s command.SetMessageRequestModeBody) command.SetMessageRequestModeBody {
	if g := a.k.Groups.Named(group); g != nil {
		if s.Allocator == "" {
			s.Allocator = g.Attributes[AttrAllocator]
		}
		if s.Weights == "" {
			s.Weights = g.Attributes[AttrWeights]
		}
	}
	return s
}

// setting is what the group says of a topic; the zero value when it says nothing.
func (a *Assign) setting(group, topic string) command.SetMessageRequestModeBody {
	return a.completed(group, a.set(group, topic))
}

// serveAttributes registers the attributes of groups.
func (a *Assign) serveAttributes() {
	changed := func(group string) { a.p.Clients.Notify(group) }
	a.k.Hooks.OnGroupAttribute(AttrAllocator, kernel.GroupAttribute{Check: a.known, Changed: changed})
	a.k.Hooks.OnGroupAttribute(AttrWeights, kernel.GroupAttribute{Changed: changed, Check: func(text string) error {
		_, err := parseWeights(text)
		return err
	}})
}

// known is nil for an allocator that this broker has, whether or not it works now.
func (a *Assign) known(name string) error {
	now, cancel := context.WithCancel(context.Background())
	cancel() // nobody waits until it is started
	if _, err := a.p.Allocator(now, pluginName(name)); errors.Is(err, ErrUnknown) {
		return err
	}
	return nil
}

// setMode serves SET_MESSAGE_REQUEST_MODE (401).
func (a *Assign) setMode(r *kernel.Request) {
	var q command.SetMessageRequestModeBody
	if err := command.DecodeBody(r.Frame.Body, &q); err != nil {
		r.Error(command.RespInvalidParameter, "the body of the request cannot be read: "+err.Error())
		return
	}
	switch t := a.k.Topics.Named(q.Topic); {
	case strings.HasPrefix(q.Topic, message.RetryPrefix):
		r.Error(command.RespNoPermission, "retry topic is not allowed to set mode")
		return
	case t == nil || t.Internal:
		r.Error(command.RespTopicNotExist, fmt.Sprintf("topic[%s] not exist", q.Topic))
		return
	case a.k.Groups.Named(q.ConsumerGroup) == nil:
		r.Error(command.RespSubscriptionGroupNotExist, fmt.Sprintf("subscription group [%s] does not exist", q.ConsumerGroup))
		return
	}
	err := a.check(&q)
	if err == nil {
		err = a.k.Writable()
	}
	if err != nil {
		r.Fail(err)
		return
	}
	body, err := command.EncodeBody(q)
	if err != nil {
		r.Fail(err)
		return
	}
	ctx, cancel := a.k.Waiting()
	defer cancel()
	if err := a.k.Values.PutValue(ctx, kernel.ValueKey{Kind: kernel.ValueRequestMode, Group: q.ConsumerGroup, Topic: q.Topic}, body); err != nil {
		r.Fail(err)
		return
	}
	r.OK()
	a.p.Clients.Notify(q.ConsumerGroup)
}

// check refuses a setting that could not be followed.
func (a *Assign) check(q *command.SetMessageRequestModeBody) error {
	switch q.Mode {
	case command.ModePull:
	case command.ModePop:
		return &api.Error{ID: api.SystemError, Text: fmt.Sprintf("mode POP for group %s: this broker serves no POP; set the mode to PULL", q.ConsumerGroup)}
	default:
		return &api.Error{ID: api.InvalidParameter, Text: fmt.Sprintf("the request for group %s has no mode: set PULL", q.ConsumerGroup)}
	}
	if q.Allocator != "" {
		if err := a.known(q.Allocator); err != nil {
			return &api.Error{ID: api.InvalidParameter, Text: "group " + q.ConsumerGroup, Err: err}
		}
	}
	if _, err := parseWeights(q.Weights); err != nil {
		return &api.Error{ID: api.InvalidParameter, Text: "group " + q.ConsumerGroup, Err: err}
	}
	return nil
}

// allModes serves GET_ALL_MESSAGE_REQUEST_MODE (402).
func (a *Assign) allModes(r *kernel.Request) {
	body, err := command.EncodeBody(kernel.RequestModes(a.k.Values))
	if err != nil {
		r.Fail(err)
		return
	}
	r.JSON(body)
}

// weight is one rule of AttrWeights.
type weight struct {
	pattern string
	weight  uint32
}

// What weights may have: each member is held against each rule whenever its group
// changes.
const mostWeights, longestWeights = 500, 64 << 10 // rules, bytes

// parseWeights reads AttrWeights.
func parseWeights(text string) ([]weight, error) {
	var out []weight
	if n := len(text); n > longestWeights {
		return nil, fmt.Errorf("weights: %d bytes are too long, at most %d are allowed; use fewer rules, with patterns such as big-*", n, longestWeights)
	}
	for part := range strings.SplitSeq(text, ";") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		// Client ids may hold a "=", weights do not.
		i := strings.LastIndexByte(part, '=')
		pattern, number := part, ""
		if i >= 0 {
			pattern, number = part[:i], part[i+1:]
		}
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil || n == 0 || allocatekit.CheckPattern(pattern) != nil {
			return nil, fmt.Errorf("weights: %.120q must be PATTERN=WEIGHT, with a pattern of client ids such as big-* and a weight from 1 on, separated by ;", part)
		}
		if len(out) == mostWeights {
			return nil, fmt.Errorf("weights: there are more than %d rules; use fewer, with patterns such as big-*", mostWeights)
		}
		out = append(out, weight{pattern, uint32(n)})
	}
	return out, nil
}

// weightOf is the weight of a client id.
func weightOf(rules []weight, id string) uint32 {
	i := slices.IndexFunc(rules, func(w weight) bool { return allocatekit.Match(w.pattern, id) })
	if i < 0 {
		return 1
	}
	return rules[i].weight
}
