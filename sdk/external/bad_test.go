package external_test

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/internal/wiretest"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
	"github.com/hardpointmq/hardpoint/sdk/external"
	"github.com/hardpointmq/hardpoint/sdk/serve"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/allocatewire"
	"github.com/hardpointmq/hardpoint/sdk/wire/pluginpb"
	"github.com/hardpointmq/hardpoint/sdk/wire/replicationwire"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
	"github.com/hardpointmq/hardpoint/sdk/wire/transportwire"
)

// badPlugins are roles of this binary: plugins as they should not be.
func badPlugins() map[string]func() {
	prints := func(line string) func() {
		return func() {
			fmt.Println(line)
			select {}
		}
	}
	return map[string]func(){
		"exit0":      func() { fmt.Println("I am a calculator") },
		"protocol0":  prints("1|0|unix|/nowhere|grpc|"),
		"protocol2":  prints(fmt.Sprintf("1|%d|unix|/nowhere|grpc|", wire.Version+1)),
		"protocol99": prints("1|99|unix|/nowhere|grpc|"),
		"core2":      prints("2|1|unix|/nowhere|grpc|"),
		"netrpc":     prints("1|1|unix|/nowhere|netrpc|"),
		"nowhere":    prints("1|1|unix|/nowhere|grpc|"),
		"mute": func() {
			_ = os.Stdout.Close()
			select {}
		},
		"line": func() {
			fmt.Println("hello")
			serve.Main(plugins())
		},
		"mebibyte": func() {
			fmt.Println(strings.Repeat("x", 1<<20))
			serve.Main(plugins())
		},
		"unterminated": func() {
			fmt.Print("loading... ")
			serve.Main(plugins())
		},
		"json": func() {
			fmt.Fprintln(os.Stderr, `{"@message": 1}`)
			serve.Main(plugins())
		},
		"no_stderr": func() {
			_ = os.Stderr.Close()
			serve.Main(plugins())
		},
		"no_plugin_service": func() { serveRaw(func(grpc.ServiceRegistrar) {}) },
		"lacks": func() {
			serveRaw(func(r grpc.ServiceRegistrar) {
				wire.Register(wiretest.Without(r, strings.Fields(os.Getenv(lacksEnv))...), nil,
					storagewire.NewServer(nil, memory.NewFactory(), nothing()), allocatewire.NewServer(nil, allocators()...),
					transportwire.NewServer(nil, transports()...), replicationwire.NewServer(nil, solo.NewFactory()))
			})
		},
		"stub": func() {
			serveRaw(func(r grpc.ServiceRegistrar) {
				wire.Register(r, nil, stub{storagewire.NewServer(nil, memory.NewFactory())})
			})
		},
		"panics_later": func() {
			serveRaw(func(r grpc.ServiceRegistrar) {
				pluginpb.RegisterPluginServer(r, panics{})
			})
		},
		"garbage": func() {
			serveRaw(func(r grpc.ServiceRegistrar) {
				wire.Register(r, nil, garbage{storagewire.NewServer(nil, memory.NewFactory())})
			})
		},
		"unhealthy":   func() { serveRaw(serveMemory, grpc.UnaryInterceptor(health(0))) },
		"falls_ill":   func() { serveRaw(serveMemory, grpc.UnaryInterceptor(health(1))) },
		"slow_health": func() { serveRaw(serveMemory, grpc.UnaryInterceptor(slowHealth)) },
		"no_metrics": func() {
			serveRaw(serveMemory, grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
				if info.FullMethod == pluginpb.Plugin_Metrics_FullMethodName {
					return nil, status.Error(codes.Unimplemented, "an old plugin")
				}
				return h(ctx, req)
			}))
		},
		"slow_metrics": func() {
			serveRaw(serveMemory, grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
				if info.FullMethod == pluginpb.Plugin_Metrics_FullMethodName {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return h(ctx, req)
			}))
		},
		"leaks": func() { serve.Main(serve.Storage(leak())) },
	}
}

func serveMemory(r grpc.ServiceRegistrar) {
	wire.Register(r, nil, storagewire.NewServer(nil, memory.NewFactory()))
}

// serveRaw is serve.Main for services of every sort.
func serveRaw(register func(grpc.ServiceRegistrar), opts ...grpc.ServerOption) {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: wire.Handshake(), VersionedPlugins: wire.Plugins(register),
		GRPCServer: func(o []grpc.ServerOption) *grpc.Server { return grpc.NewServer(append(o, opts...)...) },
	})
}

const healthMethod = "/grpc.health.v1.Health/Check"

// health answers so many health calls.
func health(most int64) grpc.UnaryServerInterceptor {
	var n atomic.Int64
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		if info.FullMethod == healthMethod && n.Add(1) > most {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return h(ctx, req)
	}
}

// slowHealth answers, but takes its time.
func slowHealth(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
	if info.FullMethod == healthMethod {
		<-time.After(50 * time.Millisecond)
	}
	return h(ctx, req)
}

// lacksEnv names the methods that role "lacks" does not have.
const lacksEnv = "HARDPOINT_TEST_LACKS"

// stub has a method that its author left as it was generated.
type stub struct{ *storagewire.Server }

func (s stub) Register(r grpc.ServiceRegistrar) { storagepb.RegisterStorageServer(r, s) }

func (stub) Shutdown(ctx context.Context, r *storagepb.ShutdownRequest) (*storagepb.ShutdownResponse, error) {
	return storagepb.UnimplementedStorageServer{}.Shutdown(ctx, r)
}

type panics struct {
	pluginpb.UnimplementedPluginServer
}

func (panics) Describe(context.Context, *pluginpb.DescribeRequest) (*pluginpb.DescribeResponse, error) {
	panic("of a plugin")
}

// garbage answers garbage on its data socket.
type garbage struct{ *storagewire.Server }

func (g garbage) Register(r grpc.ServiceRegistrar) { storagepb.RegisterStorageServer(r, g) }

func (g garbage) Open(ctx context.Context, r *storagepb.OpenRequest) (*storagepb.OpenResponse, error) {
	out, err := g.Server.Open(ctx, r)
	if err != nil || out.GetFailure() != nil {
		return out, err
	}
	out.Socket = filepath.Join(r.GetSocketDir(), "g")
	ln, err := net.Listen("unix", out.GetSocket())
	if err != nil {
		return nil, err
	}
	go func() {
		// The connections stay open while they say nothing: one that no variable holds is
		// closed when it is collected, and the host would hear of that first.
		var open []net.Conn
		for {
			c, err := ln.Accept()
			if err != nil {
				for _, c := range open {
					_ = c.Close()
				}
				return
			}
			open = append(open, c)
			go func() {
				b := make([]byte, 33)
				_, _ = c.Read(b)
				if b[32] != 'L' {
					return
				}
				_, _ = c.Read(b) // a call
				_, _ = c.Write([]byte(strings.Repeat("what? ", 100)))
			}()
		}
	}()
	return out, nil
}

func (g garbage) Start(context.Context, *storagepb.StartRequest) (*storagepb.StartResponse, error) {
	return &storagepb.StartResponse{State: &storagepb.LogState{Version: 1, LogId: "l", Segment: 64 << 20}}, nil
}

// leak is a store that takes memory when it starts and never gives it back.
func leak() storage.Factory {
	return storage.NewFactory("leak", func(memory.Config) plugin.Description { return plugin.Description{} },
		func() memory.Config { return memory.Config{} },
		func(context.Context, storage.Params, memory.Config) (*leaking, error) { return &leaking{}, nil })
}

type leaking struct {
	storagetest.Nop
	kept []byte
}

const leaked = 64 << 20

func (l *leaking) Start(context.Context) error {
	l.kept = make([]byte, leaked)
	for i := range l.kept {
		l.kept[i] = byte(i)
	}
	return nil
}

// TestBadPlugins: each says what is wrong with it, in which file, what was found and
// what expected, how it ended and what it said last.
func TestBadPlugins(t *testing.T) {
	self := command(t, "").Path
	for role, want := range map[string][]string{
		"exit":              {"it ended before the handshake", "exit status 3", "its last output:\nthere is no licence for Tuesdays"},
		"exit0":             {"it ended before the handshake", "exit status 0", "its last output:\nI am a calculator"},
		"panic":             {"it ended before the handshake", "exit status 2", "panic: at start"},
		"protocol0":         {"version 0 of Hardpoint's plugin protocol, this host version 1", "killed, by this host"},
		"protocol2":         {"version 2 of Hardpoint's plugin protocol, this host version 1"},
		"protocol99":        {"version 99 of Hardpoint's plugin protocol, this host version 1"},
		"core2":             {"version 2 of go-plugin's protocol, this host version 1"},
		"netrpc":            {"does not speak gRPC", "1|1|unix|/nowhere|netrpc"},
		"nowhere":           {"it shook hands (1|1|unix|/nowhere|grpc)", "/nowhere"},
		"mute":              {"closed its standard output without the handshake"},
		"silent":            {"nothing came of the handshake within 1s", "1|1|unix|SOCKET|grpc|CERTIFICATE"},
		"unterminated":      {"of its own on its standard output, found was \"loading... 1|"},
		"unhealthy":         {"it shook hands (1|1|unix|", "did not answer the health call within "},
		"no_plugin_service": {"does not know a call of this host", "/hardpoint.plugin.v1.Plugin/Describe"},
		"panics_later":      {"is gone; it ended with exit status 2", "panic: of a plugin"},
	} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			limit := patience
			switch role {
			case "silent", "unhealthy", "unterminated": // the limit is what ends them
				limit = time.Second
			}
			describe := func() error {
				_, err := external.Storage(memory.Name, command(t, role), external.Options{StartTimeout: limit, Linger: -1}).Describe(t.Context(), nil)
				require.ErrorIs(t, err, plugin.ErrUnavailable)
				return err
			}
			err := describe()
			for limit < patience && !strings.Contains(err.Error(), want[len(want)-1]) { // a busy machine: it did not come that far
				limit *= 2
				err = describe()
			}
			if role == "unhealthy" {
				want = append(want, "within "+limit.String())
			}
			for _, w := range append(want, memory.Name, self) {
				require.ErrorContains(t, err, w)
			}
			require.LessOrEqual(t, len(err.Error()), 8<<10)
		})
	}
}

// TestOddPlugins: what they do is noise, or hurts later.
func TestOddPlugins(t *testing.T) {
	for role, logged := range map[string]string{
		"line": `msg=hello plugin=memory stream=stdout`, "mebibyte": "xxxx", "json": `msg="{\"@message\": 1}"`,
		"no_stderr": "", "slow_health": "",
	} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			var log buffer
			p := params(t.TempDir(), storage.Events{})
			p.Logger = log.logger()
			s, err := factory(t, memory.Name, role).Build(t.Context(), p, nil)
			require.NoError(t, err)
			require.NoError(t, s.Start(t.Context()))
			require.NoError(t, s.Sync(t.Context(), 0))
			require.NoError(t, s.Shutdown(t.Context()))
			require.Contains(t, log.String(), logged)
			require.LessOrEqual(t, len(log.String()), 64<<10)
		})
	}
}

// TestMissingMethod: what a plugin lacks of what a host calls is found before it is
// used, and said with the file, the method and what to do.
func TestMissingMethod(t *testing.T) {
	self := command(t, "").Path
	lacks := func(t *testing.T, name, methods string, d describer) {
		t.Helper()
		_, err := d.Describe(t.Context(), nil)
		require.ErrorIs(t, err, plugin.ErrUnavailable)
		for _, want := range []string{self, fmt.Sprintf("%q", name), "lacks what this host calls: " + strings.ReplaceAll(methods, " ", ", ") + ";", "build it with the SDK of this host's version"} {
			require.ErrorContains(t, err, want)
		}
		require.NotErrorIs(t, err, plugin.ErrConfig)
	}
	o := external.Options{Linger: -1}
	for _, kind := range []struct {
		name     string
		contract *wire.Contract
		factory  func(external.Command) describer
	}{
		{memory.Name, storagewire.Contract(), func(c external.Command) describer { return external.Storage(memory.Name, c, o) }},
		{"sticky", allocatewire.Contract(), func(c external.Command) describer { return external.Allocate("sticky", c, o) }},
		{"remoting", transportwire.Contract(), func(c external.Command) describer { return external.Transport("remoting", c, o) }},
		{solo.Name, replicationwire.Contract(), func(c external.Command) describer { return external.Replication(solo.Name, c, o) }},
	} {
		methods := slices.Clone(kind.contract.Methods)
		for _, facet := range slices.Sorted(maps.Keys(kind.contract.OfFacet)) {
			methods = append(methods, kind.contract.OfFacet[facet])
		}
		require.NotEmpty(t, methods)
		t.Run(kind.contract.Kind, func(t *testing.T) {
			all := strings.Join(methods, " ") // each of them is asked for
			lacks(t, kind.name, all, kind.factory(command(t, "lacks", lacksEnv+"="+all)))
		})
		t.Run(kind.contract.Kind+" but for one", func(t *testing.T) {
			last := methods[len(methods)-1]
			lacks(t, kind.name, last, kind.factory(command(t, "lacks", lacksEnv+"="+last)))
		})
	}
	t.Run("a stub", func(t *testing.T) {
		f := factory(t, memory.Name, "stub")
		lacks(t, memory.Name, storagepb.Storage_Shutdown_FullMethodName, f)
		_, err := f.Build(t.Context(), params(t.TempDir(), storage.Events{}), nil)
		require.ErrorContains(t, err, "lacks what this host calls")
	})
	t.Run("of a facet that it does not offer", func(t *testing.T) {
		f := external.Storage("nothing", command(t, "lacks", lacksEnv+"="+storagepb.Storage_Find_FullMethodName), o)
		_, err := f.Describe(t.Context(), nil)
		require.NoError(t, err)
	})
}

// describer is a factory of any kind.
type describer interface {
	Describe(ctx context.Context, raw plugin.Raw) (plugin.Description, error)
}

// TestGarbageOnTheDataSocket: it counts as a death of the plugin, which is named.
func TestGarbageOnTheDataSocket(t *testing.T) {
	s := running(t, factory(t, memory.Name, "garbage"), storage.Events{})
	pids := children(t)
	w := storagetest.NewWriter(message.IndexRules{})
	p := w.Pending([]storagetest.Message{{Queue: message.Queue{Topic: "T"}, Body: []byte("x")}})
	require.NoError(t, storagetest.OpenSequencer(t, nop{s}, plugin.SystemClock{}, 1).Assign(p, 0))
	err := s.Append(t.Context(), &p.Batches[0])
	require.ErrorIs(t, err, plugin.ErrUnavailable)
	require.NotErrorIs(t, err, storage.ErrFailed)
	why := s.Capabilities().Reopener.Gone(t.Context())
	require.ErrorIs(t, why, plugin.ErrUnavailable)
	require.ErrorContains(t, why, "was killed by its host")
	for _, err := range []error{err, why} {
		require.ErrorContains(t, err, "malformed frame on the data socket")
		require.ErrorContains(t, err, memory.Name)
	}
	require.NoError(t, s.Capabilities().Reopener.Reopened(t.Context()))
	require.NotEqual(t, pids, children(t))
	require.NoError(t, s.Shutdown(t.Context()))
	require.Empty(t, children(t))
}

// nop answers what garbage cannot.
type nop struct{ storage.Store }

func (nop) Offsets(context.Context, []storage.OffsetQuery, *storage.OffsetAnswers) error { return nil }

// TestLeak: the memory of a plugin is seen in the host's metrics.
func TestLeak(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // residentBytes
	}
	var m recorded
	f := external.Storage("leak", command(t, "leaks"), external.Options{Meter: &m, Linger: -1})
	running(t, f, storage.Events{})
	require.GreaterOrEqual(t, m.gauge("plugin_process_resident_bytes{plugin=leak}"), float64(leaked))
}

// TestNoPlugins are files that are no programs of this machine.
func TestNoPlugins(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	foreign := make([]byte, 64)
	copy(foreign, elf.ELFMAG)
	foreign[elf.EI_CLASS], foreign[elf.EI_DATA], foreign[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	binary.LittleEndian.PutUint16(foreign[16:], uint16(elf.ET_EXEC))
	binary.LittleEndian.PutUint16(foreign[18:], uint16(elf.EM_S390))
	for path, want := range map[string]string{
		filepath.Join(dir, "nothing"):       "there is no file",
		"hardpoint-plugin-that-nobody-has":  "in PATH: give its path, or install it",
		dir:                                 "is a directory, not a program",
		write("mode", "#!/bin/sh\n", 0o600): "is not executable, its mode is -rw-------; chmod +x",
		write("interpreter", "#!/no/such/python\n", 0o700):       "is a script for /no/such/python, which this machine does not have",
		write("nameless", "#!\n", 0o700):                         "names no interpreter",
		write("crlf", "#!/bin/sh\r\nexit\r\n", 0o700):            `under the name "/bin/sh\r": write it with LF alone`,
		write("bom", "\xef\xbb\xbf#!/bin/sh\n", 0o700):           "begins with a byte order mark",
		write("script", "print('hello')\n", 0o700):               "nor a script whose first line names its interpreter",
		write("empty", "", 0o700):                                "is empty",
		write("foreign", string(foreign), 0o700):                 "is built for another machine: found an ELF program (Linux, BSD) for s390, 64-bit, this one needs",
		write("windows", "MZ"+strings.Repeat("\x00", 64), 0o700): "found a PE program (Windows)",
	} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			f := external.Storage(memory.Name, external.Command{Path: path}, external.Options{})
			for range 8 { // it is no death: no back-off, no circuit breaker
				_, err := f.Describe(t.Context(), nil)
				require.ErrorIs(t, err, plugin.ErrUnavailable)
				require.ErrorContains(t, err, want)
				require.ErrorContains(t, err, path)
			}
		})
	}
}

// TestBareName: a name without a folder is looked for in PATH, as a shell does; whoever
// meant the file beside him is told how to say so.
func TestBareName(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("mine-alone", []byte("#!/bin/sh\n"), 0o700))
	_, err := external.Storage(memory.Name, external.Command{Path: "mine-alone"}, external.Options{}).Describe(t.Context(), nil)
	require.ErrorIs(t, err, plugin.ErrUnavailable)
	require.ErrorContains(t, err, `there is no program "mine-alone" in PATH; the file in the working directory is `+"."+string(os.PathSeparator)+"mine-alone")
}
