package assign

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
)

// maxPlanMembers bounds what a plan may ask for.
const maxPlanMembers = 10_000

// plan says what an allocator would do, and changes nothing.
func (a *Assign) plan(ctx context.Context, q *question, r *route) (*command.AssignmentPlan, error) {
	bad := func(format string, args ...any) error {
		return &api.Error{ID: api.InvalidParameter, Text: fmt.Sprintf(format, args...)}
	}
	set := a.set(q.ConsumerGroup, q.Topic)
	if q.Plan.Unset {
		set = command.SetMessageRequestModeBody{}
	}
	set.Allocator, set.Weights = cmp.Or(q.Plan.Allocator, set.Allocator), cmp.Or(q.Plan.Weights, set.Weights)
	set = a.completed(q.ConsumerGroup, set)
	name := pluginName(cmp.Or(set.Allocator, q.StrategyName))
	inst, err := a.p.Allocator(ctx, name)
	if err != nil {
		return nil, bad("allocator %q: %v", name, err)
	}
	if _, err := parseWeights(q.Plan.Weights); err != nil {
		return nil, bad("%v", err)
	}
	members, err := a.planned(q, set.Weights)
	if err != nil {
		return nil, err
	}
	present, _ := a.remembered(q.ConsumerGroup, q.Topic).last()
	p := &command.AssignmentPlan{
		Broker: a.k.Config().BrokerName, Group: q.ConsumerGroup, Topic: q.Topic, Allocator: name, Version: inst.Version,
		Brokers: make([]command.PlanBroker, len(r.brokers)), Members: make([]command.PlanMember, len(members)), Queues: make([]command.PlanQueue, len(r.queues)),
	}
	generation := uint64(1)
	if present != nil {
		p.Generation, p.Present = present.Generation, present.Allocator
		generation = present.Generation + 1
	}
	for i, b := range r.brokers {
		p.Brokers[i] = command.PlanBroker{BrokerName: b.name, Address: b.address}
	}
	made := allocate.Assignment{Owner: slices.Repeat([]int{-1}, len(r.queues))} // of a group without members
	if len(members) > 0 {
		req := request(q.ConsumerGroup, generation, r.queues, members, present)
		if made, err = a.allocated(ctx, name, inst, req); err != nil {
			return nil, &api.Error{ID: api.ServiceNotAvailable, Text: "allocator " + name, Err: err}
		}
	}
	place := make(map[string]int, len(members))
	for i, m := range members {
		place[m.ClientID] = i
		p.Members[i] = command.PlanMember{ClientID: m.ClientID, Zone: m.Zone, Weight: max(m.Weight, 1)}
	}
	from := owners(present)
	for i, x := range r.queues {
		pq := command.PlanQueue{BrokerName: x.Broker, QueueID: x.ID, Zone: x.Zone, From: from[command.MessageQueue{BrokerName: x.Broker, QueueID: x.ID}]}
		if o := made.Owner[i]; o >= 0 {
			pq.To = members[o].ClientID
			p.Members[o].After++
		} else {
			p.Unowned++
		}
		if len(made.Why) > 0 {
			pq.Why = cleaned(made.Why[i])
		} else if len(members) > 0 {
			_, there := place[pq.From]
			pq.Why = why(name, &pq, there)
		}
		if pq.From != "" && pq.To != "" && pq.From != pq.To {
			p.Moved++
		}
		if m, ok := place[pq.From]; ok {
			p.Members[m].Before++
		}
		p.Queues[i] = pq
	}
	return p, nil
}

// why says why a queue goes where it does, for allocators that do not; there:
// whoever has it is a member.
func why(allocator string, q *command.PlanQueue, there bool) string {
	switch {
	case q.To == "":
		return allocator + " gives it to nobody"
	case q.From == "":
		return "had no owner"
	case q.From == q.To:
		return "kept"
	case !there:
		return "moved: " + q.From + " is no member"
	}
	return "moved: " + allocator + " gives it to another member"
}

// maxWhy bounds what an allocator says of a queue, in characters.
const maxWhy = 200

// cleaned is a text of an allocator that cannot harm a terminal.
func cleaned(s string) string {
	if len(s) > 4*maxWhy {
		s = s[:4*maxWhy]
	}
	out := []rune(s) // what is no UTF-8 becomes U+FFFD
	if len(out) > maxWhy {
		out = out[:maxWhy]
	}
	for i, r := range out {
		if unicode.IsControl(r) {
			out[i] = ' '
		}
	}
	return string(out)
}

// owners is who has each queue.
func owners(t *table) map[command.MessageQueue]string {
	out := map[command.MessageQueue]string{}
	if t == nil {
		return out
	}
	for id, brokers := range t.Owners {
		for broker, ids := range brokers {
			for _, n := range ids {
				out[command.MessageQueue{BrokerName: broker, QueueID: n}] = id
			}
		}
	}
	return out
}

// planned are the members of a plan.
func (a *Assign) planned(q *question, weights string) ([]allocate.Member, error) {
	if q.Plan.Members == nil {
		return a.members(q.ConsumerGroup, weights), nil
	}
	if len(q.Plan.Members) > maxPlanMembers {
		return nil, &api.Error{ID: api.InvalidParameter, Text: fmt.Sprintf("%d members are more than the %d that a plan may have", len(q.Plan.Members), maxPlanMembers)}
	}
	rules, err := parseWeights(weights)
	if err != nil {
		return nil, &api.Error{ID: api.InvalidParameter, Text: "group " + q.ConsumerGroup, Err: err}
	}
	out := make([]allocate.Member, len(q.Plan.Members))
	for i, m := range q.Plan.Members {
		out[i] = allocate.Member{ClientID: m.ClientID, Zone: m.Zone, Weight: m.Weight}
		if m.Weight == 0 {
			out[i].Weight = weightOf(rules, m.ClientID)
		}
	}
	slices.SortFunc(out, func(x, y allocate.Member) int { return strings.Compare(x.ClientID, y.ClientID) })
	return out, nil
}
