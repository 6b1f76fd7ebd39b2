package harness

import (
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
)

// Conn speaks remoting frames over one connection: for tests that must know
// exactly which answer belongs to which request. One goroutine may write while
// another one reads.
type Conn struct {
	Frame int // bytes of the largest frame that it takes [16 MiB]

	net    net.Conn
	in     []byte // read but not yet handed out, from pos on
	pos    int
	frames []command.Frame
	next   int
	out    []byte
	opaque int32
}

// Dial connects.
func Dial(addr string) (*Conn, error) {
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	return &Conn{net: c}, nil
}

// Close closes the connection; a Read that waits returns.
func (c *Conn) Close() error { return c.net.Close() }

// Answer is one frame received.
type Answer struct {
	Header command.Header
	Body   []byte // lent until the next Read
}

// Err is nil for an answer with code 0.
func (a *Answer) Err() error {
	if a.Header.Code == command.RespSuccess {
		return nil
	}
	return fmt.Errorf("answer %d %s: %s", a.Header.Code, command.ResponseName(a.Header.Code), a.Header.Remark())
}

// Write sends one request and returns its opaque.
func (c *Conn) Write(code int32, fields func(*command.Writer), body []byte) (int32, error) {
	c.opaque++
	w := command.Begin(c.out[:0], command.JSON, code, c.opaque, 0)
	if fields != nil {
		fields(&w)
	}
	c.out = append(w.End(len(body)), body...)
	if err := w.Err(); err != nil {
		return 0, err
	}
	_ = c.net.SetWriteDeadline(time.Now().Add(30 * time.Second))
	_, err := c.net.Write(c.out)
	return c.opaque, err
}

// Read returns the next frame, waiting at most within.
func (c *Conn) Read(within time.Duration, a *Answer) error {
	for c.next == len(c.frames) {
		frames, used, want, err := command.Split(c.in[c.pos:], c.frames[:0], command.Limits{Frame: c.Frame})
		if err != nil {
			return err
		}
		c.pos += used
		c.frames, c.next = frames, 0
		if len(frames) > 0 {
			break
		}
		if err := c.fill(want, within); err != nil {
			return err
		}
	}
	f := &c.frames[c.next]
	c.next++
	a.Body = f.Body
	return a.Header.Decode(f)
}

// fill reads more bytes; frames handed out before are no longer looked at.
func (c *Conn) fill(want int, within time.Duration) error {
	rest := len(c.in) - c.pos
	need := max(want, rest+64<<10)
	buf := c.in[:0]
	if cap(buf) < need {
		buf = make([]byte, 0, need)
	}
	buf = append(buf, c.in[c.pos:]...)
	c.pos = 0
	if err := c.net.SetReadDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	n, err := c.net.Read(buf[len(buf):cap(buf)])
	c.in = buf[:rest+n]
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

const callTimeout = time.Minute

// Call sends a request and waits for its answer, skipping what the broker asks
// in between.
func (c *Conn) Call(code int32, fields func(*command.Writer), body []byte) (*Answer, error) {
	opaque, err := c.Write(code, fields, body)
	if err != nil {
		return nil, err
	}
	a := &Answer{}
	for {
		if err := c.Read(callTimeout, a); err != nil {
			return nil, fmt.Errorf("%s: %w", command.RequestName(code), err)
		}
		if a.Header.IsResponse() && a.Header.Opaque == opaque {
			return a, nil
		}
	}
}

// CreateTopic creates a topic with as many queues for reading as for writing.
func (c *Conn) CreateTopic(topic string, queues int32) error {
	h := command.CreateTopicRequest{
		Topic: topic, DefaultTopic: "TBW102", TopicFilterType: "SINGLE_TAG",
		ReadQueueNums: queues, WriteQueueNums: queues, Perm: 6,
	}
	a, err := c.Call(command.ReqUpdateAndCreateTopic, h.Append, nil)
	if err != nil {
		return err
	}
	return a.Err()
}

// Send is one message for Conn.Send and WriteSend.
type Send struct {
	Topic string
	Queue int32
	Props string // property string
	Body  []byte
	Batch bool // Body is a batch of messages
}

func (s *Send) request() (int32, func(*command.Writer)) {
	h := command.SendRequest{
		ProducerGroup: []byte("raw"), Topic: []byte(s.Topic), DefaultTopic: []byte("TBW102"), DefaultTopicQueueNums: 4,
		QueueID: s.Queue, BornTimestamp: time.Now().UnixMilli(), Properties: []byte(s.Props), MaxReconsumeTimes: -1, Batch: s.Batch,
	}
	code := command.ReqSendMessageV2
	if s.Batch {
		code = command.ReqSendBatchMessage
	}
	return code, h.Append
}

// WriteSend sends a message without waiting.
func (c *Conn) WriteSend(s *Send) (int32, error) {
	code, fields := s.request()
	return c.Write(code, fields, s.Body)
}

// CallSend sends a message and returns the answer, whatever its code.
func (c *Conn) CallSend(s *Send) (*Answer, error) {
	code, fields := s.request()
	return c.Call(code, fields, s.Body)
}

// Send sends a message and returns the header of the answer, whose code must be 0.
func (c *Conn) Send(s *Send) (command.SendResponse, error) {
	var r command.SendResponse
	a, err := c.CallSend(s)
	if err == nil {
		err = a.Err()
	}
	if err == nil {
		err = r.Decode(&a.Header)
	}
	return r, err
}

// Range asks for the bounds of a queue: the first offset and the next one.
func (c *Conn) Range(topic string, queue int32) (minOffset, maxOffset int64, err error) {
	if minOffset, err = c.offset(command.ReqGetMinOffset, topic, queue); err != nil {
		return 0, 0, err
	}
	maxOffset, err = c.offset(command.ReqGetMaxOffset, topic, queue)
	return minOffset, maxOffset, err
}

func (c *Conn) offset(code int32, topic string, queue int32) (int64, error) {
	h := command.QueueRequest{Topic: []byte(topic), QueueID: queue}
	a, err := c.Call(code, h.Append, nil)
	if err == nil {
		err = a.Err()
	}
	if err != nil {
		return 0, err
	}
	var r command.OffsetResponse
	err = r.Decode(&a.Header)
	return r.Offset, err
}

// Pull is what Conn.Pull asks for.
type Pull struct {
	Topic  string
	Queue  int32
	Offset int64
	Max    int32  // messages [32]
	Tags   string // expression [*]
	Group  string // [raw-pull]
}

// Pull reads messages at an offset, without waiting for new ones. The records
// are lent until the next call. code is 0, 19, 20 or 21.
func (c *Conn) Pull(p Pull, each func(v *message.View) error) (code int32, r command.PullResponse, err error) {
	if p.Max == 0 {
		p.Max = 32
	}
	if p.Tags == "" {
		p.Tags = "*"
	}
	if p.Group == "" {
		p.Group = "raw-pull"
	}
	h := command.PullRequest{
		ConsumerGroup: []byte(p.Group), Topic: []byte(p.Topic), QueueID: p.Queue, QueueOffset: p.Offset, MaxMsgNums: p.Max,
		SysFlag: command.PullSubscription, Subscription: []byte(p.Tags), ExpressionType: []byte("TAG"),
	}
	a, err := c.Call(command.ReqPullMessage, h.Append, nil)
	if err != nil {
		return 0, r, err
	}
	code = a.Header.Code
	switch code {
	case command.RespSuccess, command.RespPullNotFound, command.RespPullRetryImmediately, command.RespPullOffsetMoved:
	default:
		return code, r, fmt.Errorf("pull %s/%d at %d: %w", p.Topic, p.Queue, p.Offset, a.Err())
	}
	if err := r.Decode(&a.Header); err != nil {
		return code, r, err
	}
	for body := a.Body; len(body) > 0; {
		var v message.View
		if err := message.Parse(body, &v); err != nil {
			return code, r, fmt.Errorf("pull %s/%d at %d: %w", p.Topic, p.Queue, p.Offset, err)
		}
		if err := v.CheckBody(); err != nil {
			return code, r, fmt.Errorf("pull %s/%d at %d: %w", p.Topic, p.Queue, p.Offset, err)
		}
		if err := each(&v); err != nil {
			return code, r, err
		}
		body = body[v.Size:]
	}
	return code, r, nil
}

// ReadQueue reads a queue from an offset to its end as it is now and fails when
// offsets are not dense or the record's own offset or queue is another one.
func (c *Conn) ReadQueue(topic string, queue int32, from int64, each func(v *message.View) error) (end int64, err error) {
	first, end, err := c.Range(topic, queue)
	if err != nil {
		return 0, err
	}
	if from < first {
		from = first
	}
	for at := from; at < end; {
		before := at
		code, r, err := c.Pull(Pull{Topic: topic, Queue: queue, Offset: at, Max: 1024}, func(v *message.View) error {
			if v.QueueOffset != at || v.QueueID != queue || string(v.Topic) != topic {
				return fmt.Errorf("%s/%d: expected offset %d, got a record of %s/%d with offset %d", topic, queue, at, v.Topic, v.QueueID, v.QueueOffset)
			}
			at++
			return each(v)
		})
		if err != nil {
			return 0, err
		}
		if at == before || r.NextBeginOffset != at {
			return 0, fmt.Errorf("%s/%d: pull at %d (end %d) gave code %d, %d messages, next offset %d, bounds %d to %d",
				topic, queue, before, end, code, at-before, r.NextBeginOffset, r.MinOffset, r.MaxOffset)
		}
	}
	return end, nil
}
