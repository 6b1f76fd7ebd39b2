package storagetest

import (
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagebench"
)

// Message is what a test says of a record; the zero value is a legal message
// with an empty body of queue "/0".
type Message struct {
	Queue     message.Queue
	Tags      string
	Keys      string
	UniqueKey string
	// Delay is the delay level, written when positive.
	Delay int
	// Properties, when not empty, is the raw property string; Tags, Keys,
	// UniqueKey and Delay are appended to it.
	Properties string
	Flag       int32
	SysFlag    int32
	Body       []byte
	// BornHost and StoreHost default to 127.0.0.1 with ports 5555 and 10911.
	BornHost, StoreHost netip.AddrPort
	// NoWait marks the group of the message.
	NoWait bool
}

// Writer turns Messages into Pendings the way the send path does: encoded once,
// units and keys by the Deriver. It is not safe for concurrent use.
type Writer struct {
	deriver *message.Deriver
	rec     message.Record
	view    message.View
	props   []byte
	born    message.Host
	store   message.Host
}

// NewWriter makes a Writer that derives by rules.
func NewWriter(rules message.IndexRules) *Writer {
	loop := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	return &Writer{
		deriver: message.NewDeriver(rules),
		born:    message.HostOf(netip.AddrPortFrom(loop, 5555)),
		store:   message.HostOf(netip.AddrPortFrom(loop, 10911)),
	}
}

// Add appends msgs to p as one group.
func (w *Writer) Add(p *storage.Pending, msgs ...Message) {
	g := storage.Group{Off: int32(len(p.Buf)), Unit: int32(len(p.Units)), Key: int32(len(p.Keys))}
	for i := range msgs {
		m := &msgs[i]
		g.NoWait = g.NoWait || m.NoWait
		w.fill(m)
		off, n := len(p.Buf), w.rec.Size()
		p.Buf = slices.Grow(p.Buf, n)[:off+n]
		w.rec.Encode(p.Buf[off:], &w.view)
		w.view.Position = message.Position(off)
		p.Units, p.Keys = w.deriver.Derive(&w.view, nil, p.Units, p.Keys)
	}
	g.Len = int32(len(p.Buf)) - g.Off
	g.Units = int32(len(p.Units)) - g.Unit
	g.Keys = int32(len(p.Keys)) - g.Key
	p.Groups = append(p.Groups, g)
}

// Pending makes a Pending with one group per argument.
func (w *Writer) Pending(groups ...[]Message) *storage.Pending {
	p := &storage.Pending{}
	for _, g := range groups {
		w.Add(p, g...)
	}
	return p
}

// Relative undoes what Assign did to the positions in p, so that its records can
// be placed and appended again: benchmarks encode once. All its batches must be
// freed.
func Relative(p *storage.Pending) { storagebench.Relative(p) }

// Size is the encoded size of m.
func (w *Writer) Size(m Message) int {
	w.fill(&m)
	return w.rec.Size()
}

func (w *Writer) fill(m *Message) {
	p := append(w.props[:0], m.Properties...)
	p = message.AppendProperty(p, message.PropTags, m.Tags)
	p = message.AppendProperty(p, message.PropKeys, m.Keys)
	p = message.AppendProperty(p, message.PropUniqueKey, m.UniqueKey)
	if m.Delay > 0 {
		p = message.AppendProperty(p, message.PropDelay, strconv.Itoa(m.Delay))
	}
	w.props = p
	w.rec = message.Record{
		Topic: m.Queue.Topic, QueueID: m.Queue.ID, Flag: m.Flag, SysFlag: m.SysFlag,
		BornTime: 1, BornHost: w.born, StoreHost: w.store, Body: m.Body, Properties: p,
	}
	if m.BornHost.IsValid() {
		w.rec.BornHost = message.HostOf(m.BornHost)
	}
	if m.StoreHost.IsValid() {
		w.rec.StoreHost = message.HostOf(m.StoreHost)
	}
}

// OpenSequencer makes a Sequencer for a term of office over a running store
// whose published mark equals its tail.
func OpenSequencer(tb testing.TB, s storage.Store, clock plugin.Clock, term uint64) *storage.Sequencer {
	tb.Helper()
	seq := storage.NewSequencer(clock)
	var ends storage.OffsetAnswers
	if err := s.Offsets(tb.Context(), nil, &ends); err != nil {
		tb.Fatalf("Offsets of all queues: %v", err)
	}
	if err := seq.Open(term, s.State(), ends.Answers); err != nil {
		tb.Fatalf("Sequencer.Open: %v", err)
	}
	return seq
}

// Clock is a clock whose time tests set; its timers are those of the system.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock makes a clock that stands at ms Unix milliseconds.
func NewClock(ms int64) *Clock { return &Clock{now: time.UnixMilli(ms)} }

// Now implements plugin.Clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Set makes the clock stand at ms.
func (c *Clock) Set(ms int64) {
	c.mu.Lock()
	c.now = time.UnixMilli(ms)
	c.mu.Unlock()
}

// Add moves the clock by ms, which may be negative.
func (c *Clock) Add(ms int64) {
	c.mu.Lock()
	c.now = c.now.Add(time.Duration(ms) * time.Millisecond)
	c.mu.Unlock()
}

// NewTimer implements plugin.Clock.
func (c *Clock) NewTimer(d time.Duration) plugin.Timer { return plugin.SystemClock{}.NewTimer(d) }
