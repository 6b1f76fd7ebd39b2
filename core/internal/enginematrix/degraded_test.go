package enginematrix_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/replication/replicationtest"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/internal/wiretest"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/replicationwire"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire"
)

// degraded is an engine whose replicator's process can be killed.
func degraded(t *testing.T, f replication.Factory, raw plugin.Raw) (*world, *wiretest.Launcher) {
	t.Helper()
	l := wiretest.NewLauncher(t, func() []wire.Served { return []wire.Served{replicationwire.NewServer(nil, f)} })
	w := &world{t: t, medium: kinds[0].fresh()}
	w.start(enginetest.Options{Replication: replicationwire.NewFactory(f.Name(), l), ReplicationConfig: raw})
	return w, l
}

// readOnly waits until the engine takes no writes.
func (w *world) readOnly() replication.Role {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return w.e.K.Role().ReadOnly != "" }, enginetest.Patience, time.Millisecond)
	return w.e.K.Role()
}

// leads waits until it takes them, in a later office.
func (w *world) leads(after uint64) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return w.e.K.Writable() == nil && w.e.K.Role().Term > after }, enginetest.Patience, time.Millisecond)
}

func flushes() map[string]plugin.Raw {
	return map[string]plugin.Raw{"immediate": nil, "explicit": plugin.Raw(`{"flushDiskType": "SYNC_FLUSH"}`)}
}

// The process of a replicator goes: the broker takes no writes and says why by
// name, reads go on, and when the process is back so do writes, in a new office.
func TestReplicationGone(t *testing.T) {
	for name, raw := range flushes() {
		t.Run(name, func(t *testing.T) {
			w, l := degraded(t, solo.NewFactory(), raw)
			w.topic("T", 1)
			w.send(enginetest.Message{Topic: "T", Body: "before"})
			w.group("G")
			w.commit("G", "T", 0, 1)
			term := w.e.K.Role().Term
			l.Refuse(errors.New("there is no memory left"))
			l.Kill()
			r := w.readOnly()
			require.Equal(t, replication.RoleLeader, r.Kind)
			require.Contains(t, r.ReadOnly, `"solo"`)

			refused := w.c.Send(enginetest.Message{Topic: "T", Body: "refused"})
			require.Equal(t, command.RespServiceNotAvailable, refused.Code, "clients try again")
			require.Contains(t, refused.Remark, "read-only")
			require.Contains(t, refused.Remark, `"solo"`)
			require.Equal(t, []string{"before"}, w.read("T", 0))
			require.Equal(t, int64(1), w.progress("G", "T", 0))
			m := w.c.Do(command.ReqGetMaxOffset, (&command.QueueRequest{Topic: []byte("T")}).Append, nil)
			require.Equal(t, int64(1), m.Int("offset"), m.Remark)
			require.Eventually(t, func() bool { return w.e.HasLog("cannot be started again", "there is no memory left") }, enginetest.Patience, time.Millisecond)

			l.Refuse(nil)
			w.leads(term)
			w.send(enginetest.Message{Topic: "T", Body: "after"})
			w.topic("U", 1)
			w.send(enginetest.Message{Topic: "U", Body: "new topic"})
			require.Equal(t, []string{"before", "after"}, w.read("T", 0))
			w.restart()
			require.Equal(t, []string{"before", "after"}, w.read("T", 0))
			require.Equal(t, []string{"new topic"}, w.read("U", 0))
		})
	}
}

// A store goes away and comes back under a replicator that is a process, too: it
// hears of both, and takes a new office.
func TestStoreGoneUnderReplication(t *testing.T) {
	for name, raw := range flushes() {
		t.Run(name, func(t *testing.T) {
			m := kinds[0].fresh()
			var mu sync.Mutex
			var server *storagewire.Server
			stores := wiretest.NewLauncher(t, func() []wire.Served {
				mu.Lock()
				defer mu.Unlock()
				server = storagewire.NewServer(nil, m.factory())
				return []wire.Served{server}
			})
			kill := func() {
				mu.Lock()
				s := server
				mu.Unlock()
				stores.Kill()
				_ = s.Close(t.Context())
			}
			reps := wiretest.NewLauncher(t, func() []wire.Served { return []wire.Served{replicationwire.NewServer(nil, solo.NewFactory())} })
			w := &world{t: t, medium: m}
			w.store = func(p storage.Params) storage.Store {
				s, err := storagewire.NewFactory(m.factory().Name(), stores).Build(t.Context(), p, nil)
				require.NoError(t, err)
				return s
			}
			w.start(enginetest.Options{Replication: replicationwire.NewFactory(solo.Name, reps), ReplicationConfig: raw})
			w.topic("T", 1)
			w.topic("probe", 1)
			var want []string
			for i := range 3 {
				body := fmt.Sprint("round ", i)
				w.send(enginetest.Message{Topic: "T", Body: body})
				want = append(want, body)
				term := w.e.K.Role().Term
				if i == 2 { // both at once
					reps.Kill()
				}
				kill()
				w.leads(term)
				// When both were killed there is perhaps an office that ends at
				// once, because it began before the store was back.
				require.Eventually(t, func() bool {
					return w.c.Send(enginetest.Message{Topic: "probe", Body: "x"}).Code == command.RespSuccess
				}, enginetest.Patience, time.Millisecond)
				require.Equal(t, want, w.read("T", 0))
			}
			w.send(enginetest.Message{Topic: "T", Body: "last"})
			require.Equal(t, append(want, "last"), w.read("T", 0))
		})
	}
}

// What is under way when the process goes is answered as unknown, once, and is in
// the log or not, whole.
func TestReplicationGoneUnderWay(t *testing.T) {
	var mu sync.Mutex
	var script *replicationtest.Scripted
	f := replicationtest.ScriptedFactory(func(s *replicationtest.Scripted) {
		mu.Lock()
		defer mu.Unlock()
		script = s
	})
	w, l := degraded(t, f, nil)
	w.topic("T", 1)
	w.send(enginetest.Message{Topic: "T", Body: "before"})
	mu.Lock()
	s := script
	mu.Unlock()
	s.Hold()
	var sent []int32
	producer := w.e.Connect(t)
	for i := range 3 {
		m := enginetest.Message{Topic: "T"}
		sent = append(sent, producer.Begin(command.ReqSendMessageV2, m.Header(false), fmt.Append(nil, "unknown ", i)))
		require.NoError(t, s.WaitHeld(t.Context(), i+1))
	}
	l.Kill()
	for _, id := range sent {
		r := producer.Wait(id)
		require.Equal(t, command.RespServiceNotAvailable, r.Code)
		require.Contains(t, r.Remark, "unknown whether")
		require.Contains(t, r.Remark, `"scripted"`)
	}
	// The scripted replicator cuts off what was not published when it starts, and
	// takes the office of term 1 each time.
	require.Eventually(t, func() bool {
		return w.e.K.Writable() == nil && w.e.HasLog("the replication plugin is back")
	}, enginetest.Patience, time.Millisecond)
	require.Equal(t, []string{"before"}, w.read("T", 0))
	w.send(enginetest.Message{Topic: "T", Body: "after"})
	require.Equal(t, []string{"before", "after"}, w.read("T", 0))
}

// The process is killed again and again under producers: what was acknowledged is
// there once and at its offset, and every producer gets its answers.
func TestReplicationKilledUnderLoad(t *testing.T) {
	for name, raw := range flushes() {
		t.Run(name, func(t *testing.T) {
			w, l := degraded(t, solo.NewFactory(), raw)
			w.topic("T", 1)
			var wg sync.WaitGroup
			var mu sync.Mutex
			acked := map[int64]string{}
			stop := make(chan struct{})
			for n := range 3 {
				c := w.e.Connect(t)
				wg.Go(func() {
					for i := 0; ; i++ {
						select {
						case <-stop:
							return
						default:
						}
						body := fmt.Sprint(n, "-", i)
						r := c.Send(enginetest.Message{Topic: "T", Body: body})
						if r.Code != command.RespSuccess {
							if !assert.Equal(t, command.RespServiceNotAvailable, r.Code, r.Remark) {
								return
							}
							_ = w.e.Rep.Barrier(t.Context()) // not as fast as it can
							continue
						}
						mu.Lock()
						assert.Empty(t, acked[r.Int("queueOffset")])
						acked[r.Int("queueOffset")] = body
						mu.Unlock()
					}
				})
			}
			count := func() int {
				mu.Lock()
				defer mu.Unlock()
				return len(acked)
			}
			for range 4 {
				before := count()
				require.Eventually(t, func() bool { return count() > before+20 }, enginetest.Patience, time.Millisecond)
				term := w.e.K.Role().Term
				l.Kill()
				w.leads(term)
			}
			close(stop)
			wg.Wait()
			got := w.read("T", 0)
			for at, body := range acked {
				require.Less(t, at, int64(len(got)))
				require.Equal(t, body, got[at], "offset %d", at)
			}
		})
	}
}
