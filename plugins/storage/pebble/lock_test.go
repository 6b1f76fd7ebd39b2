package pebble_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	hpvfs "github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/plugins/storage/pebble"
)

// hastyClock has timers that fire at once, and adds up how long they were for.
type hastyClock struct {
	plugin.SystemClock
	waited time.Duration
	fired  func() // at each timer, if not nil
}

func (c *hastyClock) NewTimer(d time.Duration) plugin.Timer {
	c.waited += d
	if c.fired != nil {
		c.fired()
		return c.SystemClock.NewTimer(time.Hour)
	}
	return c.SystemClock.NewTimer(0)
}

// heldFS has a lock that a process holds for a number of attempts.
type heldFS struct {
	vfs.FS
	held int
	why  error
}

func (f *heldFS) Lock(name string) (io.Closer, error) {
	if f.held == 0 {
		return f.FS.Lock(name)
	}
	f.held--
	return nil, f.why
}

func (f *heldFS) Unwrap() vfs.FS { return f.FS }

// TestLockOfDyingProcess: after kill -9 the lock is free a moment later only.
func TestLockOfDyingProcess(t *testing.T) {
	byOther := fmt.Errorf("lock: %w by process 4711", hpvfs.ErrLocked)
	for name, tc := range map[string]struct {
		held   int
		why    error
		waited time.Duration
		want   []string // of the refusal; nil: it starts
	}{
		"free":           {0, nil, 0, nil},
		"free soon":      {7, byOther, 350 * time.Millisecond, nil},
		"free at last":   {100, byOther, 5 * time.Second, nil},
		"held":           {1 << 30, byOther, 5 * time.Second, []string{"/db", "another process", "4711", "5s"}},
		"held, no names": {1 << 30, syscall.EAGAIN, 5 * time.Second, []string{"/db", "another process"}},
	} {
		t.Run(name, func(t *testing.T) {
			clock := &hastyClock{}
			fs := &heldFS{FS: vfs.NewMem(), held: tc.held, why: tc.why}
			s := buildOn(t, fs, clock)
			err := s.Start(t.Context())
			require.Equal(t, tc.waited, clock.waited)
			if tc.want == nil {
				require.NoError(t, err)
				require.NoError(t, s.Shutdown(t.Context()))
				return
			}
			require.ErrorIs(t, err, hpvfs.ErrLocked)
			for _, w := range tc.want {
				require.ErrorContains(t, err, w)
			}
			fs.held = 0
			require.NoError(t, s.Start(t.Context()), "a refused start keeps nothing")
			require.NoError(t, s.Shutdown(t.Context()))
		})
	}
}

// TestLockOtherError: what is no held lock is not waited for.
func TestLockOtherError(t *testing.T) {
	clock := &hastyClock{}
	s := buildOn(t, &heldFS{FS: vfs.NewMem(), held: 1, why: syscall.EACCES}, clock)
	err := s.Start(t.Context())
	require.ErrorIs(t, err, syscall.EACCES)
	require.NotErrorIs(t, err, hpvfs.ErrLocked)
	require.Zero(t, clock.waited)
}

// TestLockWaitEnds with the context of Start.
func TestLockWaitEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := buildOn(t, &heldFS{FS: vfs.NewMem(), held: 1 << 30, why: hpvfs.ErrLocked}, &hastyClock{fired: cancel})
	err := s.Start(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, hpvfs.ErrLocked)
}

const holdEnv = "HARDPOINT_TEST_HOLD_STORE"

// holdStore is the other process of TestLockOfKilledProcess.
func holdStore(dir string) int {
	s, err := onDisk(dir, nil)
	if err == nil {
		err = s.Start(context.Background())
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("holding")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent kills this process, or is gone
	if s.Shutdown(context.Background()) != nil {
		return 1
	}
	return 0
}

// TestLockOfKilledProcess: the refusal names the holder, and once the holder is
// killed its successor starts without a second attempt.
func TestLockOfKilledProcess(t *testing.T) {
	dir := t.TempDir()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), holdEnv+"="+dir)
	in, err := child.StdinPipe()
	require.NoError(t, err)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	defer func() {
		_ = in.Close()
		_ = child.Wait() // it was killed, or the test failed already
	}()
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	require.Equal(t, "holding", lines.Text())

	err = buildDisk(t, dir, &hastyClock{}).Start(t.Context())
	require.ErrorIs(t, err, hpvfs.ErrLocked)
	if runtime.GOOS != "windows" { // which does not tell
		require.ErrorContains(t, err, fmt.Sprintf("process %d", child.Process.Pid))
	}
	require.NoError(t, child.Process.Kill())
	s := buildDisk(t, dir, nil)
	require.NoError(t, s.Start(t.Context()))
	require.NoError(t, s.Shutdown(t.Context()))
}

func buildDisk(t *testing.T, dir string, clock plugin.Clock) storage.Store {
	t.Helper()
	s, err := onDisk(dir, clock)
	require.NoError(t, err)
	return s
}

func onDisk(dir string, clock plugin.Clock) (storage.Store, error) {
	p := storage.Params{Settings: plugin.Settings{Name: "pebble", Dir: dir, Clock: clock}, Segment: 1 << 20}
	return pebble.NewFactory().Build(context.Background(), p, plugin.Raw(small))
}

func buildOn(t *testing.T, fs vfs.FS, clock plugin.Clock) storage.Store {
	t.Helper()
	p := storage.Params{Settings: plugin.Settings{Name: "pebble", Dir: "/db", Clock: clock}, Segment: 1 << 20}
	s, err := pebble.NewFactoryOn(func() vfs.FS { return fs }).Build(t.Context(), p, plugin.Raw(small))
	require.NoError(t, err)
	return s
}
