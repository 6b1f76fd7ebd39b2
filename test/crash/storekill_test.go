package crash

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/hardpointmq/hardpoint/core/broker"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/wiring"
	"github.com/hardpointmq/hardpoint/internal/hosttest"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
	"github.com/hardpointmq/hardpoint/sdk/external"
	"github.com/hardpointmq/hardpoint/test/harness"
)

// killRounds are those of tests that kill a plugin and not the broker.
func killRounds() int {
	if harness.Long() {
		return 100
	}
	return 10
}

// host starts a broker in this process whose store is in one of its own. That may
// die as often as a test wants: it is started again soon, and never given a rest.
func host(t *testing.T, name, flush string) *broker.Broker {
	t.Helper()
	b := hostIn(t, t.TempDir(), name, flush)
	t.Cleanup(func() {
		if err := b.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return b
}

// hostIn is host in a directory that may have been one's before; the caller ends it.
func hostIn(t *testing.T, dir, name, flush string) *broker.Broker {
	t.Helper()
	fs := pflag.NewFlagSet("broker", pflag.ContinueOnError)
	config.RegisterFlags(fs)
	args := []string{"--data", dir, "--listen", "127.0.0.1:0", "--storage", name}
	for _, s := range append(settings(flush), storeSettings(harness.Store{Name: name})...) {
		args = append(args, "--set", s)
	}
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	l, err := config.Load(config.Options{Mode: config.Broker, Flags: fs, Hostname: "broker-a"})
	if err != nil {
		t.Fatal(err)
	}
	store := external.Storage(name, external.Command{Path: harness.Binary(t, false), Args: []string{"plugin", "serve", "storage", name}}, external.Options{
		Backoff: external.Backoff{First: 10 * time.Millisecond, Most: 100 * time.Millisecond}, Breaker: external.Breaker{Deaths: -1},
	})
	plugins, err := wiring.NewPlugins([]storage.Factory{store}, nil, []replication.Factory{solo.NewFactory()}, []transport.Factory{remoting.NewFactory()})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	b, err := broker.New(ctx, broker.Params{
		Settings: plugin.Settings{Logger: slog.New(slog.DiscardHandler)}, Config: &l.Config, Loaded: l, Plugins: plugins,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(ctx); err != nil {
		t.Fatal(err)
	}
	c, err := harness.Dial(b.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.CreateTopic(topic, queues); err != nil {
		t.Fatal(err)
	}
	return b
}

// killStores kills the processes of stores that there are, and returns how many.
// The tests of this file do not run beside others, whose brokers are children too.
func killStores(t *testing.T) (killed int) {
	t.Helper()
	for _, pid := range hosttest.Children(t, os.Getpid()) {
		err := syscall.Kill(pid, syscall.SIGKILL)
		if err == nil {
			killed++
		} else if !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
	return killed
}

// TestKillStore kills the process of the store under four producers that go on, on
// the same connections, with the next message when one is refused: the broker goes
// on with the next process, and everything that was acknowledged is where it was
// acknowledged, without a restart.
func TestKillStore(t *testing.T) {
	for _, name := range []string{"pebble", "commitlog"} {
		for _, flush := range []string{"SYNC_FLUSH", "ASYNC_FLUSH"} {
			t.Run(fmt.Sprintf("%s/%s", harness.Store{Name: name, Process: true}, flush), func(t *testing.T) {
				rng := seed(t)
				b := host(t, name, flush)
				l := newLedger()
				refused := 0
				for round := range killRounds() {
					refused += killStoreUnderLoad(t, l, b, rng, round)
					if err := l.verify(b.Address(), round == killRounds()-1); err != nil {
						t.Fatalf("round %d: %v", round, err)
					}
					if err := b.Ready(); err != nil {
						t.Fatalf("round %d: the broker is not ready: %v", round, err)
					}
				}
				t.Logf("%d rounds, %d messages acknowledged and found, %d refusals noted", killRounds(), len(l.acked), refused)
			})
		}
	}
}

// killStoreUnderLoad kills it once or twice, then waits until the producers are
// answered as before.
func killStoreUnderLoad(t *testing.T, l *ledger, b *broker.Broker, rng *rand.Rand, round int) (refused int) {
	t.Helper()
	d := startLoad(t, l, b.Address(), rng)
	for range 1 + rng.IntN(2) {
		want := l.ackedCount() + 20 + rng.IntN(300)
		harness.Until(t, 60*time.Second, fmt.Sprintf("round %d: messages are acknowledged", round), func() bool { return l.ackedCount() >= want })
		// The one before may be dead, and what was acknowledged answered before.
		harness.Until(t, 60*time.Second, fmt.Sprintf("round %d: the store has a process", round), func() bool { return killStores(t) > 0 })
	}
	want := l.ackedCount() + 100
	harness.Until(t, 60*time.Second, fmt.Sprintf("round %d: messages are acknowledged after the store's process was killed", round), func() bool { return l.ackedCount() >= want })
	if err := d.wait(); err != nil {
		t.Fatalf("round %d: %v", round, err)
	}
	return len(d.refused)
}

// TestKillMemoryStore kills the process of a store that promises nothing, under four
// producers: the log is gone, and the broker, whose clients know that one, goes on with
// no other. It answers no message, no bound of a queue, takes nothing and says why, until
// it is restarted, and then begins with nothing.
func TestKillMemoryStore(t *testing.T) {
	for _, flush := range []string{"SYNC_FLUSH", "ASYNC_FLUSH"} {
		t.Run(flush, func(t *testing.T) {
			rng := seed(t)
			dir := t.TempDir()
			ctx := context.WithoutCancel(t.Context())
			b := hostIn(t, dir, "memory", flush)
			end := sync.OnceValue(func() error { return b.Shutdown(ctx) })
			t.Cleanup(func() { _ = end() })
			l := newLedger()
			d := startLoad(t, l, b.Address(), rng)
			harness.Until(t, 60*time.Second, "messages are acknowledged", func() bool { return l.ackedCount() >= 100+rng.IntN(300) })
			if killed := killStores(t); killed != 1 {
				t.Fatalf("%d processes of the store were killed", killed)
			}
			const why = "came back with another log"
			harness.Until(t, 60*time.Second, "the broker is not ready because its log is gone", func() bool {
				err := b.Ready()
				return err != nil && strings.Contains(err.Error(), why) && strings.Contains(err.Error(), "until the broker is restarted")
			})
			if err := d.wait(); err != nil {
				t.Fatal(err)
			}
			if err := l.refused(b.Address(), why); err != nil {
				t.Fatal(err)
			}
			if err := end(); err == nil || !strings.Contains(err.Error(), why) {
				t.Fatalf("the end of a broker whose log is gone: %v", err)
			}

			b = hostIn(t, dir, "memory", flush)
			defer func() {
				if err := b.Shutdown(ctx); err != nil {
					t.Error(err)
				}
			}()
			if err := l.gone(b.Address()); err != nil {
				t.Fatal(err)
			}
			serves(t, b.Address(), rng)
		})
	}
}

// TestStoreThatDoesNotStart: when no process of the store lives, the broker stays up,
// takes nothing, and says why; when one does, it goes on.
func TestStoreThatDoesNotStart(t *testing.T) {
	rng := seed(t)
	b := host(t, "pebble", "SYNC_FLUSH")
	l := newLedger()
	deaths := 0
	harness.Until(t, 60*time.Second, "the broker says why it is not ready", func() bool {
		deaths += killStores(t)
		err := b.Ready()
		return deaths > 10 && err != nil && strings.Contains(err.Error(), "the store is away and is being opened again") &&
			strings.Contains(err.Error(), `opening storage plugin "pebble" again failed`)
	})
	harness.Until(t, 60*time.Second, "the broker is ready again", func() bool { return b.Ready() == nil })
	d := startLoad(t, l, b.Address(), rng)
	harness.Until(t, 60*time.Second, "100 messages", func() bool { return l.ackedCount() >= 100 })
	if err := d.wait(); err != nil {
		t.Fatal(err)
	}
	if err := l.verify(b.Address(), true); err != nil {
		t.Fatal(err)
	}
}
