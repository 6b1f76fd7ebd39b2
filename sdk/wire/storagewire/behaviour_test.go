package storagewire_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/internal/wiretest"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

// scripted is a store whose behaviour a test writes. It offers RawLog.
type scripted struct {
	storagetest.Nop
	p     storage.Params
	mu    sync.Mutex
	state storage.State
	script
	started func(*scripted)
	killed  chan struct{}
}

// script is what a store does; a test may change it while the store runs.
type script struct {
	survives storage.Survival
	appended func(context.Context, *scripted, *storage.Batch) error
	publish  func(*scripted, message.Position) error
	block    func(context.Context) error // Truncate, Sync, Read
}

// is the script that is in force.
func (s *scripted) is() script {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.script
}

func (s *scripted) does(change func(*script)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.script)
}

type none struct{}

func (s *scripted) State() storage.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func (s *scripted) Start(context.Context) error {
	if s.started != nil {
		s.started(s)
	}
	return nil
}

func (s *scripted) set(change func(*storage.State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.state)
}

func (s *scripted) Append(ctx context.Context, b *storage.Batch) error {
	if appended := s.is().appended; appended != nil {
		if err := appended(ctx, s, b); err != nil {
			b.Done()
			return err
		}
	}
	s.set(func(st *storage.State) { st.Tail = b.End() })
	b.Done()
	return nil
}

func (s *scripted) Sync(ctx context.Context, _ message.Position) error { return s.wait(ctx) }
func (s *scripted) Read(ctx context.Context, _ storage.ReadRequest, c *storage.Chunk) error {
	c.Reset()
	c.Status = storage.NoMatchedLogicQueue
	return s.wait(ctx)
}

func (s *scripted) wait(ctx context.Context) error {
	block := s.is().block
	if block == nil {
		return nil
	}
	return block(ctx)
}

func (s *scripted) Capabilities() storage.Capabilities {
	return storage.Capabilities{RawLog: rawOf{s}, Survives: s.survives}
}

type rawOf struct{ s *scripted }

func (r rawOf) ReadLog(context.Context, message.Position, int, *storage.Chunk) error { return nil }
func (r rawOf) Truncate(ctx context.Context, at message.Position) error {
	if err := r.s.wait(ctx); err != nil {
		return err
	}
	r.s.set(func(st *storage.State) { st.Tail, st.Published = at, min(st.Published, at) })
	return nil
}
func (r rawOf) Reset(_ context.Context, first message.Position, _ []message.Unit) error {
	r.s.set(func(st *storage.State) { st.First, st.Published, st.Durable, st.Tail = first, first, first, first })
	return nil
}
func (r rawOf) Publish(_ context.Context, upTo message.Position) error {
	return r.s.is().publish(r.s, upTo)
}

// start makes a running store over the wire; the other value is the store in
// the plugin.
func start(t *testing.T, newPair maker, e storage.Events, fill func(*scripted)) (storage.Store, *scripted) {
	t.Helper()
	var last *scripted
	f := scriptedFactory(func(s *scripted) {
		last = s
		if fill != nil {
			fill(last)
		}
	})
	s, err := storagewire.NewFactory("scripted", newPair(t, f)).Build(t.Context(), storage.Params{
		Settings: plugin.Settings{Name: "s"}.WithDefaults(), Segment: 1 << 20, Publish: storage.Explicit, Events: e,
	}, nil)
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, s.Shutdown(context.WithoutCancel(t.Context()))) })
	return s, last
}

// scriptedFactory makes factories of scripted stores with an empty log, which
// made changes.
func scriptedFactory(made func(*scripted)) storage.Factory {
	return storage.NewFactory("scripted", func(none) plugin.Description { return plugin.Description{Facets: []string{storage.FacetRawLog}} },
		func() none { return none{} },
		func(_ context.Context, p storage.Params, _ none) (*scripted, error) {
			s := &scripted{p: p, state: storage.State{LogID: "l", Segment: p.Segment}, killed: make(chan struct{})}
			made(s)
			return s, nil
		})
}

func oneBatch(at message.Position, free func(*storage.Batch)) *storage.Batch {
	return &storage.Batch{
		At: at, Buf: make([]byte, 100), Units: []message.Unit{{Queue: message.Queue{Topic: "T"}, At: at, Size: 100}},
		Groups: []storage.Group{{Len: 100, Units: 1}}, Free: free,
	}
}

// TestErrorsOfAppend: a refused batch is freed once, and says why.
func TestErrorsOfAppend(t *testing.T) { everyWay(t, errorsOfAppend) }

func errorsOfAppend(t *testing.T, newPair maker) {
	causes := make(chan error, 1)
	s, _ := start(t, newPair, storage.Events{}, func(s *scripted) {
		s.appended = func(context.Context, *scripted, *storage.Batch) error { return <-causes }
	})
	for _, cause := range []error{storage.ErrFull, storage.ErrFenced, storage.ErrGap, storage.ErrTooLarge, storage.ErrReadOnly, storage.ErrFailed} {
		freed := 0
		causes <- cause
		err := s.Append(t.Context(), oneBatch(0, func(*storage.Batch) { freed++ }))
		require.ErrorIs(t, err, cause)
		require.NotErrorIs(t, err, plugin.ErrUnavailable)
		require.Equal(t, 1, freed)
	}
}

// TestContextsCross: the end of a caller's context reaches the plugin; calls
// that change the log end with the plugin's word.
func TestContextsCross(t *testing.T) { everyWay(t, contextsCross) }

func contextsCross(t *testing.T, newPair maker) {
	entered, left := make(chan struct{}), make(chan error, 1)
	s, _ := start(t, newPair, storage.Events{}, func(s *scripted) {
		s.block = func(ctx context.Context) error {
			select {
			case entered <- struct{}{}:
			case <-ctx.Done(): // it came too late to be waited for
				return ctx.Err()
			}
			<-ctx.Done()
			left <- ctx.Err()
			return ctx.Err()
		}
		s.appended = func(ctx context.Context, _ *scripted, _ *storage.Batch) error {
			if d, ok := ctx.Deadline(); !ok || time.Until(d) > time.Hour {
				return errors.New("the deadline of Append did not cross")
			}
			return nil
		}
	})
	calls := map[string]func(context.Context) error{
		"truncate": func(ctx context.Context) error { return s.Capabilities().RawLog.Truncate(ctx, 0) },
		"sync":     func(ctx context.Context) error { return s.Sync(ctx, 0) },
		"read":     func(ctx context.Context) error { return s.Read(ctx, storage.ReadRequest{}, &storage.Chunk{}) },
	}
	for name, call := range calls {
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 1)
		go func() { got <- call(ctx) }()
		<-entered
		cancel()
		require.ErrorIs(t, <-got, context.Canceled, name)
		require.ErrorIs(t, <-left, context.Canceled, name)

		// On a busy machine the time may be over before the call gets there.
		for limit, there := 50*time.Millisecond, false; !there; limit *= 2 {
			ctx, cancel = context.WithTimeout(t.Context(), limit)
			defer cancel()
			go func() { got <- call(ctx) }()
			select {
			case <-entered:
				there = true
				require.ErrorIs(t, <-got, context.DeadlineExceeded, name)
			case err := <-got:
				require.ErrorIs(t, err, context.DeadlineExceeded, name)
			}
		}
		require.Error(t, <-left, name)
		<-ctx.Done() // the plugin's clock may be first
		require.ErrorIs(t, call(ctx), context.DeadlineExceeded, "%s with a context that is over", name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	require.NoError(t, s.Append(ctx, oneBatch(0, nil)))
}

// TestEventsInOrder mixes events of calls, of the answer itself and of nobody.
func TestEventsInOrder(t *testing.T) { everyWay(t, eventsInOrder) }

func eventsInOrder(t *testing.T, newPair maker) {
	var mu sync.Mutex
	var told []string
	var s storage.Store
	failed := make(chan error, 2)
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, what)
		// Receivers may read the store.
		_ = s.State()
		if err := s.Get(context.Background(), nil, &storage.Chunk{}); err != nil {
			told = append(told, err.Error())
		}
	}
	e := storage.Events{
		Published: func(upTo message.Position, u []message.Unit) {
			if len(u) == 1 && u[0].At+100 == upTo && u[0].Queue.Topic == "T" {
				note("published")
			}
		},
		Truncated: func(message.Position) { note("truncated") },
		Expired:   func(message.Position) { note("expired") },
		Failed:    func(err error) { failed <- err },
	}
	s, inner := start(t, newPair, e, func(s *scripted) {
		s.publish = func(s *scripted, upTo message.Position) error {
			s.p.Events.Expired(0)
			s.set(func(st *storage.State) { st.Published = upTo })
			s.p.Events.Published(upTo, nil) // the host has the units
			return nil
		}
	})
	var want []string
	freed := 0
	for i := range message.Position(50) {
		require.NoError(t, s.Append(t.Context(), oneBatch(i*100, func(*storage.Batch) { freed++ })))
		inner.p.Events.Truncated(0) // out of the blue
		require.NoError(t, s.Capabilities().RawLog.Publish(t.Context(), i*100+100))
		want = append(want, "truncated", "expired", "published")
		mu.Lock()
		require.Equal(t, want, told)
		mu.Unlock()
		require.Equal(t, i*100+100, s.State().Published)
	}
	require.Equal(t, 50, freed)
	inner.p.Events.Failed(&storage.CorruptError{File: "f"})
	var c *storage.CorruptError
	require.ErrorAs(t, <-failed, &c)
	inner.p.Events.Failed(errors.New("again"))
	require.NoError(t, s.Sync(t.Context(), 0))
	require.Empty(t, failed)
}

// TestUnitsOfTheLogBefore: what the host did not append comes with its units.
func TestUnitsOfTheLogBefore(t *testing.T) { everyWay(t, unitsOfTheLogBefore) }

func unitsOfTheLogBefore(t *testing.T, newPair maker) {
	before := []message.Unit{{Queue: message.Queue{Topic: "old", ID: 1}, At: 0, Size: 50}, {Queue: message.Queue{Topic: "old", ID: 1}, At: 50, Size: 50}}
	var got []message.Unit
	freed := 0
	s, _ := start(t, newPair, storage.Events{Published: func(_ message.Position, u []message.Unit) { got = append(got, u...) }}, func(s *scripted) {
		s.state.Tail = 100
		s.publish = func(s *scripted, upTo message.Position) error {
			s.set(func(st *storage.State) { st.Published = upTo })
			if upTo == 50 {
				s.p.Events.Published(50, before[:1])
			} else { // all at once
				s.p.Events.Published(upTo, append(slices.Clone(before[1:]), message.Unit{Queue: message.Queue{Topic: "T"}, At: 100, Size: 100}))
			}
			return nil
		}
	})
	b := oneBatch(100, func(*storage.Batch) { freed++ })
	require.NoError(t, s.Append(t.Context(), b))
	require.NoError(t, s.Capabilities().RawLog.Publish(t.Context(), 50))
	require.Equal(t, before[:1], got)
	require.Zero(t, freed)
	require.NoError(t, s.Capabilities().RawLog.Publish(t.Context(), 200))
	require.Equal(t, append(slices.Clone(before), b.Units...), got)
	require.Equal(t, 1, freed)
}

// TestDamageIsSeen: damage found later reaches the host's State.
func TestDamageIsSeen(t *testing.T) { everyWay(t, damageIsSeen) }

func damageIsSeen(t *testing.T, newPair maker) {
	s, inner := start(t, newPair, storage.Events{}, nil)
	d := []storage.Damage{{From: 1, To: 2, File: "f", Reason: "r"}}
	inner.set(func(st *storage.State) { st.Damaged = d })
	require.NoError(t, s.Append(t.Context(), oneBatch(0, nil)))
	require.Equal(t, d, s.State().Damaged)
	require.Equal(t, message.Position(100), s.State().Tail)
	inner.set(func(st *storage.State) { st.Damaged = nil })
	require.NoError(t, s.Sync(t.Context(), 0))
	require.Empty(t, s.State().Damaged)
}

// silentState is a plugin's half that does not answer State.
type silentState struct {
	*storagewire.Server
	asked chan struct{}
}

func (s silentState) Register(r grpc.ServiceRegistrar) { storagepb.RegisterStorageServer(r, s) }

func (s silentState) State(ctx context.Context, r *storagepb.StateRequest) (*storagepb.StateResponse, error) {
	if r.GetInstance() == 0 { // it is only asked whether it knows the call
		return s.Server.State(ctx, r)
	}
	close(s.asked)
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestShutdownBesideState: a plugin that keeps its list of damage to itself does not
// keep the store from shutting down.
func TestShutdownBesideState(t *testing.T) {
	asked := make(chan struct{})
	s, inner := start(t, func(tb testing.TB, factories ...storage.Factory) *pair {
		p := &pair{stores: storagewire.NewServer(nil, factories...)}
		p.Pair = wiretest.New(tb, silentState{p.stores, asked})
		return p
	}, storage.Events{}, nil)
	inner.set(func(st *storage.State) { st.Damaged = []storage.Damage{{To: 2}} })
	appended := make(chan error, 1)
	go func() { appended <- s.Append(context.WithoutCancel(t.Context()), oneBatch(0, nil)) }()
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, s.Shutdown(ctx))
	require.NoError(t, <-appended)
}

// TestFacetsMustAgree: a plugin that describes itself wrongly is refused.
func TestFacetsMustAgree(t *testing.T) {
	f := storage.NewFactory("liar", func(none) plugin.Description { return plugin.Description{Facets: []string{storage.FacetKeyIndex}} },
		func() none { return none{} },
		func(context.Context, storage.Params, none) (*scripted, error) { return &scripted{}, nil })
	_, err := storagewire.NewFactory("liar", newPair(t, f)).Build(t.Context(), storage.Params{}, nil)
	require.ErrorContains(t, err, `["KeyIndex"]`)
	require.ErrorContains(t, err, `["RawLog"]`)
}

// TestNoProcess: what the launcher says is what the caller gets.
func TestNoProcess(t *testing.T) {
	f := storagewire.NewFactory("x", broken{})
	_, err := f.Describe(t.Context(), nil)
	require.ErrorIs(t, err, plugin.ErrUnavailable)
	_, err = f.Build(t.Context(), storage.Params{}, nil)
	require.ErrorIs(t, err, plugin.ErrUnavailable)
}

type broken struct{}

func (broken) Acquire(context.Context, *slog.Logger) (wire.Process, error) {
	return nil, plugin.ErrUnavailable
}
