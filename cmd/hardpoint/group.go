package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	var out output
	var at adminFlags
	var all bool
	c := &cobra.Command{
		Use: "list", Short: "List consumer groups",
		Long: "Lists the consumer groups that the brokers have. Brokers that have a group in different forms are lines of their own. Groups\nof brokers and tools are left out. How far groups are: offset list; who is in one: group show.",
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return at.with(c.Context(), func(ctx context.Context, c *adminclient.Client) error {
				brokers, err := c.Brokers(ctx, at.Selection)
				if err != nil {
					return err
				}
				results := adminclient.GetEach[command.SubscriptionGroupWrapper](ctx, c, brokers, command.ReqGetAllSubscriptionGroupConfig, nil, nil)
				err = adminclient.Failed(results)
				t := groupTable{Groups: groupLines(results, all), Failures: adminclient.FailuresOf(err)}
				return p.showPart(&out, t, t.print, err)
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "also the groups of brokers and tools")
	at.register(c)
	at.registerSelection(c)
	out.register(c)
	return c
}

// groupLines joins what brokers say of their groups, by name.
func groupLines(results []adminclient.Result[command.SubscriptionGroupWrapper], all bool) []groupLine {
	lines := []groupLine{}
	at := map[string][]int{} // lines of a group
	for _, r := range results {
		for _, name := range slices.Sorted(maps.Keys(r.Value.SubscriptionGroupTable)) {
			if !all && message.IsSystemGroup(name) {
				continue
			}
			g := r.Value.SubscriptionGroupTable[name]
			form := formOf(&g)
			i := slices.IndexFunc(at[name], func(i int) bool {
				return lines[i].Cluster == r.Broker.Cluster && reflect.DeepEqual(lines[i].groupForm, form)
			})
			if i >= 0 {
				known := &lines[at[name][i]]
				known.Brokers = append(known.Brokers, r.Broker.Name)
				continue
			}
			at[name] = append(at[name], len(lines))
			lines = append(lines, groupLine{name, r.Broker.Cluster, []string{r.Broker.Name}, form})
		}
	}
	slices.SortStableFunc(lines, func(a, b groupLine) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Cluster, b.Cluster))
	})
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

// noGroup says that none of n brokers has a group.
func noGroup(ctx context.Context, c *adminclient.Client, group string, n int) error {
	known, _ := groupNames(ctx, c) // for the suggestion only
	return &adminclient.NotFoundError{Kind: "group", Name: group, Known: known, Where: "on " + counted(n, "broker")}
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

var groupFlagNames = []string{"consume", "broadcast", "from-min", "order", "retry-max", "retry-queues", "notify-change", "attribute", "remove-attribute"}

// apply changes cfg by the flags that were given.
func (g *groupFlags) apply(f *pflag.FlagSet, cfg command.SubscriptionGroupConfig) command.SubscriptionGroupConfig {
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

// putGroup makes a group what cfg says; changes are those of its attributes.
func putGroup(ctx context.Context, c *adminclient.Client, b adminclient.Broker, cfg command.SubscriptionGroupConfig, changes command.StringMap) error {
	cfg.Attributes = changes
	body, err := command.EncodeBody(cfg)
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

func (p *program) groupCreate() *cobra.Command {
	var out output
	var at adminFlags
	var form groupFlags
	c := &cobra.Command{
		Use: "create GROUP", Short: "Create a consumer group",
		Long: `Creates a group on all brokers of the cluster, on those of --cluster, or on --broker. Where it is there already in the same
form nothing is changed; where it has another form the command fails: update changes it.`,
		Example: "  hardpoint group create orders-app --retry-max 5",
		Args:    exactly("GROUP"), ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: func(_ *cobra.Command, args []string) error { return message.CheckGroup(args[0]) },
		RunE: func(cmd *cobra.Command, args []string) error {
			return at.with(cmd.Context(), func(ctx context.Context, c *adminclient.Client) error {
				brokers, err := places(ctx, c, at.Selection)
				if err != nil {
					return err
				}
				return p.changeGroup(ctx, c, &out, args[0], brokers, func(ctx context.Context, b adminclient.Broker, old *command.SubscriptionGroupConfig) (string, error) {
					want := form.apply(cmd.Flags(), command.DefaultSubscriptionGroup(args[0]))
					switch {
					case old == nil:
						return "created", putGroup(ctx, c, b, want, form.attributes.changes(nil))
					case !sameForm(old, &want):
						return "", errors.New("the group is there already in another form, which group show shows; group update changes it")
					}
					return "unchanged", nil
				})
			})
		},
	}
	form.register(c, false)
	at.register(c)
	at.registerSelection(c)
	out.register(c)
	return c
}

// sameForm compares what flags can change.
func sameForm(a, b *command.SubscriptionGroupConfig) bool {
	x, y := formOf(a), formOf(b)
	same := maps.Equal(x.Attributes, y.Attributes)
	x.Attributes, y.Attributes = nil, nil
	return same && reflect.DeepEqual(x, y)
}

func (p *program) groupUpdate() *cobra.Command {
	var out output
	var at adminFlags
	var form groupFlags
	c := &cobra.Command{
		Use: "update GROUP", Short: "Change a consumer group, pause it or let it go on",
		Long:    "Changes, on all brokers that have the group, what flags say; all else stays as it is on each of them.",
		Example: "  hardpoint group update orders-app --consume=false\n  hardpoint group update orders-app --retry-max 5",
		Args:    exactly("GROUP"), ValidArgsFunction: at.completeArgs(groupNames),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.ContainsFunc(groupFlagNames, cmd.Flags().Changed) {
				return fmt.Errorf("there is nothing to change: say one of --%s", strings.Join(groupFlagNames, ", --"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return at.with(cmd.Context(), func(ctx context.Context, c *adminclient.Client) error {
				brokers, err := c.Brokers(ctx, at.Selection)
				if err != nil {
					return err
				}
				return p.changeGroup(ctx, c, &out, args[0], brokers, func(ctx context.Context, b adminclient.Broker, old *command.SubscriptionGroupConfig) (string, error) {
					if old == nil {
						return "", nil // not here
					}
					want := form.apply(cmd.Flags(), *old)
					if sameForm(old, &want) {
						return "unchanged", nil
					}
					return "changed", putGroup(ctx, c, b, want, form.attributes.changes(old.Attributes))
				})
			})
		},
	}
	form.register(c, true)
	at.register(c)
	at.registerSelection(c)
	out.register(c)
	return c
}

// changeGroup asks each broker for the group and has do change it; do says what it
// did, nothing where the group is not and shall not be.
func (p *program) changeGroup(ctx context.Context, c *adminclient.Client, out *output, group string, brokers []adminclient.Broker,
	do func(context.Context, adminclient.Broker, *command.SubscriptionGroupConfig) (string, error),
) error {
	results := adminclient.Each(ctx, brokers, func(ctx context.Context, b adminclient.Broker) (string, error) {
		old, err := groupConfig(ctx, c, b, group)
		if err != nil {
			return "", err
		}
		return do(ctx, b, old)
	})
	results = slices.DeleteFunc(results, func(r adminclient.Result[string]) bool { return r.Err == nil && r.Value == "" })
	if len(results) == 0 {
		return noGroup(ctx, c, group, len(brokers))
	}
	err := adminclient.Failed(results)
	done := groupChange{group, changesOf(results)}
	return p.showPart(out, done, func(g *page) { printChanges(g, done.Brokers) }, err)
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
	at.register(c)
	at.registerSelection(c)
	out.register(c)
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
		return noGroup(ctx, c, group, len(brokers))
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
