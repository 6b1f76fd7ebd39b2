package main

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/internal/adminclient"
)

func (p *program) clusterCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "cluster", Short: "Brokers of running clusters, and what goes through them",
		Long: "Shows the brokers of clusters, Hardpoint's and Apache RocketMQ's (4.9, 5.x), and what goes through their topics.\n\n" + adminHelp,
	}
	c.AddCommand(p.clusterList(), p.clusterStats())
	return c
}

// brokerLine is a broker with what it says of itself. What is nil is not known.
type brokerLine struct {
	adminclient.Broker
	State      string   `json:"state"`              // see stateOf
	Software   string   `json:"software,omitempty"` // hardpoint, or rocketmq
	Version    string   `json:"version,omitempty"`  // of the protocol
	InPerSec   *float64 `json:"inPerSecond"`        // messages of the last 10 s
	OutPerSec  *float64 `json:"outPerSecond"`       // messages of the last 10 s
	LogBytes   *int64   `json:"logBytes"`           // from the first message to the last
	DiskUsed   *float64 `json:"diskUsed"`           // of the fullest disk, from 0 to 1
	OldestTime instant  `json:"oldestTime"`         // store time of the oldest message
	Started    instant  `json:"started"`
	Error      string   `json:"error,omitempty"`
}

// The states of a broker, for clusterList.
const (
	stateUp       = "up"
	stateReadOnly = "read-only" // by its permission
	stateNoRead   = "write-only"
	stateClosed   = "closed" // neither
	stateUnknown  = "unknown"
)

// clusterTable is what `cluster list` prints as JSON.
type clusterTable struct {
	AsOf     instant               `json:"asOf"`
	Brokers  []brokerLine          `json:"brokers"`
	Failures []adminclient.Failure `json:"failures,omitempty"`
}

func (p *program) clusterList() *cobra.Command {
	var out output
	at := adminFlags{}
	at.Slaves = true
	c := &cobra.Command{
		Use: "list", Short: "List the brokers of the clusters",
		Long: `Lists the brokers that a name server knows, with what each of them says of itself: messages sent and read in a second, the size
of its log, how full its disk is. Of a broker that does not answer nothing is known; it is shown as that, and the command
fails.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return at.with(c.Context(), func(ctx context.Context, c *adminclient.Client) error {
				brokers, err := c.Brokers(ctx, at.Selection)
				if err != nil {
					return err
				}
				results := adminclient.Each(ctx, brokers, func(ctx context.Context, b adminclient.Broker) (brokerLine, error) {
					l, _, err := askBroker(ctx, c, b)
					return l, err
				})
				err = adminclient.Failed(results)
				t := clusterTable{AsOf: now(), Failures: adminclient.FailuresOf(err)}
				for _, r := range results {
					l := r.Value
					l.Broker = r.Broker
					if r.Err != nil {
						l.State, l.Error = stateUnknown, r.Err.Error()
					}
					t.Brokers = append(t.Brokers, l)
				}
				return p.showPart(&out, t, t.print, err)
			})
		},
	}
	at.registerWith(c, &out)
	return c
}

func (t clusterTable) print(g *page) {
	g.row("CLUSTER", "BROKER", "ID", "ADDRESS", "STATE", "VERSION", "IN/S", "OUT/S", "LOG", "DISK", "OLDEST MESSAGE")
	for _, l := range t.Brokers {
		g.row(l.Cluster, l.Name, l.ID, l.Address, l.State, strings.TrimSpace(l.Software+" "+l.Version), rateText(l.InPerSec), rateText(l.OutPerSec),
			knownText(l.LogBytes, sizeText), knownText(l.DiskUsed, percentText), l.OldestTime)
	}
}

// knownText is a number that may not be known.
func knownText[N any](n *N, text func(N) string) string {
	if n == nil {
		return "unknown"
	}
	return text(*n)
}

func rateText(perSecond *float64) string {
	return knownText(perSecond, func(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) })
}

// diskSize is how large the disk of a log is. What RocketMQ calls free is left out: it
// counts what is kept for root, which the share that is used does not.
func diskSize(table command.StringMap) string {
	size, _, ok := strings.Cut(strings.TrimPrefix(table["commitLogDirCapacity"], "Total : "), ",")
	if !ok {
		return "a disk of unknown size"
	}
	return "a disk of " + size
}

func percentText(f float64) string { return strconv.FormatFloat(100*f, 'f', 0, 64) + "%" }

// askBroker asks a broker what it says of itself: in short, and by RocketMQ's names.
func askBroker(ctx context.Context, c *adminclient.Client, b adminclient.Broker) (brokerLine, command.StringMap, error) {
	r, err := c.Runtime(ctx, b, false)
	if err != nil {
		return brokerLine{}, nil, err
	}
	table := r.Table
	l := brokerLine{State: stateUp, Software: softwareText(r.Ours()), Version: table["brokerVersionDesc"]}
	l.InPerSec, l.OutPerSec = lately(table["putTps"]), lately(table["getTransferredTps"])
	l.Started, l.OldestTime = instant(orNumber(table["bootTimestamp"], 0)), instant(orNumber(table["earliestMessageTimeStamp"], 0))
	if from, to := whole(table["commitLogMinOffset"]), whole(table["commitLogMaxOffset"]); from != nil && to != nil {
		n := *to - *from
		l.LogBytes = &n
	}
	for key, v := range table {
		if used := fraction(v); strings.HasSuffix(key, "DiskRatio") && used != nil && *used >= 0 && (l.DiskUsed == nil || *used > *l.DiskUsed) {
			l.DiskUsed = used
		}
	}
	if perm, err := permissionOf(ctx, c, b); err == nil {
		l.State = stateOf(perm)
	}
	return l, table, nil
}

// softwareText says whose broker it is.
func softwareText(ours bool) string {
	if ours {
		return command.SoftwareHardpoint
	}
	return "rocketmq"
}

// permissionOf asks a broker for its permission, R and W as bits.
func permissionOf(ctx context.Context, c *adminclient.Client, b adminclient.Broker) (int64, error) {
	config, err := c.Config(ctx, b)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(config["brokerPermission"], 10, 32)
}

func stateOf(perm int64) string {
	const read, write = int64(command.PermRead), int64(command.PermWrite)
	switch perm & (read | write) {
	case read | write:
		return stateUp
	case read:
		return stateReadOnly
	case write:
		return stateNoRead
	}
	return stateClosed
}

// lately is the first of three rates: that of the last ten seconds.
func lately(text string) *float64 {
	first, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	return fraction(first)
}

func fraction(text string) *float64 {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil
	}
	return &f
}

// orNumber is a number that may not be there.
func orNumber(text string, def int64) int64 {
	if n := whole(text); n != nil {
		return *n
	}
	return def
}

func now() instant { return instant(time.Now().UnixMilli()) }

func whole(text string) *int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

// statsLine is what goes through a topic, into it and to one group. What is nil is not
// known.
type statsLine struct {
	Cluster   string   `json:"cluster"`
	Topic     string   `json:"topic"`
	Group     string   `json:"group,omitempty"` // empty: nobody has progress in the topic
	InPerSec  *float64 `json:"inPerSecond"`     // of the last minute
	OutPerSec *float64 `json:"outPerSecond"`
	InDay     *int64   `json:"inDay"` // of the last 24 hours
	OutDay    *int64   `json:"outDay"`
	Lag       *int64   `json:"lag"` // messages that the group has not consumed
	Error     string   `json:"error,omitempty"`
}

// statsTable is what `cluster stats` prints as JSON.
type statsTable struct {
	AsOf     instant               `json:"asOf"`
	Lines    []statsLine           `json:"topics"`
	Failures []adminclient.Failure `json:"failures,omitempty"`
}

func (p *program) clusterStats() *cobra.Command {
	var out output
	var at adminFlags
	var all bool
	c := &cobra.Command{
		Use: "stats [TOPIC]", Short: "What goes through topics, and how far their groups are",
		Long: `Shows for each topic, or for one, the messages of the last minute and of the last 24 hours: what was sent, what each group
got, and how many it has not consumed. Numbers are sums over the brokers; one that does not answer makes them unknown.
Apache's brokers count only what came since they run.`,
		Args: atMostOne("TOPIC"),
		RunE: func(c *cobra.Command, args []string) error {
			return at.with(c.Context(), func(ctx context.Context, c *adminclient.Client) error {
				brokers, err := c.Brokers(ctx, at.Selection)
				if err != nil {
					return err
				}
				results := adminclient.Each(ctx, brokers, func(ctx context.Context, b adminclient.Broker) (brokerStats, error) {
					return askStats(ctx, c, b, brokers, args, all)
				})
				err = adminclient.Failed(results)
				t := statsTable{AsOf: now(), Lines: sumStats(results), Failures: adminclient.FailuresOf(err)}
				if len(args) == 1 && len(t.Lines) == 0 && err == nil {
					known, _ := c.TopicNames(ctx)
					return &adminclient.NotFoundError{Kind: "topic", Name: args[0], Known: known}
				}
				return p.showPart(&out, t, t.print, err)
			})
		},
		ValidArgsFunction: at.completeArgs(topicNames),
	}
	c.Flags().BoolVar(&all, "all", false, "also the topics of brokers, and those for retries and dead letters")
	at.registerWith(c, &out)
	return c
}

func (t statsTable) print(g *page) {
	g.row("TOPIC", "GROUP", "LAG", "IN/S", "OUT/S", "IN 24 H", "OUT 24 H")
	count := func(n *int64) string { return knownText(n, func(n int64) string { return strconv.FormatInt(n, 10) }) }
	for _, l := range t.Lines {
		if l.Group == "" {
			g.row(l.Topic, "", "-", rateText(l.InPerSec), "-", count(l.InDay), "-")
			continue
		}
		g.row(l.Topic, l.Group, count(l.Lag), rateText(l.InPerSec), rateText(l.OutPerSec), count(l.InDay), count(l.OutDay))
	}
}

// brokerStats is what one broker says.
type brokerStats struct {
	topics map[string]statsLine
	groups map[[2]string]statsLine // by topic and group
}

// statsAtOnce is of how many topics a broker is asked at a time.
const statsAtOnce = 16

// askStats asks a broker about its topics, or the one named.
func askStats(ctx context.Context, c *adminclient.Client, b adminclient.Broker, brokers []adminclient.Broker, named []string, all bool) (brokerStats, error) {
	out := brokerStats{map[string]statsLine{}, map[[2]string]statsLine{}}
	topics, err := adminclient.Get[command.TopicConfigSerializeWrapper](ctx, c, b.Address, command.ReqGetAllTopicConfig, nil, nil)
	if err != nil {
		return out, err
	}
	var mu sync.Mutex // guards out
	asks, ctx := errgroup.WithContext(ctx)
	asks.SetLimit(statsAtOnce)
	for topic := range topics.TopicConfigTable {
		if len(named) > 0 && topic != named[0] || len(named) == 0 && !all && topicKind(topic, brokers) != kindNormal {
			continue
		}
		asks.Go(func() error {
			line, groups, err := askTopic(ctx, c, b, topic)
			mu.Lock()
			defer mu.Unlock()
			out.topics[topic] = line
			for group, l := range groups {
				out.groups[[2]string{topic, group}] = l
			}
			return err
		})
	}
	return out, asks.Wait()
}

// askTopic asks a broker about a topic and the groups that read it.
func askTopic(ctx context.Context, c *adminclient.Client, b adminclient.Broker, topic string) (statsLine, map[string]statsLine, error) {
	in, day, err := askRate(ctx, c, b, "TOPIC_PUT_NUMS", topic)
	if err != nil {
		return statsLine{}, nil, err
	}
	list, err := adminclient.Get[command.GroupList](ctx, c, b.Address, command.ReqQueryTopicConsumeByWho, &command.TopicRequest{Topic: topic}, nil)
	if err != nil {
		return statsLine{}, nil, err
	}
	groups := map[string]statsLine{}
	for _, group := range list.Groups {
		perSecond, day, err := askRate(ctx, c, b, "GROUP_GET_NUMS", topic+"@"+group)
		if err != nil {
			return statsLine{}, nil, err
		}
		lag, err := askLag(ctx, c, b, group, topic)
		if err != nil {
			return statsLine{}, nil, err
		}
		groups[group] = statsLine{OutPerSec: &perSecond, OutDay: &day, Lag: &lag}
	}
	return statsLine{InPerSec: &in, InDay: &day}, groups, nil
}

// askRate asks for a number that a broker counts; what it never counted is 0.
func askRate(ctx context.Context, c *adminclient.Client, b adminclient.Broker, name, key string) (perSecond float64, day int64, err error) {
	s, err := adminclient.Get[command.BrokerStatsData](ctx, c, b.Address, command.ReqViewBrokerStatsData, &command.StatsDataRequest{StatsName: name, StatsKey: key}, nil)
	if _, refused := adminclient.CodeOf(err); refused {
		return 0, 0, nil
	}
	// The sum of a day is made of hours that are over, that of an hour of minutes.
	return float64(s.StatsMinute.Tps), cmp.Or(s.StatsDay.Sum, s.StatsHour.Sum, s.StatsMinute.Sum), err
}

// askLag asks how much a group has not consumed on a broker.
func askLag(ctx context.Context, c *adminclient.Client, b adminclient.Broker, group, topic string) (lag int64, err error) {
	s, err := adminclient.Get[command.ConsumeStats](ctx, c, b.Address, command.ReqGetConsumeStats, &command.ConsumeStatsRequest{ConsumerGroup: group, Topic: topic}, nil)
	for _, o := range s.OffsetTable {
		lag += o.BrokerOffset - o.ConsumerOffset
	}
	return lag, err
}

// sumStats joins what brokers say. A topic that a silent broker has cannot be told from
// one that it does not have, so the numbers of its cluster are not known.
func sumStats(results []adminclient.Result[brokerStats]) []statsLine {
	silent := map[string]bool{} // clusters
	topics, groups := map[[2]string]*statsLine{}, map[[3]string]*statsLine{}
	read := map[[2]string]bool{} // topics that a group reads
	for _, r := range results {
		cluster := r.Broker.Cluster
		silent[cluster] = silent[cluster] || r.Err != nil
		for topic, l := range r.Value.topics {
			at := [2]string{cluster, topic}
			if t := topics[at]; t != nil {
				l.InPerSec, l.InDay = plus(t.InPerSec, l.InPerSec), plus(t.InDay, l.InDay)
			}
			l.Cluster, l.Topic = cluster, topic
			topics[at] = &l
		}
		for key, l := range r.Value.groups {
			at := [3]string{cluster, key[0], key[1]}
			if g := groups[at]; g != nil {
				l.OutPerSec, l.OutDay, l.Lag = plus(g.OutPerSec, l.OutPerSec), plus(g.OutDay, l.OutDay), plus(g.Lag, l.Lag)
			}
			groups[at], read[[2]string{cluster, key[0]}] = &l, true
		}
	}
	lines := make([]statsLine, 0, len(topics))
	add := func(l statsLine) {
		if silent[l.Cluster] {
			l = statsLine{Cluster: l.Cluster, Topic: l.Topic, Group: l.Group, Error: "a broker of the cluster did not answer"}
		}
		lines = append(lines, l)
	}
	for at, t := range topics {
		if !read[at] {
			add(*t)
		}
	}
	for at, l := range groups {
		t := topics[[2]string{at[0], at[1]}]
		l.Cluster, l.Topic, l.Group, l.InPerSec, l.InDay = at[0], at[1], at[2], t.InPerSec, t.InDay
		add(*l)
	}
	slices.SortFunc(lines, func(a, b statsLine) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), strings.Compare(a.Group, b.Group), strings.Compare(a.Cluster, b.Cluster))
	})
	return lines
}

func plus[N int64 | float64](a, b *N) *N {
	if a == nil || b == nil {
		return nil
	}
	sum := *a + *b
	return &sum
}
