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
	"github.com/hardpointmq/hardpoint/core/internal/stats"
	"github.com/hardpointmq/hardpoint/core/message"
)

// groups registers what is about consumer groups.
func (a *Admin) groups() {
	k := a.k
	k.Handle(command.ReqUpdateAndCreateSubscriptionGroup, a.timed(stats.Creation{Group: true}, a.updateGroup))
	k.Handle(command.ReqUpdateAndCreateSubscriptionGroupList, a.timed(stats.Creation{Group: true}, a.updateGroups))
	k.Handle(command.ReqGetAllSubscriptionGroupConfig, a.allGroups)
	k.Handle(command.ReqGetSubscriptionGroupConfig, a.groupConfig)
	k.Handle(command.ReqDeleteSubscriptionGroup, a.deleteGroup)
	k.Handle(command.ReqUpdateAndGetGroupForbidden, a.forbidden)
}

// noGroup says that a group is not there, with the code that tools know.
func noGroup(name string) error {
	return &api.Error{ID: api.GroupNotExist, Text: fmt.Sprintf("No group in this broker. group: %s", name)}
}

// allGroups serves GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201).
func (a *Admin) allGroups(r *kernel.Request) {
	all, version := a.k.Groups.All()
	part, asked, err := page(r, all, version)
	if err != nil {
		r.Fail(err)
		return
	}
	out := command.SubscriptionGroupWrapper{DataVersion: version, ForbiddenTable: kernel.ForbiddenTable(a.k.Values), SubscriptionGroupTable: make(map[string]command.SubscriptionGroupConfig, len(part))}
	for _, g := range part {
		out.SubscriptionGroupTable[g.GroupName] = *g
	}
	answerTable(r, out, asked, len(all))
}

// groupConfig serves GET_SUBSCRIPTIONGROUP_CONFIG (352).
func (a *Admin) groupConfig(r *kernel.Request) {
	var h command.GroupRequest
	err := h.Decode(r.Header)
	g := a.k.Groups.Named(h.Group)
	if err == nil && g == nil {
		err = noGroup(h.Group)
	}
	answer(r, g, err)
}

// forbidden serves UPDATE_AND_GET_GROUP_FORBIDDEN (353). The group and the topic need
// not be there: both may be made later, by a client.
func (a *Admin) forbidden(r *kernel.Request) {
	var h command.GroupForbiddenRequest
	err := h.Decode(r.Header)
	for _, check := range []error{message.CheckGroup(h.Group), message.CheckTopic(h.Topic)} {
		if err == nil && check != nil {
			err = &api.Error{ID: api.InvalidParameter, Text: check.Error(), Err: check}
		}
	}
	if err == nil && message.IsInternal(h.Topic) {
		_, err = a.topicNamed(h.Topic)
	}
	key := kernel.ValueKey{Kind: kernel.ValueForbidden, Group: h.Group, Topic: h.Topic}
	bits := kernel.Forbidden(a.k.Values, h.Group, h.Topic)
	if err == nil && h.Update && h.Readable == (bits&kernel.ForbiddenRead != 0) {
		if err = a.k.Writable(); err == nil {
			var v []byte
			if bits ^= kernel.ForbiddenRead; bits != 0 {
				v = strconv.AppendInt(nil, int64(bits), 10)
			}
			ctx, cancel := a.k.Waiting()
			defer cancel()
			err = a.k.Values.PutValue(ctx, key, v)
		}
	}
	answer(r, command.GroupForbidden{Group: h.Group, Topic: h.Topic, Readable: bits&kernel.ForbiddenRead == 0}, err)
}

// deleteGroup serves DELETE_SUBSCRIPTIONGROUP (207). A group that is not there is
// deleted. Without cleanOffset its progress stays, for a group of that name that is
// made again.
func (a *Admin) deleteGroup(r *kernel.Request) {
	var h command.DeleteGroupRequest
	err := h.Decode(r.Header)
	if err == nil && h.GroupName == "" {
		err = &api.Error{ID: api.InvalidParameter, Text: "the name of the group is empty"}
	}
	if err == nil {
		err = a.k.Writable()
	}
	ctx, cancel := a.k.Waiting()
	defer cancel()
	if err == nil {
		err = a.k.Groups.Remove(ctx, h.GroupName, h.CleanOffset)
	}
	if err != nil {
		r.Fail(err)
		return
	}
	r.OK()
}

// updateGroup serves UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200): it replaces all of a
// group but its attributes, which are changed one by one.
func (a *Admin) updateGroup(r *kernel.Request) {
	g := make([]command.SubscriptionGroupConfig, 1)
	a.putGroups(r, g, command.DecodeBody(r.Frame.Body, &g[0]))
}

// updateGroups serves UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225): all are checked
// before the first is stored.
func (a *Admin) updateGroups(r *kernel.Request) {
	var list command.SubscriptionGroupList
	err := command.DecodeBody(r.Frame.Body, &list)
	a.putGroups(r, list.Groups, err)
}

// putGroups stores groups; err is what reading them said.
func (a *Admin) putGroups(r *kernel.Request, groups []command.SubscriptionGroupConfig, err error) {
	if err != nil {
		err = badBody(err)
	} else {
		err = a.k.Writable()
	}
	changed := make([][]string, len(groups))
	for i := range groups {
		g := &groups[i]
		if err == nil {
			err = checkGroup(g)
		}
		if err == nil {
			g.Attributes, changed[i], err = a.groupAttributes(g)
		}
	}
	ctx, cancel := a.k.Waiting()
	defer cancel()
	for _, g := range groups {
		if err == nil {
			err = a.k.Groups.Put(ctx, g)
		}
	}
	if err != nil {
		r.Fail(err)
		return
	}
	r.OK()
	for i := range groups {
		for _, name := range changed[i] {
			if f := a.k.Hooks.GroupAttributes()[name].Changed; f != nil {
				f(groups[i].GroupName)
			}
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
