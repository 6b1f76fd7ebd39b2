package enginematrix_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	pebblefs "github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/core/storage/storekit"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
	"github.com/hardpointmq/hardpoint/plugins/storage/commitlog"
	"github.com/hardpointmq/hardpoint/plugins/storage/pebble"
)

// medium is what a store's data lie on: what survives a store.
type medium interface {
	// factory makes stores on the medium as it is now.
	factory() storage.Factory
	// crash ends all that was opened; what was not synced is kept or not.
	crash(tb testing.TB, keep memfs.Keep)
	// lose removes the files of the queues, which are made again from the log; false:
	// there are none.
	lose(tb testing.TB) bool
}

// kinds are the stores. Only those with a disk can lose power.
var kinds = []struct {
	name   string
	disk   bool
	config plugin.Raw
	fresh  func() medium
}{
	{"memory", false, nil, func() medium { return &memory{enginetest.NewDisk().KV} }},
	{"commitlog", true, plugin.Raw(`{"mappedFileSizeConsumeQueue": 4000, "maxHashSlotNum": 500, "maxIndexNum": 1000}`),
		func() medium { return &files{memfs.New(1)} }},
	{"pebble", true, plugin.Raw(`{"cacheBytes": 1048576, "memTableBytes": 1048576}`),
		func() medium { return &tree{pebblefs.NewCrashableMem()} }},
}

// memory is the store in memory over one that is kept.
type memory struct{ kv enginetest.KV }

func (m *memory) factory() storage.Factory {
	type config struct{}
	return storage.NewFactory("memory",
		func(config) plugin.Description { return plugin.Description{Version: "1", Facets: storekit.Facets()} },
		func() config { return config{} },
		func(_ context.Context, p storage.Params, _ config) (*storekit.Store, error) {
			return storekit.FromKV(p, m.kv, storekit.Options{}), nil
		})
}

func (m *memory) crash(tb testing.TB, _ memfs.Keep) { m.kv = m.kv.Copy(tb) }
func (m *memory) lose(testing.TB) bool              { return false }

type files struct{ fs *memfs.FS }

func (f *files) factory() storage.Factory            { return commitlog.NewFactoryOn(f.fs) }
func (f *files) crash(_ testing.TB, keep memfs.Keep) { f.fs = f.fs.Crash(keep) }

func (f *files) lose(tb testing.TB) bool {
	require.NoError(tb, f.fs.RemoveAll("/store/consumequeue"))
	return true
}

type tree struct{ fs *pebblefs.MemFS }

func (t *tree) factory() storage.Factory {
	fs := t.fs
	return pebble.NewFactoryOn(func() pebblefs.FS { return fs })
}

func (t *tree) lose(testing.TB) bool { return false }

func (t *tree) crash(_ testing.TB, keep memfs.Keep) {
	cfg := pebblefs.CrashCloneCfg{RNG: rand.New(rand.NewPCG(1, 1))}
	if keep == memfs.KeepAll {
		cfg.UnsyncedDataPercent = 100
	}
	t.fs = t.fs.CrashClone(cfg)
}

// watched is a store whose process ends with a crash: nobody hears what becomes
// of it afterwards. It tells when the log is changed by two at once, which the
// contract rules out.
type watched struct {
	storagemw.Base
	tb   testing.TB
	dead *atomic.Bool
	// synced is the end of the last Sync that succeeded.
	synced *atomic.Int64
	turn   sync.Mutex
}

// change begins a call that has to have the turn of the log; done ends it.
func (w *watched) change(call string) (done func()) {
	if !w.turn.TryLock() {
		w.tb.Errorf("%s runs into another change of the log", call)
		w.turn.Lock()
	}
	return w.turn.Unlock
}

func (w *watched) Capabilities() storage.Capabilities {
	c := w.Store.Capabilities()
	if c.RawLog != nil {
		c.RawLog = &watchedLog{c.RawLog, w}
	}
	return c
}

func (w *watched) Append(ctx context.Context, b *storage.Batch) error {
	defer w.change("Append")()
	return w.Store.Append(ctx, b)
}

func (w *watched) Sync(ctx context.Context, end message.Position) error {
	if w.dead.Load() {
		return nil
	}
	err := w.Store.Sync(ctx, end)
	if err == nil {
		w.synced.Store(int64(end))
	}
	return err
}

func (w *watched) Shutdown(ctx context.Context) error {
	err := w.Store.Shutdown(ctx)
	if w.dead.Load() {
		return nil
	}
	return err
}

type watchedLog struct {
	storage.RawLog
	w *watched
}

func (l *watchedLog) Publish(ctx context.Context, upTo message.Position) error {
	defer l.w.change("Publish")()
	return l.RawLog.Publish(ctx, upTo)
}

func (l *watchedLog) Truncate(ctx context.Context, at message.Position) error {
	defer l.w.change("Truncate")()
	return l.RawLog.Truncate(ctx, at)
}
