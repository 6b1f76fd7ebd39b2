package enginematrix_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
	inmemory "github.com/hardpointmq/hardpoint/plugins/storage/memory"
)

// With SYNC_FLUSH only what was synced survives, and that is all that was
// acknowledged.
func testPowerLoss(t *testing.T, w *world) {
	w.topic("T", 1)
	w.group("G")
	var want []string
	for round := range 3 {
		for i := range 40 {
			m := enginetest.Message{Topic: "T", Body: fmt.Sprint(round, "-", i, strings.Repeat(".", 50*i)), Properties: enginetest.Props("KEYS", fmt.Sprintf("k%d-%d", round, i))}
			w.send(m)
			want = append(want, m.Body)
		}
		w.logged(func() { w.commit("G", "T", 0, int64(len(want))) })
		w.send(enginetest.Message{Topic: "T", Body: "behind it"}) // what it syncs includes the record of progress
		want = append(want, "behind it")
		before := catalog(w.e)
		w.kill(memfs.KeepNone)
		require.Equal(t, want, w.read("T", 0))
		require.Equal(t, before, catalog(w.e))
		require.Equal(t, int64(len(want)-1), w.progress("G", "T", 0))
		require.Len(t, w.find("T", fmt.Sprintf("k%d-33", round), false), 1)
	}
}

// With ASYNC_FLUSH what was acknowledged before the last flush survives, and of what
// came after it a beginning. TestFlushInterval shows when flushes come.
func testPowerLossAsync(t *testing.T, w *world) {
	w.topic("T", 1)
	var want []string
	for round := range 3 {
		at := make([]message.Position, len(want), len(want)+50) // of old ones: flushed long ago
		send := func(m enginetest.Message) {
			at = append(at, w.send(m))
			want = append(want, m.Body)
		}
		for i := range 40 {
			send(enginetest.Message{Topic: "T", Body: fmt.Sprint(round, "-", i, strings.Repeat(".", 50*i))})
		}
		sent := w.e.Store.State().Tail
		require.Eventually(t, func() bool { return w.flushed() >= sent }, enginetest.Patience, time.Millisecond, "nothing flushes")
		for i := range 10 {
			send(enginetest.Message{Topic: "T", Body: fmt.Sprint(round, "+", i)})
		}
		flushed := w.flushed()
		w.kill(memfs.KeepNone)
		got := w.read("T", 0)
		require.GreaterOrEqual(t, len(got), 40*(round+1))
		for i, pos := range at {
			require.True(t, i < len(got) || pos >= flushed, "%s at %d is lost, and flushed was up to %d", want[i], pos, flushed)
		}
		require.Equal(t, want[:len(got)], got)
		want = got
	}
}

// TestFlushInterval cuts the power at random moments of a clock that is the test's: with
// ASYNC_FLUSH everything that was acknowledged a flushIntervalCommitLog ago is there, in
// a store on a disk that keeps nothing that was not synced.
func TestFlushInterval(t *testing.T) {
	for _, kind := range kinds {
		if !kind.disk {
			continue
		}
		for _, c := range []struct {
			config plugin.Raw
			every  time.Duration
		}{
			{nil, 500 * time.Millisecond},
			{plugin.Raw(`{"flushIntervalCommitLog": 70}`), 70 * time.Millisecond},
		} {
			t.Run(fmt.Sprint(kind.name, "/", c.every), func(t *testing.T) {
				seed := rand.Uint64()
				t.Logf("seed %d", seed)
				rng := rand.New(rand.NewPCG(seed, 0))
				synctest.Test(t, func(t *testing.T) {
					w := &world{t: t, medium: kind.fresh(), config: kind.config}
					w.start(enginetest.Options{Replication: solo.NewFactory(), ReplicationConfig: c.config})
					w.topic("T", 1)
					lost := 0
					var want []string
					for round := range 12 {
						topics := map[string]time.Time{}
						old := len(want)
						acked := make([]time.Time, old)
						for range 20 + rng.IntN(40) {
							body := fmt.Sprint(round, "-", len(want), strings.Repeat(".", rng.IntN(3000)))
							w.send(enginetest.Message{Topic: "T", Body: body})
							want, acked = append(want, body), append(acked, time.Now())
							if rng.IntN(8) == 0 {
								name := fmt.Sprint("T", body[:strings.IndexByte(body+".", '.')])
								w.topic(name, 1)
								topics[name] = time.Now()
							}
							<-time.After(time.Duration(rng.Int64N(int64(c.every) / 4)))
						}
						synctest.Wait()
						now := time.Now()
						w.kill(memfs.KeepNone)
						there := catalog(w.e)
						for name, at := range topics {
							require.True(t, there["topic "+name] != nil || now.Sub(at) < c.every, "topic %s, acknowledged %v before the power was lost, is lost", name, now.Sub(at))
						}
						got := w.read("T", 0)
						for i := old; i < len(want); i++ {
							require.True(t, i < len(got) || now.Sub(acked[i]) < c.every, "acknowledged %v before the power was lost, and lost", now.Sub(acked[i]))
						}
						require.Equal(t, want[:len(got)], got)
						lost += len(want) - len(got)
						want = got
					}
					require.Positive(t, lost, "has the power been cut?")
					require.False(t, w.e.HasLog("level=ERROR"), w.e.Log)
					w.e.Stop()
				})
			})
		}
	}
}

// forgetful is a medium for the store in memory as it is: nothing survives it.
type forgetful struct{}

func (forgetful) factory() storage.Factory     { return inmemory.NewFactory() }
func (forgetful) crash(testing.TB, memfs.Keep) {}
func (forgetful) lose(testing.TB) bool         { return false }

// TestMemory: whatever of the broker's files a loss of power leaves, of the messages of a
// store in memory nothing is left, and it goes on from the beginning.
func TestMemory(t *testing.T) {
	for _, form := range []string{"in_process", "wire"} {
		for _, r := range replicators {
			if r.scripted || r.wire {
				continue
			}
			for name, keep := range map[string]memfs.Keep{"none": memfs.KeepNone, "random": memfs.KeepRandom, "all": memfs.KeepAll} {
				t.Run(form+"/"+r.name+"/"+name, func(t *testing.T) {
					w := &world{t: t, medium: forgetful{}, remote: form == "wire"}
					w.start(enginetest.Options{Replication: r.factory, ReplicationConfig: r.config})
					for range 2 {
						w.topic("T", 1)
						require.Empty(t, w.read("T", 0))
						var at []message.Position
						for i := range 30 {
							at = append(at, w.send(enginetest.Message{Topic: "T", Body: fmt.Sprint(i), Properties: enginetest.Props("KEYS", "k")}))
						}
						require.Len(t, w.read("T", 0), 30)
						w.kill(keep)
						require.Empty(t, w.find("T", "k", false))
						for _, pos := range at {
							r := w.c.Do(command.ReqViewMessageByID, (&command.ViewMessageRequest{Offset: int64(pos)}).Append, nil)
							require.NotZero(t, r.Code)
						}
					}
					require.False(t, w.e.HasLog("level=ERROR"), w.e.Log)
				})
			}
		}
	}
}
