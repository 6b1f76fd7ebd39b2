package pebble_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	hpvfs "github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/plugins/storage/pebble"
)

var topic = message.Queue{Topic: "T"}

// rig is a store with what is needed to append to it.
type rig struct {
	t      *testing.T
	store  storage.Store
	seq    *storage.Sequencer
	w      *storagetest.Writer
	failed atomic.Int32
}

func open(t *testing.T, fs vfs.FS, config string) *rig {
	t.Helper()
	return openAt(t, fs, config, plugin.SystemClock{})
}

func openAt(t *testing.T, fs vfs.FS, config string, clock plugin.Clock) *rig {
	t.Helper()
	return openIn(t, fs, config, clock, storage.Immediate)
}

func openIn(t *testing.T, fs vfs.FS, config string, clock plugin.Clock, mode storage.PublishMode) *rig {
	t.Helper()
	r := &rig{t: t, w: storagetest.NewWriter(message.IndexRules{})}
	p := storage.Params{Settings: plugin.Settings{Name: "pebble", Dir: "/db", Clock: clock}, Segment: 1 << 20, Publish: mode}
	p.Events.Failed = func(error) { r.failed.Add(1) }
	s, err := pebble.NewFactoryOn(func() vfs.FS { return fs }).Build(t.Context(), p, plugin.Raw(config))
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	if st := s.State(); st.Published < st.Tail { // as a replicator does
		require.NoError(t, s.Capabilities().RawLog.Publish(t.Context(), st.Tail))
	}
	r.store = s
	r.seq = storagetest.OpenSequencer(t, s, nil, 1)
	return r
}

func (r *rig) append(size int) error { return r.appendBody(make([]byte, size)) }

func (r *rig) appendBody(body []byte) error {
	p := r.w.Pending([]storagetest.Message{{Queue: topic, Body: body}})
	require.NoError(r.t, r.seq.Assign(p, 0))
	err := r.store.Append(r.t.Context(), &p.Batches[0])
	if err != nil {
		require.NoError(r.t, r.seq.Rewind(p))
	}
	return err
}

func (r *rig) sync() error { return r.store.Sync(r.t.Context(), r.store.State().Tail) }

func (r *rig) max() int64 {
	r.t.Helper()
	var a storage.OffsetAnswers
	require.NoError(r.t, r.store.Offsets(r.t.Context(), []storage.OffsetQuery{{Queue: topic}}, &a))
	return a.Answers[0].Max
}

func (r *rig) close() {
	r.t.Helper()
	require.NoError(r.t, r.store.Shutdown(r.t.Context()))
}

// TestSyncIsDeferred: an Append alone does not reach the disk, Sync does. That it
// reaches the system with a write is seen in the files at once.
func TestSyncIsDeferred(t *testing.T) {
	fs := vfs.NewCrashableMem()
	r := open(t, fs, small)
	for range 10 {
		require.NoError(t, r.append(100))
	}
	lost := fs.CrashClone(vfs.CrashCloneCfg{})
	killed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	require.NoError(t, r.sync())
	synced := fs.CrashClone(vfs.CrashCloneCfg{})
	r.close()
	for name, tc := range map[string]struct {
		fs   vfs.FS
		want int64
	}{"power loss before Sync": {lost, 0}, "kill -9 before Sync": {killed, 10}, "power loss after Sync": {synced, 10}} {
		r := open(t, tc.fs, small)
		require.Equal(t, tc.want, r.max(), name)
		r.close()
	}
}

// TestTornByPowerLoss: some blocks that were not synced survive, others do not.
// The database opens, with everything synced and a dense rest, as it was written;
// published at once, as with ASYNC_FLUSH, or behind a sync, as with SYNC_FLUSH.
func TestTornByPowerLoss(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for round := range 8 {
		mode := []storage.PublishMode{storage.Immediate, storage.Explicit}[round%2]
		fs := vfs.NewCrashableMem()
		r := openIn(t, fs, small, plugin.SystemClock{}, mode)
		publish := func() {
			if mode == storage.Explicit {
				require.NoError(t, r.store.Capabilities().RawLog.Publish(t.Context(), r.store.State().Tail))
			}
		}
		var sent [][]byte
		synced := int64(0)
		for i := range 60 {
			sent = append(sent, bytes.Repeat([]byte{byte(i)}, 1+rnd.IntN(40_000)))
			require.NoError(t, r.appendBody(sent[i]))
			if i == 20 {
				require.NoError(t, r.sync())
				publish()
				synced = r.max()
				require.Equal(t, int64(21), synced)
			}
		}
		crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rnd.IntN(101), RNG: rnd})
		r.close()
		r = openIn(t, crashed, small, plugin.SystemClock{}, mode)
		n := r.max()
		require.GreaterOrEqual(t, n, synced)
		require.LessOrEqual(t, n, int64(len(sent)))
		var c storage.Chunk
		for next := int64(0); next < n; next = c.Next {
			c.Reset()
			require.NoError(t, r.store.Read(t.Context(), storage.ReadRequest{Queue: topic, Offset: next}, &c))
			require.Equal(t, storage.Found, c.Status)
			c.Records(func(i int, rec []byte) bool {
				var v message.View
				require.NoError(t, message.Parse(rec, &v))
				require.True(t, bytes.Equal(sent[next+int64(i)], v.Body), "message %d is another one", next+int64(i))
				return true
			})
		}
		c.Release()
		require.NoError(t, r.append(10))
		publish()
		require.Equal(t, n+1, r.max())
		r.close()
	}
}

// TestFailedSync: the first failed sync fails the store for ever; reading goes on.
func TestFailedSync(t *testing.T) {
	fs := &faultFS{FS: vfs.NewMem()}
	r := open(t, fs, small)
	require.NoError(t, r.append(10))
	fs.sync.Store(true)
	require.ErrorIs(t, r.sync(), storage.ErrFailed)
	fs.sync.Store(false)
	require.ErrorIs(t, r.sync(), storage.ErrFailed)
	require.ErrorIs(t, r.append(10), storage.ErrFailed)
	require.Equal(t, int32(1), r.failed.Load())
	require.Equal(t, int64(1), r.max())
	require.ErrorIs(t, r.store.Shutdown(t.Context()), errInjected, "the log was never made durable, Shutdown says so")
}

// TestFailedWrite: Pebble wants to end the process; the store fails instead.
func TestFailedWrite(t *testing.T) {
	fs := &faultFS{FS: vfs.NewMem()}
	r := open(t, fs, small)
	require.NoError(t, r.append(10))
	fs.write.Store(true)
	require.ErrorIs(t, r.append(10), storage.ErrFailed)
	fs.write.Store(false)
	require.ErrorIs(t, r.append(10), storage.ErrFailed)
	require.Equal(t, int32(1), r.failed.Load())
	require.Equal(t, int64(1), r.max())
	require.Error(t, r.store.Shutdown(t.Context()))
	r = open(t, fs.FS, small)
	require.Equal(t, int64(1), r.max())
	r.close()
}

// TestLogCannotBeChanged: Pebble makes a new log in the middle of a commit, and
// would panic without its locks when the old one cannot be closed or the new one
// not be made. The store fails, and reading goes on.
func TestLogCannotBeChanged(t *testing.T) {
	for _, what := range []string{"create", "sync", "write"} {
		t.Run(what, func(t *testing.T) {
			fs := &faultFS{FS: vfs.NewMem()}
			r := open(t, fs, small)
			require.NoError(t, r.append(10))
			require.NoError(t, r.sync())
			n, acked, err := int64(1), int64(1), error(nil)
			for range 200 { // several memtables
				if err = r.append(50_000); err != nil {
					break
				}
				if n++; n == 10 {
					acked = n
					fs.create.Store(what == "create")
					fs.sync.Store(what == "sync")
				}
				if n == 20 {
					fs.write.Store(what == "write")
				}
			}
			require.ErrorIs(t, err, storage.ErrFailed)
			require.ErrorIs(t, err, errInjected)
			require.Equal(t, int32(1), r.failed.Load())
			require.Equal(t, n, r.max())
			require.ErrorIs(t, r.store.Shutdown(t.Context()), errInjected)
			r = open(t, fs.FS, small)
			require.GreaterOrEqual(t, r.max(), acked)
			r.close()
		})
	}
}

// TestFilesGoneUnderOpenStore: an open file works on without its name, so the next
// sync looks whether it is there.
func TestFilesGoneUnderOpenStore(t *testing.T) {
	for _, pattern := range []string{"LOCK", "*.log", "*"} {
		t.Run(pattern, func(t *testing.T) {
			dir := t.TempDir()
			s := buildDisk(t, dir, nil)
			require.NoError(t, s.Start(t.Context()))
			r := &rig{t: t, w: storagetest.NewWriter(message.IndexRules{}), store: s, seq: storagetest.OpenSequencer(t, s, nil, 1)}
			require.NoError(t, r.append(10))
			require.NoError(t, r.sync())
			require.NoError(t, r.append(10))
			names, err := filepath.Glob(filepath.Join(dir, pattern))
			require.NoError(t, err)
			require.NotEmpty(t, names)
			for _, name := range names {
				require.NoError(t, os.RemoveAll(name))
			}
			err = r.sync()
			require.ErrorIs(t, err, storage.ErrFailed)
			require.ErrorContains(t, err, "while the store was open")
			require.ErrorIs(t, r.append(10), storage.ErrFailed)
			require.Error(t, r.store.Shutdown(t.Context()))
		})
	}
}

// TestNewestLogMissing: Pebble opens without a log that is gone; the store refuses,
// and starts when it is there again.
func TestNewestLogMissing(t *testing.T) {
	for _, rounds := range []int{1, 60} { // without and with new logs
		dir, aside := t.TempDir(), t.TempDir()
		s := buildDisk(t, dir, nil)
		require.NoError(t, s.Start(t.Context()))
		r := &rig{t: t, w: storagetest.NewWriter(message.IndexRules{}), store: s, seq: storagetest.OpenSequencer(t, s, nil, 1)}
		for range rounds {
			require.NoError(t, r.append(50_000))
		}
		r.close()
		logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
		require.NoError(t, err)
		require.NotEmpty(t, logs)
		for _, name := range logs {
			require.NoError(t, os.Rename(name, filepath.Join(aside, filepath.Base(name))))
		}
		for range 2 {
			var c *storage.CorruptError
			require.ErrorAs(t, buildDisk(t, dir, nil).Start(t.Context()), &c)
			require.Equal(t, logs[len(logs)-1], c.File)
			require.ErrorContains(t, c, "hardpoint.wal")
		}
		for _, name := range logs {
			require.NoError(t, os.Rename(filepath.Join(aside, filepath.Base(name)), name))
		}
		r.store = buildDisk(t, dir, nil)
		require.NoError(t, r.store.Start(t.Context()))
		require.EqualValues(t, rounds, r.max())
		r.close()
	}
}

// TestMarkerMissing: without the empty file that names the MANIFEST, a store that has
// data does not begin anew, and is whole again when the file is put back or made by hand.
func TestMarkerMissing(t *testing.T) {
	fs := vfs.NewMem()
	for range 2 { // the second one finds tables
		r := open(t, fs, small)
		require.NoError(t, r.append(1000))
		require.NoError(t, r.sync())
		r.close()
	}
	names := func(prefix string) (out []string) {
		all, err := fs.List("/db")
		require.NoError(t, err)
		for _, name := range all {
			if strings.HasPrefix(name, prefix) {
				out = append(out, name)
			}
		}
		slices.Sort(out)
		return out
	}
	const marker = "marker.manifest."
	for _, gone := range []string{marker, "marker."} {
		manifests := names("MANIFEST-")
		newest := manifests[len(manifests)-1]
		lost := names(gone)
		for _, name := range lost {
			require.NoError(t, fs.Remove("/db/"+name))
		}
		before := names("")
		for range 2 {
			s, err := pebble.NewFactoryOn(func() vfs.FS { return fs }).Build(t.Context(), storage.Params{Settings: plugin.Settings{Name: "pebble", Dir: "/db"}, Segment: 1 << 20}, plugin.Raw(small))
			require.NoError(t, err)
			var c *storage.CorruptError
			require.ErrorAs(t, s.Start(t.Context()), &c)
			require.Contains(t, c.File, marker)
			require.Contains(t, c.Reason, marker+"000001."+newest)
			require.NoError(t, s.Shutdown(t.Context()))
			require.Equal(t, before, names(""), "a refused start changes nothing")
		}
		for _, name := range lost {
			if strings.HasPrefix(name, marker) {
				name = marker + "000001." + newest
			}
			f, err := fs.Create("/db/"+name, vfs.WriteCategoryUnspecified)
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}
		r := open(t, fs, small)
		require.EqualValues(t, 2, r.max())
		r.close()
	}
}

// TestNoSpaceToNameLog: on a full disk the newest log has no name, not that of an
// older one.
func TestNoSpaceToNameLog(t *testing.T) {
	fs := &faultFS{FS: vfs.NewMem()}
	r := open(t, fs, small)
	require.NoError(t, r.append(10))
	fs.full.Store(true)
	for range 60 {
		require.NoError(t, r.append(50_000))
	}
	r.close()
	for _, full := range []bool{true, false, false} {
		fs.full.Store(full)
		r = open(t, fs, small)
		require.EqualValues(t, 61, r.max())
		r.close()
	}
}

// TestFull: below the reserve nothing is written, and space brings it back.
func TestFull(t *testing.T) {
	fs := vfs.NewMem()
	usage := func(free uint64) { fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: free, TotalBytes: 1 << 30}) }
	usage(65 << 20)
	r := open(t, fs, `{"cacheBytes": 1048576, "memTableBytes": 1048576, "reserveBytes": 67108864}`)
	require.NoError(t, r.append(1000))
	usage(64 << 20)
	n := r.max()
	var err error
	for range 2000 { // what was free at the last look may be used
		if err = r.append(1000); err != nil {
			break
		}
		n++
	}
	require.ErrorIs(t, err, storage.ErrFull)
	require.ErrorIs(t, r.append(10), storage.ErrFull)
	require.Equal(t, n, r.max())
	require.NoError(t, r.sync())
	usage(100 << 20)
	require.NoError(t, r.append(10))
	require.Equal(t, n+1, r.max())
	require.Zero(t, r.failed.Load())
	r.close()
}

// shared is a rig with one record, a reserve of 64 MiB and a disk with much room, of which
// usage sets how much is free.
func shared(t *testing.T, mode storage.PublishMode) (r *rig, clock *storagetest.Clock, usage func(free uint64)) {
	t.Helper()
	fs := vfs.NewMem()
	usage = func(free uint64) { fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: free, TotalBytes: 1 << 40}) }
	usage(1 << 39)
	clock = storagetest.NewClock(time.Hour.Milliseconds())
	r = openIn(t, fs, `{"cacheBytes": 1048576, "memTableBytes": 1048576, "reserveBytes": 67108864}`, clock, mode)
	require.NoError(t, r.append(100))
	return r, clock, usage
}

// TestFilledByOthers: a store that writes little stops at its reserve, too, when others
// fill the disk.
func TestFilledByOthers(t *testing.T) {
	r, clock, usage := shared(t, storage.Immediate)
	for _, pass := range []time.Duration{time.Second, -time.Hour} { // the clock may be set back
		usage(1 << 20)
		clock.Add(pass.Milliseconds())
		require.ErrorIs(t, r.append(100), storage.ErrFull)
		usage(1 << 39)
		require.NoError(t, r.append(100))
	}
	require.Zero(t, r.failed.Load())
	r.close()
}

// TestPublishFromTheReserve: what was appended is published, however full the disk has
// become meanwhile: who waits for it has its message in the log.
func TestPublishFromTheReserve(t *testing.T) {
	r, clock, usage := shared(t, storage.Explicit)
	usage(1 << 20)
	clock.Add(time.Second.Milliseconds())
	require.ErrorIs(t, r.append(100), storage.ErrFull)
	require.NoError(t, r.store.Capabilities().RawLog.Publish(t.Context(), r.store.State().Tail))
	require.Equal(t, int64(1), r.max())
	r.close()
}

// TestDisk is about what only a real file system does: locks and files that stay.
func TestDisk(t *testing.T) {
	dir := t.TempDir()
	build := func() storage.Store {
		s, err := pebble.NewFactory().Build(t.Context(), storage.Params{Settings: plugin.Settings{Dir: dir, Clock: &hastyClock{}}, Segment: 1 << 20}, plugin.Raw(small))
		require.NoError(t, err)
		return s
	}
	for round := range int64(3) {
		r := &rig{t: t, w: storagetest.NewWriter(message.IndexRules{}), store: build()}
		require.NoError(t, r.store.Start(t.Context()))
		require.Equal(t, 20*round, r.max())
		err := build().Start(t.Context())
		require.ErrorIs(t, err, hpvfs.ErrLocked, "a second opener")
		require.ErrorContains(t, err, dir)
		require.ErrorContains(t, err, fmt.Sprintf("pid %d", os.Getpid()))
		r.seq = storagetest.OpenSequencer(t, r.store, nil, 1)
		for range 20 {
			require.NoError(t, r.append(50_000))
		}
		require.NoError(t, r.sync())
		r.close()
	}
}

func TestConfig(t *testing.T) {
	f := pebble.NewFactory()
	for raw, want := range map[string]string{
		`{"cacheBytes": 1}`:      "cacheBytes is 1",
		`{"memTableBytes": 1}`:   "memTableBytes is 1",
		`{"reserveBytes": -1}`:   "reserveBytes is -1",
		`{"maxOpenFiles": 1}`:    "maxOpenFiles is 1",
		`{"cacheByte": 1048576}`: "unknown field",
	} {
		_, err := f.Describe(t.Context(), plugin.Raw(raw))
		require.ErrorIs(t, err, plugin.ErrConfig)
		require.ErrorContains(t, err, want)
	}
	d, err := f.Describe(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, d.Has(storage.FacetRawLog))
}

var errInjected = errors.New("injected")

// faultFS makes syncs and writes of write-ahead logs fail.
type faultFS struct {
	vfs.FS
	sync, write, create, full atomic.Bool
}

func (f *faultFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if f.full.Load() && strings.HasSuffix(name, "hardpoint.wal.tmp") {
		return nil, syscall.ENOSPC
	}
	if f.create.Load() && strings.HasSuffix(name, ".log") {
		return nil, errInjected
	}
	file, err := f.FS.Create(name, c)
	if err != nil || !strings.HasSuffix(name, ".log") {
		return file, err
	}
	return &faultFile{file, f}, nil
}

func (f *faultFS) Unwrap() vfs.FS { return f.FS }

type faultFile struct {
	vfs.File
	fs *faultFS
}

func (f *faultFile) SyncData() error {
	if f.fs.sync.Load() {
		return errInjected
	}
	return f.File.SyncData()
}

func (f *faultFile) Write(p []byte) (int, error) {
	if f.fs.write.Load() {
		return 0, errInjected
	}
	return f.File.Write(p)
}
