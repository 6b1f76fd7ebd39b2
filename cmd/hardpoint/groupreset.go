package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/internal/adminclient"
	"github.com/hardpointmq/hardpoint/internal/rpc"
)

// The ends of a queue as times of requests.
const (
	resetEarliest = 0
	resetLatest   = -1
)

// momentFlag is a time, or an end of the queues.
type momentFlag struct {
	text string
	ms   int64 // resetEarliest, resetLatest, or since epoch
	now  func() time.Time
}

const momentUsage = "a time as 2006-01-02T15:04:05Z or '2006-01-02 15:04:05' (local time), ms since 1970, or how long ago as -2h or -3d"

func (m *momentFlag) String() string { return m.text }
func (m *momentFlag) Type() string   { return "time" }
func (m *momentFlag) Set(text string) error {
	m.text = text
	switch text {
	case "earliest":
		m.ms = resetEarliest
		return nil
	case "latest":
		m.ms = resetLatest
		return nil
	}
	now := time.Now
	if m.now != nil {
		now = m.now
	}
	if ago, ok := strings.CutPrefix(text, "-"); ok {
		d, err := config.ParseDuration(ago)
		if err != nil || d < 0 {
			return fmt.Errorf("allowed are earliest, latest, or %s", momentUsage)
		}
		// Times before 1970 would be taken for the end, by servers and here.
		m.ms = max(now().Add(-d).UnixMilli(), resetEarliest)
		return nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 1e11 { // 1973; less was meant as something else
		m.ms = n
		return nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999", "2006-01-02 15:04:05.999", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil && t.UnixMilli() > 0 {
			m.ms = t.UnixMilli()
			return nil
		}
	}
	return fmt.Errorf("allowed are earliest, latest, or %s", momentUsage)
}

// resetQueue is a queue of a reset.
type resetQueue struct {
	Broker string `json:"broker"`
	Queue  int32  `json:"queue"`
	// Old is what the group had, null: nothing. New is what it has then, or has now.
	Old *int64 `json:"old"`
	New int64  `json:"new"`
	// Wanted is what was asked for: other than New where that is ahead of Old, and
	// nobody said --force.
	Wanted int64 `json:"wanted"`
}

// groupResetting is what `group reset` prints as JSON.
type groupResetting struct {
	Group    string                `json:"group"`
	Topic    string                `json:"topic"`
	DryRun   bool                  `json:"dryRun"`
	Force    bool                  `json:"force"`
	Queues   []resetQueue          `json:"queues"`
	Failures []adminclient.Failure `json:"failures,omitempty"`
}

// resetRun is one run of `group reset`.
type resetRun struct {
	group, topic string
	to           momentFlag
	queue        int32
	offset       int64
	force        bool
}

func (p *program) groupReset() *cobra.Command {
	var out output
	var at adminFlags
	var ok confirm
	r := &resetRun{}
	c := &cobra.Command{
		Use: "reset GROUP TOPIC", Short: "Let a consumer group begin elsewhere in a topic",
		Long: `Sets the offsets of a group in the queues of a topic: to those of a time (--to), or one queue to an offset (--queue and
--offset). It shows the old and the new offset of each queue; with --yes it then does it. Consumers that run obey, as do those
that start later.

Without --force a group is only moved back: it is never moved past messages that it has not seen, and queues where that would be
so stay as they are. With --force it is moved both ways. A time before the first message is the first one that is there, a time
after the last one the end. An offset outside of what there is, is refused.

Hardpoint's brokers do it in one step. Those of RocketMQ 5 are asked queue by queue, and looked at afterwards; those of 4.x
while no member is connected, since with members they know times only.`,
		Example: "  hardpoint group reset orders-app Orders --to -2h --dry-run\n  hardpoint group reset orders-app Orders --to latest --force --yes\n  hardpoint group reset orders-app Orders --broker broker-a --queue 3 --offset 12345 --yes",
		Args:    exactly("GROUP", "TOPIC"), ValidArgsFunction: at.completeArgs(groupNames, topicNames),
		PreRunE: func(c *cobra.Command, _ []string) error {
			switch explicit := c.Flags().Changed("offset"); {
			case explicit && !c.Flags().Changed("queue"):
				return errors.New("--offset is the offset of one queue: say which one with --queue")
			case explicit && (r.queue < 0 || r.offset < 0):
				return fmt.Errorf("--queue %d --offset %d: neither may be less than 0", r.queue, r.offset)
			case !explicit && !c.Flags().Changed("to"):
				return errors.New("say where to: --to earliest, latest or a time, or --queue and --offset")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			r.group, r.topic = args[0], args[1]
			return at.with(c.Context(), func(ctx context.Context, c *adminclient.Client) error {
				return p.resetGroup(ctx, c, &at, &out, ok, r)
			})
		},
	}
	f := c.Flags()
	f.Var(&r.to, "to", "earliest, latest, or "+momentUsage)
	f.Int32Var(&r.queue, "queue", -1, "only this queue, by its `number`")
	f.Int64Var(&r.offset, "offset", -1, "with --queue, this `offset`")
	noDefaults(f, "queue", "offset")
	f.BoolVar(&r.force, "force", false, "also forward, past messages that the group has not seen")
	c.MarkFlagsMutuallyExclusive("to", "offset")
	_ = c.RegisterFlagCompletionFunc("to", cobra.FixedCompletions([]string{"earliest", "latest"}, cobra.ShellCompDirectiveNoFileComp))
	ok.register(c)
	at.registerWith(c, &out)
	return c
}

func (p *program) resetGroup(ctx context.Context, c *adminclient.Client, at *adminFlags, out *output, ok confirm, r *resetRun) error {
	brokers, err := c.Brokers(ctx, at.Selection)
	if err != nil {
		return err
	}
	results := adminclient.Without(adminclient.Each(ctx, brokers, func(ctx context.Context, b adminclient.Broker) ([]resetQueue, error) {
		return r.at(ctx, c, b, false)
	}), command.RespTopicNotExist)
	if len(results) == 0 {
		return topicEntity().missing(ctx, c, r.topic, len(brokers))
	}
	switch results = adminclient.Without(results, command.RespSubscriptionGroupNotExist); {
	case len(results) == 0:
		return groupEntity().missing(ctx, c, r.group, len(brokers))
	case r.offset >= 0 && len(results) > 1:
		var names []string
		for _, res := range results {
			names = append(names, res.Broker.Name)
		}
		return fmt.Errorf("queue %d is there on each of %s: say which one with --broker", r.queue, strings.Join(names, ", "))
	}
	// What one broker refuses, such as an offset that is not there, the others do not do.
	failed := adminclient.Failed(results)
	if ok.yes && failed == nil {
		there := make([]adminclient.Broker, len(results))
		for i, res := range results {
			there[i] = res.Broker
		}
		results = adminclient.Each(ctx, there, func(ctx context.Context, b adminclient.Broker) ([]resetQueue, error) { return r.at(ctx, c, b, true) })
		failed = adminclient.Failed(results)
	} else if ok.yes {
		failed = fmt.Errorf("%w: %w", errNothingReset, failed)
	}
	v := groupResetting{Group: r.group, Topic: r.topic, DryRun: !ok.yes || errors.Is(failed, errNothingReset), Force: r.force, Queues: []resetQueue{}, Failures: adminclient.FailuresOf(failed)}
	for _, res := range results {
		v.Queues = append(v.Queues, res.Value...)
	}
	if failed == nil && !ok.yes {
		failed = ok.unsaid("reset group %s in topic %s", r.group, r.topic)
	}
	return p.showPart(out, v, v.print, failed)
}

func (v groupResetting) print(g *page) {
	g.row("BROKER", "QUEUE", "OLD", "NEW", "MOVES", "NOTE")
	kept := 0
	for _, q := range v.Queues {
		old, moves, note := "", "", ""
		if q.Old != nil {
			old = fmt.Sprint(*q.Old)
			moves = fmt.Sprintf("%+d", q.New-*q.Old)
		}
		if q.Wanted != q.New {
			note = fmt.Sprintf("stays: %d is ahead; --force moves it", q.Wanted)
			kept++
		}
		g.row(q.Broker, q.Queue, old, q.New, moves, note)
	}
	if kept > 0 {
		g.part()
		g.line("not moved, because the group has not seen what is passed: %s", counted(kept, "queue"))
	}
}

// errNothingReset: not all brokers could, so none was asked to.
var errNothingReset = errors.New("nothing was changed")

// at resets at one broker, or tells what would be.
func (r *resetRun) at(ctx context.Context, c *adminclient.Client, b adminclient.Broker, do bool) ([]resetQueue, error) {
	is, err := c.Runtime(ctx, b, false)
	if err != nil {
		return nil, err
	}
	if !is.Ours() {
		return r.foreign(ctx, c, b, is.Table, do)
	}
	h := command.ResetOffsetRequest{Group: r.group, Topic: r.topic, Timestamp: r.to.ms, Offset: r.offset, QueueID: r.queue, Force: true, DryRun: true}
	wanted, err := adminclient.Get[command.ResetOffsetBody](ctx, c, b.Address, command.ReqInvokeBrokerToResetOffset, &h, nil)
	if err != nil {
		return nil, err
	}
	h.Force, h.DryRun = r.force, !do
	got, err := adminclient.Get[command.ResetOffsetBody](ctx, c, b.Address, command.ReqInvokeBrokerToResetOffset, &h, nil)
	if err != nil {
		return nil, err
	}
	var out []resetQueue
	for q, n := range got.OffsetTable {
		l := resetQueue{Broker: b.Name, Queue: q.QueueID, New: n, Wanted: wanted.OffsetTable[q]}
		if old, ok := got.PreviousTable[q]; ok {
			l.Old = &old
		}
		out = append(out, l)
	}
	sortResets(out)
	return out, nil
}

func sortResets(list []resetQueue) {
	slices.SortFunc(list, func(a, b resetQueue) int { return cmp.Compare(a.Queue, b.Queue) })
}

// foreign is at for a broker of Apache's: it knows neither a dry run nor, since 5.0,
// --force, so that the offsets are found and set one by one.
func (r *resetRun) foreign(ctx context.Context, c *adminclient.Client, b adminclient.Broker, table command.StringMap, do bool) ([]resetQueue, error) {
	list, err := r.targets(ctx, c, b)
	if err != nil || !do {
		return list, err
	}
	conns, err := connectionsAt(ctx, c, b, r.group)
	if err != nil {
		return list, err
	}
	version, _ := strconv.ParseInt(table["brokerVersion"], 10, 32)
	byClient := version < int64(command.Version500)
	if byClient && conns != nil {
		return nil, fmt.Errorf("it is a broker of RocketMQ %s, which resets consumers that are connected by time only: stop the members of group %s and say it again", table["brokerVersionDesc"], r.group)
	}
	for i := range list {
		q := &list[i]
		if q.Old != nil && *q.Old == q.New {
			continue
		}
		if byClient {
			h := command.UpdateConsumerOffsetRequest{ConsumerGroup: []byte(r.group), Topic: []byte(r.topic), QueueID: q.Queue, CommitOffset: q.New}
			_, err = c.Ask(ctx, b.Address, command.ReqUpdateConsumerOffset, &h, nil)
		} else {
			h := command.ResetOffsetRequest{Group: r.group, Topic: r.topic, Timestamp: r.to.ms, Offset: q.New, QueueID: q.Queue, Force: true}
			_, err = c.Ask(ctx, b.Address, command.ReqInvokeBrokerToResetOffset, &h, nil)
		}
		var now *int64
		if err == nil {
			now, err = committed(ctx, c, b, r.group, r.topic, q.Queue)
		}
		if err == nil && (now == nil || *now != q.New) {
			err = fmt.Errorf("queue %d was set to %d, but the broker does not say so afterwards: a member committed meanwhile, or useServerSideResetOffset is off", q.Queue, q.New)
		}
		if err != nil {
			return list[:i], err
		}
	}
	return list, nil
}

// targets finds what a reset would do at a broker of Apache's.
func (r *resetRun) targets(ctx context.Context, c *adminclient.Client, b adminclient.Broker) ([]resetQueue, error) {
	cfg, err := topicConfig(ctx, c, b, r.topic)
	if err == nil && cfg == nil {
		err = &rpc.CodeError{Code: command.RespTopicNotExist, Remark: "topic " + r.topic}
	}
	if err != nil {
		return nil, err
	}
	if r.queue >= cfg.ReadQueueNums {
		return nil, fmt.Errorf("topic %s has %s there, so none has the number %d", r.topic, counted(int(cfg.ReadQueueNums), "queue"), r.queue)
	}
	ends, err := adminclient.Get[command.TopicStatsTable](ctx, c, b.Address, command.ReqGetTopicStatsInfo, &command.TopicRequest{Topic: r.topic}, nil)
	if err != nil {
		return nil, err
	}
	group, err := groupConfig(ctx, c, b, r.group)
	if err != nil {
		return nil, err
	}
	var out []resetQueue
	known := group != nil
	for q, e := range ends.OffsetTable {
		if q.QueueID >= cfg.ReadQueueNums || r.queue >= 0 && q.QueueID != r.queue {
			continue
		}
		want := r.offset
		switch {
		case want >= 0 && (want < e.MinOffset || want > e.MaxOffset):
			return nil, fmt.Errorf("offset %d is outside of queue %d, which goes from %d to %d", want, q.QueueID, e.MinOffset, e.MaxOffset)
		case want >= 0:
		case r.to.ms == resetLatest || r.to.ms > e.LastUpdateTimestamp:
			want = e.MaxOffset
		default:
			if want, err = searchOffset(ctx, c, b, r.topic, q.QueueID, r.to.ms); err != nil {
				return nil, err
			}
			want = min(max(want, e.MinOffset), e.MaxOffset)
		}
		l := resetQueue{Broker: b.Name, Queue: q.QueueID, New: want, Wanted: want}
		if l.Old, err = committed(ctx, c, b, r.group, r.topic, q.QueueID); err != nil {
			return nil, err
		}
		known = known || l.Old != nil
		if l.Old != nil && !r.force {
			l.New = min(want, *l.Old)
		}
		out = append(out, l)
	}
	if !known {
		return nil, &rpc.CodeError{Code: command.RespSubscriptionGroupNotExist, Remark: "group " + r.group}
	}
	sortResets(out)
	return out, nil
}

// committed asks for the offset of a group in a queue; nil: it has none.
func committed(ctx context.Context, c *adminclient.Client, b adminclient.Broker, group, topic string, queue int32) (*int64, error) {
	h := command.QueryConsumerOffsetRequest{ConsumerGroup: []byte(group), Topic: []byte(topic), QueueID: queue}
	r, err := c.Ask(ctx, b.Address, command.ReqQueryConsumerOffset, &h, nil)
	if code, _ := adminclient.CodeOf(err); code == command.RespQueryNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var o command.OffsetResponse
	if err := o.Decode(&r.Header); err != nil {
		return nil, err
	}
	return &o.Offset, nil
}

// searchOffset asks for the first message of a queue that was stored at a time or
// later.
func searchOffset(ctx context.Context, c *adminclient.Client, b adminclient.Broker, topic string, queue int32, ms int64) (int64, error) {
	r, err := c.Ask(ctx, b.Address, command.ReqSearchOffsetByTimestamp, &command.SearchOffsetRequest{Topic: []byte(topic), QueueID: queue, Timestamp: ms}, nil)
	if err != nil {
		return 0, err
	}
	var o command.OffsetResponse
	err = o.Decode(&r.Header)
	return o.Offset, err
}
