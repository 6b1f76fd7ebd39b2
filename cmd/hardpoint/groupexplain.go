package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/internal/adminclient"
	"github.com/hardpointmq/hardpoint/internal/suggest"
)

// groupView is what `group show` prints as JSON.
type groupView struct {
	*groupFacts
	Failures []adminclient.Failure `json:"failures,omitempty"`
}

func (p *program) groupShow() *cobra.Command {
	var out output
	var at adminFlags
	c := &cobra.Command{
		Use: "show GROUP", Short: "Show a consumer group: its form, members and subscriptions",
		Long: "Shows how each broker has a group, which clients are members, and what they subscribe. How far it is: offset show; why it\ngets nothing: group explain.",
		Args: exactly("GROUP"), ValidArgsFunction: at.completeArgs(groupNames),
		RunE: func(c *cobra.Command, args []string) error {
			return at.with(c.Context(), func(ctx context.Context, c *adminclient.Client) error {
				f, err := gatherGroup(ctx, c, at.Selection, args[0], asking{})
				if f == nil {
					return err
				}
				v := groupView{f, adminclient.FailuresOf(err)}
				return p.showPart(&out, v, f.tell, err)
			})
		},
	}
	at.registerWith(c, &out)
	return c
}

func (f *groupFacts) tell(g *page) {
	g.line("group\t%s", orDash(f.Group))
	if len(f.Members) > 0 {
		g.line("consumes\t%s, %s, a new group from %s", orDash(string(f.ConsumeType)), orDash(string(f.MessageModel)), orDash(string(f.From)))
	}
	g.part()
	g.row("BROKER", "ADDRESS", "HAS IT", "CONSUME", "BROADCAST", "ORDER", "RETRIES", "ATTRIBUTES")
	for _, b := range f.Brokers {
		if !b.Has {
			g.row(b.Name, b.Address, b.Has, "", "", "", "", "")
			continue
		}
		g.row(b.Name, b.Address, b.Has, b.Consume, b.Broadcast, b.Order, b.RetryMax, attributesText(b.Attributes))
	}
	g.part()
	f.printMembers(g)
	g.part()
	g.row("TOPIC", "TYPE", "EXPRESSION")
	for _, s := range f.Subscriptions {
		g.row(s.Topic, s.Type, s.Expression)
	}
}

func (f *groupFacts) printMembers(g *page) {
	g.row("MEMBER", "ADDRESS", "LANGUAGE", "VERSION", "BROKERS", "QUEUES")
	for _, m := range f.Members {
		queues := fmt.Sprint(m.Queues)
		if m.Queues < 0 {
			queues = ""
		}
		g.row(m.ClientID, m.Address, m.Language, m.Version, strings.Join(m.Brokers, ","), queues)
	}
}

// groupFinding is something that keeps messages from a group, or that is worth to know.
type groupFinding struct {
	Level string `json:"level"` // problem or note
	ID    string `json:"id"`
	Text  string `json:"text"`
	Do    string `json:"do,omitempty"`
}

// groupExplanation is what `group explain` prints as JSON.
type groupExplanation struct {
	*groupFacts
	Queues   []groupQueue          `json:"queues"`
	Dead     int64                 `json:"deadLetters"`
	Findings []groupFinding        `json:"findings"`
	Failures []adminclient.Failure `json:"failures,omitempty"`
}

func (p *program) groupExplain() *cobra.Command {
	var out output
	var at adminFlags
	var topic string
	c := &cobra.Command{
		Use: "explain GROUP", Short: "Say why a consumer group gets messages, or why not",
		Long: `Shows the members of a group, what they subscribe, which queue belongs to whom by the members' own account, how far each
queue is, in messages and in time, when it was pulled and consumed last, and what keeps messages from the group: no member,
subscriptions that differ, a topic that is not there, a permission, a member that no broker knows, offsets outside of what there
is, more members than queues, a client that does not pull.

It is about consumers that commit offsets. Which queue is whose is asked of each client by way of a broker, as mqadmin
consumerStatus does; official clients tell it. Times of pulling and consuming are by the clients' clocks.

The exit code is 0 when all brokers answered, whatever was found.`,
		Args: exactly("GROUP"), ValidArgsFunction: at.completeArgs(groupNames),
		RunE: func(c *cobra.Command, args []string) error {
			return at.with(c.Context(), func(ctx context.Context, c *adminclient.Client) error {
				f, err := gatherGroup(ctx, c, at.Selection, args[0], asking{topic: topic, progress: true, running: true})
				if f == nil {
					return err
				}
				e := groupExplanation{groupFacts: f, Queues: f.queues, Dead: f.dead, Findings: f.explain(time.Now()), Failures: adminclient.FailuresOf(err)}
				if e.Queues == nil {
					e.Queues = []groupQueue{}
				}
				return p.showPart(&out, e, e.print, err)
			})
		},
	}
	c.Flags().StringVar(&topic, "topic", "", "only this `topic`")
	_ = c.RegisterFlagCompletionFunc("topic", at.complete(topicNames))
	at.registerWith(c, &out)
	return c
}

func (e groupExplanation) print(g *page) {
	e.tell(g)
	g.part()
	g.row("TOPIC", "BROKER", "QUEUE", "MIN", "MAX", "COMMITTED", "LAG", "LAG TIME", "IN FLIGHT", "OWNER", "LAST PULL", "LAST CONSUME")
	for _, q := range e.Queues {
		g.row(q.Topic, q.Broker, q.Queue, q.Min, q.Max, q.Committed, q.Lag, time.Duration(q.LagMs)*time.Millisecond, q.InFlight, q.Owner, q.LastPull, q.LastWork)
	}
	g.part()
	for _, f := range e.Findings {
		g.line("%s: %s", f.Level, f.Text)
		if f.Do != "" {
			g.line("    %s", f.Do)
		}
	}
}

// silentAfter is how long a client that waits for messages may not pull: a pull is held
// for 15 s or 30 s and then made again.
const silentAfter = 2 * time.Minute

const (
	levelProblem = "problem"
	levelNote    = "note"
)

// explainer gathers findings.
type explainer struct {
	*groupFacts
	found []groupFinding
}

func (x *explainer) add(level, id, do, format string, args ...any) {
	x.found = append(x.found, groupFinding{level, id, fmt.Sprintf(format, args...), do})
}

// explain finds what keeps messages from the group. What is looked at is a list of
// checks, problems first.
func (f *groupFacts) explain(now time.Time) []groupFinding {
	x := &explainer{groupFacts: f, found: []groupFinding{}}
	x.form()
	x.membership()
	x.subscribed()
	x.sharing()
	x.bounds()
	x.pulling(now)
	x.rest()
	slices.SortStableFunc(x.found, func(a, b groupFinding) int { return strings.Compare(b.Level, a.Level) })
	return x.found
}

// form: what brokers were told of the group.
func (x *explainer) form() {
	for _, b := range x.Brokers {
		switch {
		case !b.Has:
			x.add(levelNote, "group-missing", "", "broker %s does not have the group; it makes it when a member comes, if it may (autoCreateSubscriptionGroup)", b.Name)
		case !b.Consume:
			x.add(levelProblem, "paused", proposal("group update", []string{x.Group}, "--consume=true"), "the group is paused on broker %s (consumeEnable=false): it gets nothing from there", b.Name)
		}
		for _, topic := range b.Forbidden {
			if x.only == "" || topic == x.only {
				x.add(levelProblem, "forbidden", proposal("group allow", []string{x.Group, topic}), "the group is kept from topic %s on broker %s", topic, b.Name)
			}
		}
		if b.Has && !b.Broadcast && x.MessageModel == command.Broadcasting {
			x.add(levelProblem, "no-broadcast", proposal("group update", []string{x.Group}, "--broadcast=true"), "the members consume by broadcasting, which broker %s does not allow the group", b.Name)
		}
	}
}

// membership: who is there, and where.
func (x *explainer) membership() {
	if len(x.Members) == 0 {
		x.add(levelProblem, "no-member", "start a consumer with the group's name; one that runs reaches other brokers or name servers", "no member is connected to any of the brokers asked")
		return
	}
	for _, m := range x.Members {
		for _, b := range x.Brokers {
			if !slices.Contains(m.Brokers, b.Name) && x.wanted(b.Name) {
				x.add(levelProblem, "not-connected", "look whether the client can reach "+b.Address, "client %s is not connected to broker %s: it gets nothing from its queues", m.ClientID, b.Name)
			}
		}
		if m.Silence != "" {
			x.add(levelNote, "silent-member", "", "client %s does not tell which queues it holds: %s", m.ClientID, m.Silence)
		}
	}
	switch {
	case x.MessageModel == command.Broadcasting:
		x.add(levelNote, "broadcasting", "", "the members consume by broadcasting: each gets all messages and keeps its progress itself; the offsets here are not theirs")
	case x.ConsumeType == command.ConsumePop:
		x.add(levelNote, "pop", "", "the members pop: no queue belongs to one of them, and offsets move when messages are acknowledged")
	}
}

// wanted: a broker has a topic that the group subscribes, not for retries only.
func (x *explainer) wanted(broker string) bool {
	return slices.ContainsFunc(x.Subscriptions, func(s groupSubscription) bool {
		t := x.topics[s.Topic]
		if t == nil || strings.HasPrefix(s.Topic, message.RetryPrefix) {
			return false
		}
		_, there := t.on[broker]
		return there
	})
}

// subscribed: the topics, and whether members agree on them.
func (x *explainer) subscribed() {
	for _, topic := range x.accounts() {
		x.agreed(topic)
	}
	for _, s := range x.Subscriptions {
		t := x.topics[s.Topic]
		if x.only != "" && s.Topic != x.only {
			continue
		}
		if t == nil {
			x.add(levelProblem, "no-topic", proposal("topic create", []string{s.Topic}), "there is no topic %s, which the group subscribes, on any of the brokers asked%s", s.Topic, suggest.DidYouMean(s.Topic, slices.Values(x.known)))
			continue
		}
		for _, b := range slices.Sorted(maps.Keys(t.on)) {
			route, told := t.routes[b]
			switch {
			case t.on[b]&command.PermRead == 0:
				x.add(levelProblem, "topic-unreadable", proposal("topic update", []string{s.Topic}, "--perm RW"), "topic %s may not be read on broker %s (perm %s)", s.Topic, b, permText(t.on[b]))
			case told && route&command.PermRead == 0:
				x.add(levelProblem, "broker-unreadable", "look at brokerPermission of "+b, "clients are told that nothing may be read on broker %s", b)
			case t.hasRoutes && !told:
				x.add(levelProblem, "no-route", "look whether broker "+b+" registers with the name servers that clients use", "name servers tell nobody that topic %s is on broker %s", s.Topic, b)
			}
		}
	}
}

// accounts are the topics that members say they subscribe, sorted.
func (x *explainer) accounts() []string {
	topics := map[string]bool{}
	for _, m := range x.Members {
		for topic := range m.subscriptions {
			if x.only == "" || topic == x.only {
				topics[topic] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(topics))
}

// agreed: members of a group that subscribe in different ways lose messages.
func (x *explainer) agreed(topic string) {
	by := map[string][]string{}
	for _, m := range x.Members {
		if m.subscriptions == nil {
			continue
		}
		e, ok := m.subscriptions[topic]
		if !ok {
			e = "(not at all)"
		}
		by[e] = append(by[e], m.ClientID)
	}
	if len(by) < 2 {
		return
	}
	var says []string
	for _, e := range slices.Sorted(maps.Keys(by)) {
		says = append(says, fmt.Sprintf("%s: %s", strings.Join(by[e], ", "), e))
	}
	x.add(levelProblem, "subscriptions-differ", "give all members of a group the same subscriptions, or them groups of their own",
		"members subscribe topic %s in different ways, so that each loses messages in its queues: %s", topic, strings.Join(says, "; "))
}

// sharing: which queue is whose.
func (x *explainer) sharing() {
	if x.MessageModel == command.Broadcasting || x.ConsumeType == command.ConsumePop {
		return
	}
	told := len(x.Members) > 0 && !slices.ContainsFunc(x.Members, func(m groupMember) bool { return m.Queues < 0 })
	for _, s := range x.Subscriptions {
		var total, unowned int
		var first string
		owners := map[string]bool{}
		for i := range x.queues {
			q := &x.queues[i]
			if q.Topic != s.Topic {
				continue
			}
			total++
			if q.Owner == "" {
				if unowned++; first == "" {
					first = q.name()
				}
			}
			owners[q.Owner] = true
			if len(q.others) > 0 {
				x.add(levelProblem, "owned-twice", "it passes with the next rebalance (20 s) if members see the same members and queues", "queue %s is held by %s and %s: messages come twice", q.name(), q.Owner, strings.Join(q.others, ", "))
			}
		}
		if !told || total == 0 || strings.HasPrefix(s.Topic, message.RetryPrefix) {
			continue
		}
		if unowned > 0 {
			x.add(levelProblem, "unowned", "it passes with the next rebalance (20 s) if members see all queues", "no member holds %s of topic %s, such as %s", counted(unowned, "queue"), s.Topic, first)
		}
		if n := len(x.Members); n > total {
			var idle []string
			for _, m := range x.Members {
				if !owners[m.ClientID] {
					idle = append(idle, m.ClientID)
				}
			}
			x.add(levelNote, "idle-members", proposal("topic update", []string{s.Topic}, "--queues "+fmt.Sprint(n)), "topic %s has %s for %s; none is held by %s", s.Topic, counted(total, "queue"), counted(n, "member"), strings.Join(idle, ", "))
		}
	}
}

// bounds: offsets that are outside of what there is.
func (x *explainer) bounds() {
	for i := range x.queues {
		q := &x.queues[i]
		switch {
		case q.Committed > q.Max:
			x.add(levelProblem, "beyond-end", proposal("group reset", []string{x.Group, q.Topic}, "--to latest"), "in queue %s the group is at offset %d, behind the end at %d: it gets nothing until so many messages have come", q.name(), q.Committed, q.Max)
		case q.Committed < q.Min && q.Committed > 0:
			x.add(levelNote, "expired", "", "in queue %s the group is at offset %d, and the oldest message is at %d: %d were deleted before they were consumed", q.name(), q.Committed, q.Min, q.Min-q.Committed)
		}
	}
}

// pulling: owners that do not come for what waits.
func (x *explainer) pulling(now time.Time) {
	for i := range x.queues {
		q := &x.queues[i]
		if q.Lag == 0 || q.Owner == "" || q.LastPull == 0 {
			continue
		}
		since := now.Sub(time.UnixMilli(int64(q.LastPull)))
		switch {
		case since <= silentAfter:
		case q.Cached > 0:
			x.add(levelProblem, "stuck", "look at what the application does with messages", "client %s has not pulled from queue %s for %s: it has %s of it that it does not finish", q.Owner, q.name(), durationText(since), counted(int(q.Cached), "message"))
		default:
			x.add(levelProblem, "not-pulling", "look at the log of the client", "client %s has not pulled from queue %s for %s", q.Owner, q.name(), durationText(since))
		}
	}
}

// rest: what waits, and where.
func (x *explainer) rest() {
	var lag, retries int64
	unsubscribed := map[string]int64{}
	for i := range x.queues {
		q := &x.queues[i]
		switch {
		case q.Topic == message.RetryPrefix+x.Group:
			retries += q.Lag
		case len(x.Members) > 0 && !slices.ContainsFunc(x.Subscriptions, func(s groupSubscription) bool { return s.Topic == q.Topic }):
			unsubscribed[q.Topic] += q.Lag
		default:
			lag += q.Lag
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(unsubscribed)) {
		x.add(levelNote, "unsubscribed", "", "the group has progress in topic %s, which no member subscribes: %s there", topic, counted(int(unsubscribed[topic]), "message"))
	}
	if retries > 0 {
		x.add(levelNote, "retries", "", "messages that wait to be tried again after a failure: %d", retries)
	}
	if x.dead > 0 {
		x.add(levelNote, "dead-letters", "", "%s in %s: they failed too often", counted(int(x.dead), "dead letter"), message.DLQPrefix+x.Group)
	}
	switch {
	case len(x.queues) == 0:
		x.add(levelNote, "no-progress", "", "the group has no progress in any topic of the brokers asked")
	case lag == 0:
		x.add(levelNote, "nothing-waits", "", "no message waits for the group")
	default:
		x.add(levelNote, "lag", "", "messages that wait for the group: %d", lag)
	}
}
