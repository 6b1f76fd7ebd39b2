package external_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/internal/hosttest"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
	"github.com/hardpointmq/hardpoint/plugins/storage/pebble"
	"github.com/hardpointmq/hardpoint/sdk/external"
	"github.com/hardpointmq/hardpoint/sdk/serve"
)

const patience = time.Minute

// healthLimit is for how long a process of these tests may not answer, twice in a row:
// longer than a busy machine keeps one from running.
const healthLimit = 2 * time.Second

// TestConformance runs the suite against a real process. A store that stays open
// keeps one process for all cases.
func TestConformance(t *testing.T) {
	var all sync.WaitGroup // beside each other: they wait for disks and processes
	defer all.Wait()
	for _, h := range []storagetest.Harness{
		{Factory: external.Storage(memory.Name, command(t, "serve"), external.Options{}), Lacks: storagetest.Lacks{ProcessDeath: true, Reopen: true}},
		{Factory: external.Storage(pebble.Name, command(t, "serve"), external.Options{}), Config: plugin.Raw(`{"cacheBytes": 1048576, "memTableBytes": 1048576}`)},
	} {
		h.Form = storagetest.Process
		running(t, h.Factory, storage.Events{})
		all.Go(func() { storagetest.Run(t, h) }) // not in a subtest: the matrix reads the names
	}
	allocateConformance(t)
	transportConformance(t)
	replicationConformance(t)
}

// children are the processes that this one started.
func children(t *testing.T) []int {
	t.Helper()
	return hosttest.Children(t, os.Getpid())
}

// TestOneProcess: Describe, Build and two stores share a process, which ends
// with the last store.
func TestOneProcess(t *testing.T) {
	f := external.Storage(memory.Name, command(t, "serve"), external.Options{})
	d, err := f.Describe(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, memory.Name, d.Name)
	require.Equal(t, storage.Contract, d.Contract)
	pids := children(t)
	require.Len(t, pids, 1)
	a := running(t, f, storage.Events{})
	b := running(t, f, storage.Events{})
	require.Equal(t, pids, children(t))
	require.NoError(t, a.Shutdown(t.Context()))
	require.Equal(t, pids, children(t))
	var all storage.OffsetAnswers
	require.NoError(t, b.Offsets(t.Context(), nil, &all))
	require.NoError(t, b.Shutdown(t.Context()))
	require.Empty(t, children(t))
	require.NoError(t, b.Shutdown(t.Context()))
}

func TestConfigFault(t *testing.T) {
	f := factory(t, pebble.Name, "serve")
	_, err := f.Describe(t.Context(), plugin.Raw(`{"cacheByte": 5}`))
	require.ErrorIs(t, err, plugin.ErrConfig)
	require.ErrorContains(t, err, "cacheBytes")
	_, err = f.Build(t.Context(), params(t.TempDir(), storage.Events{}), plugin.Raw(`{"cacheByte": 5}`))
	require.ErrorIs(t, err, plugin.ErrConfig)
	_, err = factory(t, "another", "serve").Describe(t.Context(), nil)
	require.ErrorIs(t, err, plugin.ErrConfig)
	require.ErrorContains(t, err, "chatty, counting, memory, nothing, pebble")
}

func TestStartGivenUp(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := factory(t, memory.Name, "silent").Describe(ctx, nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Empty(t, children(t))
}

// TestNoise: whatever is printed is logged, and hurts nobody.
func TestNoise(t *testing.T) {
	var log buffer
	p := params(t.TempDir(), storage.Events{})
	p.Logger = log.logger()
	s := started(t, factory(t, "chatty", "noisy"), p)
	require.NoError(t, s.Sync(t.Context(), 0))
	require.NoError(t, s.Shutdown(t.Context()))
	for _, want := range []string{
		`level=INFO msg="a line before the handshake" plugin=chatty stream=stdout`,
		`msg="{\"@message\":1}"`, `level=INFO msg=told`, `level=WARN msg=warned size=12 plugin=chatty stream=stderr`,
		`level=DEBUG msg="debugging is on" answer=42`, "1|2|not a handshake",
		"printed to standard output",
	} {
		require.Contains(t, log.String(), want)
	}
}

// TestByHand: a person who runs a plugin is told what it is.
func TestByHand(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), command(t, "serve").Path)
	cmd.Env = append(os.Environ(), roleEnv+"=serve")
	var out, text strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &text
	err := cmd.Run()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 1, exit.ExitCode())
	require.Contains(t, text.String(), serve.ErrByHand.Error())
	require.Empty(t, out.String())
}

// TestPluginKilled kills the plugin under load: everybody gets an error at once,
// and the store comes back in another process with what was acknowledged.
func TestPluginKilled(t *testing.T) {
	f := factory(t, pebble.Name, "serve")
	failed := make(chan error, 10)
	s := started(t, f, params(t.TempDir(), storage.Events{Failed: func(err error) { failed <- err }}))
	pids := children(t)
	require.Len(t, pids, 1)

	var wg sync.WaitGroup
	acked := make(chan message.Position, 1)
	first := make(chan struct{})
	wg.Go(func() {
		w := storagetest.NewWriter(message.IndexRules{})
		seq := storagetest.OpenSequencer(t, s, plugin.SystemClock{}, 1)
		var n int
		var freed atomic.Int32
		var end message.Position
		for ; ; n++ {
			p := w.Pending([]storagetest.Message{{Queue: message.Queue{Topic: "T"}, UniqueKey: strconv.Itoa(n), Body: make([]byte, 1000)}})
			p.Free = func(*storage.Batch) { freed.Add(1) }
			if !requireNil(t, seq.Assign(p, 0)) {
				return
			}
			if err := s.Append(t.Context(), &p.Batches[0]); err != nil {
				if !errors.Is(err, plugin.ErrUnavailable) || errors.Is(err, storage.ErrFailed) {
					t.Errorf("Append to a plugin that is gone: %v", err)
				}
				break
			}
			if end = p.End; n == 20 {
				close(first)
			}
		}
		if got := int(freed.Load()); got != n+1 {
			t.Errorf("%d of %d batches were freed", got, n+1)
		}
		acked <- end
	})
	for range 4 {
		wg.Go(func() {
			for {
				var c storage.Chunk
				lim := storage.Limit{Count: 8}
				err := s.Read(t.Context(), storage.ReadRequest{Queue: message.Queue{Topic: "T"}, Hot: lim, Cold: lim}, &c)
				c.Release()
				if err != nil {
					if !errors.Is(err, plugin.ErrUnavailable) || errors.Is(err, storage.ErrFailed) {
						t.Errorf("Read from a plugin that is gone: %v", err)
					}
					return
				}
			}
		})
	}
	<-first
	child, err := os.FindProcess(pids[0])
	require.NoError(t, err)
	require.NoError(t, child.Kill())
	wg.Wait()
	end := <-acked
	again := s.Capabilities().Reopener
	err = again.Gone(t.Context())
	require.ErrorIs(t, err, plugin.ErrUnavailable)
	require.ErrorContains(t, err, "signal: killed")
	require.ErrorIs(t, s.Sync(t.Context(), 0), plugin.ErrUnavailable)
	require.NoError(t, again.Reopened(t.Context()))
	require.NotEqual(t, pids, children(t))
	require.GreaterOrEqual(t, s.State().Published, end)
	require.NoError(t, s.Sync(t.Context(), end))
	_, err = s.Capabilities().KeyIndex.Find(t.Context(), storage.KeyQuery{Topic: "T", Key: "1", Max: 1}, nil)
	require.NoError(t, err)
	require.NoError(t, s.Shutdown(t.Context()))
	require.ErrorIs(t, s.Sync(t.Context(), 0), storage.ErrNotRunning)
	require.Empty(t, failed)
	require.Empty(t, children(t))
}

// TestForgetful: what a store in memory held is gone with its process, which is
// said, and not gone on with.
func TestForgetful(t *testing.T) {
	failed := make(chan error, 10)
	s := running(t, factory(t, memory.Name, "serve"), storage.Events{Failed: func(err error) { failed <- err }})
	child, err := os.FindProcess(children(t)[0])
	require.NoError(t, err)
	require.NoError(t, child.Kill())
	err = heard(t, failed)
	require.ErrorIs(t, err, storage.ErrFailed)
	for _, want := range []string{memory.Name, "its id", "restart the broker"} {
		require.ErrorContains(t, err, want)
	}
	require.ErrorIs(t, s.Capabilities().Reopener.Reopened(t.Context()), storage.ErrFailed)
	require.ErrorIs(t, s.Read(t.Context(), storage.ReadRequest{}, &storage.Chunk{}), storage.ErrFailed)
}

// heard is what a channel brings within patience.
func heard[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatalf("nothing came within %v", patience)
	}
	return v
}

func requireNil(t *testing.T, err error) bool {
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

// host is the role of a process that is killed: it opens a store in a plugin,
// says so and goes on writing.
func host() {
	ctx := context.Background()
	exe, err := os.Executable()
	if err == nil {
		var s storage.Store
		f := external.Storage(pebble.Name, external.Command{Path: exe, Env: []string{roleEnv + "=serve"}}, external.Options{})
		if s, err = f.Build(ctx, params(os.Getenv(dirEnv), storage.Events{}), nil); err == nil {
			if err = s.Start(ctx); err == nil {
				pids, _ := filepath.Glob("/proc/self/task/*/children")
				for _, f := range pids {
					b, _ := os.ReadFile(f)
					if p := strings.TrimSpace(string(b)); p != "" {
						fmt.Println(p)
					}
				}
				select {}
			}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// watcher is the role of a host that watches its plugin closely. For each line that
// it reads it says whether the plugin answers.
func watcher() {
	ctx := context.Background()
	exe, err := os.Executable()
	var s storage.Store
	if err == nil {
		f := external.Storage(memory.Name, external.Command{Path: exe, Env: []string{roleEnv + "=serve"}}, external.Options{Health: 20 * time.Millisecond, HealthLimit: healthLimit})
		if s, err = f.Build(ctx, params("", storage.Events{}), nil); err == nil {
			err = s.Start(ctx)
		}
	}
	fmt.Println("ready", err)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println("synced", s.Sync(ctx, 0))
	}
}

// TestHostKilled kills the host: the plugin ends, leaves no socket, and the next
// host opens the store.
func TestHostKilled(t *testing.T) {
	exe, err := os.Executable()
	require.NoError(t, err)
	dir, tmp := t.TempDir(), t.TempDir()
	for range 3 {
		cmd := exec.CommandContext(t.Context(), exe)
		cmd.Env = append(os.Environ(), roleEnv+"=host", dirEnv+"="+dir, "TMPDIR="+tmp)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		require.NoError(t, err)
		require.NoError(t, cmd.Process.Kill())
		_, _ = io.Copy(io.Discard, out)
		require.Error(t, cmd.Wait())
		require.Eventually(t, func() bool { return !hosttest.Running(pid) }, patience, 10*time.Millisecond, "the plugin lives on without its host")
		left, err := os.ReadDir(tmp)
		require.NoError(t, err)
		require.Empty(t, left, "sockets are left behind")
	}
	s := started(t, factory(t, pebble.Name, "serve"), params(dir, storage.Events{}))
	require.NoError(t, s.Shutdown(t.Context()))
}

// TestLargeRecords: the limits of gRPC do not apply to records.
func TestLargeRecords(t *testing.T) {
	s := running(t, factory(t, memory.Name, "serve"), storage.Events{})
	w := storagetest.NewWriter(message.IndexRules{})
	seq := storagetest.OpenSequencer(t, s, plugin.SystemClock{}, 1)
	q := message.Queue{Topic: "T", ID: 1}
	for i, size := range []int{4<<20 - 100, 4 << 20, 5 << 20, 33 << 20} {
		body := make([]byte, size)
		for j := range body {
			body[j] = byte(j * (i + 3))
		}
		p := w.Pending([]storagetest.Message{{Queue: q, Body: body}})
		require.NoError(t, seq.Assign(p, 0))
		require.NoError(t, s.Append(t.Context(), &p.Batches[0]))
		var c storage.Chunk
		require.NoError(t, s.Read(t.Context(), storage.ReadRequest{Queue: q, Offset: int64(i)}, &c))
		require.Equal(t, storage.Found, c.Status)
		require.Len(t, c.Frags, 1)
		require.True(t, bytes.Equal(p.Buf, c.Frags[0]), "a record of %d bytes came back changed", size)
		require.Equal(t, p.Units, c.Units)
		c.Release()
	}
}

// BenchmarkProcess is the shared benchmark through a process, beside the same
// store in this one. The store that keeps nothing shows the crossing alone.
func BenchmarkProcess(b *testing.B) {
	for _, f := range []storage.Factory{nothing(), memory.NewFactory(), pebble.NewFactory()} {
		b.Run(f.Name()+"/in_process", func(b *testing.B) { storagetest.Benchmark(b, storagetest.Harness{Factory: f}) })
		b.Run(f.Name()+"/process", func(b *testing.B) {
			r := factory(b, f.Name(), "serve")
			running(b, r, storage.Events{}) // keeps the process
			storagetest.Benchmark(b, storagetest.Harness{Factory: r})
		})
	}
}
