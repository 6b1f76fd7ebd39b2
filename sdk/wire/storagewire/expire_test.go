package storagewire_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/internal/wiretest"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

// old is a store whose Expire takes as long as a test wants.
type old struct {
	*scripted
	entered chan struct{}
	gone    chan struct{} // the end of the caller's context is here
	leave   chan error
}

func (o *old) Capabilities() storage.Capabilities {
	c := o.scripted.Capabilities()
	c.Retention, c.ExpiresBeside = o, true
	return c
}

func (o *old) Segments(context.Context) ([]storage.Segment, error) { return nil, nil }

func (o *old) Drop(context.Context, []message.Queue) error { return nil }

func (o *old) Expire(ctx context.Context, first message.Position) error {
	o.entered <- struct{}{}
	var err error
	select {
	case err = <-o.leave:
	case <-ctx.Done():
		o.gone <- struct{}{}
		err = errors.Join(ctx.Err(), <-o.leave) // it takes its time
	}
	if err == nil {
		o.set(func(st *storage.State) { st.First = first })
		o.p.Events.Expired(first)
	}
	return err
}

// expiring starts such a store, which tells of Expired into told.
func expiring(t *testing.T, serve func(storage.Factory) wire.Launcher, told chan message.Position) (storage.Store, *old) {
	t.Helper()
	o := &old{entered: make(chan struct{}), gone: make(chan struct{}), leave: make(chan error)}
	facets := []string{storage.FacetRawLog, storage.FacetRetention}
	f := storage.NewFactory("old", func(none) plugin.Description { return plugin.Description{Facets: facets} }, func() none { return none{} },
		func(_ context.Context, p storage.Params, _ none) (*old, error) {
			o.scripted = &scripted{p: p, state: storage.State{LogID: "l", Segment: p.Segment}, killed: make(chan struct{})}
			return o, nil
		})
	s, err := storagewire.NewFactory("old", serve(f)).Build(t.Context(), storage.Params{
		Settings: plugin.Settings{Name: "s"}.WithDefaults(), Segment: 1 << 20, Publish: storage.Explicit,
		Events: storage.Events{Expired: func(first message.Position) { told <- first }},
	}, nil)
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, s.Shutdown(context.WithoutCancel(t.Context()))) })
	return s, o
}

// TestExpiresBeside: a store that expires beside Append and Publish does so in a process,
// too. Its event has returned when Expire does; one whose caller has gone is told so, and
// is over when the call is.
func TestExpiresBeside(t *testing.T) {
	told := make(chan message.Position, 10)
	s, o := expiring(t, func(f storage.Factory) wire.Launcher { return newPair(t, f) }, told)
	require.True(t, s.Capabilities().ExpiresBeside)
	retention := s.Capabilities().Retention
	done := make(chan error, 1)
	go func() { done <- retention.Expire(t.Context(), 0) }()
	<-o.entered
	require.NoError(t, s.Append(t.Context(), oneBatch(0, nil)))
	require.NoError(t, s.Sync(t.Context(), 100))
	o.leave <- nil
	require.NoError(t, <-done)
	require.Len(t, told, 1)
	<-told

	go func() { done <- retention.Expire(t.Context(), 0) }()
	<-o.entered
	o.leave <- storage.ErrFull
	require.ErrorIs(t, <-done, storage.ErrFull)

	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- retention.Expire(ctx, 0) }()
	<-o.entered
	cancel()
	<-o.gone
	o.leave <- nil // its answer is waited for
	require.ErrorIs(t, <-done, context.Canceled)
	require.ErrorIs(t, retention.Expire(ctx, 0), context.Canceled)
	require.Empty(t, told)
}

// before is a plugin that was built before there was ExpiresBeside on the wire.
type before struct{ *storagewire.Server }

func (b before) Register(r grpc.ServiceRegistrar) { storagepb.RegisterStorageServer(r, b) }

func (b before) Open(ctx context.Context, r *storagepb.OpenRequest) (*storagepb.OpenResponse, error) {
	out, err := b.Server.Open(ctx, r)
	if c := out.GetCapabilities(); c != nil {
		c.ExpiresBeside = false
	}
	return out, err
}

func (b before) Probe(ctx context.Context, r *storagepb.ProbeRequest) (*storagepb.ProbeResponse, error) {
	out, err := b.Server.Probe(ctx, r)
	if c := out.GetCapabilities(); c != nil {
		c.ExpiresBeside = false
	}
	return out, err
}

// TestExpiresInTurn: with a plugin that does not say so, and over the stream, it is a call
// among those that change the log.
func TestExpiresInTurn(t *testing.T) {
	for name, serve := range map[string]func(storage.Factory) wire.Launcher{
		"an older plugin": func(f storage.Factory) wire.Launcher {
			return wiretest.New(t, before{storagewire.NewServer(nil, f)})
		},
		"stream": func(f storage.Factory) wire.Launcher { return newStreamPair(t, f) },
	} {
		t.Run(name, func(t *testing.T) {
			told := make(chan message.Position, 10)
			s, o := expiring(t, serve, told)
			require.False(t, s.Capabilities().ExpiresBeside)
			done := make(chan error, 1)
			go func() { done <- s.Capabilities().Retention.Expire(t.Context(), 0) }()
			<-o.entered
			o.leave <- nil
			require.NoError(t, <-done)
			require.Len(t, told, 1)
		})
	}
}
