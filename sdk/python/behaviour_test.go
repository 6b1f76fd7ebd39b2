package python

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/hardpointmq/hardpoint/core/adminport"
	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/allocate/allocatetest"
	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/internal/hosttest"
	"github.com/hardpointmq/hardpoint/plugins/standard"
	"github.com/hardpointmq/hardpoint/sdk/embedded"
	"github.com/hardpointmq/hardpoint/sdk/external"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/allocatewire/allocatepb"
	"github.com/hardpointmq/hardpoint/sdk/wire/pluginpb"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

const odd = "testdata/odd.py"

// build makes an allocator of odd.py.
func build(t *testing.T, config string) allocate.Allocator {
	t.Helper()
	a, err := external.Allocate("odd", program(t, odd), external.Options{Linger: -1}).Build(t.Context(),
		allocate.Params{Settings: plugin.Settings{Name: "mine"}}, plugin.Raw(config))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, allocate.Close(a)) })
	return a
}

func TestConfiguration(t *testing.T) {
	f := external.Allocate("odd", program(t, odd), external.Options{})
	d, err := f.Describe(t.Context(), plugin.Raw(`{"size": 9, "ratio": 1}`))
	require.NoError(t, err)
	require.Equal(t, "2", d.Version)
	require.JSONEq(t, `{"type": "object", "additionalProperties": false, "properties": {
		"size": {"type": "integer", "default": 3}, "ratio": {"type": "number", "default": 0.5}, "what": {"type": "string", "default": ""}}}`, string(d.Schema))
	for raw, says := range map[string]string{
		`{"sise": 1}`:     `unknown field "sise"; known fields are size, ratio, what`,
		`{"size": "1"}`:   `size is "1", it must be of the type integer`,
		`{"size": true}`:  `size is true`,
		`{"size": 0}`:     `size is 0, it must be at least 1`,
		`{"size": 1`:      `it is no JSON`,
		`[]`:              `one JSON object`,
		`{"what": null}`:  `what is null`,
		`{"size": 1.5}`:   `size is 1.5`,
		` {"ratio": "x"}`: `ratio is "x"`,
	} {
		_, err := f.Describe(t.Context(), plugin.Raw(raw))
		require.ErrorIs(t, err, plugin.ErrConfig, raw)
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, `"odd"`)
		_, err = f.Build(t.Context(), allocate.Params{}, plugin.Raw(raw))
		require.ErrorIs(t, err, plugin.ErrConfig, raw)
	}
	_, err = external.Allocate("even", program(t, odd), external.Options{Linger: -1}).Describe(t.Context(), nil)
	require.ErrorIs(t, err, plugin.ErrConfig)
	require.ErrorContains(t, err, `"even", but odd`)
}

func TestErrorsAndReasons(t *testing.T) {
	r := allocatetest.Make(2, 1)
	_, err := build(t, `{"what": "refuse"}`).Allocate(t.Context(), r)
	require.ErrorIs(t, err, allocate.ErrRequest)
	require.ErrorContains(t, err, "not on Tuesdays")
	_, err = build(t, `{"what": "raise"}`).Allocate(t.Context(), r)
	require.ErrorContains(t, err, `KeyError: 'no such drawer' (odd.py, line 20)`)
	_, err = build(t, `{"what": "names"}`).Allocate(t.Context(), r)
	require.ErrorContains(t, err, "allocate gave queue 0 to '"+r.Members[0].ClientID+"'; it must be the index of a member, or -1")
	_, err = build(t, `{"what": "nothing"}`).Allocate(t.Context(), r)
	require.ErrorContains(t, err, "allocate returned None; it must be a list")
	require.NotErrorIs(t, err, plugin.ErrUnavailable)
	got, err := build(t, `{"what": "why"}`).Allocate(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, allocate.Assignment{Owner: []int{0, 0}, Why: []string{"queue 0 of broker-a", "queue 1 of broker-a"}}, got)
}

// TestMetrics: what a plugin counts is scraped with the host's own metrics.
func TestMetrics(t *testing.T) {
	m := adminport.NewMetrics()
	a, err := external.Allocate("odd", program(t, odd), external.Options{Linger: -1, Meter: m.Meter()}).Build(t.Context(),
		allocate.Params{Settings: plugin.Settings{Name: "mine"}}, plugin.Raw(`{"what": "count"}`))
	require.NoError(t, err)
	for range 2 {
		_, err = a.Allocate(t.Context(), allocatetest.Make(3, 1))
		require.NoError(t, err)
	}
	scrape := func() string {
		w := httptest.NewRecorder()
		adminport.New(plugin.Settings{}, adminport.Off, m).Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		return w.Body.String()
	}
	var text string
	require.Eventually(t, func() bool { // a busy machine: it does not answer in time
		text = scrape()
		return strings.Contains(text, "hardpoint_odd_queues_total{")
	}, time.Minute, time.Millisecond)
	for _, line := range []string{
		"# HELP hardpoint_odd_queues_total Queues asked about.",
		"# TYPE hardpoint_odd_queues_total counter",
		`hardpoint_odd_queues_total{broker="broker-a",plugin="odd"} 6`,
		`hardpoint_odd_members{plugin="odd"} 82`, // two instances of two readers each
		`hardpoint_odd_queues_count{plugin="odd"} 2`,
		`hardpoint_odd_queues_sum{plugin="odd"} 0.002`,
		`hardpoint_odd_queues_bucket{plugin="odd",le="0.0004"} 0`,
		`hardpoint_odd_queues_bucket{plugin="odd",le="0.0016"} 2`,
		`hardpoint_plugin_metrics_left_out{plugin="odd"} 1`, // the one that cannot be read
	} {
		require.Contains(t, text, line)
	}
	require.NotContains(t, text, "odd_broken")
	require.NoError(t, allocate.Close(a))
	require.NotContains(t, scrape(), "odd_queues_total", "those of a process that is gone are gone")
}

// lockedBuffer may be written and read at the same time.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestOutput: prints, the plugin's logger and those of libraries end in the host's
// log, at their levels.
func TestOutput(t *testing.T) {
	var out lockedBuffer
	a, err := external.Allocate("odd", program(t, odd), external.Options{Linger: -1}).Build(t.Context(),
		allocate.Params{Settings: plugin.Settings{Name: "mine", Logger: slog.New(slog.NewTextHandler(&out, nil))}}, plugin.Raw(`{"what": "say"}`))
	require.NoError(t, err)
	_, err = a.Allocate(t.Context(), allocatetest.Make(1, 1))
	require.NoError(t, err)
	require.NoError(t, allocate.Close(a)) // the process ends, its output is read
	for _, line := range []string{
		`level=INFO msg="printed by the plugin"`, `level=WARN msg="told by the plugin" size=3`, `level=INFO msg="told by a library"`,
	} {
		require.Contains(t, out.String(), line)
	}
	require.NotContains(t, out.String(), "not wanted")
}

// opened makes a running store.
func opened(t *testing.T, f storage.Factory, dir string, e storage.Events) storage.Store {
	t.Helper()
	s, err := f.Build(t.Context(), storage.Params{Settings: plugin.Settings{Name: "s", Dir: dir}.WithDefaults(), Segment: 64 << 20, Events: e}, nil)
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, s.Shutdown(context.WithoutCancel(t.Context()))) })
	return s
}

type writer struct {
	w   *storagetest.Writer
	seq *storage.Sequencer
	s   storage.Store
}

func newWriter(t *testing.T, s storage.Store) *writer {
	t.Helper()
	return &writer{storagetest.NewWriter(message.IndexRules{}), storagetest.OpenSequencer(t, s, plugin.SystemClock{}, 1), s}
}

var queue = message.Queue{Topic: "T", ID: 1}

func (w *writer) append(t *testing.T, bodies ...[]byte) error {
	t.Helper()
	var all []storagetest.Message
	for _, b := range bodies {
		all = append(all, storagetest.Message{Queue: queue, Body: b})
	}
	p := w.w.Pending(all)
	require.NoError(t, w.seq.Assign(p, 0))
	for i := range p.Batches {
		if err := w.s.Append(t.Context(), &p.Batches[i]); err != nil {
			return err
		}
	}
	return nil
}

// TestLargeRecords: limits of gRPC apply in neither direction.
func TestLargeRecords(t *testing.T) {
	s := opened(t, external.Storage("sqlite", program(t, store), external.Options{}), t.TempDir(), storage.Events{})
	w := newWriter(t, s)
	bodies := [][]byte{bytes.Repeat([]byte("0123456789abcdef"), 1<<20)} // 16 MiB
	require.NoError(t, w.append(t, bodies[0]))
	for i := range 16 {
		bodies = append(bodies, bytes.Repeat([]byte{byte(i)}, 1<<20))
	}
	require.NoError(t, w.append(t, bodies[1:]...))
	var c storage.Chunk
	defer c.Release()
	require.NoError(t, s.Read(t.Context(), storage.ReadRequest{Queue: queue}, &c))
	require.Len(t, c.Units, len(bodies))
	for i, rec := range c.Records {
		var v message.View
		require.NoError(t, message.Parse(rec, &v))
		require.True(t, bytes.Equal(bodies[i], v.Body), "body %d came back changed", i)
	}
}

// TestFullAndFailed: a full backend leaves the store usable, a broken one does not.
func TestFullAndFailed(t *testing.T) {
	failed := make(chan error, 2)
	s := opened(t, external.Storage("drawer", program(t, odd), external.Options{}), "", storage.Events{Failed: func(err error) { failed <- err }})
	w := newWriter(t, s)
	require.NoError(t, w.append(t, []byte("one")))
	tail := s.State().Tail
	err := w.append(t, []byte("fill the disk"))
	require.ErrorIs(t, err, storage.ErrFull)
	require.ErrorContains(t, err, "the drawer is full")
	require.Equal(t, tail, s.State().Tail)
	require.Empty(t, failed)
	w = newWriter(t, s)
	require.NoError(t, w.append(t, []byte("two")))
	err = w.append(t, []byte("break the disk"))
	require.ErrorIs(t, err, storage.ErrFailed)
	require.ErrorContains(t, err, "the drawer is stuck")
	require.NotErrorIs(t, err, plugin.ErrUnavailable)
	require.ErrorContains(t, <-failed, "the drawer is stuck")
	require.ErrorIs(t, s.Sync(t.Context(), 0), storage.ErrFailed)
	var c storage.Chunk
	require.NoError(t, s.Read(t.Context(), storage.ReadRequest{Queue: queue}, &c))
	require.Len(t, c.Units, 2, "what was published stays readable")
	c.Release()
	require.Empty(t, failed, "Events.Failed is called once")
}

// TestKilled: what a killed store had acknowledged is there when it is opened again.
func TestKilled(t *testing.T) { killed(t, store, t.TempDir()) }

// TestKilledWithChild: a child that the process leaves behind, in a session of its own,
// has its connections and its files open; neither the host nor the next process waits for it.
func TestKilledWithChild(t *testing.T) {
	dir := t.TempDir()
	t.Cleanup(func() {
		note, err := os.ReadFile(filepath.Join(dir, "child"))
		require.NoError(t, err)
		pid, err := strconv.Atoi(string(note))
		require.NoError(t, err)
		child, err := os.FindProcess(pid)
		require.NoError(t, err)
		require.NoError(t, child.Kill(), "it lived until here")
	})
	killed(t, "testdata/forks.py", dir)
}

func killed(t *testing.T, path, dir string) {
	f := external.Storage("sqlite", program(t, path), external.Options{})
	for round := range 3 {
		s, err := f.Build(t.Context(), storage.Params{
			Settings: plugin.Settings{Name: "s", Dir: dir}.WithDefaults(), Segment: 64 << 20,
		}, nil)
		require.NoError(t, err)
		require.NoError(t, s.Start(t.Context()), "round %d", round)
		var a storage.OffsetAnswers
		require.NoError(t, s.Offsets(t.Context(), []storage.OffsetQuery{{Queue: queue}}, &a))
		require.EqualValues(t, round*10, a.Answers[0].Max)
		w := newWriter(t, s)
		for range 10 {
			require.NoError(t, w.append(t, []byte("x")))
		}
		for _, pid := range hosttest.Children(t, os.Getpid()) {
			p, err := os.FindProcess(pid)
			require.NoError(t, err)
			require.NoError(t, p.Kill())
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Minute)
		_ = s.Shutdown(soon) // of a process that is gone, or of the next one
		require.NoError(t, soon.Err())
		cancel()
	}
}

// command runs a plugin without package external.
func command(t *testing.T, env ...string) (*exec.Cmd, *lockedBuffer) {
	t.Helper()
	c := program(t, allocator)
	cmd := exec.CommandContext(t.Context(), c.Path, c.Args...)
	var stderr lockedBuffer
	cmd.Env, cmd.Stderr = append(append(os.Environ(), c.Env...), env...), &stderr
	return cmd, &stderr
}

func TestRunByHand(t *testing.T) {
	cmd, stderr := command(t)
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Run(), &exit)
	require.Equal(t, 1, exit.ExitCode())
	require.Contains(t, stderr.String(), "no broker started it")

	h := wire.Handshake()
	cmd, stderr = command(t, h.MagicCookieKey+"="+h.MagicCookieValue, "PLUGIN_PROTOCOL_VERSIONS=0,99")
	require.ErrorAs(t, cmd.Run(), &exit)
	require.Contains(t, stderr.String(), "the host speaks the plugin protocol 0 or 99, this plugin 1")

	// A Python that lacks the packages; -S leaves out those that are installed.
	cmd, stderr = command(t)
	cmd.Args = slices.Insert(cmd.Args, 1, "-S")
	require.ErrorAs(t, cmd.Run(), &exit)
	require.Contains(t, stderr.String(), "hardpoint_plugin needs grpc and google.protobuf, which "+cmd.Path+" does not have")
}

// TestMissingMethods are said when the process starts, not when they are called.
func TestMissingMethods(t *testing.T) {
	_, err := external.Storage("half", program(t, "testdata/unfinished.py"), external.Options{}).Describe(t.Context(), nil)
	require.ErrorIs(t, err, plugin.ErrUnavailable)
	require.ErrorContains(t, err, `the storage plugin "half" lacks apply(), scan(), sync()`)
}

// TestBroker runs a whole broker on both examples, and finds its messages again.
func TestBroker(t *testing.T) {
	plugins, err := standard.Plugins()
	require.NoError(t, err)
	plugins.Storage = plugins.Storage.With(external.Storage("sqlite", program(t, store), external.Options{}))
	plugins.Allocate = plugins.Allocate.With(external.Allocate("dealt", program(t, allocator), external.Options{}))
	dir := t.TempDir()
	var sent []api.SendResult
	for round := range 2 {
		b := embedded.Start(t, embedded.WithPlugins(plugins), embedded.WithStorage("sqlite"), embedded.WithDir(dir))
		for range 50 {
			r, err := b.API().Send(t.Context(), &api.SendRequest{Topic: "T", Body: fmt.Appendf(nil, "%d", len(sent))})
			require.NoError(t, err)
			sent = append(sent, r)
		}
		for i, r := range sent {
			got, err := b.API().Pull(t.Context(), &api.PullRequest{Group: "g", Queue: r.Queue, Offset: r.Offset, Max: 1})
			require.NoError(t, err)
			require.Len(t, got.Messages, 1)
			require.Equal(t, strconv.Itoa(i), string(got.Messages[0].Body), "round %d", round)
		}
		require.NoError(t, b.Close(t.Context()))
	}
}

// TestEndsWithItsHost: signals do not end it, the end of its standard input does.
func TestEndsWithItsHost(t *testing.T) {
	h := wire.Handshake()
	cmd, stderr := command(t, h.MagicCookieKey+"="+h.MagicCookieValue, "PLUGIN_PROTOCOL_VERSIONS=1", wire.ControlEnv+"=stdin", "PLUGIN_UNIX_SOCKET_DIR="+t.TempDir())
	control, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line := make([]byte, 4)
	_, err = io.ReadFull(out, line)
	require.NoError(t, err, stderr.String())
	require.Equal(t, "1|1|", string(line))
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	require.NoError(t, control.Close())
	_, _ = io.Copy(io.Discard, out)
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	require.Equal(t, 1, exit.ExitCode(), "it ended by itself: %s", exit)
}

// TestLife: a Start that comes behind Shutdown opens nothing, for nobody would close it.
func TestLife(t *testing.T) {
	c := program(t, store)
	cmd := exec.CommandContext(t.Context(), c.Path, "-c", `
from types import SimpleNamespace
from hardpoint_plugin import errors, storage
i = storage.Instance(None, SimpleNamespace(segment=0, log_id="", explicit_publish=False))
calls = []
i.log = SimpleNamespace(start=lambda: calls.append("start"), shutdown=lambda: calls.append("shutdown"))
i.attached.set()
i.shutdown()
try:
    i.start()
except errors.NotRunning as e:
    calls.append("refused")
print(*calls)`)
	cmd.Env = append(os.Environ(), c.Env...)
	b, err := cmd.Output()
	require.NoError(t, err)
	require.Equal(t, "shutdown refused\n", string(b))
}

// TestErrorCodes: the module's numbers are those of the page for other languages,
// whose test holds it against the host's.
func TestErrorCodes(t *testing.T) {
	c := program(t, allocator)
	cmd := exec.CommandContext(t.Context(), c.Path, "-c", `
import json
from hardpoint_plugin import errors
print(json.dumps({k: v.code for k, v in vars(errors).items() if isinstance(v, type) and getattr(v, "code", 0)}))`)
	cmd.Env = append(os.Environ(), c.Env...)
	b, err := cmd.Output()
	require.NoError(t, err)
	got := map[string]int{}
	require.NoError(t, json.Unmarshal(b, &got))
	page, err := os.ReadFile("../wire/proto/README.md")
	require.NoError(t, err)
	want := map[string]int{}
	for _, m := range regexp.MustCompile("(?m)^\\| (\\d+) \\| `[\\w.]+` \\| `(\\w+)` \\|$").FindAllStringSubmatch(string(page), -1) {
		var code int
		require.NoError(t, json.Unmarshal([]byte(m[1]), &code))
		want[m[2]] = code
	}
	require.Equal(t, want, got)
}

// TestMessagesAreCurrent: the generated code is that of the protos, as the Go code
// has them.
func TestMessagesAreCurrent(t *testing.T) {
	c := program(t, allocator)
	cmd := exec.CommandContext(t.Context(), c.Path, "-c", `
import json, base64
from hardpoint.plugin.v1 import plugin_pb2
from hardpoint.allocate.v1 import allocate_pb2
from hardpoint.storage.v1 import storage_pb2, stream_pb2
all = [m.DESCRIPTOR for m in (plugin_pb2, allocate_pb2, storage_pb2, stream_pb2)]
print(json.dumps({d.name: base64.b64encode(d.serialized_pb).decode() for d in all}))`)
	cmd.Env = append(os.Environ(), c.Env...)
	b, err := cmd.Output()
	require.NoError(t, err)
	var got map[string][]byte
	require.NoError(t, json.Unmarshal(b, &got))
	for _, f := range []protoreflect.FileDescriptor{
		pluginpb.File_hardpoint_plugin_v1_plugin_proto, allocatepb.File_hardpoint_allocate_v1_allocate_proto,
		storagepb.File_hardpoint_storage_v1_storage_proto, storagepb.File_hardpoint_storage_v1_stream_proto,
	} {
		var has descriptorpb.FileDescriptorProto
		require.NoError(t, proto.Unmarshal(got[f.Path()], &has))
		want := protodesc.ToFileDescriptorProto(f)
		plainNames(want.GetMessageType())
		plainNames(has.GetMessageType())
		require.True(t, proto.Equal(want, &has), "%s changed: run sdk/wire/generate.sh", f.Path())
	}
}

// plainNames takes away the names in JSON, which not every generator keeps.
func plainNames(messages []*descriptorpb.DescriptorProto) {
	for _, m := range messages {
		for _, f := range m.GetField() {
			f.JsonName = nil
		}
		plainNames(m.GetNestedType())
	}
}
