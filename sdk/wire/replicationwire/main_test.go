package replicationwire_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/internal/wiretest"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
	"github.com/hardpointmq/hardpoint/sdk/wire/replicationwire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newStore(tb testing.TB, p storage.Params) storage.Store {
	tb.Helper()
	s, err := memory.NewFactory().Build(tb.Context(), p, nil)
	require.NoError(tb, err)
	return s
}

var syncFlush = plugin.Raw(`{"flushDiskType":"SYNC_FLUSH"}`)

// wired makes a factory of the other side of a border.
func wired(tb testing.TB, f replication.Factory) replication.Factory {
	return replicationwire.NewFactory(f.Name(), wiretest.New(tb, replicationwire.NewServer(nil, f)))
}
