package pull_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
)

// arrival is when a group got a message of the tag that it waits for.
type arrival struct {
	group, offset int64
	at            time.Time
}

// TestIdleLatency is BC-05: three groups wait for a rare tag in one queue, alone and
// behind 999 messages of other tags. Time stands still while anybody has something to
// do, so a message that has to wait for the end of a long poll, or for any sweep, is
// seen by the clock: only a wake-up brings it in no time at all.
func TestIdleLatency(t *testing.T) {
	const groups = 3
	rounds := 50
	if os.Getenv("HARDPOINT_TEST_ROUNDS") != "" {
		rounds = 1000
	}
	for _, others := range []int{0, 999} {
		t.Run(fmt.Sprint("others_", others), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := enginetest.Start(t, enginetest.Options{Segment: 64 << 20})
				topic(t, e, "T", 1, 6)
				producer := e.Connect(t)
				arrivals := make(chan arrival, groups*(rounds+1)) // nobody is held up by a test that failed
				var waiting sync.WaitGroup
				for g := range int64(groups) {
					waiting.Go(func() { await(e.Connect(t), g, arrivals) })
				}
				var worst time.Duration
				for i := range rounds {
					// Every other one is sent while the groups are about to wait.
					if i%2 == 0 {
						<-time.After(time.Duration(rand.IntN(300)) * time.Millisecond)
					}
					for sent := 0; sent < others; sent += 111 {
						require.Zero(t, producer.Do(command.ReqSendBatchMessage, batchHeader(), batch("common", 111)).Code)
					}
					sent := time.Now()
					r := producer.Send(enginetest.Message{Topic: "T", Body: "x", Properties: enginetest.Props("TAGS", "rare")})
					require.Zero(t, r.Code, r.Remark)
					for range groups {
						a := <-arrivals
						require.Equal(t, r.Int("queueOffset"), a.offset, "round %d, group %d", i, a.group)
						worst = max(worst, a.at.Sub(sent))
					}
				}
				require.Zero(t, worst, "the longest wait of %d messages", rounds)
				require.Zero(t, producer.Send(enginetest.Message{Topic: "T", Body: last, Properties: enginetest.Props("TAGS", "rare")}).Code)
				waiting.Wait()
			})
		})
	}
}

// between is a store in which something happens after a read and before its answer.
type between struct {
	storagemw.Base
	then atomic.Pointer[func()]
}

func (b *between) Read(ctx context.Context, r storage.ReadRequest, c *storage.Chunk) error {
	err := b.Store.Read(ctx, r, c)
	if f := b.then.Swap(nil); f != nil {
		(*f)()
	}
	return err
}

// TestSentBetween is the moment of BC-05: a message arrives when the queue was seen
// empty and the consumer does not yet wait. Its tag may be another one: then the pull
// is told to go on behind it.
func TestSentBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &between{}
		e := enginetest.Start(t, enginetest.Options{Replication: solo.NewFactory(), Store: func(_ storage.Params, next storage.Store) storage.Store {
			b.Base = storagemw.Base{Store: next}
			return b
		}})
		topic(t, e, "T", 1, 6)
		c, producer := e.Connect(t), e.Connect(t)
		for i, tag := range []string{"rare", "common"} {
			arrive := func() { send(t, producer, "T", 0, tag, tag) }
			b.then.Store(&arrive)
			began := time.Now()
			p := parked(enginetest.Pull("G", "T", 0, int64(i)), 15*time.Second)
			p.Subscription = []byte("rare")
			r := c.Pull(p)
			require.Zero(t, time.Since(began))
			require.Equal(t, int64(i+1), r.Int("nextBeginOffset"), r.Remark)
			require.Equal(t, tag == "rare", len(r.Body) > 0, r.Remark)
		}
	})
}

// last is the message with which a group ends.
const last = "last"

// await is a group that pulls as official clients do: its requests may be kept for 15 s.
func await(c *enginetest.Client, group int64, arrivals chan<- arrival) {
	for next := int64(0); ; {
		p := parked(enginetest.Pull(fmt.Sprint("G", group), "T", 0, next), 15*time.Second)
		p.Subscription = []byte("rare")
		r := c.Pull(p)
		for _, v := range r.Records() {
			if string(v.Body) == last {
				return
			}
			arrivals <- arrival{group, v.QueueOffset, time.Now()}
		}
		next = r.Int("nextBeginOffset")
	}
}

func batchHeader() func(*command.Writer) {
	m := enginetest.Message{Topic: "T"}
	return m.Header(true)
}

func batch(tag string, n int) []byte {
	var b []byte
	for range n {
		b = message.AppendBatchItem(b, message.BatchItem{Body: []byte("x"), Properties: []byte(enginetest.Props("TAGS", tag))})
	}
	return b
}
