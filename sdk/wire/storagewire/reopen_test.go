package storagewire_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/internal/wiretest"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire"
)

const (
	patience = 30 * time.Second
	tick     = time.Millisecond
)

// lives is a store whose processes are killed and follow each other.
type lives struct {
	storage.Store
	*wiretest.Launcher
	server *storagewire.Server // in the process that there is
	raw    storage.RawLog
	again  storage.Reopener
	events chan string
	failed chan error
	mu     sync.Mutex
	now    *scripted // in the process that there is
}

// live makes a running store; each process after the first finds the log that the
// one before left, changed by the next of finds.
func live(t *testing.T, stream bool, mode storage.PublishMode, survives storage.Survival, finds ...func(*scripted)) *lives {
	t.Helper()
	return liveUnder(t, plugin.SystemClock{}, 0, stream, mode, survives, finds...)
}

// liveUnder is live with a limit of calls, 0: none.
func liveUnder(t *testing.T, clock plugin.Clock, limit time.Duration, stream bool, mode storage.PublishMode, survives storage.Survival, finds ...func(*scripted)) *lives {
	t.Helper()
	l := &lives{events: make(chan string, 100), failed: make(chan error, 10)}
	born := 0
	l.Launcher = wiretest.NewLauncher(t, func() []wire.Served {
		n := born
		born++
		server := storagewire.NewServer(nil, scriptedFactory(func(s *scripted) {
			s.survives = survives
			s.publish = func(s *scripted, upTo message.Position) error {
				s.set(func(st *storage.State) { st.Published = upTo })
				s.p.Events.Published(upTo, nil)
				return nil
			}
			if mode == storage.Immediate {
				s.appended = func(_ context.Context, s *scripted, b *storage.Batch) error {
					s.set(func(st *storage.State) { st.Tail, st.Published = b.End(), b.End() })
					s.p.Events.Published(b.End(), b.Units)
					return nil
				}
			}
			s.started = func(s *scripted) {
				l.mu.Lock()
				defer l.mu.Unlock()
				if n > 0 {
					s.state = l.now.State()
				}
				if n > 0 && n <= len(finds) {
					finds[n-1](s)
				}
				l.now = s
			}
		}))
		if stream {
			server = server.WithStream()
		}
		l.mu.Lock()
		l.server = server
		l.mu.Unlock()
		return []wire.Served{server}
	})
	l.Limit = limit
	var err error
	l.Store, err = storagewire.NewFactory("scripted", l).Build(t.Context(), storage.Params{
		Settings: plugin.Settings{Name: "s", Dir: "/where/it/is", Clock: clock}.WithDefaults(), Segment: 1 << 20, Publish: mode,
		Events: storage.Events{
			Published: func(upTo message.Position, u []message.Unit) {
				at := []message.Position{}
				for i := range u {
					at = append(at, u[i].At)
				}
				l.events <- fmt.Sprintf("published %d %v", upTo, at)
			},
			Truncated: func(to message.Position) { l.events <- fmt.Sprintf("truncated %d", to) },
			Expired:   func(first message.Position) { l.events <- fmt.Sprintf("expired %d", first) },
			Failed:    func(err error) { l.failed <- err },
		},
	}, nil)
	require.NoError(t, err)
	require.NoError(t, l.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, l.Shutdown(context.WithoutCancel(t.Context()))) })
	l.raw, l.again = l.Capabilities().RawLog, l.Capabilities().Reopener
	return l
}

// process is the store in the process that there is.
func (l *lives) process() *scripted {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

func (l *lives) append(t *testing.T, at message.Position) {
	t.Helper()
	require.NoError(t, l.Append(t.Context(), oneBatch(at, nil)))
}

// Kill ends the process, with what it serves.
func (l *lives) Kill() {
	l.mu.Lock()
	server := l.server
	l.mu.Unlock()
	l.Launcher.Kill()
	_ = server.Close(context.Background())
}

// dies kills the process and waits until it is opened again.
func (l *lives) dies(t *testing.T) {
	t.Helper()
	before := l.process()
	l.Kill()
	require.ErrorIs(t, l.again.Gone(t.Context()), plugin.ErrUnavailable)
	require.NoError(t, l.again.Reopened(t.Context()))
	require.NotSame(t, before, l.process())
}

func (l *lives) told() (out []string) {
	for {
		select {
		case e := <-l.events:
			out = append(out, e)
		default:
			return out
		}
	}
}

// A process dies with one batch published, one appended: what the calls said stays
// so, nothing is written unseen, and the events go on where they were.
func TestComesBack(t *testing.T) {
	t.Run("sockets", func(t *testing.T) { comesBack(t, false) })
	t.Run("stream", func(t *testing.T) { comesBack(t, true) })
}

func comesBack(t *testing.T, stream bool) {
	l := live(t, stream, storage.Explicit, storage.SurvivesProcessDeath)
	require.NoError(t, l.again.Reopened(t.Context()), "it has not gone")
	var freed atomic.Int32
	for at := range message.Position(2) {
		require.NoError(t, l.Append(t.Context(), oneBatch(at*100, func(*storage.Batch) { freed.Add(1) })))
	}
	require.NoError(t, l.raw.Publish(t.Context(), 100))
	require.Equal(t, []string{"published 100 [0]"}, l.told())
	require.Equal(t, int32(1), freed.Load())

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, l.again.Gone(ended), context.Canceled)
	l.Refuse(fmt.Errorf("%w: there is no licence for Tuesdays", plugin.ErrUnavailable))
	l.Kill()
	require.ErrorIs(t, l.again.Gone(t.Context()), plugin.ErrUnavailable)
	require.ErrorContains(t, l.again.Reopened(t.Context()), "licence for Tuesdays")
	require.Equal(t, int32(2), freed.Load())
	calls := map[string]func() error{
		"append":   func() error { return l.Append(t.Context(), oneBatch(200, nil)) },
		"sync":     func() error { return l.Sync(t.Context(), 100) },
		"publish":  func() error { return l.raw.Publish(t.Context(), 200) },
		"truncate": func() error { return l.raw.Truncate(t.Context(), 100) },
		"reset":    func() error { return l.raw.Reset(t.Context(), 0, nil) },
	}
	reads := map[string]func() error{
		"read":    func() error { return l.Read(t.Context(), storage.ReadRequest{}, &storage.Chunk{}) },
		"offsets": func() error { return l.Offsets(t.Context(), nil, &storage.OffsetAnswers{}) },
	}
	refused := func(calls map[string]func() error) {
		for name, call := range calls {
			err := call()
			require.ErrorIs(t, err, plugin.ErrUnavailable, name)
			require.NotErrorIs(t, err, storage.ErrFailed, name)
		}
	}
	refused(calls)
	refused(reads)
	require.ErrorIs(t, l.again.Reopened(ended), context.Canceled)
	require.Equal(t, message.Position(200), l.State().Tail)

	l.Refuse(nil)
	require.Eventually(t, func() bool { return reads["read"]() == nil }, patience, tick, "reads go on by themselves")
	refused(calls)
	require.NoError(t, l.again.Reopened(t.Context()))
	require.NoError(t, l.again.Reopened(t.Context()))
	require.ErrorIs(t, l.again.Gone(ended), context.Canceled)
	require.Empty(t, l.told())
	l.process().does(func(s *script) {
		s.publish = func(s *scripted, upTo message.Position) error { // as stores do after Start
			s.set(func(st *storage.State) { st.Published = upTo })
			s.p.Events.Published(upTo, oneBatch(100, nil).Units)
			return nil
		}
	})
	require.NoError(t, l.raw.Publish(t.Context(), 200))
	require.Equal(t, []string{"published 200 [100]"}, l.told())
	require.NoError(t, l.Append(t.Context(), oneBatch(200, nil)))
	require.Empty(t, l.failed)
}

// What a call under way did before the process died is told when it is back.
func TestDiesUnderACall(t *testing.T) {
	t.Run("sockets", func(t *testing.T) { diesUnderACall(t, false) })
	t.Run("stream", func(t *testing.T) { diesUnderACall(t, true) })
}

func diesUnderACall(t *testing.T, stream bool) {
	// under does a call and kills the process over it, when that is inside.
	under := func(t *testing.T, l *lives, call func() error) {
		t.Helper()
		entered := make(chan struct{})
		p := l.process()
		p.does(func(s *script) {
			s.block = func(context.Context) error { close(entered); <-p.killed; return errors.New("killed") }
			s.appended = func(ctx context.Context, _ *scripted, _ *storage.Batch) error { return s.block(ctx) }
			s.publish = func(*scripted, message.Position) error { return s.block(context.Background()) }
		})
		got := make(chan error, 1)
		go func() { got <- call() }()
		<-entered
		go l.Kill()
		err := <-got
		close(p.killed)
		require.ErrorIs(t, err, plugin.ErrUnavailable)
		require.NotErrorIs(t, err, storage.ErrFailed)
		require.ErrorIs(t, l.again.Gone(t.Context()), plugin.ErrUnavailable)
		require.NoError(t, l.again.Reopened(t.Context()))
	}
	for _, c := range []struct {
		name  string
		mode  storage.PublishMode
		found storage.State
		call  func(*lives) error
		want  []string
	}{
		{"append, written", storage.Immediate, storage.State{Tail: 300, Published: 300}, func(l *lives) error { return l.Append(context.Background(), oneBatch(200, nil)) }, []string{"published 300 [200]"}},
		{"append, lost", storage.Immediate, storage.State{Tail: 200, Published: 200}, func(l *lives) error { return l.Append(context.Background(), oneBatch(200, nil)) }, nil},
		{"publish, done", storage.Explicit, storage.State{Tail: 200, Published: 200}, func(l *lives) error { return l.raw.Publish(context.Background(), 200) }, []string{"published 200 [100]"}},
		{"publish, lost", storage.Explicit, storage.State{Tail: 200, Published: 100}, func(l *lives) error { return l.raw.Publish(context.Background(), 200) }, nil},
		{"truncate, done", storage.Explicit, storage.State{Tail: 0, Published: 0}, func(l *lives) error { return l.raw.Truncate(context.Background(), 0) }, []string{"truncated 0"}},
		{"truncate, lost", storage.Explicit, storage.State{Tail: 200, Published: 100}, func(l *lives) error { return l.raw.Truncate(context.Background(), 0) }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := live(t, stream, c.mode, storage.SurvivesProcessDeath, func(s *scripted) {
				s.state.First, s.state.Tail, s.state.Published = c.found.First, c.found.Tail, c.found.Published
			})
			l.append(t, 0)
			l.append(t, 100)
			if c.mode == storage.Explicit {
				require.NoError(t, l.raw.Publish(t.Context(), 100))
			}
			l.told()
			under(t, l, func() error { return c.call(l) })
			require.Equal(t, c.want, l.told())
			require.Empty(t, l.failed)
			require.Equal(t, c.found.Tail, l.State().Tail)
		})
	}
}

// A log that is not the one that was acknowledged is not gone on with.
func TestFenced(t *testing.T) {
	for _, c := range []struct {
		name     string
		mode     storage.PublishMode
		survives storage.Survival
		sync     bool
		find     func(*storage.State)
		want     []string // nil: it is gone on with
	}{
		{"another id", storage.Immediate, storage.SurvivesProcessDeath, false, func(st *storage.State) { st.LogID = "other" }, []string{"its id", "expected l", "found other"}},
		{"another segment size", storage.Immediate, storage.SurvivesProcessDeath, false, func(st *storage.State) { st.Segment = 4096 }, []string{"segment size", "1048576", "4096"}},
		{"shorter", storage.Immediate, storage.SurvivesProcessDeath, false, func(st *storage.State) { st.Tail, st.Published = 100, 100 }, []string{"its end", "at least 200", "found 100", "100 bytes are gone"}},
		{"shorter, not published", storage.Explicit, storage.SurvivesProcessDeath, false, func(st *storage.State) { st.Tail = 100 }, []string{"at least 200", "found 100"}},
		{"less is published", storage.Explicit, storage.SurvivesProcessDeath, false, func(st *storage.State) { st.Published = 0 }, []string{"published", "at least 100", "found 0"}},
		{"longer", storage.Explicit, storage.SurvivesProcessDeath, false, func(st *storage.State) { st.Tail = 300 }, []string{"at most 200", "found 300", "somebody else"}},
		{"survives nothing, was published by Append", storage.Immediate, storage.SurvivesNothing, false, func(st *storage.State) { st.Tail, st.Published = 100, 100 }, []string{"at least 200"}},
		{"survives nothing, was flushed", storage.Explicit, storage.SurvivesNothing, true, func(st *storage.State) { st.Tail = 100 }, []string{"at least 200"}},
		{"survives nothing, was not acknowledged", storage.Explicit, storage.SurvivesNothing, false, func(st *storage.State) { st.Tail = 100 }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := live(t, false, c.mode, c.survives, func(s *scripted) { c.find(&s.state) })
			l.append(t, 0)
			l.append(t, 100)
			if c.mode == storage.Explicit {
				require.NoError(t, l.raw.Publish(t.Context(), 100))
			}
			if c.sync {
				require.NoError(t, l.Sync(t.Context(), 200))
			}
			if c.want == nil {
				l.dies(t)
				require.Empty(t, l.failed)
				require.NoError(t, l.Append(t.Context(), oneBatch(100, nil)))
				return
			}
			l.Kill()
			err := <-l.failed
			require.ErrorIs(t, err, storage.ErrFailed)
			help := "/where/it/is"
			if c.survives == storage.SurvivesNothing {
				help = "ends with its process" // and is not to be brought back
			}
			for _, w := range append(c.want, `"scripted"`, help, "restart the broker") {
				require.ErrorContains(t, err, w)
			}
			require.ErrorIs(t, l.again.Reopened(t.Context()), storage.ErrFailed)
			require.ErrorIs(t, l.Append(t.Context(), oneBatch(200, nil)), storage.ErrFailed)
			require.ErrorIs(t, l.Sync(t.Context(), 0), storage.ErrFailed)
			require.ErrorIs(t, l.Read(t.Context(), storage.ReadRequest{}, &storage.Chunk{}), storage.ErrFailed)
		})
	}
}

// A store that failed is not written to again because its process died later.
func TestFailedThenDies(t *testing.T) {
	l := live(t, false, storage.Explicit, storage.SurvivesProcessDeath)
	l.append(t, 0)
	broken := errors.New("input/output error")
	l.process().p.Events.Failed(broken)
	require.EqualError(t, <-l.failed, broken.Error())
	l.Kill()
	require.ErrorIs(t, l.again.Gone(t.Context()), plugin.ErrUnavailable)
	require.ErrorIs(t, l.again.Reopened(t.Context()), storage.ErrFailed)
	require.Eventually(t, func() bool { return l.Read(t.Context(), storage.ReadRequest{}, &storage.Chunk{}) == nil }, patience, tick)
	err := l.Append(t.Context(), oneBatch(100, nil))
	require.ErrorIs(t, err, storage.ErrFailed)
	require.ErrorContains(t, err, "input/output error")
	require.Empty(t, l.failed)
}

// Shutdown does not wait for a process that does not come back.
func TestShutdownWhileAway(t *testing.T) {
	l := live(t, false, storage.Explicit, storage.SurvivesProcessDeath)
	l.append(t, 0)
	l.Refuse(plugin.ErrUnavailable)
	l.Kill()
	require.ErrorIs(t, l.again.Gone(t.Context()), plugin.ErrUnavailable)
	got := make(chan error, 1)
	go func() {
		err := l.again.Reopened(t.Context())
		for errors.Is(err, plugin.ErrUnavailable) {
			err = l.again.Reopened(t.Context())
		}
		got <- err
	}()
	require.NoError(t, l.Shutdown(t.Context()))
	require.ErrorIs(t, <-got, storage.ErrNotRunning)
	require.ErrorIs(t, l.again.Gone(t.Context()), storage.ErrNotRunning)
	require.ErrorIs(t, l.Sync(t.Context(), 0), storage.ErrNotRunning)
}
