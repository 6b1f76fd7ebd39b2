// Package outside is a module of somebody else: it imports the four conformance
// suites and runs them on plugins of its own, and on some that it did not write.
package outside

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/allocate/allocatetest"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication/replicationtest"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/core/storage/storekit"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/transport/transporttest"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
	"github.com/hardpointmq/hardpoint/plugins/transport/inproc"
	"github.com/hardpointmq/hardpoint/sdk/external"
)

func store() storage.Factory {
	return storage.NewFactory("forgetful",
		func(struct{}) plugin.Description {
			return plugin.Description{Version: "1", Facets: storekit.Facets()}
		},
		func() struct{} { return struct{}{} },
		func(_ context.Context, p storage.Params, _ struct{}) (*storekit.Store, error) {
			return storekit.FromKV(p, &storekit.MemKV{}, storekit.Options{}), nil
		})
}

func TestStore(t *testing.T) {
	storagetest.Run(t, storagetest.Harness{Factory: store(), Lacks: storagetest.Lacks{ProcessDeath: true, Reopen: true}})
}

func TestAllocator(t *testing.T) {
	last := allocate.NewFunc("last", "1", func(_ context.Context, r *allocate.Request) (allocate.Assignment, error) {
		a := allocate.Assignment{Owner: make([]int, len(r.Queues))}
		for i := range a.Owner {
			a.Owner[i] = len(r.Members) - 1
		}
		return a, r.Check()
	})
	allocatetest.Run(t, allocatetest.Harness{Factory: last, Form: "in_process", Lacks: allocatetest.Lacks{Balance: true}})
}

func TestTransport(t *testing.T) {
	var n atomic.Int64
	transporttest.Run(t, transporttest.Harness{
		Factory: inproc.NewFactory(), Form: "in_process",
		Address: func(testing.TB) string { return fmt.Sprintf("outside-%d", n.Add(1)) },
		Lacks:   []string{"idle", "idle_while_served", transport.FacetMover},
	})
}

func TestReplicator(t *testing.T) {
	replicationtest.Run(t, replicationtest.Harness{
		Factory: solo.NewFactory(), Form: "in_process", Lacks: replicationtest.Lacks{Members: true, Sync: true},
		NewStore: func(tb testing.TB, p storage.Params) storage.Store {
			s, err := store().Build(tb.Context(), p, nil)
			if err != nil {
				tb.Fatal(err)
			}
			return s
		},
	})
}

// TestProgram runs a suite on a program that somebody else built.
func TestProgram(t *testing.T) {
	if path := os.Getenv("ALLOCATOR"); path != "" {
		f := external.Allocate(os.Getenv("ALLOCATOR_NAME"), external.Command{Path: path}, external.Options{})
		allocatetest.Run(t, allocatetest.Harness{Factory: f, Form: "process"})
		if _, err := f.Describe(t.Context(), plugin.Raw(`{"nonsense": 1}`)); !errors.Is(err, plugin.ErrConfig) {
			t.Fatalf("a field that it does not have: %v", err)
		}
	}
	if path := os.Getenv("STORE"); path != "" {
		f := external.Storage(os.Getenv("STORE_NAME"), external.Command{Path: path}, external.Options{})
		storagetest.Run(t, storagetest.Harness{Factory: f, Form: storagetest.Process})
	}
}
