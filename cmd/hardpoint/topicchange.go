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

// topicForm is what flags say of a topic.
type topicForm struct {
	queues, read, write int32
	perm                permFlag
	order               bool
	attributes          attributeFlags
}

// permFlag is a permission of a topic.
type permFlag struct{ perm int32 }

func (f *permFlag) String() string { return permText(f.perm) }
func (f *permFlag) Type() string   { return "perm" }
func (f *permFlag) Set(text string) error {
	words := map[string]int32{"R": 4, "W": 2, "RW": 6, "NONE": 0, "4": 4, "2": 2, "6": 6, "0": 0}
	p, ok := words[strings.ToUpper(text)]
	if !ok {
		return errors.New("must be R, W, RW or none (4, 2, 6 or 0)")
	}
	f.perm = p
	return nil
}

func (t *topicForm) register(c *cobra.Command, update bool) {
	f := c.Flags()
	t.perm.perm = 6
	f.Int32Var(&t.queues, "queues", 8, "queues on each broker")
	f.Int32Var(&t.read, "read-queues", 0, "queues that consumers read; as many as --queues if it is not said")
	f.Int32Var(&t.write, "write-queues", 0, "queues that producers send to; as many as --queues if it is not said")
	f.Var(&t.perm, "perm", "what clients may do: R, W, RW or none")
	f.BoolVar(&t.order, "order", false, "keep the queues of the topic as they are when brokers go away, for messages in order (the name servers are told)")
	_ = c.RegisterFlagCompletionFunc("perm", cobra.FixedCompletions([]string{"R", "W", "RW", "none"}, cobra.ShellCompDirectiveNoFileComp))
	t.attributes.register(c, update)
	if update { // what is not said stays
		noDefaults(f, "queues", "perm")
	}
}

func (*topicForm) flags() []string {
	return []string{"queues", "read-queues", "write-queues", "perm", "order", "attribute", "remove-attribute"}
}

func (t *topicForm) changes(old command.StringMap) command.StringMap {
	return t.attributes.changes(old)
}

// apply changes cfg by the flags that were given, or by all of them.
func (t *topicForm) apply(f *pflag.FlagSet, cfg command.TopicConfig, all bool) command.TopicConfig {
	if all || f.Changed("queues") {
		cfg.ReadQueueNums, cfg.WriteQueueNums = t.queues, t.queues
	}
	if f.Changed("read-queues") {
		cfg.ReadQueueNums = t.read
	}
	if f.Changed("write-queues") {
		cfg.WriteQueueNums = t.write
	}
	if all || f.Changed("perm") {
		cfg.Perm = t.perm.perm | cfg.Perm&command.PermInherit // inheritance stays
	}
	if all || f.Changed("order") {
		cfg.Order = t.order
	}
	cfg.Attributes = t.attributes.apply(cfg.Attributes)
	return cfg
}

// topicConfig asks a broker for a topic; nil: it has none of that name.
func topicConfig(ctx context.Context, c *adminclient.Client, b adminclient.Broker, topic string) (*command.TopicConfig, error) {
	cfg, err := adminclient.Get[command.TopicConfig](ctx, c, b.Address, command.ReqGetTopicConfig, &command.TopicRequest{Topic: topic}, nil)
	switch code, refused := adminclient.CodeOf(err); {
	case err == nil:
		return &cfg, nil
	case refused && code == command.RespTopicNotExist:
		return nil, nil
	case !refused || code != command.RespRequestCodeNotSupported:
		return nil, err
	}
	// 4.9 tells only all of them.
	all, err := adminclient.Get[command.TopicConfigSerializeWrapper](ctx, c, b.Address, command.ReqGetAllTopicConfig, nil, nil)
	if err != nil {
		return nil, err
	}
	if cfg, ok := all.TopicConfigTable[topic]; ok {
		return &cfg, nil
	}
	return nil, nil
}

// putTopic makes a topic what cfg says; changes are those of its attributes.
func putTopic(ctx context.Context, c *adminclient.Client, b adminclient.Broker, cfg *command.TopicConfig, changes command.StringMap) error {
	_, err := c.Ask(ctx, b.Address, command.ReqUpdateAndCreateTopic, &command.CreateTopicRequest{
		Topic: cfg.TopicName, DefaultTopic: message.AutoCreateTopic, TopicFilterType: cmp.Or(cfg.TopicFilterType, "SINGLE_TAG"), Attributes: changesText(changes),
		ReadQueueNums: cfg.ReadQueueNums, WriteQueueNums: cfg.WriteQueueNums, Perm: cfg.Perm, TopicSysFlag: cfg.TopicSysFlag, Order: cfg.Order,
	}, nil)
	return err
}

// topicChange is what `topic create`, `update` and `delete` print as JSON.
type topicChange struct {
	Topic   string         `json:"topic"`
	Brokers []brokerChange `json:"brokers"`
}

// topicEntity is what commands know of topics.
func topicEntity() *entity[command.TopicConfig] {
	return &entity[command.TopicConfig]{
		word: "topic", names: func(ctx context.Context, c *adminclient.Client) ([]string, error) { return c.TopicNames(ctx) }, completed: topicNames,
		config: topicConfig, put: putTopic, told: orderTold,
		attributes: func(t *command.TopicConfig) command.StringMap { return t.Attributes },
		differs:    differences,
		changed:    func(name string, brokers []brokerChange) any { return topicChange{name, brokers} },
	}
}

func (p *program) topicCreate() *cobra.Command {
	return topicEntity().create(p, &cobra.Command{
		Use: "create TOPIC", Short: "Create a topic",
		Example: "  hardpoint topic create Orders --queues 16\n  hardpoint topic create Orders --cluster C --perm RW --attribute message.type=FIFO",
	}, &topicForm{}, message.CheckTopic, func(name string) command.TopicConfig { return command.TopicConfig{TopicName: name} })
}

// differences tells in words where a topic is other than wanted, behind a comma; empty:
// nowhere.
func differences(is, want *command.TopicConfig) string {
	var out []string
	add := func(differs bool, format string, args ...any) {
		if differs {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(is.ReadQueueNums != want.ReadQueueNums, "%d queues to read", is.ReadQueueNums)
	add(is.WriteQueueNums != want.WriteQueueNums, "%d queues to write", is.WriteQueueNums)
	add((is.Perm^want.Perm)&(command.PermRead|command.PermWrite) != 0, "permission %s", permText(is.Perm))
	add(is.Order != want.Order, "order %s", cell(is.Order))
	add(len(is.Attributes)+len(want.Attributes) > 0 && !reflect.DeepEqual(is.Attributes, want.Attributes), "attributes %s", orDash(attributesText(is.Attributes)))
	if len(out) == 0 {
		return ""
	}
	return ", with " + strings.Join(out, ", ")
}

func (p *program) topicUpdate() *cobra.Command {
	return topicEntity().update(p, &cobra.Command{
		Use: "update TOPIC", Short: "Change a topic",
		Long: `Changes, on all brokers that have the topic, what flags say; all else stays as it is on each of them. Without a flag nothing
is changed. Messages in queues that are taken away stay where they are, but nobody reads them: take the queues away from
producers first (--write-queues), and from consumers when they are empty (--read-queues).`,
		Example: "  hardpoint topic update Orders --queues 32\n  hardpoint topic update Orders --perm R",
	}, &topicForm{})
}

// orderNamespace is where name servers keep which queues topics in order have.
const orderNamespace = "ORDER_TOPIC_CONFIG"

// orderTold tells the name servers which queues a topic has whose messages are in
// order, or that they need not be; producers of 4.x keep to that.
func orderTold(ctx context.Context, c *adminclient.Client, topic string) error {
	if len(c.NameServers()) == 0 {
		return nil
	}
	r, _, err := c.AskNameServer(ctx, command.ReqGetKVConfig, &command.KVConfigRequest{Namespace: orderNamespace, Key: topic}, nil)
	was := ""
	if err == nil {
		was = r.Header.ExtString("value")
	} else if code, refused := adminclient.CodeOf(err); !refused || code != command.RespQueryNotFound {
		return nil //nolint:nilerr // a broker named by its address is changed without name servers
	}
	info, err := c.Clusters(ctx)
	if err != nil {
		return err
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(info.BrokerAddrTable)) {
		d := info.BrokerAddrTable[name]
		addr, ok := d.BrokerAddrs[0]
		if !ok {
			continue
		}
		cfg, err := topicConfig(ctx, c, adminclient.Broker{Address: addr}, topic)
		if err != nil {
			return nil //nolint:nilerr // what is known of that broker stays: it is named as failed already
		}
		if cfg != nil && cfg.Order {
			parts = append(parts, fmt.Sprintf("%s:%d", name, cfg.WriteQueueNums))
		}
	}
	switch now := strings.Join(parts, ";"); {
	case now == was:
		return nil
	case now == "":
		return c.EachNameServer(ctx, command.ReqDeleteKVConfig, &command.KVConfigRequest{Namespace: orderNamespace, Key: topic}, nil)
	default:
		return c.EachNameServer(ctx, command.ReqPutKVConfig, adminclient.FieldFunc(func(w *command.Writer) {
			(&command.KVConfigRequest{Namespace: orderNamespace, Key: topic, Value: now}).Append(w)
		}), nil)
	}
}

// topicLoss is what a deletion takes away, at one broker.
type topicLoss struct {
	adminclient.Broker
	Messages int64    `json:"messages"`
	Groups   []string `json:"groups"` // that have progress, or members that subscribe
}

// topicDeletion is what `topic delete` prints as JSON.
type topicDeletion struct {
	Topic  string      `json:"topic"`
	DryRun bool        `json:"dryRun"`
	Loses  []topicLoss `json:"loses"`
	// Brokers is empty when nothing was done.
	Brokers []brokerChange `json:"brokers"`
	// Failures are brokers of which nothing is known, and at which nothing was done.
	Failures []adminclient.Failure `json:"failures,omitempty"`
}

func (p *program) topicDelete() *cobra.Command {
	var out output
	var at adminFlags
	var ok confirm
	c := &cobra.Command{
		Use: "delete TOPIC", Short: "Delete a topic with its messages",
		Long: `Deletes a topic, its messages and the progress of all groups in it, on all brokers that have it, and from the name servers.
It shows what is lost; with --yes it then does it. Messages of the topic that producers still send create it again where
brokers may do so (autoCreateTopicEnable).`,
		Args: exactly("TOPIC"), ValidArgsFunction: at.completeArgs(topicNames),
		RunE: func(c *cobra.Command, args []string) error {
			return at.with(c.Context(), func(ctx context.Context, c *adminclient.Client) error {
				return p.deleteTopic(ctx, c, &at, &out, ok, args[0])
			})
		},
	}
	ok.register(c)
	at.registerWith(c, &out)
	return c
}

func (p *program) deleteTopic(ctx context.Context, c *adminclient.Client, at *adminFlags, out *output, ok confirm, topic string) error {
	brokers, err := c.Brokers(ctx, at.Selection)
	if err != nil {
		return err
	}
	losses := adminclient.Each(ctx, brokers, func(ctx context.Context, b adminclient.Broker) (l topicLoss, err error) {
		l.Broker = b
		s, err := adminclient.Get[command.TopicStatsTable](ctx, c, b.Address, command.ReqGetTopicStatsInfo, &command.TopicRequest{Topic: topic}, nil)
		if err != nil {
			return l, err
		}
		for _, o := range s.OffsetTable {
			l.Messages += o.MaxOffset - o.MinOffset
		}
		g, err := adminclient.Get[command.GroupList](ctx, c, b.Address, command.ReqQueryTopicConsumeByWho, &command.TopicRequest{Topic: topic}, nil)
		l.Groups = slices.Sorted(slices.Values(g.Groups))
		return l, err
	})
	losses = adminclient.Without(losses, command.RespTopicNotExist)
	if len(losses) == 0 {
		return topicEntity().missing(ctx, c, topic, len(brokers))
	}
	d := topicDeletion{Topic: topic, DryRun: !ok.yes, Loses: []topicLoss{}, Brokers: []brokerChange{}}
	for _, l := range losses {
		if l.Err == nil {
			d.Loses = append(d.Loses, l.Value)
		}
	}
	failed := adminclient.Failed(losses) // who does not answer now is not asked to delete
	d.Failures = adminclient.FailuresOf(failed)
	if ok.yes {
		var have []adminclient.Broker
		for _, l := range d.Loses {
			have = append(have, l.Broker)
		}
		results := adminclient.Each(ctx, have, func(ctx context.Context, b adminclient.Broker) (string, error) {
			_, err := c.Ask(ctx, b.Address, command.ReqDeleteTopicInBroker, &command.TopicRequest{Topic: topic}, nil)
			return "deleted", err
		})
		d.Brokers = changesOf(results)
		failed = errors.Join(failed, adminclient.Failed(results))
		if failed == nil && at.Broker == "" {
			failed = errors.Join(orderTold(ctx, c, topic), c.EachNameServer(ctx, command.ReqDeleteTopicInNamesrv, adminclient.FieldFunc(func(w *command.Writer) {
				w.Ext("topic", topic)
				if at.Cluster != "" {
					w.Ext("clusterName", at.Cluster)
				}
			}), nil))
		}
	}
	if !ok.yes {
		failed = errors.Join(failed, ok.unsaid("delete topic %s with all that", topic))
	}
	return p.showPart(out, d, func(g *page) {
		g.row("BROKER", "ADDRESS", "MESSAGES", "GROUPS")
		for _, l := range d.Loses {
			g.row(l.Name, l.Address, l.Messages, strings.Join(l.Groups, ","))
		}
		if ok.yes {
			g.part()
			printChanges(g, d.Brokers)
		}
	}, failed)
}
