package admin

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
)

// groups registers what is about consumer groups.
func (a *Admin) groups() {
	a.k.Handle(command.ReqUpdateAndCreateSubscriptionGroup, a.updateGroup)
}

// updateGroup serves UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200): it replaces all of a
// group but its attributes, which are changed one by one.
func (a *Admin) updateGroup(r *kernel.Request) {
	var g command.SubscriptionGroupConfig
	if err := command.DecodeBody(r.Frame.Body, &g); err != nil {
		r.Error(command.RespInvalidParameter, "the body of the request cannot be read: "+err.Error())
		return
	}
	err := a.k.Writable()
	if err == nil {
		err = checkGroup(&g)
	}
	var changed []string
	if err == nil {
		g.Attributes, changed, err = a.groupAttributes(&g)
	}
	ctx, cancel := a.k.Waiting()
	defer cancel()
	if err == nil {
		err = a.k.Groups.Put(ctx, g)
	}
	if err != nil {
		r.Fail(err)
		return
	}
	r.OK()
	for _, name := range changed {
		if f := a.k.Hooks.GroupAttributes()[name].Changed; f != nil {
			f(g.GroupName)
		}
	}
}

// checkGroup refuses what no group may be.
func checkGroup(g *command.SubscriptionGroupConfig) error {
	bad := func(format string, args ...any) error {
		return &api.Error{ID: api.InvalidParameter, Text: fmt.Sprintf(format, args...)}
	}
	if err := message.CheckGroup(g.GroupName); err != nil {
		return bad("%s", err)
	}
	if g.RetryQueueNums < 0 || g.RetryQueueNums > maxQueues {
		return bad("group %s: retryQueueNums %d must be from 0 to %d", g.GroupName, g.RetryQueueNums, maxQueues)
	}
	if g.RetryMaxTimes < -1 {
		return bad("group %s: retryMaxTimes %d must be from -1 (without end)", g.GroupName, g.RetryMaxTimes)
	}
	return nil
}

// groupAttributes applies the changes in g.Attributes ("+key": value, "-key": "") to
// those that the group has, as AttributeUtil.alterCurrentAttributes does. A key
// without sign, which tools send that write back what they read, counts as "+". It
// returns the attributes and the names of those that are others now.
func (a *Admin) groupAttributes(g *command.SubscriptionGroupConfig) (out command.StringMap, changed []string, err error) {
	bad := func(format string, args ...any) (command.StringMap, []string, error) {
		return nil, nil, &api.Error{ID: api.SystemError, Text: fmt.Sprintf("group %s: ", g.GroupName) + fmt.Sprintf(format, args...)}
	}
	out = command.StringMap{}
	old := a.k.Groups.Named(g.GroupName)
	if old != nil {
		maps.Copy(out, old.Attributes)
	}
	named := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(g.Attributes)) {
		value, name, remove := g.Attributes[key], key, false
		if key != "" && (key[0] == '+' || key[0] == '-') {
			name, remove = key[1:], key[0] == '-'
		}
		if named[name] {
			return bad("attribute %.120q is named twice", name)
		}
		named[name] = true
		was, had := out[name]
		if had && was == value && !remove {
			continue
		}
		known, ok := a.k.Hooks.GroupAttributes()[name]
		switch {
		case remove && !had:
			if !ok {
				return bad("unsupported key: %.120q; known attributes are %s", name, strings.Join(slices.Sorted(maps.Keys(a.k.Hooks.GroupAttributes())), ", "))
			}
			continue
		case remove:
			delete(out, name)
		case !ok:
			return bad("unsupported key: %.120q; known attributes are %s", name, strings.Join(slices.Sorted(maps.Keys(a.k.Hooks.GroupAttributes())), ", "))
		default:
			if err := known.Check(value); err != nil {
				return bad("attribute %s: %v", name, err)
			}
			out[name] = value
		}
		changed = append(changed, name)
	}
	return out, changed, nil
}
