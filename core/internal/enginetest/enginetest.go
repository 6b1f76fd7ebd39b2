// Package enginetest runs the engine of a broker without plugins and without a
// disk: a store in memory, a file system in memory, fake peers, and a replicator
// that the test brings. Everything stays inside the process and inside a bubble
// of testing/synctest, if there is one.
package enginetest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/admin"
	"github.com/hardpointmq/hardpoint/core/internal/assign"
	"github.com/hardpointmq/hardpoint/core/internal/catalog"
	"github.com/hardpointmq/hardpoint/core/internal/client"
	"github.com/hardpointmq/hardpoint/core/internal/combine"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/internal/observe"
	"github.com/hardpointmq/hardpoint/core/internal/offset"
	"github.com/hardpointmq/hardpoint/core/internal/pull"
	"github.com/hardpointmq/hardpoint/core/internal/query"
	"github.com/hardpointmq/hardpoint/core/internal/retention"
	"github.com/hardpointmq/hardpoint/core/internal/retry"
	"github.com/hardpointmq/hardpoint/core/internal/send"
	"github.com/hardpointmq/hardpoint/core/internal/spans"
	"github.com/hardpointmq/hardpoint/core/internal/stats"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/replication/replicationtest"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/core/storage/storekit"
	"github.com/hardpointmq/hardpoint/core/transport/transporttest"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
)

// Patience is how long a test waits for what must happen; it is only used up
// when a test fails.
const Patience = time.Minute

// Disk is what survives an Engine: its log and its files.
type Disk struct {
	KV KV
	FS vfs.FS
}

// KV keeps what it holds over Close.
type KV struct{ *storekit.MemKV }

// Close keeps everything.
func (KV) Close() error { return nil }

// Copy makes another one with the same content, as it is at this moment.
func (k KV) Copy(tb testing.TB) KV {
	tb.Helper()
	var ops []storekit.Op
	err := k.Scan(nil, bytes.Repeat([]byte{0xFF}, 64), false, func(k, v []byte) bool {
		ops = append(ops, storekit.Op{Key: bytes.Clone(k), Value: bytes.Clone(v)})
		return true
	})
	if err != nil {
		tb.Fatal(err)
	}
	kv := KV{&storekit.MemKV{}}
	if err := kv.Apply(ops, true); err != nil {
		tb.Fatal(err)
	}
	return kv
}

// NewDisk makes an empty one.
func NewDisk() *Disk { return &Disk{KV: KV{&storekit.MemKV{}}, FS: memfs.New(1)} }

// Options say how an Engine is made; the zero value is a leader on the scripted
// replicator with an empty disk.
type Options struct {
	// Replication makes the replicator [the scripted one, see Engine.Script].
	Replication       replication.Factory
	ReplicationConfig plugin.Raw
	// Disk is kept between engines [an empty one].
	Disk *Disk
	// Store wraps the store.
	Store storagemw.Middleware
	// NewStore replaces the store in memory.
	NewStore func(p storage.Params) storage.Store
	// Segment is the segment size in bytes [1 MiB].
	Segment int64
	// Config changes the configuration.
	Config func(*kernel.Config)
	// Prepare is called before anything starts.
	Prepare func(e *Engine)
	// Assign is who shares queues; without it there are no allocators.
	Assign assign.Params
	Clock  plugin.Clock
	Meter  plugin.Meter
	// Usage is the state of the store's disk; without it there is no disk.
	Usage func(dir string) (vfs.Usage, error)
	// Spans makes the spans of requests.
	Spans *spans.Spans
	// Observe changes how RocketMQ's metrics are shown.
	Observe func(*observe.Params)
}

// Engine is a running broker without plugins.
type Engine struct {
	K       *kernel.Kernel
	Queue   *combine.Queue
	Catalog *catalog.Catalog
	Clients *client.Manager
	Store   storage.Store
	Rep     replication.Replicator
	// Script drives the scripted replicator; nil with another one.
	Script *replicationtest.Scripted
	Disk   *Disk
	// Log is what the engine logged.
	Log *Log
	// Failed is what the store said when it failed.
	Failed error

	tb   testing.TB
	opt  Options
	once sync.Once
}

// Log collects what is logged as text.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// String is everything so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Config is the configuration that engines have unless changed. A send waits for room
// in the log for as long as a busy machine may take.
func Config() kernel.Config {
	return kernel.Config{
		Identity: kernel.Identity{
			ClusterName: "DefaultCluster", BrokerName: "broker-a", Advertise: netip.MustParseAddrPort("127.0.0.2:10911"),
			Permission: 6, Region: "DefaultRegion", TraceOn: true,
		},
		TopicRules: kernel.TopicRules{
			AutoCreateTopic: true, AutoCreateGroup: true, ClusterTopic: true, BrokerTopic: true, DefaultTopicQueueNums: 8,
		},
		ReadRules: kernel.ReadRules{
			LongPolling: true, ShortPolling: time.Second,
			Hot: storage.Limit{Count: 32, Bytes: 256 << 10}, Cold: storage.Limit{Count: 8, Bytes: 64 << 10},
			FilterScan: 800, MaxQueryBatch: 64, QueryMax: 32,
		},
		RetentionRules: kernel.RetentionRules{
			Reserved: 72 * time.Hour, Every: 10 * time.Second, Batch: 10, Pause: 100 * time.Millisecond,
			MaxUsed: 75, Forcibly: 85, Warning: 90, CleanForcibly: true, ReaderWait: 2 * time.Minute, HoldMost: 24 * time.Hour,
		},
		Dir: "store", MaxMessageSize: 4 << 20,
		OffsetInterval: time.Second, FileInterval: 5 * time.Second, ChannelExpired: 120 * time.Second,
		NotifyIDs: true, SendWait: Patience,
		Index: message.IndexRules{DelayLevels: message.DefaultDelayLevels()},
	}
}

// Start makes and starts an engine; it is stopped when the test ends.
func Start(tb testing.TB, o Options) *Engine {
	tb.Helper()
	e, err := TryStart(tb, o)
	if err != nil {
		tb.Fatalf("starting the engine: %v\n%s", err, e.Log)
	}
	return e
}

// TryStart is Start that may fail; then the engine is stopped already.
func TryStart(tb testing.TB, o Options) (*Engine, error) {
	tb.Helper()
	if o.Disk == nil {
		o.Disk = NewDisk()
	}
	if o.Segment == 0 {
		o.Segment = 1 << 20
	}
	e := &Engine{tb: tb, opt: o, Disk: o.Disk, Log: &Log{}}
	cfg := Config()
	if o.Config != nil {
		o.Config(&cfg)
	}
	s := plugin.Settings{Name: "test", Clock: o.Clock, Meter: o.Meter, Logger: slog.New(slog.NewTextHandler(e.Log, nil))}.WithDefaults()
	e.K = kernel.New(cfg, s, nil)
	e.K.Spans = o.Spans
	e.K.Sequencer = storage.NewSequencer(s.Clock)
	if o.Replication == nil {
		o.Replication = replicationtest.ScriptedFactory(func(x *replicationtest.Scripted) { e.Script = x })
	}
	d, err := o.Replication.Describe(tb.Context(), o.ReplicationConfig)
	if err != nil {
		return e, err
	}
	p := storage.Params{
		Settings: s, Segment: o.Segment, Index: cfg.Index,
		Events: e.K.Hooks.Events(func(err error) { e.Failed = err }),
	}
	if d.Publish == storage.Explicit.String() {
		p.Publish = storage.Explicit
	}
	if o.NewStore != nil {
		e.Store = o.NewStore(p)
	} else {
		e.Store = storekit.FromKV(p, o.Disk.KV, storekit.Options{})
	}
	if o.Store != nil {
		e.Store = o.Store(p, e.Store)
	}
	e.Store = retention.Turn(p, e.Store)
	e.K.Store = e.Store
	s.Dir = "replication"
	e.Rep, err = o.Replication.Build(tb.Context(), replication.Params{
		Settings: s, Store: catalog.Numbered(e.K), Sequencer: e.K.Sequencer, OnRole: e.K.TakeOffice,
	}, o.ReplicationConfig)
	if err != nil {
		return e, err
	}
	e.K.Replicator = e.Rep
	e.Queue = combine.New(e.K)
	e.Catalog = catalog.New(e.K, o.Disk.FS)
	e.Clients = client.New(e.K)
	q := query.New(e.K)
	st := stats.New(e.K)
	send.New(e.K, e.Queue, st)
	pull.New(e.K, e.Clients, st)
	offset.New(e.K, q)
	retry.New(e.K, e.Queue, st)
	admin.New(e.K, admin.Params{Query: q, Clients: e.Clients, Stats: st, Usage: o.Disk.FS.Usage})
	rp := retention.Params{Usage: o.Usage}
	if o.Usage != nil {
		rp.Dirs = []string{cfg.Dir}
	}
	kept := retention.New(e.K, rp)
	op := observe.Params{Clients: e.Clients, Stats: st, Query: q, Usage: o.Usage, Oldest: kept.Oldest, Limit: 50_000, Budget: time.Second}
	if o.Usage != nil {
		op.Dir = cfg.Dir
	}
	if o.Observe != nil {
		o.Observe(&op)
	}
	observe.New(e.K, op)
	if o.Assign.Allocator == nil {
		o.Assign.Allocator = func(context.Context, string) (assign.Instance, error) { return assign.Instance{}, assign.ErrUnknown }
	}
	o.Assign.Clients = e.Clients
	assign.New(e.K, o.Assign)
	tb.Cleanup(e.Stop)
	if o.Prepare != nil {
		o.Prepare(e)
	}
	if err := e.start(tb.Context()); err != nil {
		e.Stop()
		return e, err
	}
	return e, nil
}

func (e *Engine) start(ctx context.Context) error {
	if err := e.Store.Start(ctx); err != nil {
		return err
	}
	e.Queue.Start(e.Rep, e.Store.State().Segment)
	if err := e.Rep.Start(ctx); err != nil {
		return err
	}
	return e.K.Hooks.Start(ctx)
}

// Stop stops everything, the last started first, as a broker does.
func (e *Engine) Stop() {
	e.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(e.tb.Context()), Patience)
		defer cancel()
		e.K.Refuse("the broker is shutting down")
		e.K.Conns(func(c *kernel.Conn) bool { _ = c.Peer.Close(); return true })
		for name, stop := range map[string]func(context.Context) error{"engine": e.K.Hooks.Stop} {
			if err := stop(ctx); err != nil {
				_, _ = e.Log.Write([]byte("stopping " + name + ": " + err.Error()))
			}
		}
		if err := e.Rep.Shutdown(ctx); err != nil {
			e.tb.Errorf("stopping the replicator: %v", err)
		}
		if err := e.Store.Shutdown(ctx); err != nil {
			e.tb.Errorf("stopping the store: %v", err)
		}
	})
}

// Kill leaves a copy of the disk as a crash at this moment would, and stops the
// engine. Only what was synced of its files is kept.
func (e *Engine) Kill(keep memfs.Keep) *Disk {
	e.tb.Helper()
	kv := e.Disk.KV.Copy(e.tb)
	var fs vfs.FS
	switch f := e.Disk.FS.(type) {
	case *memfs.FS:
		fs = f.Crash(keep)
	default:
		e.tb.Fatalf("%T cannot crash", f)
	}
	e.Stop()
	return &Disk{KV: kv, FS: fs}
}

// Again starts an engine with the same options on another disk; nil: the same
// one, after a clean stop.
func (e *Engine) Again(d *Disk) *Engine {
	e.tb.Helper()
	if d == nil {
		e.Stop()
		d = e.Disk
	}
	o := e.opt
	o.Disk = d
	return Start(e.tb, o)
}

// File is the path of a file under config/.
func (e *Engine) File(name string) string { return filepath.Join(e.K.Config().Dir, "config", name) }

// Client is a fake peer of the engine.
type Client struct {
	*transporttest.Link
	// Type is the encoding of its headers.
	Type command.HeaderType

	tb     testing.TB
	opaque int32
	mu     sync.Mutex
	got    map[int32]*Reply
	pushes []*Reply
}

// Reply is a frame that the engine sent.
type Reply struct {
	Code   int32
	Flag   int32
	Opaque int32
	Type   command.HeaderType
	Remark string
	Ext    map[string]string
	Body   []byte
}

// Int is a number among the ext fields.
func (r *Reply) Int(key string) int64 {
	var n int64
	if _, err := fmt.Sscan(r.Ext[key], &n); err != nil {
		return -1 << 62
	}
	return n
}

// Records are the messages of the body.
func (r *Reply) Records() []message.View {
	var out []message.View
	for b := r.Body; len(b) > 0; {
		var v message.View
		if err := message.Parse(b, &v); err != nil {
			panic(err)
		}
		out = append(out, v)
		b = b[v.Size:]
	}
	return out
}

// Connect opens a peer.
func (e *Engine) Connect(tb testing.TB) *Client {
	c := &Client{Link: transporttest.Open(e.K, nil), tb: tb, got: map[int32]*Reply{}}
	return c
}

// Request encodes a request with a new opaque.
func (c *Client) Request(code, flag int32, fill func(w *command.Writer), body []byte) (command.Frame, int32) {
	c.mu.Lock()
	c.opaque++
	n := c.opaque
	c.mu.Unlock()
	w := command.Begin(nil, c.Type, code, n, flag)
	if fill != nil {
		fill(&w)
	}
	return command.Frame{Header: w.End(len(body)), Body: body}, n
}

// Do sends a request and waits for its answer.
func (c *Client) Do(code int32, fill func(w *command.Writer), body []byte) *Reply {
	c.tb.Helper()
	return c.Wait(c.Begin(code, fill, body))
}

// Begin sends a request and returns its opaque, for Wait.
func (c *Client) Begin(code int32, fill func(w *command.Writer), body []byte) int32 {
	c.tb.Helper()
	f, n := c.Request(code, 0, fill, body)
	if err := c.FeedFrames(f); err != nil {
		c.tb.Fatalf("request %d: %v", code, err)
	}
	return n
}

// Oneway sends a request that gets no answer.
func (c *Client) Oneway(code int32, fill func(w *command.Writer), body []byte) {
	c.tb.Helper()
	f, _ := c.Request(code, command.FlagOneway, fill, body)
	if err := c.FeedFrames(f); err != nil {
		c.tb.Fatalf("request %d: %v", code, err)
	}
}

// Wait waits for the answer with an opaque.
func (c *Client) Wait(opaque int32) *Reply {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(c.tb.Context(), Patience+10*time.Minute)
	defer cancel()
	for {
		c.mu.Lock()
		r := c.got[opaque]
		delete(c.got, opaque)
		c.mu.Unlock()
		if r != nil {
			return r
		}
		frames, err := c.Peer.Wait(ctx, 1)
		if err != nil {
			c.tb.Fatalf("waiting for the answer to request %d: %v", opaque, err)
		}
		c.sort(frames)
	}
}

// Forget drops an answer that nobody waited for, so that its opaque can be used
// again.
func (c *Client) Forget(opaque int32) {
	c.sort(c.Peer.Take())
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.got, opaque)
}

// Answered reports whether an answer is there.
func (c *Client) Answered(opaque int32) bool {
	c.sort(c.Peer.Take())
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got[opaque] != nil
}

// Pushes takes the requests that the engine sent.
func (c *Client) Pushes() []*Reply {
	c.sort(c.Peer.Take())
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pushes
	c.pushes = nil
	return p
}

func (c *Client) sort(frames []command.Frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range frames {
		r, err := Decode(&frames[i])
		if err != nil {
			c.tb.Errorf("the engine sent what cannot be read: %v", err)
			continue
		}
		if r.Flag&command.FlagResponse == 0 {
			c.pushes = append(c.pushes, r)
			continue
		}
		if c.got[r.Opaque] != nil {
			c.tb.Errorf("request %d is answered twice", r.Opaque)
		}
		c.got[r.Opaque] = r
	}
}

// Decode reads a frame.
func Decode(f *command.Frame) (*Reply, error) {
	var h command.Header
	if err := h.Decode(f); err != nil {
		return nil, err
	}
	r := &Reply{Code: h.Code, Flag: h.Flag, Opaque: h.Opaque, Type: h.Type, Remark: string(h.Remark()), Ext: map[string]string{}, Body: bytes.Clone(f.Body)}
	h.Fields(func(k, v []byte) bool { r.Ext[string(k)] = string(v); return true })
	return r, nil
}

// Message is what Send sends.
type Message struct {
	Topic      string
	Queue      int32
	Body       string
	Properties string
	Flag       int32
	Reconsume  int32
	Max        int32 // maxReconsumeTimes; 0: not given
	SysFlag    int32
	Template   string // defaultTopic [TBW102]
	Queues     int32  // defaultTopicQueueNums [4]
}

// Props builds a property string of pairs.
func Props(kv ...string) string {
	var b []byte
	for i := 0; i+1 < len(kv); i += 2 {
		b = message.AppendProperty(b, kv[i], kv[i+1])
	}
	return string(b)
}

// Header writes the header of a send.
func (m *Message) Header(batch bool) func(w *command.Writer) {
	r := command.SendRequest{
		ProducerGroup: []byte("PG"), Topic: []byte(m.Topic), DefaultTopic: []byte(message.AutoCreateTopic), DefaultTopicQueueNums: 4,
		QueueID: m.Queue, SysFlag: m.SysFlag, BornTimestamp: 1_700_000_000_123, Flag: m.Flag,
		Properties: []byte(m.Properties), ReconsumeTimes: m.Reconsume, MaxReconsumeTimes: -1, Batch: batch,
	}
	if m.Max != 0 {
		r.MaxReconsumeTimes = m.Max
	}
	if m.Template != "" {
		r.DefaultTopic = []byte(m.Template)
	}
	if m.Queues != 0 {
		r.DefaultTopicQueueNums = m.Queues
	}
	return r.Append
}

// Send sends with SEND_MESSAGE_V2.
func (c *Client) Send(m Message) *Reply {
	c.tb.Helper()
	return c.Do(command.ReqSendMessageV2, m.Header(false), []byte(m.Body))
}

// Pull is a pull of up to 32 messages with "*" as its expression.
func Pull(group, topic string, queue int32, at int64) command.PullRequest {
	return command.PullRequest{
		ConsumerGroup: []byte(group), Topic: []byte(topic), QueueID: queue, QueueOffset: at, MaxMsgNums: 32,
		SysFlag: command.PullSubscription, Subscription: []byte("*"), ExpressionType: []byte("TAG"),
	}
}

// Pull pulls.
func (c *Client) Pull(r command.PullRequest) *Reply {
	c.tb.Helper()
	return c.Do(command.ReqPullMessage, r.Append, nil)
}

// Heartbeat is a member of a group that subscribes topics with "*".
func Heartbeat(id, group string, version int64, topics ...string) command.HeartbeatData {
	c := command.ConsumerData{GroupName: group, ConsumeType: command.ConsumePassively, MessageModel: command.Clustering, ConsumeFromWhere: command.ConsumeFromLastOffset}
	for _, t := range topics {
		c.SubscriptionDataSet = append(c.SubscriptionDataSet, command.SubscriptionData{Topic: t, SubString: "*", SubVersion: command.Int(version)})
	}
	return command.HeartbeatData{ClientID: id, ConsumerDataSet: []command.ConsumerData{c}}
}

// Body encodes a JSON body.
func (c *Client) Body(v any) []byte {
	c.tb.Helper()
	b, err := command.EncodeBody(v)
	if err != nil {
		c.tb.Fatal(err)
	}
	return b
}

// HasLog reports whether something was logged that holds all the texts.
func (e *Engine) HasLog(texts ...string) bool {
	for line := range strings.Lines(e.Log.String()) {
		all := true
		for _, t := range texts {
			all = all && strings.Contains(line, t)
		}
		if all {
			return true
		}
	}
	return false
}
