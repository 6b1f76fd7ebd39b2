package pull_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// each runs a test on both replicators.
func each(t *testing.T, f func(t *testing.T, o enginetest.Options)) {
	t.Run("solo", func(t *testing.T) { f(t, enginetest.Options{Replication: solo.NewFactory()}) })
	t.Run("scripted", func(t *testing.T) { f(t, enginetest.Options{}) })
}
