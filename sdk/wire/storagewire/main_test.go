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

func newPair(tb testing.TB, factories ...storage.Factory) *pair {
	tb.Helper()
	p := &pair{stores: storagewire.NewServer(nil, factories...)}
	p.Pair = wiretest.New(tb, p.stores)
	tb.Cleanup(func() { require.NoError(tb, p.stores.Close(context.WithoutCancel(tb.Context()))) })
	return p
}
