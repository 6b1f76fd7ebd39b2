package commitlog

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
)

// durableUnits flushes, cuts the power and finds the units of a queue, which begins at
// 0, on the disk as they were shown.
func (r *rig) durableUnits(d *disk, key message.Queue) {
	r.t.Helper()
	r.sync()
	require.NoError(r.t, r.s.flushDerived(true))
	q := r.s.queues.get(key)
	var want []unit
	for k := range q.max.Load() {
		u, err := q.unit(k)
		require.NoError(r.t, err)
		want = append(want, u)
	}
	var paths []string
	for _, f := range q.files {
		paths = append(paths, q.path(f))
	}
	d.crash(memfs.KeepNone)
	_ = r.s.Shutdown(background(r.t))
	var got []byte
	for _, path := range paths {
		b, err := vfs.ReadFile(d, path)
		require.NoError(r.t, err)
		got = append(got, b...)
	}
	for k, u := range want {
		require.Equal(r.t, u, decodeUnit(got[k*unitSize:]), "offset %d of %d", k, len(want))
	}
}

// TestFlushBehindACut: what comes to stand where units were cut off that had been
// flushed is flushed as well.
func TestFlushBehindACut(t *testing.T) {
	d := newDisk(1)
	r := newRig(t, d, storage.Explicit, nil)
	for range 300 {
		require.NoError(t, r.send(queueN(0), 10))
	}
	r.sync()
	require.NoError(t, r.s.flushDerived(true))
	require.NoError(t, r.s.Truncate(t.Context(), r.sent[10].pos))
	r.sent = r.sent[:10]
	r.open()
	for range 200 {
		require.NoError(t, r.send(queueN(0), 10))
	}
	r.durableUnits(d, queueN(0))
	r.start()
	r.verify()
}

// TestFlushOfWhatRecoveryChanged: so are units that a start made blank, although the
// process before had flushed others in their places.
func TestFlushOfWhatRecoveryChanged(t *testing.T) {
	d := newDisk(1)
	r := newRig(t, d, storage.Immediate, nil)
	for range 600 {
		require.NoError(t, r.send(queueN(0), 10))
	}
	r.kill(d)
	const damaged = 3 * rigSegment // no record of them is found
	for pos := message.Position(0); pos < damaged; pos += rigSegment {
		r.edit(pos, func(f vfs.File, _ int64) error { return f.ZeroRange(0, rigSegment) })
	}
	gone := len(r.without(0, damaged))
	require.Greater(t, gone*unitSize, 4000, "a whole file of the queue")
	// What the disk has there is not of the records that were there.
	r.rewrite(filepath.Join(r.dir, "consumequeue", "T", "0", fileName(0)), func(b []byte) {
		for k := 1; k < len(b)/unitSize-1; k++ {
			encodeUnit(b[k*unitSize:], r.sent[0].pos, int32(len(r.sent[0].bytes)), 0)
		}
	})
	r.start()
	u, err := r.s.queues.get(queueN(0)).unit(1)
	require.NoError(t, err)
	require.True(t, u.blank())
	r.durableUnits(d, queueN(0))
}
