package replicationtest

import (
	"testing"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// Forms in which a replicator is reached.
const (
	InProcess = "in_process"
	Decorated = "decorated"
	Wire      = "wire"
)

// Harness says what is under test: a replicator that becomes leader by itself,
// without help from other nodes, when it is started on an empty store.
type Harness struct {
	Factory replication.Factory
	// Config is the plugin's configuration; empty: its defaults.
	Config plugin.Raw
	// NewStore makes a store for p that is not started.
	NewStore func(tb testing.TB, p storage.Params) storage.Store
	// Form is how the replicator is reached; empty: in_process. Several
	// configurations of one replicator have forms of their own.
	Form string
	// Lacks says what the replicator does not offer.
	Lacks Lacks
}

// Lacks names what a replicator does not offer; the zero value runs every test.
type Lacks struct {
	// Members: the group cannot change.
	Members bool
	// Sync: it tells Stored without a flush of this node's store.
	Sync bool
}

type testCase struct {
	name string
	run  func(*testing.T, Harness)
}

// Run runs the whole suite for each harness.
func Run(t *testing.T, hs ...Harness) {
	for _, h := range hs {
		if h.Form == "" {
			h.Form = InProcess
		}
		t.Run(h.Factory.Name()+"/"+h.Form, func(t *testing.T) {
			part(t, h, "lifecycle", lifecycleCases)
			part(t, h, "append", appendCases)
			part(t, h, "failure", failureCases)
			t.Run("members", func(t *testing.T) {
				if h.Lacks.Members {
					t.Skip("the harness says that the replicator lacks it")
				}
				newWorld(t, h).hasMembers()
			})
		})
	}
}

func part(t *testing.T, h Harness, name string, cases []testCase) {
	t.Run(name, func(t *testing.T) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) { c.run(t, h) })
		}
	})
}
