package enginematrix_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/replication/replicationtest"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
	"github.com/hardpointmq/hardpoint/internal/wiretest"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
	"github.com/hardpointmq/hardpoint/sdk/wire/replicationwire"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// segment is small, so that logs have several.
const segment = 64 << 10

// often has ASYNC_FLUSH flush more often than by default.
var often = plugin.Raw(`{"flushIntervalCommitLog": 50}`)

// replicators are those that the engine runs under; a nil factory is the
// scripted one.
var replicators = []struct {
	name     string
	factory  replication.Factory
	config   plugin.Raw
	sync     bool // an acknowledged message survives power loss
	scripted bool
	wire     bool // on the other side of a border
}{
	{name: "solo_async", factory: solo.NewFactory(), config: often},
	{name: "solo_sync", factory: solo.NewFactory(), config: plugin.Raw(`{"flushDiskType": "SYNC_FLUSH"}`), sync: true},
	{name: "scripted", scripted: true},
	{name: "solo_async_wire", factory: solo.NewFactory(), config: often, wire: true},
	{name: "solo_sync_wire", factory: solo.NewFactory(), config: plugin.Raw(`{"flushDiskType": "SYNC_FLUSH"}`), sync: true, wire: true},
	{name: "scripted_wire", scripted: true, wire: true},
}

func TestEngine(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			for _, form := range []string{"in_process", "wire"} {
				t.Run(form, func(t *testing.T) {
					for _, r := range replicators {
						t.Run(r.name, func(t *testing.T) {
							for _, c := range cases {
								if c.scripted && !r.scripted || c.powerLoss && (!kind.disk || r.scripted || c.async == r.sync) {
									continue
								}
								t.Run(c.name, func(t *testing.T) {
									w := &world{t: t, medium: kind.fresh(), remote: form == "wire", config: kind.config}
									f := r.factory
									if r.wire {
										f = w.wired(f)
									}
									w.start(enginetest.Options{Replication: f, ReplicationConfig: r.config})
									c.run(t, w)
									require.False(t, w.e.HasLog("level=ERROR"), w.e.Log)
								})
							}
						})
					}
				})
			}
		})
	}
}

// world is an engine that can be killed, and what survives it.
type world struct {
	t      *testing.T
	medium medium
	remote bool
	config plugin.Raw
	e      *enginetest.Engine
	c      *enginetest.Client
	dead   *atomic.Bool
	synced *atomic.Int64 // see flushed
	// store makes the store [that of the medium].
	store func(storage.Params) storage.Store
	// script drives the scripted replicator behind a border.
	script *replicationtest.Scripted

	mu        sync.Mutex
	published message.Position
	changed   chan struct{}
}

func (w *world) start(o enginetest.Options) {
	w.t.Helper()
	o.Segment = segment
	o.NewStore = w.newStore
	o.Store = func(_ storage.Params, next storage.Store) storage.Store {
		w.dead, w.synced = &atomic.Bool{}, &atomic.Int64{}
		return &watched{Base: storagemw.Base{Store: next}, tb: w.t, dead: w.dead, synced: w.synced}
	}
	o.Config = func(c *kernel.Config) {
		c.MaxMessageSize = segment / 2
		c.OffsetInterval = 10 * time.Millisecond
	}
	o.Prepare = func(e *enginetest.Engine) {
		w.mu.Lock()
		w.published, w.changed = 0, make(chan struct{})
		w.mu.Unlock()
		e.K.Hooks.OnPublished(func(upTo message.Position, _ []message.Unit) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.published = upTo
			close(w.changed)
			w.changed = make(chan struct{})
		})
	}
	w.use(enginetest.Start(w.t, o))
	w.group("reader")
}

func (w *world) use(e *enginetest.Engine) {
	w.e, w.c = e, e.Connect(w.t)
	if w.script != nil {
		e.Script = w.script
	}
}

// wired puts a replicator, or the scripted one, behind a border.
func (w *world) wired(f replication.Factory) replication.Factory {
	if f == nil {
		f = replicationtest.ScriptedFactory(func(s *replicationtest.Scripted) { w.script = s })
	}
	return replicationwire.NewFactory(f.Name(), wiretest.New(w.t, replicationwire.NewServer(nil, f)))
}

func (w *world) newStore(p storage.Params) storage.Store {
	w.t.Helper()
	p.Dir = "/store"
	if w.store != nil {
		return w.store(p)
	}
	f := w.medium.factory()
	if w.remote {
		f = storagewire.NewFactory(f.Name(), wiretest.New(w.t, storagewire.NewServer(nil, f)))
	}
	s, err := f.Build(w.t.Context(), p, w.config)
	require.NoError(w.t, err)
	return s
}

// flushed is up to where the replicator has flushed the log.
func (w *world) flushed() message.Position { return message.Position(w.synced.Load()) }

// kill ends broker and store at this moment and starts them again.
func (w *world) kill(keep memfs.Keep) {
	w.t.Helper()
	w.dead.Store(true)
	w.medium.crash(w.t, keep)
	w.use(w.e.Again(w.e.Kill(keep)))
}

// lose ends them, cleanly or not, removes the files of the queues, and starts them;
// false: the store has no such files.
func (w *world) lose(kill bool) bool {
	w.t.Helper()
	d := w.e.Disk
	if kill {
		w.dead.Store(true)
		w.medium.crash(w.t, memfs.KeepAll)
		d = w.e.Kill(memfs.KeepAll)
	} else {
		w.e.Stop()
	}
	if !w.medium.lose(w.t) {
		return false
	}
	w.use(w.e.Again(d))
	return true
}

// restart stops and starts them cleanly.
func (w *world) restart() {
	w.t.Helper()
	w.use(w.e.Again(nil))
}

// logged waits until something more is published than when f was called.
func (w *world) logged(f func()) {
	w.t.Helper()
	before := w.e.Store.State().Published
	f()
	for {
		w.mu.Lock()
		now, changed := w.published, w.changed
		w.mu.Unlock()
		if now > before {
			return
		}
		select {
		case <-changed:
		case <-time.After(enginetest.Patience):
			w.t.Fatalf("nothing is published behind %d", before)
		}
	}
}

func (w *world) topic(name string, queues int32) {
	w.t.Helper()
	r := w.c.Do(command.ReqUpdateAndCreateTopic, (&command.CreateTopicRequest{
		Topic: name, Perm: 6, ReadQueueNums: queues, WriteQueueNums: queues, DefaultTopic: message.AutoCreateTopic, TopicFilterType: "SINGLE_TAG",
	}).Append, nil)
	require.Zero(w.t, r.Code, r.Remark)
}

func (w *world) group(name string) {
	w.t.Helper()
	_, err := w.e.K.Groups.Ensure(w.t.Context(), name)
	require.NoError(w.t, err)
}

// send sends and gives the position of the record.
func (w *world) send(m enginetest.Message) message.Position {
	w.t.Helper()
	r := w.c.Send(m)
	require.Zero(w.t, r.Code, r.Remark)
	_, at, err := message.ParseOffsetID(r.Ext["msgId"])
	require.NoError(w.t, err)
	return at
}

// read pulls everything of a queue, checking that its offsets are dense.
func (w *world) read(topic string, queue int32) []string {
	w.t.Helper()
	out := []string{}
	for next := int64(0); ; {
		r := w.c.Pull(enginetest.Pull("reader", topic, queue, next))
		if r.Code != command.RespSuccess {
			require.Equal(w.t, command.RespPullNotFound, r.Code, r.Remark)
			return out
		}
		for _, v := range r.Records() {
			require.Equal(w.t, next, v.QueueOffset)
			out = append(out, string(v.Body))
			next++
		}
		require.Equal(w.t, next, r.Int("nextBeginOffset"))
	}
}

// find asks for the messages of a topic by a key, in any order.
func (w *world) find(topic, key string, unique bool) []string {
	w.t.Helper()
	return w.query(command.QueryMessageRequest{Topic: []byte(topic), Key: []byte(key), MaxNum: 64, EndTimestamp: 1 << 60, UniqueKey: unique})
}

// query asks for messages by a key; their bodies are sorted.
func (w *world) query(q command.QueryMessageRequest) []string {
	w.t.Helper()
	r := w.c.Do(command.ReqQueryMessage, q.Append, nil)
	out := []string{}
	if r.Code == command.RespQueryNotFound {
		return out
	}
	require.Zero(w.t, r.Code, r.Remark)
	for _, v := range r.Records() {
		out = append(out, string(v.Body))
	}
	slices.Sort(out)
	return out
}

// expire gives up all segments but the newest.
func (w *world) expire() {
	w.t.Helper()
	require.NoError(w.t, w.e.Store.Capabilities().Retention.Expire(w.t.Context(), w.e.Store.State().Tail/segment*segment))
}
