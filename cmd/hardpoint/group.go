package main

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/internal/adminclient"
)

func (p *program) groupCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "group", Short: "Consumer groups of running brokers",
		Long: "Lists, shows, creates, changes, deletes, explains and resets the consumer groups of running brokers, Hardpoint's and Apache\nRocketMQ's (4.9, 5.x). Only Hardpoint's brokers answer group assign.\n\n" + adminHelp,
	}
	c.AddCommand(p.groupList(), p.groupShow(), p.groupExplain(), p.groupCreate(), p.groupUpdate(), p.groupDelete(), p.groupReadable(false), p.groupReadable(true), p.groupReset(), p.groupAssign())
	return c
}

// groupForm is how brokers have a group.
type groupForm struct {
	Consume      bool              `json:"consume"`
	Broadcast    bool              `json:"broadcast"`
	FromMin      bool              `json:"fromMin"`
	Order        bool              `json:"order"`
	RetryMax     int32             `json:"retryMax"`
	RetryQueues  int32             `json:"retryQueues"`
	Attributes   command.StringMap `json:"attributes"`
	RetryPolicy  string            `json:"retryPolicy"`
	NotifyChange bool              `json:"notifyChange"`
}

func formOf(g *command.SubscriptionGroupConfig) groupForm {
	return groupForm{
		Consume: g.ConsumeEnable, Broadcast: g.ConsumeBroadcastEnable, FromMin: g.ConsumeFromMinEnable, Order: g.ConsumeMessageOrderly,
		RetryMax: g.RetryMaxTimes, RetryQueues: g.RetryQueueNums, Attributes: g.Attributes, RetryPolicy: g.GroupRetryPolicy.Type, NotifyChange: g.NotifyConsumerIDsChangedEnable,
	}
}

// groupLine is what some brokers of a cluster say of a group, all the same.
type groupLine struct {
	Group   string   `json:"group"`
	Cluster string   `json:"cluster"`
	Brokers []string `json:"brokers"`
	groupForm
}

// groupTable is what `group list` prints as JSON.
type groupTable struct {
	Groups   []groupLine           `json:"groups"`
	Failures []adminclient.Failure `json:"failures,omitempty"`
}

func (p *program) groupList() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "list", Short: "List consumer groups",
		Long: "Lists the consumer groups that the brokers have. Brokers that have a group in different forms are lines of their own. Groups\nof brokers and tools are left out. How far groups are: offset list; who is in one: group show.",
	}
	c.Flags().BoolVar(&all, "all", false, "also the groups of brokers and tools")
	return listing(p, c, command.ReqGetAllSubscriptionGroupConfig, func(r []adminclient.Result[command.SubscriptionGroupWrapper], failures []adminclient.Failure) groupTable {
		return groupTable{groupLines(r, all), failures}
	})
}

// groupLines joins what brokers say of their groups, by name.
func groupLines(results []adminclient.Result[command.SubscriptionGroupWrapper], all bool) []groupLine {
	found := formsOf(results, func(w command.SubscriptionGroupWrapper) map[string]groupForm {
		forms := map[string]groupForm{}
		for name, g := range w.SubscriptionGroupTable {
			if all || !message.IsSystemGroup(name) {
				forms[name] = formOf(&g)
			}
		}
		return forms
	}, func(a, b groupForm) bool { return reflect.DeepEqual(a, b) })
	lines := make([]groupLine, len(found))
	for i, f := range found {
		lines[i] = groupLine{f.name, f.cluster, f.brokers, f.form}
	}
	return lines
}

func (t groupTable) print(g *page) {
	g.row("GROUP", "CLUSTER", "BROKERS", "CONSUME", "BROADCAST", "ORDER", "RETRIES", "ATTRIBUTES")
	for _, l := range t.Groups {
		g.row(l.Group, l.Cluster, strings.Join(l.Brokers, ","), l.Consume, l.Broadcast, l.Order, l.RetryMax, attributesText(l.Attributes))
	}
}

// groupConfig asks a broker for a group; nil: it has none of that name.
func groupConfig(ctx context.Context, c *adminclient.Client, b adminclient.Broker, group string) (*command.SubscriptionGroupConfig, error) {
	cfg, _, err := groupAndForbidden(ctx, c, b, group)
	return cfg, err
}

// groupAndForbidden is groupConfig with the topics that the group is kept from, as bits
// of permissions. It asks for all groups: asked for one that is not there, Apache's
// brokers make it (GET_SUBSCRIPTIONGROUP_CONFIG).
func groupAndForbidden(ctx context.Context, c *adminclient.Client, b adminclient.Broker, group string) (*command.SubscriptionGroupConfig, map[string]int32, error) {
	all, err := adminclient.Get[command.SubscriptionGroupWrapper](ctx, c, b.Address, command.ReqGetAllSubscriptionGroupConfig, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	if cfg, ok := all.SubscriptionGroupTable[group]; ok {
		return &cfg, all.ForbiddenTable[group], nil
	}
	return nil, all.ForbiddenTable[group], nil
}

// groupFlags are what flags say of a group.
type groupFlags struct {
	form       groupForm
	attributes attributeFlags
}

func (g *groupFlags) register(c *cobra.Command, update bool) {
	d := command.DefaultSubscriptionGroup("")
	g.form = formOf(&d)
	f := c.Flags()
	f.BoolVar(&g.form.Consume, "consume", g.form.Consume, "whether the group gets messages; --consume=false pauses it")
	f.BoolVar(&g.form.Broadcast, "broadcast", g.form.Broadcast, "whether members may consume by broadcasting")
	f.BoolVar(&g.form.FromMin, "from-min", g.form.FromMin, "whether a group that is new may begin with the oldest message")
	f.BoolVar(&g.form.Order, "order", g.form.Order, "whether messages that failed are waited for, in order (members that pop)")
	f.Int32Var(&g.form.RetryMax, "retry-max", g.form.RetryMax, "how often a message that failed is tried again; -1: without end")
	f.Int32Var(&g.form.RetryQueues, "retry-queues", g.form.RetryQueues, "queues of the topic for retries")
	f.BoolVar(&g.form.NotifyChange, "notify-change", g.form.NotifyChange, "whether members are told when others come and go")
	g.attributes.register(c, update)
	if update { // what is not said stays
		noDefaults(f, "consume", "broadcast", "from-min", "order", "retry-max", "retry-queues", "notify-change")
	}
}

func (*groupFlags) flags() []string {
	return []string{"consume", "broadcast", "from-min", "order", "retry-max", "retry-queues", "notify-change", "attribute", "remove-attribute"}
}

// apply changes cfg by the flags that were given: the others are what new groups have.
func (g *groupFlags) apply(f *pflag.FlagSet, cfg command.SubscriptionGroupConfig, _ bool) command.SubscriptionGroupConfig {
	for name, change := range map[string]func(){
		"consume":       func() { cfg.ConsumeEnable = g.form.Consume },
		"broadcast":     func() { cfg.ConsumeBroadcastEnable = g.form.Broadcast },
		"from-min":      func() { cfg.ConsumeFromMinEnable = g.form.FromMin },
		"order":         func() { cfg.ConsumeMessageOrderly = g.form.Order },
		"retry-max":     func() { cfg.RetryMaxTimes = g.form.RetryMax },
		"retry-queues":  func() { cfg.RetryQueueNums = g.form.RetryQueues },
		"notify-change": func() { cfg.NotifyConsumerIDsChangedEnable = g.form.NotifyChange },
	} {
		if f.Changed(name) {
			change()
		}
	}
	cfg.Attributes = g.attributes.apply(cfg.Attributes)
	return cfg
}

func (g *groupFlags) changes(old command.StringMap) command.StringMap {
	return g.attributes.changes(old)
}

// putGroup makes a group what cfg says; changes are those of its attributes.
func putGroup(ctx context.Context, c *adminclient.Client, b adminclient.Broker, cfg *command.SubscriptionGroupConfig, changes command.StringMap) error {
	told := *cfg
	told.Attributes = changes
	body, err := command.EncodeBody(told)
	if err == nil {
		_, err = c.Ask(ctx, b.Address, command.ReqUpdateAndCreateSubscriptionGroup, nil, body)
	}
	return err
}

// groupChange is what `group create` and `update` print as JSON.
type groupChange struct {
	Group   string         `json:"group"`
	Brokers []brokerChange `json:"brokers"`
}

// groupEntity is what commands know of groups.
func groupEntity() *entity[command.SubscriptionGroupConfig] {
	return &entity[command.SubscriptionGroupConfig]{
		word: "group", names: groupNames, completed: groupNames, config: groupConfig, put: putGroup,
		attributes: func(g *command.SubscriptionGroupConfig) command.StringMap { return g.Attributes },
		differs: func(is, want *command.SubscriptionGroupConfig) string {
			if sameForm(is, want) {
				return ""
			}
			return " in another form, which group show shows"
		},
		changed: func(name string, brokers []brokerChange) any { return groupChange{name, brokers} },
	}
}

func (p *program) groupCreate() *cobra.Command {
	return groupEntity().create(p, &cobra.Command{
		Use: "create GROUP", Short: "Create a consumer group",
		Example: "  hardpoint group create orders-app --retry-max 5",
	}, &groupFlags{}, message.CheckGroup, command.DefaultSubscriptionGroup)
}

// sameForm compares what flags can change.
func sameForm(a, b *command.SubscriptionGroupConfig) bool {
	x, y := formOf(a), formOf(b)
	same := maps.Equal(x.Attributes, y.Attributes)
	x.Attributes, y.Attributes = nil, nil
	return same && reflect.DeepEqual(x, y)
}

func (p *program) groupUpdate() *cobra.Command {
	return groupEntity().update(p, &cobra.Command{
		Use: "update GROUP", Short: "Change a consumer group, pause it or let it go on",
		Long:    "Changes, on all brokers that have the group, what flags say; all else stays as it is on each of them.",
		Example: "  hardpoint group update orders-app --consume=false\n  hardpoint group update orders-app --retry-max 5",
	}, &groupFlags{})
}

// groupDeletion is what `group delete` prints as JSON.
type groupDeletion struct {
	Group  string `json:"group"`
	DryRun bool   `json:"dryRun"`
	// Members are client ids that are connected, Topics those that the group has
	// progress in, Dead the dead letters that wait.
	Members []string `json:"members"`
	Topics  []string `json:"topics"`
	Dead    int64    `json:"deadLetters"`
	// Brokers is empty when nothing was done.
	Brokers []brokerChange `json:"brokers"`
	// Failures are brokers of which nothing is known, and at which nothing was done.
	Failures []adminclient.Failure `json:"failures,omitempty"`
}

func (p *program) groupDelete() *cobra.Command {
	var out output
	var at adminFlags
	var ok confirm
	var keep, dead bool
	c := &cobra.Command{
		Use: "delete GROUP", Short: "Delete a consumer group with its progress",
		Long: `Deletes a group, its progress in all topics and its topic for retries, on all brokers that have it. It shows what is lost;
with --yes it then does it. Dead letters stay unless --dead-letters is said. A group whose members are connected comes back with
their next heartbeat: stop them before.`,
		Args: exactly("GROUP"), ValidArgsFunction: at.completeArgs(groupNames),
		RunE: func(c *cobra.Command, args []string) error {
			return at.with(c.Context(), func(ctx context.Context, c *adminclient.Client) error {
				return p.deleteGroup(ctx, c, &at, &out, ok, args[0], keep, dead)
			})
		},
	}
	ok.register(c)
	c.Flags().BoolVar(&keep, "keep-offsets", false, "keep the progress, for a group of that name that is made again")
	c.Flags().BoolVar(&dead, "dead-letters", false, "delete the dead letters of the group, too")
	at.registerWith(c, &out)
	return c
}

func (p *program) deleteGroup(ctx context.Context, c *adminclient.Client, at *adminFlags, out *output, ok confirm, group string, keep, dead bool) error {
	brokers, err := c.Brokers(ctx, at.Selection)
	if err != nil {
		return err
	}
	d := groupDeletion{Group: group, DryRun: !ok.yes, Members: []string{}, Topics: []string{}, Brokers: []brokerChange{}}
	type loss struct {
		members, topics []string
		dead            int64
	}
	losses := adminclient.Each(ctx, brokers, func(ctx context.Context, b adminclient.Broker) (*loss, error) {
		cfg, err := groupConfig(ctx, c, b, group)
		if err != nil {
			return nil, err
		}
		l := &loss{}
		conns, err := connectionsAt(ctx, c, b, group)
		if err != nil {
			return nil, err
		}
		if conns != nil {
			for _, m := range conns.ConnectionSet {
				l.members = append(l.members, m.ClientID)
			}
		}
		topics, err := adminclient.Get[command.TopicList](ctx, c, b.Address, command.ReqQueryTopicsByConsumer, &command.GroupRequest{Group: group}, nil)
		if err != nil {
			return nil, err
		}
		if l.topics = topics.Topics; cfg == nil && len(l.topics) == 0 {
			return nil, nil
		}
		letters, err := adminclient.Get[command.TopicStatsTable](ctx, c, b.Address, command.ReqGetTopicStatsInfo, &command.TopicRequest{Topic: message.DLQPrefix + group}, nil)
		if code, _ := adminclient.CodeOf(err); code == command.RespTopicNotExist {
			err = nil
		}
		for _, o := range letters.OffsetTable {
			l.dead += o.MaxOffset - o.MinOffset
		}
		return l, err
	})
	losses = slices.DeleteFunc(losses, func(r adminclient.Result[*loss]) bool { return r.Err == nil && r.Value == nil })
	if len(losses) == 0 {
		return groupEntity().missing(ctx, c, group, len(brokers))
	}
	var have []adminclient.Broker
	for _, l := range losses {
		if l.Err == nil {
			have = append(have, l.Broker)
			d.Members, d.Topics, d.Dead = append(d.Members, l.Value.members...), append(d.Topics, l.Value.topics...), d.Dead+l.Value.dead
		}
	}
	slices.Sort(d.Members)
	slices.Sort(d.Topics)
	d.Members, d.Topics = slices.Compact(d.Members), slices.Compact(d.Topics)
	failed := adminclient.Failed(losses)
	d.Failures = adminclient.FailuresOf(failed)
	if ok.yes {
		results := adminclient.Each(ctx, have, func(ctx context.Context, b adminclient.Broker) (string, error) {
			if _, err := c.Ask(ctx, b.Address, command.ReqDeleteSubscriptionGroup, &command.DeleteGroupRequest{GroupName: group, CleanOffset: !keep}, nil); err != nil {
				return "", err
			}
			gone := []string{message.RetryPrefix + group}
			if dead {
				gone = append(gone, message.DLQPrefix+group)
			}
			for _, topic := range gone {
				_, err := c.Ask(ctx, b.Address, command.ReqDeleteTopicInBroker, &command.TopicRequest{Topic: topic}, nil)
				if code, _ := adminclient.CodeOf(err); err != nil && code != command.RespTopicNotExist {
					return "", err
				}
			}
			return "deleted", nil
		})
		d.Brokers = changesOf(results)
		failed = errors.Join(failed, adminclient.Failed(results))
	}
	err = p.show(out, d, func(g *page) {
		g.line("members connected\t%s", orDash(strings.Join(d.Members, ", ")))
		g.line("progress in\t%s", orDash(strings.Join(d.Topics, ", ")))
		g.line("dead letters\t%d", d.Dead)
		if ok.yes {
			g.part()
			printChanges(g, d.Brokers)
		}
	})
	if err == nil && !ok.yes {
		err = ok.unsaid("delete group %s", group)
	}
	return errors.Join(failed, err)
}

// connectionsAt asks a broker for the members of a group; nil: it has none.
func connectionsAt(ctx context.Context, c *adminclient.Client, b adminclient.Broker, group string) (*command.ConsumerConnection, error) {
	conns, err := adminclient.Get[command.ConsumerConnection](ctx, c, b.Address, command.ReqGetConsumerConnectionList, &command.ConsumerGroupRequest{ConsumerGroup: []byte(group)}, nil)
	if code, _ := adminclient.CodeOf(err); code == command.RespConsumerNotOnline {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &conns, nil
}
