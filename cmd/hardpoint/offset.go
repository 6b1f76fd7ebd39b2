package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/internal/adminclient"
)

func (p *program) offsetCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "offset", Short: "How far consumer groups are",
		Long: "Shows how far consumer groups are on running brokers, Hardpoint's and Apache RocketMQ's (4.9, 5.x), and finds offsets by time.\ngroup reset sets them.\n\n" + adminHelp,
	}
	c.AddCommand(p.offsetList(), p.offsetShow(), p.offsetSearch(), p.offsetClone())
	return c
}

// offsetLine is how far a group is in a topic, on all brokers asked.
type offsetLine struct {
	Group    string `json:"group"`
	Topic    string `json:"topic"`
	Queues   int    `json:"queues"`
	Lag      int64  `json:"lag"`
	InFlight int64  `json:"inFlight"`
	// Consumed is when the newest message that was consumed was stored.
	Consumed instant `json:"lastConsumedStored"`
	Rate     float64 `json:"consumedPerSecond"`
}

// offsetTable is what `offset list` prints as JSON.
type offsetTable struct {
	Groups   []offsetLine          `json:"groups"`
	Failures []adminclient.Failure `json:"failures,omitempty"`
}

func (p *program) offsetList() *cobra.Command {
	var out output
	var at adminFlags
	var all, lagging bool
	c := &cobra.Command{
		Use: "list", Short: "List how far all groups are",
		Long: "Lists how far all groups are in all topics in which they have progress. Groups of brokers and tools and topics for retries\nare left out.",
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return at.with(c.Context(), func(ctx context.Context, c *adminclient.Client) error {
				brokers, err := c.Brokers(ctx, at.Selection)
				if err != nil {
					return err
				}
				results := adminclient.GetEach[command.ConsumeStatsList](ctx, c, brokers, command.ReqGetBrokerConsumeStats, &command.BrokerConsumeStatsRequest{}, nil)
				err = adminclient.Failed(results)
				t := offsetTable{Groups: offsetLines(results, all), Failures: adminclient.FailuresOf(err)}
				if lagging {
					t.Groups = slices.DeleteFunc(t.Groups, func(l offsetLine) bool { return l.Lag == 0 })
				}
				return p.showPart(&out, t, t.print, err)
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "also the groups of brokers and tools, and topics for retries")
	c.Flags().BoolVar(&lagging, "lagging", false, "only where messages wait")
	at.registerWith(c, &out)
	return c
}

// offsetLines joins what brokers say of the progress of groups.
func offsetLines(results []adminclient.Result[command.ConsumeStatsList], all bool) []offsetLine {
	type key struct{ group, topic string }
	lines := map[key]*offsetLine{}
	for _, r := range results {
		for _, g := range r.Value.Groups {
			if !all && message.IsSystemGroup(g.Group) {
				continue
			}
			for _, s := range g.Stats {
				counted := map[key]bool{}
				for q, o := range s.OffsetTable {
					if !all && strings.HasPrefix(q.Topic, message.RetryPrefix) {
						continue
					}
					k := key{g.Group, q.Topic}
					l := lines[k]
					if l == nil {
						l = &offsetLine{Group: g.Group, Topic: q.Topic}
						lines[k] = l
					}
					l.Queues++
					l.Lag += max(o.BrokerOffset-o.ConsumerOffset, 0)
					l.InFlight += max(o.PullOffset-o.ConsumerOffset, 0)
					l.Consumed = max(l.Consumed, instant(o.LastTimestamp))
					if !counted[k] {
						l.Rate += s.ConsumeTps
						counted[k] = true
					}
				}
			}
		}
	}
	out := []offsetLine{}
	for _, l := range lines {
		out = append(out, *l)
	}
	slices.SortFunc(out, func(a, b offsetLine) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Topic, b.Topic))
	})
	return out
}

func (t offsetTable) print(g *page) {
	g.row("GROUP", "TOPIC", "QUEUES", "LAG", "IN FLIGHT", "CONSUMED/S", "LAST CONSUMED STORED")
	for _, l := range t.Groups {
		g.row(l.Group, l.Topic, l.Queues, l.Lag, l.InFlight, fmt.Sprintf("%.1f", l.Rate), l.Consumed)
	}
}

// offsetView is what `offset show` prints as JSON.
type offsetView struct {
	Group    string                `json:"group"`
	Queues   []groupQueue          `json:"queues"`
	Lag      int64                 `json:"lag"`
	LagMs    int64                 `json:"lagMs"`
	InFlight int64                 `json:"inFlight"`
	Failures []adminclient.Failure `json:"failures,omitempty"`
}

func (p *program) offsetShow() *cobra.Command {
	var out output
	var at adminFlags
	var owners bool
	c := &cobra.Command{
		Use: "show GROUP [TOPIC]", Short: "Show how far a group is in each queue",
		Long: "Shows, queue by queue, how far a group is, how many messages wait and since when. With --owners each member is asked which\nqueues it holds; group explain says more.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return fmt.Errorf("needs GROUP, and takes TOPIC; %s given", counted(len(args), "argument"))
			}
			return nil
		},
		ValidArgsFunction: at.completeArgs(groupNames, topicNames),
		RunE: func(c *cobra.Command, args []string) error {
			a := asking{progress: true, running: owners}
			if len(args) == 2 {
				a.topic = args[1]
			}
			return at.with(c.Context(), func(ctx context.Context, c *adminclient.Client) error {
				f, err := gatherGroup(ctx, c, at.Selection, args[0], a)
				if f == nil {
					return err
				}
				if a.topic != "" && len(f.queues) == 0 && err == nil {
					return topicEntity().missing(ctx, c, a.topic, len(f.Brokers))
				}
				v := offsetView{Group: args[0], Queues: f.queues, Failures: adminclient.FailuresOf(err)}
				if v.Queues == nil {
					v.Queues = []groupQueue{}
				}
				for _, q := range v.Queues {
					v.Lag, v.InFlight, v.LagMs = v.Lag+q.Lag, v.InFlight+q.InFlight, max(v.LagMs, q.LagMs)
				}
				return p.showPart(&out, v, func(g *page) { v.print(g, owners) }, err)
			})
		},
	}
	c.Flags().BoolVar(&owners, "owners", false, "ask the members which queues they hold")
	at.registerWith(c, &out)
	return c
}

func (v offsetView) print(g *page, owners bool) {
	titles := []any{"TOPIC", "BROKER", "QUEUE", "MIN", "MAX", "COMMITTED", "LAG", "LAG TIME", "IN FLIGHT", "LAST CONSUMED STORED"}
	if owners {
		titles = append(titles, "OWNER")
	}
	g.row(titles...)
	for _, q := range v.Queues {
		row := []any{q.Topic, q.Broker, q.Queue, q.Min, q.Max, q.Committed, q.Lag, time.Duration(q.LagMs) * time.Millisecond, q.InFlight, q.Consumed}
		if owners {
			row = append(row, q.Owner)
		}
		g.row(row...)
	}
	g.part()
	g.line("lag: %d, the oldest for %s; in flight: %d", v.Lag, durationText(time.Duration(v.LagMs)*time.Millisecond), v.InFlight)
}

// foundQueue is an offset that was searched for.
type foundQueue struct {
	Broker string `json:"broker"`
	Queue  int32  `json:"queue"`
	Min    int64  `json:"minOffset"`
	Max    int64  `json:"maxOffset"`
	Offset int64  `json:"offset"`
}

// foundOffsets is what `offset search` prints as JSON.
type foundOffsets struct {
	Topic    string                `json:"topic"`
	Time     instant               `json:"time"`
	Queues   []foundQueue          `json:"queues"`
	Failures []adminclient.Failure `json:"failures,omitempty"`
}

func (p *program) offsetSearch() *cobra.Command {
	var out output
	var at adminFlags
	var when momentFlag
	c := &cobra.Command{
		Use: "search TOPIC --time TIME", Short: "Find the offsets of a time",
		Long: "Finds, in each queue of a topic, the offset of the first message that was stored at a time or later. Where all are older it is\nthe end of the queue.",
		Args: exactly("TOPIC"), ValidArgsFunction: at.completeArgs(topicNames),
		RunE: func(c *cobra.Command, args []string) error {
			return at.with(c.Context(), func(ctx context.Context, c *adminclient.Client) error {
				brokers, err := c.Brokers(ctx, at.Selection)
				if err != nil {
					return err
				}
				results := adminclient.Without(adminclient.Each(ctx, brokers, func(ctx context.Context, b adminclient.Broker) ([]foundQueue, error) {
					return searchAt(ctx, c, b, args[0], when.ms)
				}), command.RespTopicNotExist)
				if len(results) == 0 {
					return topicEntity().missing(ctx, c, args[0], len(brokers))
				}
				err = adminclient.Failed(results)
				v := foundOffsets{Topic: args[0], Time: instant(when.ms), Queues: []foundQueue{}, Failures: adminclient.FailuresOf(err)}
				for _, r := range results {
					v.Queues = append(v.Queues, r.Value...)
				}
				return p.showPart(&out, v, v.print, err)
			})
		},
	}
	c.Flags().Var(&when, "time", "earliest, latest, or "+momentUsage)
	_ = c.MarkFlagRequired("time")
	at.registerWith(c, &out)
	return c
}

// searchAt searches in the queues of one broker.
func searchAt(ctx context.Context, c *adminclient.Client, b adminclient.Broker, topic string, ms int64) ([]foundQueue, error) {
	ends, err := adminclient.Get[command.TopicStatsTable](ctx, c, b.Address, command.ReqGetTopicStatsInfo, &command.TopicRequest{Topic: topic}, nil)
	if err != nil {
		return nil, err
	}
	var out []foundQueue
	for q, e := range ends.OffsetTable {
		f := foundQueue{b.Name, q.QueueID, e.MinOffset, e.MaxOffset, e.MaxOffset}
		if ms != resetLatest && ms <= e.LastUpdateTimestamp {
			n, err := searchOffset(ctx, c, b, topic, q.QueueID, ms)
			if err != nil {
				return nil, err
			}
			f.Offset = min(max(n, e.MinOffset), e.MaxOffset)
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b foundQueue) int { return cmp.Compare(a.Queue, b.Queue) })
	return out, nil
}

func (v foundOffsets) print(g *page) {
	g.row("BROKER", "QUEUE", "MIN", "MAX", "OFFSET")
	for _, q := range v.Queues {
		g.row(q.Broker, q.Queue, q.Min, q.Max, q.Offset)
	}
}

// clonedQueue is a queue of which one group takes the offset of another.
type clonedQueue struct {
	Topic  string `json:"topic"`
	Broker string `json:"broker"`
	Queue  int32  `json:"queue"`
	Old    *int64 `json:"old"` // null: nothing
	New    int64  `json:"new"`
}

// offsetCloning is what `offset clone` prints as JSON.
type offsetCloning struct {
	From    string         `json:"from"`
	To      string         `json:"to"`
	DryRun  bool           `json:"dryRun"`
	Queues  []clonedQueue  `json:"queues"`
	Brokers []brokerChange `json:"brokers"`
	// Failures are brokers of which nothing is known, and at which nothing was done.
	Failures []adminclient.Failure `json:"failures,omitempty"`
}

func (p *program) offsetClone() *cobra.Command {
	var out output
	var at adminFlags
	var ok confirm
	var topic string
	c := &cobra.Command{
		Use: "clone FROM TO", Short: "Let a group go on where another one is",
		Long: "Gives group TO the offsets that group FROM has. It shows the old and the new offset of each queue; with --yes it then does it.\nMembers of TO should be stopped.",
		Args: exactly("FROM", "TO"), ValidArgsFunction: at.completeArgs(groupNames, groupNames),
		PreRunE: func(_ *cobra.Command, args []string) error {
			if args[0] == args[1] {
				return fmt.Errorf("FROM and TO are the same group, %s", args[0])
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			return at.with(c.Context(), func(ctx context.Context, c *adminclient.Client) error {
				return p.cloneOffsets(ctx, c, &at, &out, ok, args[0], args[1], topic)
			})
		},
	}
	c.Flags().StringVar(&topic, "topic", "", "only this `topic`")
	_ = c.RegisterFlagCompletionFunc("topic", at.complete(topicNames))
	ok.register(c)
	at.registerWith(c, &out)
	return c
}

func (p *program) cloneOffsets(ctx context.Context, c *adminclient.Client, at *adminFlags, out *output, ok confirm, from, to, topic string) error {
	brokers, err := c.Brokers(ctx, at.Selection)
	if err != nil {
		return err
	}
	results := adminclient.Each(ctx, brokers, func(ctx context.Context, b adminclient.Broker) ([]clonedQueue, error) {
		cfg, err := groupConfig(ctx, c, b, from)
		if cfg == nil {
			return nil, err
		}
		source, err := progressAt(ctx, c, b, from, nil, topic)
		if err != nil {
			return nil, err
		}
		target, err := progressAt(ctx, c, b, to, nil, topic)
		if err != nil {
			return nil, err
		}
		list := []clonedQueue{}
		for _, q := range source.queues {
			l := clonedQueue{Topic: q.Topic, Broker: q.Broker, Queue: q.Queue, New: q.Committed}
			for _, o := range target.queues {
				if o.Topic == q.Topic && o.Queue == q.Queue {
					l.Old = &o.Committed
				}
			}
			list = append(list, l)
		}
		return list, nil
	})
	results = slices.DeleteFunc(results, func(r adminclient.Result[[]clonedQueue]) bool { return r.Err == nil && r.Value == nil })
	if len(results) == 0 {
		return groupEntity().missing(ctx, c, from, len(brokers))
	}
	failed := adminclient.Failed(results)
	v := offsetCloning{From: from, To: to, DryRun: !ok.yes, Queues: []clonedQueue{}, Brokers: []brokerChange{}, Failures: adminclient.FailuresOf(failed)}
	var have []adminclient.Broker
	for _, r := range results {
		v.Queues = append(v.Queues, r.Value...)
		if r.Err == nil {
			have = append(have, r.Broker)
		}
	}
	if len(v.Queues) == 0 && failed == nil {
		in := ""
		if topic != "" {
			in = " in topic " + topic
		}
		return fmt.Errorf("group %s has no offsets%s; nothing was changed", from, in)
	}
	slices.SortFunc(v.Queues, func(a, b clonedQueue) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), strings.Compare(a.Broker, b.Broker), cmp.Compare(a.Queue, b.Queue))
	})
	if ok.yes {
		done := adminclient.Each(ctx, have, func(ctx context.Context, b adminclient.Broker) (string, error) {
			asked := map[string]bool{}
			for _, q := range v.Queues { // each topic by its name: Apache's brokers do nothing when none is said
				if q.Broker != b.Name || asked[q.Topic] {
					continue
				}
				asked[q.Topic] = true
				if _, err := c.Ask(ctx, b.Address, command.ReqCloneGroupOffset, &command.CloneGroupOffsetRequest{SrcGroup: from, DestGroup: to, Topic: q.Topic, Offline: true}, nil); err != nil {
					return "", err
				}
			}
			return "changed", nil
		})
		v.Brokers = changesOf(done)
		failed = errors.Join(failed, adminclient.Failed(done))
	}
	err = p.show(out, v, func(g *page) {
		g.row("TOPIC", "BROKER", "QUEUE", "OLD", "NEW")
		for _, q := range v.Queues {
			old := ""
			if q.Old != nil {
				old = fmt.Sprint(*q.Old)
			}
			g.row(q.Topic, q.Broker, q.Queue, old, q.New)
		}
		if ok.yes {
			g.part()
			printChanges(g, v.Brokers)
		}
	})
	if err == nil && !ok.yes {
		err = ok.unsaid("give group %s the offsets of group %s", to, from)
	}
	return errors.Join(failed, err)
}
