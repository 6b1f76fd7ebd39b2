package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/internal/adminclient"
)

func (p *program) messageCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "message", Short: "Messages that running brokers keep",
		Long: "Finds messages that running brokers keep, Hardpoint's and Apache RocketMQ's (4.9, 5.x), and shows them.\n\n" + adminHelp,
	}
	c.AddCommand(p.messageQuery())
	return c
}

// messageQuery is one run of `message query`.
type messageQuery struct {
	p   *program
	out output
	at  adminFlags

	topic, id, key string
	queue          int32
	offset         int64
	from, to       momentFlag
	most           int32
	body           choice
	limit          int

	by string // which of the ways
}

// The ways to ask for messages.
const (
	byID     = "id"
	byKey    = "key"
	byOffset = "offset"
	byTime   = "time"
)

// maxMessages bounds --max.
const maxMessages = 10_000

func (p *program) messageQuery() *cobra.Command {
	q := &messageQuery{p: p}
	q.body = choice{word: "text", words: []string{"text", "base64", "none"}}
	q.limit = 256
	c := &cobra.Command{
		Use: "query", Short: "Find messages by id, key, offset or time",
		Long: `Finds messages and shows them, the oldest first; one alone with all that is known of it. There are four ways to ask:

    --id ID                        an id: of a record, which names the broker and the place, or with --topic the
                                   unique key that the producer gave the message
    --topic T --key KEY            a key, or part of a list of keys, of messages stored in a time; the newest, up to --max
    --topic T --queue N --offset N a place in a queue, on all brokers of the topic or on --broker, and what follows up to --max
    --topic T --from TIME --to TIME  what was stored in a time, in all queues or in --queue

A TIME is ` + momentUsage + `.
The bounds belong to it. Nothing is consumed, and no group is made.

Of a body the first bytes are shown (--body-limit). Text is shown with what a terminal would take as a command escaped, other
bytes in hexadecimal. Compressed bodies (zlib, lz4, zstd) are decompressed.

The exit code is 1 when there is no such message, or a broker that may have it does not answer.`,
		Example: `  hardpoint message query --topic Orders --key order-1042
  hardpoint message query --topic Orders --id 7F0000010007D8A4C2A40A1B2C3D0001
  hardpoint message query --id 0A00000100002A9F0000000000000123
  hardpoint message query --topic Orders --from -10m --max 5 --output json --body base64`,
		Args:    noArgs,
		PreRunE: func(c *cobra.Command, _ []string) error { return q.check(c) },
		RunE: func(c *cobra.Command, _ []string) error {
			return q.at.with(c.Context(), q.run)
		},
	}
	f := c.Flags()
	f.StringVar(&q.topic, "topic", "", "the `topic` of the messages")
	f.StringVar(&q.id, "id", "", "`id` of a record, or unique key of a message")
	f.StringVar(&q.key, "key", "", "`key` of messages")
	f.Int32Var(&q.queue, "queue", -1, "`number` of the queue")
	f.Int64Var(&q.offset, "offset", -1, "`offset` in the queue")
	noDefaults(f, "queue", "offset")
	f.Var(&q.from, "from", "stored at this `time` or later")
	f.Var(&q.to, "to", "stored at this `time` or earlier")
	f.Int32Var(&q.most, "max", 0, "`number` of messages at most; without it 32, with --offset that one")
	q.body.register(c, "body", "", "how bodies are shown")
	f.Var(sizeFlag{&q.limit}, "body-limit", "bytes of each body that are shown")
	q.at.registerBroker(c, "only this broker of the topic: its `name`, or its address, for which no name server is asked")
	q.at.register(c)
	q.out.register(c)
	_ = c.RegisterFlagCompletionFunc("topic", q.at.complete(topicNames))
	return c
}

// check finds the way, and refuses flags of others.
func (q *messageQuery) check(c *cobra.Command) error {
	given := func(name string) bool { return c.Flags().Changed(name) }
	ways := []struct {
		by       string
		is       bool
		needs    []string
		excludes []string
	}{
		{byID, given("id"), nil, []string{"key", "queue", "offset", "from", "to"}},
		{byKey, given("key"), []string{"topic"}, []string{"queue", "offset"}},
		{byOffset, given("offset"), []string{"topic", "queue"}, []string{"from", "to"}},
		{byTime, given("from") || given("to"), []string{"topic"}, nil},
	}
	for _, w := range ways {
		if !w.is {
			continue
		}
		for _, n := range w.needs {
			if !given(n) {
				return fmt.Errorf("--%s is needed to ask by %s", n, w.by)
			}
		}
		for _, n := range w.excludes {
			if given(n) {
				return fmt.Errorf("--%s has no meaning beside --%s", n, w.by)
			}
		}
		q.by = w.by
		break
	}
	if !given("max") {
		if q.most = 32; q.by == byOffset {
			q.most = 1
		}
	}
	switch {
	case q.by == "":
		return errors.New("say which messages: --id, --key, --offset, or --from and --to")
	case q.id == "" && q.by == byID, q.key == "" && q.by == byKey:
		return fmt.Errorf("--%s is empty", q.by)
	case q.most < 1 || q.most > maxMessages:
		return fmt.Errorf("--max is %d, allowed is 1 to %d", q.most, maxMessages)
	case given("queue") && q.queue < 0, given("offset") && q.offset < 0:
		return errors.New("queues and offsets begin at 0")
	case q.limit < 0:
		return errors.New("--body-limit is below 0")
	}
	if q.from.ms == resetLatest {
		return errors.New("nothing is stored after the end: --from cannot be latest")
	}
	if q.to.text == "" || q.to.ms == resetLatest {
		q.to = momentFlag{ms: time.Now().Add(time.Hour).UnixMilli()} // clocks of brokers may be ahead
	}
	if q.from.ms > q.to.ms {
		return fmt.Errorf("--from %s (%s) is behind --to (%s)", q.from.text, timeText(q.from.ms), timeText(q.to.ms))
	}
	return nil
}

// found is what a query prints as JSON.
type found struct {
	Messages []shownMessage        `json:"messages"`
	More     bool                  `json:"more"` // there are others, which --max left out
	Failures []adminclient.Failure `json:"failures,omitempty"`
}

// shownMessage is a message with as much of its body as was asked for.
type shownMessage struct {
	adminclient.Message
	StoreTime instant `json:"storeTime"`
	BornTime  instant `json:"bornTime"`
	// BodySize is that of what is shown, or would be without the limit when that is
	// known; Encoding is text or base64, and none without Body.
	BodySize int    `json:"bodySize"`
	Encoding string `json:"bodyEncoding"`
	Body     string `json:"body"`
	Cut      bool   `json:"bodyCut"`
	Note     string `json:"bodyNote,omitempty"` // why a body is shown as it is stored

	bytes []byte
}

func (q *messageQuery) run(ctx context.Context, c *adminclient.Client) error {
	ms, failed, err := q.find(ctx, c)
	if err != nil {
		return err
	}
	slices.SortStableFunc(ms, func(a, b shownMessage) int {
		return cmp.Or(cmp.Compare(a.StoreTime, b.StoreTime), strings.Compare(a.Broker, b.Broker), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Offset, b.Offset))
	})
	out := found{Failures: adminclient.FailuresOf(failed)}
	if most := int(q.most); len(ms) > most {
		out.More = q.by != byOffset || most > 1
		if q.newest() {
			ms = ms[len(ms)-most:]
		} else {
			ms = ms[:most]
		}
	}
	out.Messages = append([]shownMessage{}, ms...)
	if len(ms) == 0 && !q.out.json() {
		return cmp.Or(failed, q.nothing())
	}
	if err := q.p.show(&q.out, out, func(g *page) { q.print(g, &out) }); err != nil {
		return err
	}
	if len(ms) == 0 {
		return cmp.Or(failed, q.nothing())
	}
	return failed
}

// newest says which of too many messages are shown: a broker gives the newest that have
// a key, and from an offset or a time on what comes first.
func (q *messageQuery) newest() bool { return q.by == byKey || q.by == byID }

// nothing says what was not found.
func (q *messageQuery) nothing() error {
	switch q.by {
	case byID:
		if q.topic == "" {
			return fmt.Errorf("there is no message %s", q.id)
		}
		return fmt.Errorf("topic %s has no message with the unique key %s; it may have expired", q.topic, q.id)
	case byKey:
		return fmt.Errorf("topic %s has no message with the key %q%s; it may have expired", q.topic, q.key, q.span())
	case byOffset:
		return fmt.Errorf("queue %d of topic %s has no message at offset %d or later", q.queue, q.topic, q.offset)
	}
	return fmt.Errorf("topic %s has no message%s", q.topic, q.span())
}

func (q *messageQuery) span() string {
	out := ""
	if q.from.text != "" {
		out += " stored from " + timeText(q.from.ms)
	}
	if q.to.text != "" {
		if out == "" {
			out = " stored"
		}
		out += " to " + timeText(q.to.ms)
	}
	return out
}

// find asks; failed names the brokers that did not answer. Of what is found only what
// is shown is kept: messages may be large.
func (q *messageQuery) find(ctx context.Context, c *adminclient.Client) (ms []shownMessage, failed, err error) {
	if q.by == byID && q.topic == "" {
		m, err := c.MessageByID(ctx, q.id)
		if errors.Is(err, message.ErrID) {
			err = misusef("%w; with --topic it is taken for a unique key", err)
		}
		if err != nil {
			return nil, nil, err
		}
		return q.allShown(*m), nil, nil
	}
	brokers, queues, err := q.brokers(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	results := adminclient.Each(ctx, brokers, func(ctx context.Context, b adminclient.Broker) ([]shownMessage, error) {
		switch q.by {
		case byOffset:
			return q.read(ctx, c, b, q.queue, q.offset)
		case byTime:
			return q.stored(ctx, c, b, queues[b.Name])
		}
		h := command.QueryMessageRequest{Topic: []byte(q.topic), Key: []byte(q.key), MaxNum: q.most + 1, BeginTimestamp: q.from.ms, EndTimestamp: q.to.ms}
		if q.by == byID {
			h.Key, h.UniqueKey, h.BeginTimestamp = []byte(q.id), true, 0
		}
		ms, err := c.MessagesByKey(ctx, b, h)
		return q.allShown(ms...), err
	})
	for _, r := range results {
		ms = append(ms, r.Value...)
	}
	if len(ms) == 0 && q.by == byID {
		if ms, err = q.recordOf(ctx, c, brokers); err != nil {
			return nil, nil, err
		}
	}
	return ms, adminclient.Failed(results), nil
}

// recordOf is the record of an id, if it is one of a broker of the topic.
func (q *messageQuery) recordOf(ctx context.Context, c *adminclient.Client, brokers []adminclient.Broker) ([]shownMessage, error) {
	addr, at, err := message.ParseOffsetID(q.id)
	i := slices.IndexFunc(brokers, func(b adminclient.Broker) bool { return b.Address == addr.String() })
	if err != nil || i < 0 {
		return nil, nil
	}
	m, err := c.MessageAt(ctx, brokers[i], at)
	if _, refused := adminclient.CodeOf(err); refused {
		return nil, nil
	}
	if err != nil || m.Topic != q.topic {
		return nil, err
	}
	return q.allShown(*m), nil
}

// brokers are those to ask, with the number of queues of each by name.
func (q *messageQuery) brokers(ctx context.Context, c *adminclient.Client) ([]adminclient.Broker, map[string]int32, error) {
	queues := map[string]int32{}
	if strings.Contains(q.at.Broker, ":") {
		brokers, err := c.Brokers(ctx, q.at.Selection)
		if err != nil {
			return nil, nil, err
		}
		t, err := adminclient.Get[command.TopicConfig](ctx, c, brokers[0].Address, command.ReqGetTopicConfig, &command.TopicRequest{Topic: q.topic}, nil)
		if code, _ := adminclient.CodeOf(err); code == command.RespTopicNotExist {
			return nil, nil, &adminclient.NotFoundError{Kind: "topic", Name: q.topic, Where: "on broker " + brokers[0].String()}
		}
		if err != nil && q.by == byTime { // the others need no number
			return nil, nil, err
		}
		queues[brokers[0].Name] = t.ReadQueueNums
		return brokers, queues, nil
	}
	route, err := c.Route(ctx, q.topic)
	if err != nil {
		return nil, nil, err
	}
	for _, d := range route.QueueDatas {
		queues[d.BrokerName] = d.ReadQueueNums
	}
	brokers := adminclient.BrokersOf(&route)
	if q.at.Broker != "" {
		var names []string
		for _, b := range brokers {
			names = append(names, b.Name)
		}
		brokers = slices.DeleteFunc(brokers, func(b adminclient.Broker) bool { return b.Name != q.at.Broker })
		if len(brokers) == 0 {
			return nil, nil, &adminclient.NotFoundError{Kind: "broker", Name: q.at.Broker, Known: names, Where: "that has topic " + q.topic}
		}
	}
	return brokers, queues, nil
}

// read reads a queue from an offset on, one message more than is shown.
func (q *messageQuery) read(ctx context.Context, c *adminclient.Client, b adminclient.Broker, queue int32, from int64) (out []shownMessage, err error) {
	of := message.Queue{Topic: q.topic, ID: queue}
	for left := q.most + 1 - int32(len(out)); left > 0; left = q.most + 1 - int32(len(out)) {
		ms, next, err := c.Read(ctx, b, of, from, min(left, 32))
		if err != nil {
			return out, err
		}
		for _, m := range ms {
			if q.by == byTime && m.StoreTime > q.to.ms {
				return out, nil
			}
			out = append(out, q.shown(&m))
		}
		if next <= from || len(ms) == 0 && q.by == byOffset {
			break // its end, or an offset that is behind it
		}
		from = next
	}
	return out, nil
}

// stored reads what was stored in a time, in all queues or the one that is asked for.
func (q *messageQuery) stored(ctx context.Context, c *adminclient.Client, b adminclient.Broker, queues int32) (out []shownMessage, err error) {
	for id := range queues {
		if q.queue >= 0 && id != q.queue {
			continue
		}
		from, err := c.OffsetAt(ctx, b, message.Queue{Topic: q.topic, ID: id}, q.from.ms)
		if err != nil {
			return out, err
		}
		ms, err := q.read(ctx, c, b, id, from)
		for _, m := range ms {
			if int64(m.StoreTime) >= q.from.ms { // a broker gives the last one when all are older
				out = append(out, m)
			}
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// allShown is shown of each.
func (q *messageQuery) allShown(ms ...adminclient.Message) []shownMessage {
	out := make([]shownMessage, 0, len(ms))
	for i := range ms {
		out = append(out, q.shown(&ms[i]))
	}
	return out
}

// shown cuts and encodes the body. It holds on to nothing else of the answer that the
// message came with.
func (q *messageQuery) shown(m *adminclient.Message) shownMessage {
	s := shownMessage{Message: *m, StoreTime: instant(m.StoreTime), BornTime: instant(m.BornTime), Encoding: "none"}
	body, cut, err := m.PlainBody(q.limit)
	if err != nil {
		body, cut, s.Note = m.Body[:min(len(m.Body), q.limit)], len(m.Body) > q.limit, err.Error()
	}
	s.Message.Body = nil
	s.Cut, s.BodySize = cut, len(body)
	if cut && m.SysFlag&message.SysCompressed == 0 {
		s.BodySize = len(m.Body)
	}
	if q.body.word == "none" {
		return s
	}
	for s.Cut && q.body.word == "text" && err == nil && len(body) > 0 && !utf8.Valid(body) && utf8.Valid(trimRune(body)) {
		body = trimRune(body) // the limit is inside of a letter
	}
	s.bytes = bytes.Clone(body)
	if q.body.word == "text" && utf8.Valid(body) && err == nil {
		s.Encoding, s.Body = "text", string(body)
	} else {
		s.Encoding, s.Body = "base64", base64.StdEncoding.EncodeToString(body)
	}
	return s
}

// trimRune cuts a letter that is not whole off the end.
func trimRune(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if utf8.RuneStart(b[len(b)-i]) {
			return b[:len(b)-i]
		}
	}
	return b
}

// bodyText is a body for a terminal, in one line.
func (s *shownMessage) bodyText(encoding string) string {
	if s.Encoding == "none" {
		return ""
	}
	var text string
	switch {
	case encoding == "base64":
		text = s.Body
	case s.Encoding == "text":
		text = escaped(s.Body)
	default:
		text = fmt.Sprintf("0x%x", s.bytes)
	}
	if s.Cut {
		text += "…"
	}
	return text
}

// escaped shows what is no letter as Go writes it, so that a terminal takes no part of
// it as a command.
func escaped(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// widest is how many letters a text of a producer's has in a table, where one makes all
// lines as long.
const widest = 64

func clipped(s string) string {
	n := 0
	for i := range s {
		if n++; n > widest {
			return s[:i] + "…"
		}
	}
	return s
}

func (q *messageQuery) print(g *page, out *found) {
	if len(out.Messages) == 1 && !out.More {
		out.Messages[0].write(g, q.body.word)
		return
	}
	g.row("STORED", "BROKER", "QUEUE", "OFFSET", "KEYS", "TAGS", "UNIQUE KEY", "BODY")
	for i := range out.Messages {
		m := &out.Messages[i]
		g.row(m.StoreTime, m.Broker, m.Queue, m.Offset, clipped(m.Keys), clipped(m.Tags), clipped(m.UniqueKey), m.bodyText(q.body.word))
	}
	if out.More {
		g.part()
		if q.newest() {
			g.line("there are older ones; --max shows them")
		} else {
			g.line("there are more; --max shows them")
		}
	}
}

// write shows one message with all that is known of it.
func (s *shownMessage) write(g *page, encoding string) {
	g.line("topic\t%s", s.Topic)
	g.line("queue\t%d on %s, offset %d", s.Queue, s.Broker, s.Offset)
	g.line("record\t%s, at position %d, %s", s.ID, s.Position, sizeText(int64(s.Size)))
	g.line("stored\t%s at %s", s.StoreTime, s.StoreHost)
	g.line("born\t%s at %s", s.BornTime, s.BornHost)
	if s.Reconsumed > 0 {
		g.line("consumed again\t%s", counted(int(s.Reconsumed), "time"))
	}
	switch s.SysFlag & message.SysTxMask {
	case message.SysTxPrepared:
		g.line("transaction\tprepared")
	case message.SysTxCommit:
		g.line("transaction\tcommitted")
	case message.SysTxRollback:
		g.line("transaction\trolled back")
	}
	for _, k := range slices.Sorted(maps.Keys(s.Properties)) {
		g.line("property %s\t%s", escaped(k), escaped(s.Properties[k]))
	}
	if s.Encoding != "none" {
		size := fmt.Sprintf("%d bytes", s.BodySize)
		if s.Cut {
			size = fmt.Sprintf("the first %d bytes", len(s.bytes))
		}
		if s.Note != "" {
			size += "; " + s.Note
		}
		g.line("body\t%s", size)
		g.part()
		g.line("%s", s.bodyText(encoding))
	}
}
