package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/internal/adminclient"
)

func (p *program) topicCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "topic", Short: "Topics of running brokers",
		Long: "Lists, shows, creates, changes and deletes the topics of running brokers, Hardpoint's and Apache RocketMQ's (4.9, 5.x).\n\n" + adminHelp,
	}
	c.AddCommand(p.topicList(), p.topicShow(), p.topicCreate(), p.topicUpdate(), p.topicDelete())
	return c
}

// adminHelp is what the commands that ask running servers have in common.
const adminHelp = `Name servers are those of --namesrv, of the environment (NAMESRV_ADDR) or of the configuration; of several the first that
answers is asked. With an address as --broker none is asked.

The exit code is 0 when all brokers that are concerned answered, 1 when one of them did not: what the others said is shown,
and which one failed. Without --yes nothing is changed by what cannot be undone.`

// topicLine is what some brokers of a cluster say of a topic, all the same.
type topicLine struct {
	Topic       string            `json:"topic"`
	Kind        string            `json:"kind"` // see topicKind
	Cluster     string            `json:"cluster"`
	Brokers     []string          `json:"brokers"`
	ReadQueues  int32             `json:"readQueues"` // of each broker
	WriteQueues int32             `json:"writeQueues"`
	Perm        string            `json:"perm"`
	Order       bool              `json:"order"`
	Attributes  command.StringMap `json:"attributes"`
}

// topicTable is what `topic list` prints as JSON.
type topicTable struct {
	Topics   []topicLine           `json:"topics"`
	Failures []adminclient.Failure `json:"failures,omitempty"`
}

// The kinds of topics.
const (
	kindNormal = "normal"
	kindRetry  = "retry"
	kindDLQ    = "dead letter"
	kindSystem = "system"
)

// topicKind is the kind of a topic on brokers.
func topicKind(topic string, brokers []adminclient.Broker) string {
	switch {
	case strings.HasPrefix(topic, message.RetryPrefix):
		return kindRetry
	case strings.HasPrefix(topic, message.DLQPrefix):
		return kindDLQ
	case message.IsSystem(topic), slices.ContainsFunc(brokers, func(b adminclient.Broker) bool {
		return topic == b.Cluster || topic == b.Name || topic == b.Cluster+message.ReplyTopicSuffix
	}):
		return kindSystem
	}
	return kindNormal
}

// permText is a permission as RocketMQ writes it: R, W and X for inherit.
func permText(perm int32) string {
	var b strings.Builder
	for _, bit := range []struct {
		of   int32
		char byte
	}{{command.PermRead, 'R'}, {command.PermWrite, 'W'}, {command.PermInherit, 'X'}} {
		if perm&bit.of != 0 {
			b.WriteByte(bit.char)
		}
	}
	if b.Len() == 0 {
		return "none"
	}
	return b.String()
}

func (p *program) topicList() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "list", Short: "List topics",
		Long: "Lists the topics that the brokers have, with their queues on each broker. Brokers that have a topic in different forms are\nlines of their own. Topics of the brokers themselves and those of groups for retries and dead letters are left out.",
	}
	c.Flags().BoolVar(&all, "all", false, "also the topics of brokers, and those for retries and dead letters")
	return listing(p, c, command.ReqGetAllTopicConfig, func(r []adminclient.Result[command.TopicConfigSerializeWrapper], failures []adminclient.Failure) topicTable {
		return topicTable{topicLines(r, all), failures}
	})
}

// topicLines joins what brokers say of their topics, by name.
func topicLines(results []adminclient.Result[command.TopicConfigSerializeWrapper], all bool) []topicLine {
	var brokers []adminclient.Broker
	for _, r := range results {
		brokers = append(brokers, r.Broker)
	}
	found := formsOf(results, func(w command.TopicConfigSerializeWrapper) map[string]topicLine {
		forms := map[string]topicLine{}
		for name, t := range w.TopicConfigTable {
			if kind := topicKind(name, brokers); all || kind == kindNormal {
				forms[name] = topicLine{
					Topic: name, Kind: kind, ReadQueues: t.ReadQueueNums, WriteQueues: t.WriteQueueNums,
					Perm: permText(t.Perm), Order: t.Order, Attributes: t.Attributes,
				}
			}
		}
		return forms
	}, func(a, b topicLine) bool { return reflect.DeepEqual(a, b) })
	lines := make([]topicLine, len(found))
	for i, f := range found {
		lines[i] = f.form
		lines[i].Cluster, lines[i].Brokers = f.cluster, f.brokers
	}
	return lines
}

func (t topicTable) print(g *page) {
	g.row("TOPIC", "CLUSTER", "BROKERS", "READ", "WRITE", "PERM", "ORDER", "ATTRIBUTES")
	for _, l := range t.Topics {
		g.row(l.Topic, l.Cluster, strings.Join(l.Brokers, ","), l.ReadQueues, l.WriteQueues, l.Perm, l.Order, attributesText(l.Attributes))
	}
}

// topicOn is what one broker says of a topic.
type topicOn struct {
	adminclient.Broker
	ReadQueues  int32             `json:"readQueues"`
	WriteQueues int32             `json:"writeQueues"`
	Perm        string            `json:"perm"`
	Order       bool              `json:"order"`
	Attributes  command.StringMap `json:"attributes"`
	// RoutePerm is what name servers tell clients: without what the broker as a whole
	// may not do. Empty: they tell nothing.
	RoutePerm string  `json:"routePerm"`
	SentRate  float64 `json:"sentPerSecond"`
}

// topicQueue is how far one queue goes.
type topicQueue struct {
	Broker     string  `json:"broker"`
	Queue      int32   `json:"queue"`
	Min        int64   `json:"minOffset"`
	Max        int64   `json:"maxOffset"`
	Messages   int64   `json:"messages"`
	LastStored instant `json:"lastStored"`
}

// topicView is what `topic show` prints as JSON.
type topicView struct {
	Topic    string                `json:"topic"`
	Kind     string                `json:"kind"`
	Brokers  []topicOn             `json:"brokers"`
	Queues   []topicQueue          `json:"queues"`
	Groups   []string              `json:"groups"` // that have progress, or members that subscribe
	Failures []adminclient.Failure `json:"failures,omitempty"`
}

func (p *program) topicShow() *cobra.Command {
	var out output
	var at adminFlags
	c := &cobra.Command{
		Use: "show TOPIC", Short: "Show a topic: its queues, messages and consumer groups",
		Long: "Shows a topic on each broker that has it: its form, what name servers tell clients of it, its queues with their bounds and\nwhen the last message came, and the groups that have progress in it or subscribe it.",
		Args: exactly("TOPIC"), ValidArgsFunction: at.completeArgs(topicNames),
		RunE: func(c *cobra.Command, args []string) error {
			return at.with(c.Context(), func(ctx context.Context, c *adminclient.Client) error {
				v, err := viewTopic(ctx, c, at.Selection, args[0])
				if v == nil {
					return err
				}
				return p.showPart(&out, v, v.print, err)
			})
		},
	}
	at.registerWith(c, &out)
	return c
}

// viewTopic asks for a topic; nil when nothing is known. The error may be of some
// brokers only.
func viewTopic(ctx context.Context, c *adminclient.Client, s adminclient.Selection, topic string) (*topicView, error) {
	brokers, err := c.Brokers(ctx, s)
	if err != nil {
		return nil, err
	}
	type answer struct {
		on     topicOn
		stats  command.TopicStatsTable
		groups command.GroupList
	}
	results := adminclient.Each(ctx, brokers, func(ctx context.Context, b adminclient.Broker) (*answer, error) {
		cfg, err := topicConfig(ctx, c, b, topic)
		if cfg == nil {
			return nil, err
		}
		a := &answer{on: topicOn{
			Broker: b, ReadQueues: cfg.ReadQueueNums, WriteQueues: cfg.WriteQueueNums, Perm: permText(cfg.Perm), Order: cfg.Order, Attributes: cfg.Attributes,
		}}
		if a.stats, err = adminclient.Get[command.TopicStatsTable](ctx, c, b.Address, command.ReqGetTopicStatsInfo, &command.TopicRequest{Topic: topic}, nil); err != nil {
			return nil, err
		}
		a.groups, err = adminclient.Get[command.GroupList](ctx, c, b.Address, command.ReqQueryTopicConsumeByWho, &command.TopicRequest{Topic: topic}, nil)
		return a, err
	})
	results = slices.DeleteFunc(results, func(r adminclient.Result[*answer]) bool { return r.Err == nil && r.Value == nil })
	if len(results) == 0 {
		return nil, topicEntity().missing(ctx, c, topic, len(brokers))
	}
	failed := adminclient.Failed(results)
	v := &topicView{Topic: topic, Kind: topicKind(topic, brokers), Brokers: []topicOn{}, Queues: []topicQueue{}, Groups: []string{}, Failures: adminclient.FailuresOf(failed)}
	route, err := c.Route(ctx, topic) // without it the permissions of the route are not known
	for _, r := range results {
		if r.Err != nil {
			continue
		}
		a := r.Value
		for _, q := range route.QueueDatas {
			if err == nil && q.BrokerName == r.Broker.Name {
				a.on.RoutePerm = permText(q.Perm)
			}
		}
		a.on.SentRate = a.stats.TopicPutTps
		v.Brokers = append(v.Brokers, a.on)
		for q, o := range a.stats.OffsetTable {
			v.Queues = append(v.Queues, topicQueue{q.BrokerName, q.QueueID, o.MinOffset, o.MaxOffset, o.MaxOffset - o.MinOffset, instant(o.LastUpdateTimestamp)})
		}
		v.Groups = append(v.Groups, a.groups.Groups...)
	}
	slices.SortFunc(v.Queues, func(a, b topicQueue) int {
		return cmp.Or(strings.Compare(a.Broker, b.Broker), cmp.Compare(a.Queue, b.Queue))
	})
	slices.Sort(v.Groups)
	v.Groups = slices.Compact(v.Groups)
	return v, failed
}

func (v *topicView) print(g *page) {
	g.line("topic\t%s, %s", orDash(v.Topic), v.Kind)
	g.line("groups\t%s", orDash(strings.Join(v.Groups, ", ")))
	g.part()
	g.row("BROKER", "ADDRESS", "CLUSTER", "READ", "WRITE", "PERM", "ROUTE", "ORDER", "SENT/S", "ATTRIBUTES")
	for _, b := range v.Brokers {
		g.row(b.Name, b.Address, b.Cluster, b.ReadQueues, b.WriteQueues, b.Perm, b.RoutePerm, b.Order, fmt.Sprintf("%.1f", b.SentRate), attributesText(b.Attributes))
	}
	g.part()
	g.row("BROKER", "QUEUE", "MIN", "MAX", "MESSAGES", "LAST STORED")
	for _, q := range v.Queues {
		g.row(q.Broker, q.Queue, q.Min, q.Max, q.Messages, q.LastStored)
	}
}

// attributesText is attributes as key=value, by key.
func attributesText(m command.StringMap) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return strings.Join(out, ",")
}
