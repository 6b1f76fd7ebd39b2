package storagewire_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/internal/wiretest"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is both halves in one process; its stores close without an error.
type pair struct {
	*wiretest.Pair
	stores *storagewire.Server
}

// maker makes a pair; there is one for each way that payload takes.
type maker func(tb testing.TB, factories ...storage.Factory) *pair

// everyWay runs a test over the data sockets and over the stream.
func everyWay(t *testing.T, test func(*testing.T, maker)) {
	t.Run("sockets", func(t *testing.T) { test(t, newPair) })
	t.Run("stream", func(t *testing.T) { test(t, newStreamPair) })
}

func newPair(tb testing.TB, factories ...storage.Factory) *pair {
	tb.Helper()
	return serve(tb, storagewire.NewServer(nil, factories...))
}

func newStreamPair(tb testing.TB, factories ...storage.Factory) *pair {
	tb.Helper()
	return serve(tb, storagewire.NewServer(nil, factories...).WithStream())
}

func serve(tb testing.TB, s *storagewire.Server) *pair {
	tb.Helper()
	p := &pair{stores: s}
	p.Pair = wiretest.New(tb, p.stores)
	tb.Cleanup(func() { require.NoError(tb, p.stores.Close(context.WithoutCancel(tb.Context()))) })
	return p
}
