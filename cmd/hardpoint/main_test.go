package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	goplugin "github.com/hashicorp/go-plugin"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	"go.uber.org/fx"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/hardpointmq/hardpoint/core/broker"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/wiring"
	"github.com/hardpointmq/hardpoint/internal/bench"
	"github.com/hardpointmq/hardpoint/internal/hosttest"
	"github.com/hardpointmq/hardpoint/internal/wiretest"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
	"github.com/hardpointmq/hardpoint/sdk/serve"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

// TestMain puts this program into the PATH as hardpoint, for scripts and for
// tests that start processes.
func TestMain(m *testing.M) {
	if err := hosttest.QuickEnds(); err != nil {
		panic(err)
	}
	testscript.Main(leakless{m}, map[string]func(){"hardpoint": main, pickyProgram: picky, stubbornProgram: stubborn, lacksProgram: lacks, misfitProgram: misfit, mutingProgram: muting, dyingProgram: dying})
}

// misfitProgram serves a store without facets, and a replicator that needs one.
const misfitProgram = "misfit"

func misfit() {
	o := serve.Storage(storage.NewFactory("acme", func(struct{}) plugin.Description { return plugin.Description{} },
		func() struct{} { return struct{}{} },
		func(context.Context, storage.Params, struct{}) (storagetest.Nop, error) {
			return storagetest.Nop{}, nil
		}))
	o.Replication = []replication.Factory{replication.NewFactory("raft",
		func(struct{}) plugin.Description {
			return plugin.Description{Needs: []string{"storage." + storage.FacetRawLog}}
		},
		func() struct{} { return struct{}{} },
		func(ctx context.Context, p replication.Params, _ struct{}) (*solo.Solo, error) {
			return solo.New(ctx, p, solo.NewDefaultConfig())
		})}
	serve.Main(o)
}

// lacksProgram serves a store that lacks a method.
const lacksProgram = "lacks-a-method"

func lacks() {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: wire.Handshake(), GRPCServer: goplugin.DefaultGRPCServer,
		VersionedPlugins: wire.Plugins(func(r grpc.ServiceRegistrar) {
			wire.Register(wiretest.Without(r, storagepb.Storage_Segments_FullMethodName), nil, storagewire.NewServer(nil, memory.NewFactory()))
		}),
	})
}

// stubbornProgram serves a store that does not close.
const stubbornProgram = "stubborn-store"

func stubborn() { serve.Main(serve.Storage(storagemw.Wrap(memory.NewFactory(), neverCloses))) }

type stubbornStore struct {
	storagemw.Base
	started bool
}

func neverCloses(_ storage.Params, next storage.Store) storage.Store {
	return &stubbornStore{Base: storagemw.Base{Store: next}}
}

func (s *stubbornStore) Capabilities() storage.Capabilities { return s.Store.Capabilities() }

func (s *stubbornStore) Start(ctx context.Context) error {
	s.started = true
	return s.Base.Start(ctx)
}

func (s *stubbornStore) Shutdown(ctx context.Context) error {
	if s.started {
		select {}
	}
	return s.Base.Shutdown(ctx)
}

// pickyProgram serves the transport remoting, and refuses the configuration of
// everybody else.
const pickyProgram = "picky-remoting"

func picky() {
	serve.Main(serve.Transport(transport.NewFactory(remoting.Name, func(pickyConfig) plugin.Description { return plugin.Description{} },
		func() pickyConfig { return pickyConfig{} },
		func(context.Context, transport.Params, pickyConfig) (*remoting.Transport, error) { return nil, nil })))
}

type pickyConfig struct {
	Licence string `json:"licence"`
}

func (c pickyConfig) Validate() error {
	if c.Licence == "" {
		return errors.New("licence: this version needs one")
	}
	return nil
}

// leakless fails when goroutines are left; testscript.Main ends the process by
// itself, so goleak.VerifyTestMain cannot.
type leakless struct{ *testing.M }

func (l leakless) Run() int {
	for _, kv := range hosttest.AnyDisk() { // of the brokers that tests start
		name, value, _ := strings.Cut(kv, "=")
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	code := l.M.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// updateScripts writes what scripts compare with.
var updateScripts = flag.Bool("update", false, "write the files that scripts compare with")

func TestScripts(t *testing.T) {
	self, err := exec.LookPath("hardpoint")
	require.NoError(t, err)
	other, err := exec.LookPath(misfitProgram)
	require.NoError(t, err)
	apache := apacheStores(t)
	cmds := maps.Clone(storeCmds)
	maps.Copy(cmds, adminCmds)
	maps.Copy(cmds, messageCmds)
	testscript.Run(t, testscript.Params{Dir: "testdata/script", Cmds: cmds, UpdateScripts: *updateScripts, Setup: func(e *testscript.Env) error {
		e.Values[sceneKey] = &scene{}
		e.Setenv("PROGRAM", self) // what a plugin's path may name
		e.Setenv("MISFIT", other)
		e.Setenv("APACHE", apache) // stores that Apache's brokers wrote
		return nil
	}})
}

// TestPartsFitTogether checks the real list of parts, for every mode.
func TestPartsFitTogether(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			l, err := config.Load(config.Options{Mode: mode})
			require.NoError(t, err)
			n := newNode([]*config.Loaded{l}, io.Discard)
			require.NoError(t, wiring.Validate(n.options(), parts(n)...))
		})
	}
}

// The admin port answers while the others start; who is first stops last.
func TestOrderOfParts(t *testing.T) {
	for mode, want := range map[config.Mode][]string{
		config.Standalone: {"data directory", "data directory", "admin port", "name server", "broker b", "announcement"},
		config.Broker:     {"data directory", "admin port", "broker b", "announcement"},
		config.Namesrv:    {"data directory", "admin port", "name server", "announcement"},
	} {
		l, err := config.Load(config.Options{Mode: mode, Env: []string{"HARDPOINT_BROKER_NAME=b", "HARDPOINT_STORAGE=memory"}})
		require.NoError(t, err)
		n := newNode([]*config.Loaded{l}, io.Discard)
		var life *wiring.Lifecycle
		_, err = wiring.New(n.options(), append(parts(n), fx.Populate(&life))...)
		require.NoError(t, err)
		require.Equal(t, want, life.Names(), mode.String())
	}
}

// Groups are locked one by one, and start and stop beside each other.
func TestOrderOfGroups(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for i, name := range []string{"a", "b"} {
		files = append(files, filepath.Join(dir, name+".yaml"))
		text := fmt.Sprintf("brokerName: %s\ndata: %s\nlisten: 127.0.0.1:%d\nstorage: memory\n", name, filepath.ToSlash(filepath.Join(dir, name)), 20000+10*i)
		require.NoError(t, os.WriteFile(files[i], []byte(text), 0o600))
	}
	groups, err := config.LoadGroups(config.Options{Mode: config.Standalone}, files...)
	require.NoError(t, err)
	n := newNode(groups, io.Discard)
	require.NoError(t, wiring.Validate(n.options(), parts(n)...))
	var life *wiring.Lifecycle
	var brokers *broker.Groups
	_, err = wiring.New(n.options(), append(parts(n), fx.Populate(&life, &brokers))...)
	require.NoError(t, err)
	require.Equal(t, []string{"data directory", "data directory", "data directory", "admin port", "name server", "brokers a, b", "announcement"}, life.Names())
	require.Len(t, brokers.All(), 2)
}

// The first signal stops, the second skips the drain, the third ends the process; an
// interrupt that comes first counts for two.
func TestSignals(t *testing.T) {
	for name, c := range map[string]struct {
		signals []os.Signal
		hurry   int // the signal that skips the drain
	}{
		"terminate": {[]os.Signal{syscall.SIGTERM, syscall.SIGTERM, syscall.SIGTERM}, 2},
		"interrupt": {[]os.Signal{os.Interrupt, os.Interrupt}, 1},
		"mixed":     {[]os.Signal{syscall.SIGTERM, os.Interrupt, syscall.SIGTERM}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			n := &node{log: slog.New(slog.DiscardHandler), hurry: make(chan struct{})}
			signals, codes := make(chan os.Signal), make(chan int, 1)
			ctx, stop := n.obey(t.Context(), signals, func(code int) { codes <- code })
			defer stop()
			require.NoError(t, ctx.Err())
			for i, s := range c.signals {
				last := i == len(c.signals)-1
				signals <- s
				<-ctx.Done()
				if i+1 == c.hurry {
					<-n.hurry
				}
				if last {
					require.Equal(t, exitFailure, <-codes)
				}
				require.Empty(t, codes)
				select {
				case <-n.hurry:
					require.GreaterOrEqual(t, i+1, c.hurry)
				default:
				}
			}
		})
	}
	n := &node{log: slog.New(slog.DiscardHandler), hurry: make(chan struct{})}
	ctx, stop := n.obey(t.Context(), nil, func(int) { t.Error("no signal came") })
	stop()
	require.ErrorIs(t, ctx.Err(), context.Canceled)
}

// writer is a function that is written to.
type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

// The bar of bench shows phase, rate and part.
func TestProgressBar(t *testing.T) {
	drawn := make(chan string)
	tell, finish := bar(writer(func(p []byte) { drawn <- string(p) }))
	text := ""
	for !strings.Contains(text, "run 1234 msg/s") || !strings.Contains(text, "50 %") {
		tell(bench.Progress{Phase: "run", Part: 0.5, PerSec: 1234})
		text += <-drawn
	}
	go func() {
		finish()
		close(drawn)
	}()
	for range drawn { // until it is removed
	}
	tell, finish = progress(&bytes.Buffer{}, false)
	require.Nil(t, tell, "no terminal, no bar")
	finish()
}
