package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/replication/replicationmw"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/plugins/allocate/averagely"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
	"github.com/hardpointmq/hardpoint/plugins/storage/pebble"
	"github.com/hardpointmq/hardpoint/sdk/serve"
)

// mutingProgram serves plugins that answer nothing once a file is there. Health calls
// they do.
const mutingProgram = "muting-plugins"

func muting() {
	o := serve.Storage(storagemw.Wrap(pebble.NewFactory(), func(_ storage.Params, next storage.Store) storage.Store {
		return mutingStore{storagemw.Base{Store: next}}
	}))
	o.Replication = []replication.Factory{replicationmw.Wrap(solo.NewFactory(), func(_ replication.Params, next replication.Replicator) replication.Replicator {
		return mutingReplicator{replicationmw.Base{Replicator: next}}
	})}
	o.Allocate = []allocate.Factory{allocate.NewFactory(averagely.Name,
		func(struct{}) plugin.Description { return plugin.Description{Version: "1"} },
		func() struct{} { return struct{}{} },
		func(context.Context, allocate.Params, struct{}) (mutingAllocator, error) {
			return mutingAllocator{}, nil
		})}
	serve.Main(o)
}

// hush is there when nothing is answered any more. The directory of temporary files is
// what a plugin has from its host.
func hush() string { return filepath.Join(os.TempDir(), "hush") }

func unlessHushed() {
	if _, err := os.Stat(hush()); !errors.Is(err, fs.ErrNotExist) {
		select {}
	}
}

type mutingStore struct{ storagemw.Base }

func (s mutingStore) Capabilities() storage.Capabilities { return s.Store.Capabilities() }

func (s mutingStore) Sync(ctx context.Context, end message.Position) error {
	unlessHushed()
	return s.Base.Sync(ctx, end)
}

func (s mutingStore) Shutdown(ctx context.Context) error {
	unlessHushed()
	return s.Base.Shutdown(ctx)
}

type mutingReplicator struct{ replicationmw.Base }

func (r mutingReplicator) Append(ctx context.Context, p *replication.Pending, s replication.Sink) error {
	unlessHushed()
	return r.Base.Append(ctx, p, s)
}

func (r mutingReplicator) Shutdown(ctx context.Context) error {
	unlessHushed()
	return r.Base.Shutdown(ctx)
}

type mutingAllocator struct{}

func (mutingAllocator) Allocate(context.Context, *allocate.Request) (allocate.Assignment, error) {
	select {}
}

// Close implements io.Closer.
func (mutingAllocator) Close() error { select {} }
