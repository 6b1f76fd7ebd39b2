package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/hardpointmq/hardpoint/test/harness"
)

// segment is the size of a log file in these tests, in bytes: small, so that
// every round crosses the edge of some.
const segment = 100 << 10

func rounds() int {
	if harness.Long() {
		return 200
	}
	return 20
}

func seed(t *testing.T) *rand.Rand {
	t.Helper()
	s := uint64(time.Now().UnixNano())
	if v := os.Getenv("HARDPOINT_TEST_CRASH_SEED"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		s = n
	}
	t.Logf("HARDPOINT_TEST_CRASH_SEED=%d", s)
	return rand.New(rand.NewPCG(s, 27))
}

func settings(flush string) []string {
	return []string{
		"mappedFileSizeCommitLog=" + strconv.Itoa(segment),
		"flushDiskType=" + flush,
		"maxTransferCountOnMessageInMemory=1024", "maxTransferBytesOnMessageInMemory=1MiB",
		"maxTransferCountOnMessageInDisk=1024", "maxTransferBytesOnMessageInDisk=1MiB",
		// Waiting is not what is tested here, and two cores may be busy.
		"waitTimeMillsInSendQueue=10000",
	}
}

// storeSettings are those that only one store knows.
func storeSettings(s harness.Store) []string {
	if s.Name != "commitlog" {
		return nil
	}
	return []string{"mappedFileSizeConsumeQueue=4000", "maxHashSlotNum=500", "maxIndexNum=1000"}
}

func startBroker(t *testing.T, s harness.Store, flush string) *harness.Node {
	t.Helper()
	n := harness.New(t, harness.Options{Store: s, Set: append(settings(flush), storeSettings(s)...)})
	createTopic(t, n)
	return n
}

func createTopic(t *testing.T, n *harness.Node) {
	t.Helper()
	c, err := harness.Dial(n.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.CreateTopic(topic, queues); err != nil {
		t.Fatal(err)
	}
}

// TestKill kills the broker under four producers, again and again: nothing that
// was acknowledged may be lost, doubled or moved, with either way of flushing,
// because every durable store promises to survive the death of its process.
// With a storage process, broker and storage die together.
func TestKill(t *testing.T) {
	t.Parallel()
	// Of the processes most is shown by the other one.
	few := harness.Store{Name: "commitlog", Process: true}
	for _, s := range append(harness.Durable(), few) {
		for _, flush := range []string{"SYNC_FLUSH", "ASYNC_FLUSH"} {
			t.Run(fmt.Sprintf("%s/%s", s, flush), func(t *testing.T) {
				t.Parallel()
				rng := seed(t)
				n := startBroker(t, s, flush)
				l := newLedger()
				rounds := rounds()
				if s == few {
					rounds = max(3, rounds/10)
				}
				for round := range rounds {
					killUnderLoad(t, l, n, rng, round, false)
					n.Start()
					if err := l.verify(n.Addr, round == rounds-1); err != nil {
						t.Fatalf("round %d: %v", round, err)
					}
				}
				t.Logf("%d rounds, %d messages acknowledged and found", rounds, len(l.acked))
			})
		}
	}
}

// killUnderLoad kills the broker when a random number of messages is
// acknowledged, with more on the way; quiet: when all that is on the way is
// answered.
func killUnderLoad(t *testing.T, l *ledger, n *harness.Node, rng *rand.Rand, round int, quiet bool) {
	t.Helper()
	before := l.ackedCount()
	want := before + 20 + rng.IntN(600)
	d := startLoad(t, l, n.Addr, rng)
	ok := harness.Poll(30*time.Second, func() bool { return l.ackedCount() >= want || !n.Running() })
	if !n.Running() {
		t.Fatalf("round %d: the broker ended by itself", round)
	}
	var err error
	if quiet {
		err = d.wait()
		n.Kill()
	} else {
		n.Kill()
		err = d.wait()
	}
	if err != nil {
		t.Fatalf("round %d: %v", round, err)
	}
	if !ok {
		t.Fatalf("round %d: only %d of %d messages were acknowledged within 30 s", round, l.ackedCount()-before, want-before)
	}
}

// TestMemory: a store that promises nothing comes back empty, in either form and with
// either way of flushing, and comes back. What a loss of power leaves is a part of what
// kill -9 does.
func TestMemory(t *testing.T) {
	t.Parallel()
	for _, s := range []harness.Store{{Name: "memory"}, {Name: "memory", Process: true}} {
		for _, flush := range []string{"SYNC_FLUSH", "ASYNC_FLUSH"} {
			t.Run(fmt.Sprintf("%s/%s", s, flush), func(t *testing.T) {
				t.Parallel()
				rng := seed(t)
				n := startBroker(t, s, flush)
				l := newLedger()
				killUnderLoad(t, l, n, rng, 0, false)
				n.Start()
				createTopic(t, n)
				if err := l.gone(n.Addr); err != nil {
					t.Fatal(err)
				}
				serves(t, n.Addr, rng)
			})
		}
	}
}

// serves wants of a broker with an empty log that it takes messages and has them all.
func serves(t *testing.T, addr string, rng *rand.Rand) {
	t.Helper()
	l := newLedger()
	d := startLoad(t, l, addr, rng)
	harness.Until(t, 60*time.Second, "100 messages after the restart", func() bool { return l.ackedCount() >= 100 })
	if err := d.wait(); err != nil {
		t.Fatal(err)
	}
	if err := l.verify(addr, true); err != nil {
		t.Fatal(err)
	}
}

// TestTerminate: SIGTERM under load drains. What was acknowledged is there, and
// the commit log's abort file, the mark of an unclean end, is gone.
func TestTerminate(t *testing.T) {
	t.Parallel()
	for _, s := range harness.Durable() {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			rng := seed(t)
			n := startBroker(t, s, "ASYNC_FLUSH")
			abort := filepath.Join(n.Data, "store", "abort")
			l := newLedger()
			for round := range 3 {
				if s.Name == "commitlog" {
					if _, err := os.Stat(abort); err != nil {
						t.Fatalf("the abort file of a running broker: %v", err)
					}
				}
				want := l.ackedCount() + 200
				d := startLoad(t, l, n.Addr, rng)
				harness.Until(t, 30*time.Second, "200 messages acknowledged", func() bool { return l.ackedCount() >= want })
				n.Stop()
				if err := d.wait(); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				if _, err := os.Stat(abort); !os.IsNotExist(err) {
					t.Fatalf("the abort file after SIGTERM: %v", err)
				}
				n.Start()
				if err := l.verify(n.Addr, true); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
			}
		})
	}
}
