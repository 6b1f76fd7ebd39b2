package external_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/internal/hosttest"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
	"github.com/hardpointmq/hardpoint/plugins/storage/pebble"
	"github.com/hardpointmq/hardpoint/sdk/external"
	"github.com/hardpointmq/hardpoint/sdk/serve"
)

// The test binary is the plugin process, too: roleEnv says what it is.
const (
	roleEnv = "HARDPOINT_TEST_ROLE"
	dirEnv  = "HARDPOINT_TEST_DIR"
)

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleEnv); role {
	case "":
		if err := hosttest.QuickEnds(); err != nil {
			panic(err)
		}
		goleak.VerifyTestMain(m)
	case "serve":
		serve.Main(plugins())
	case "unmoving":
		serve.Main(serve.Transport(unmoving()))
	case "crowded":
		serve.Main(serve.Transport(crowded()))
	case "stores":
		serve.Main(serve.Storage(memory.NewFactory()))
	case "noisy":
		fmt.Println("a line before the handshake")
		fmt.Println("1|2|not a handshake")
		fmt.Print(strings.Repeat("x", 1<<20))
		fmt.Println()
		fmt.Fprintln(os.Stderr, `{"@message":1}`)
		fmt.Fprintln(os.Stderr, `{"@message":"told","@level":7}`)
		fmt.Fprintln(os.Stderr, `{"@message":"warned","@level":"warn","@timestamp":5,"size":12}`)
		fmt.Fprintln(os.Stderr, "[] {} \x00\xff")
		fmt.Fprintln(os.Stderr, strings.Repeat("y", 1<<20))
		serve.Main(plugins())
	case "exit":
		fmt.Fprintln(os.Stderr, "there is no licence for Tuesdays")
		os.Exit(3)
	case "panic":
		panic("at start")
	case "silent":
		select {}
	case "parent":
		if err := exec.Command("sleep", "600").Start(); err != nil { // ended before
			panic(err)
		}
		serve.Main(plugins())
	case "host":
		host()
	case "watcher":
		watcher()
	default:
		bad := badPlugins()[role]
		if bad == nil {
			fmt.Fprintln(os.Stderr, "unknown role", role)
			os.Exit(2)
		}
		bad()
	}
}

func plugins() serve.Options {
	o := serve.Storage(memory.NewFactory(), pebble.NewFactory(), chatty(), nothing(), counting(), swallowing())
	o.Allocate = allocators()
	o.Transport = transports()
	o.Replication = []replication.Factory{solo.NewFactory(), moody()}
	return o
}

// counting is a store that counts.
func counting() storage.Factory {
	return storage.NewFactory("counting", func(memory.Config) plugin.Description { return plugin.Description{} },
		func() memory.Config { return memory.Config{} },
		func(_ context.Context, p storage.Params, _ memory.Config) (*counts, error) {
			return &counts{m: p.Meter}, nil
		})
}

type counts struct {
	storagetest.Nop
	m plugin.Meter
}

func (c *counts) Start(context.Context) error {
	c.m.Counter("things_total", "Things.", plugin.Label{Name: "sort", Value: "blue"}).Add(3)
	c.m.Histogram("wait_seconds", "Wait.").Observe(0.5)
	c.m.Gauge("depth", "Depth.", func() float64 { return 7 })
	return nil
}

// nothing is a store that takes everything and keeps nothing.
func nothing() storage.Factory {
	return storage.NewFactory("nothing", func(memory.Config) plugin.Description { return plugin.Description{} },
		func() memory.Config { return memory.Config{} },
		func(context.Context, storage.Params, memory.Config) (*storagetest.Nop, error) {
			return &storagetest.Nop{}, nil
		})
}

// swallowing is a store that never answers Sync, whatever becomes of the call.
func swallowing() storage.Factory {
	return storage.NewFactory("swallowing", func(memory.Config) plugin.Description { return plugin.Description{} },
		func() memory.Config { return memory.Config{} },
		func(context.Context, storage.Params, memory.Config) (*swallow, error) { return &swallow{}, nil })
}

type swallow struct{ storagetest.Nop }

func (*swallow) Sync(context.Context, message.Position) error { select {} }

// chatty is a store that prints when it starts.
func chatty() storage.Factory {
	return storage.NewFactory("chatty", func(memory.Config) plugin.Description { return plugin.Description{} },
		func() memory.Config { return memory.Config{} },
		func(_ context.Context, p storage.Params, _ memory.Config) (*chat, error) {
			return &chat{log: p.Logger}, nil
		})
}

type chat struct {
	storagetest.Nop
	log *slog.Logger
}

func (c *chat) Start(context.Context) error {
	c.log.Debug("debugging is on", "answer", 42)
	fmt.Println("printed to standard output")
	fmt.Fprintln(os.Stderr, `{"@message":1}`)
	return nil
}

// command runs this binary in a role.
func command(tb testing.TB, role string, env ...string) external.Command {
	tb.Helper()
	exe, err := os.Executable()
	require.NoError(tb, err)
	return external.Command{Path: exe, Env: append(env, roleEnv+"="+role)}
}

// factory is of a plugin that ends with its last store.
func factory(tb testing.TB, name, role string) storage.Factory {
	tb.Helper()
	return external.Storage(name, command(tb, role), external.Options{Linger: -1})
}

// running builds and starts a store, which is shut down with the test.
func running(tb testing.TB, f storage.Factory, e storage.Events) storage.Store {
	tb.Helper()
	return started(tb, f, params(tb.TempDir(), e))
}

// started is a store whose process ends with the test, also with one that fails:
// those after it count the processes.
func started(tb testing.TB, f storage.Factory, p storage.Params) storage.Store {
	tb.Helper()
	s, err := f.Build(tb.Context(), p, nil)
	require.NoError(tb, err)
	require.NoError(tb, s.Start(tb.Context()))
	tb.Cleanup(func() { _ = s.Shutdown(context.WithoutCancel(tb.Context())) })
	return s
}

func params(dir string, e storage.Events) storage.Params {
	return storage.Params{
		Settings: plugin.Settings{Name: "test", Dir: dir}.WithDefaults(),
		Segment:  64 << 20, Index: message.IndexRules{DelayLevels: message.DefaultDelayLevels()}, Events: e,
	}
}

// buffer takes a log.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (b *buffer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
