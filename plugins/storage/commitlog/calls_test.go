package commitlog

import (
	"bytes"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
	"github.com/hardpointmq/hardpoint/core/vfs/vfstest"
)

// calls counts operations on files of the log and of the ConsumeQueues.
type calls struct {
	log, queues [64]atomic.Int64 // by operation
}

func (c *calls) hook(x vfstest.Call) error {
	switch name := filepath.ToSlash(x.Name); {
	case strings.Contains(name, "/commitlog/"):
		c.log[x.Op].Add(1)
	case strings.Contains(name, "/consumequeue/"):
		c.queues[x.Op].Add(1)
	}
	return nil
}

// several makes a batch of n messages over three queues.
func (r *rig) several(n, body int) *storage.Pending {
	r.t.Helper()
	var groups [][]storagetest.Message
	for i := range n {
		r.n++
		key := fmt.Sprintf("k%d", r.n)
		groups = append(groups, []storagetest.Message{{Queue: queueN(i % 3), Keys: key, Body: bytes.Repeat([]byte{byte(i)}, body)}})
	}
	p := r.w.Pending(groups...)
	require.NoError(r.t, r.seq.Assign(p, 0))
	return p
}

// remember notes the records of a batch as sent.
func (r *rig) remember(p *storage.Pending) {
	r.t.Helper()
	for _, b := range p.Batches {
		rest := b.Buf
		for _, u := range b.Units {
			var v message.View
			require.NoError(r.t, message.Parse(rest[:u.Size], &v))
			key, _ := message.Property(v.Properties, message.PropKeys)
			r.sent = append(r.sent, record{pos: u.At, queue: u.Queue, offset: u.Offset, key: string(key), bytes: bytes.Clone(rest[:u.Size])})
			rest = rest[u.Size:]
		}
	}
}

// TestOneWriteForABatch: a batch costs one write, however many records and queues
// it has, and one more for the blank where it begins a segment; nothing is synced
// and ConsumeQueues are written through their mappings.
func TestOneWriteForABatch(t *testing.T) {
	r, f, _ := faulty(t, nil)
	p := r.several(3, 10) // queues and first segment exist
	require.NoError(t, r.s.Append(t.Context(), &p.Batches[0]))
	r.remember(p)
	var c calls
	f.SetHook(c.hook)
	edges := 0
	for _, n := range []int{1, 2, 17, 64, 1, 40, 3, 64, 64} {
		p := r.several(n, 50)
		for i := range p.Batches {
			b := &p.Batches[i]
			want := c.log[vfstest.OpWrite].Load() + 1
			if b.At > r.s.State().Tail {
				want++
				edges++
			}
			require.NoError(t, r.s.Append(t.Context(), b))
			require.Equal(t, want, c.log[vfstest.OpWrite].Load(), "writes for a batch of %d records", len(b.Units))
		}
		r.remember(p)
	}
	f.SetHook(nil)
	require.Positive(t, edges)
	require.Zero(t, c.log[vfstest.OpSyncData].Load())
	require.Zero(t, c.log[vfstest.OpMapSync].Load())
	require.Zero(t, c.queues[vfstest.OpWrite].Load())
	r.verify()
}

// TestDirectoriesAreSynced: new files are durable by name, too, when they are said
// to be: those of the log before their first record, the others at a flush.
func TestDirectoriesAreSynced(t *testing.T) {
	r, f, _ := faulty(t, nil)
	var mu sync.Mutex
	synced := map[string]bool{}
	f.SetHook(func(c vfstest.Call) error {
		mu.Lock()
		defer mu.Unlock()
		if rel, err := filepath.Rel(r.dir, c.Name); err == nil && c.Op == vfstest.OpSyncDir {
			synced[filepath.ToSlash(rel)] = true
		}
		return nil
	})
	require.NoError(t, r.send(queueN(0), 10))
	mu.Lock()
	require.True(t, synced["commitlog"], "%v", synced)
	clear(synced)
	mu.Unlock()
	require.NoError(t, r.send(message.Queue{Topic: "U", ID: 7}, 10))
	r.sync()
	require.NoError(t, r.s.flushDerived(true))
	f.SetHook(nil)
	for _, dir := range []string{"consumequeue", "consumequeue/T", "consumequeue/T/0", "consumequeue/U", "consumequeue/U/7", "index"} {
		require.True(t, synced[dir], "%s is not among %v", dir, synced)
	}
}

// TestMappedWrites: with commitLogWrite map and segments that are touched ahead,
// no record is written by a system call.
func TestMappedWrites(t *testing.T) {
	r, f, d := faulty(t, func(c *Config) { c.CommitLogWrite, c.WarmMapedFileEnable = WriteMap, true })
	var c calls
	f.SetHook(c.hook)
	for range 20 {
		p := r.several(20, 100)
		for i := range p.Batches {
			require.NoError(t, r.s.Append(t.Context(), &p.Batches[i]))
		}
		r.remember(p)
	}
	f.SetHook(nil)
	require.Greater(t, int64(r.s.State().Tail), int64(3*rigSegment))
	require.Zero(t, c.log[vfstest.OpWrite].Load())
	require.Positive(t, c.log[vfstest.OpAdvise].Load(), "the pages of a new segment are touched")
	r.verify()
	r.sync()
	d.crash(memfs.KeepNone)
	_ = r.s.Shutdown(background(t))
	r.start()
	r.verify()
}

// coldFS is a file system of which nothing is in memory.
type coldFS struct{ vfs.FS }

func (c coldFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := c.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return coldFile{f}, nil
}

type coldFile struct{ vfs.File }

func (f coldFile) Map(off, size int64, writable bool) (vfs.Mapping, error) {
	m, err := f.File.Map(off, size, writable)
	if err != nil {
		return nil, err
	}
	return coldMapping{m}, nil
}

type coldMapping struct{ vfs.Mapping }

func (coldMapping) Resident(int64, int64) (int64, error) { return 0, nil }

// TestColdReads: records that are not in memory are read by position and not
// through the mapping, in chunks that say so and keep to their own limit; those
// near the end of the log are lent from the mapping without a call.
func TestColdReads(t *testing.T) {
	const segment, body = 4 << 20, 8000
	f := vfstest.NewFaults(coldFS{vfs.OS{}})
	s := openOn(t, f, storage.Params{Settings: plugin.Settings{Dir: t.TempDir()}, Segment: segment}, nil)
	seq := storagetest.OpenSequencer(t, s, plugin.SystemClock{}, 1)
	w := storagetest.NewWriter(message.IndexRules{})
	q := queueN(0)
	n := 0
	for seq.Tail() < hotBytes+4*segment {
		var groups [][]storagetest.Message
		for range 100 {
			groups = append(groups, []storagetest.Message{{Queue: q, Body: fmt.Appendf(make([]byte, 0, body), "%0*d", body, n)}})
			n++
		}
		p := w.Pending(groups...)
		require.NoError(t, seq.Assign(p, 0))
		for i := range p.Batches {
			require.NoError(t, s.Append(t.Context(), &p.Batches[i]))
		}
	}
	var c calls
	f.SetHook(c.hook)
	defer f.SetHook(nil)
	var chunk storage.Chunk
	defer chunk.Release()
	read := func(from int64) {
		t.Helper()
		require.NoError(t, s.Read(t.Context(), storage.ReadRequest{Queue: q, Offset: from, Hot: storage.Limit{Count: 32}, Cold: storage.Limit{Count: 8}}, &chunk))
		require.Equal(t, storage.Found, chunk.Status)
		all := bytes.Join(chunk.Frags, nil)
		for i, u := range chunk.Units {
			var v message.View
			require.NoError(t, message.Parse(all[:u.Size], &v))
			require.Equal(t, from+int64(i), v.QueueOffset)
			require.Equal(t, fmt.Sprintf("%0*d", body, v.QueueOffset), string(v.Body))
			all = all[u.Size:]
		}
		require.Empty(t, all)
	}
	read(100)
	require.True(t, chunk.Cold)
	require.Len(t, chunk.Units, 8)
	cold := c.log[vfstest.OpRead].Load()
	require.Positive(t, cold, "reads by position")
	read(int64(n) - 100)
	require.False(t, chunk.Cold)
	require.Len(t, chunk.Units, 32)
	require.Equal(t, cold, c.log[vfstest.OpRead].Load(), "what was just written is lent from the mapping")
	// By position, and as a replica reads it.
	require.NoError(t, s.Get(t.Context(), []message.Position{0}, &chunk))
	require.True(t, chunk.Cold)
	require.NoError(t, s.ReadLog(t.Context(), 0, 1<<20, &chunk))
	require.True(t, chunk.Cold)
	require.Greater(t, c.log[vfstest.OpRead].Load(), cold+1)

	// Readers that go on in order have the next bytes read ahead of them, each
	// once; those that jump do not.
	var ranges [][2]int64
	f.SetHook(func(x vfstest.Call) error {
		if base, ok := parseFileName(filepath.Base(x.Name)); ok && x.Op == vfstest.OpAdvise && strings.Contains(filepath.ToSlash(x.Name), "/commitlog/") {
			ranges = append(ranges, [2]int64{base + x.Off, base + x.Off + x.N})
		}
		return nil
	})
	for i := range int64(10) {
		read(1800 - 150*i)
	}
	require.Empty(t, ranges)
	first := int64(chunk.Units[0].At)
	next := chunk.Next
	for at := [2]int64{next, next + 40}; at[1] < 1800; { // two, one ahead of the other
		for k := range at {
			read(at[k])
			at[k] = chunk.Next
		}
	}
	end := int64(chunk.Units[7].At)
	require.NotEmpty(t, ranges)
	require.Less(t, ranges[0][0], first+2*aheadNear)
	for i, r := range ranges {
		require.Positive(t, r[1]-r[0])
		require.LessOrEqual(t, r[1]-r[0], int64(aheadBytes))
		if i > 0 && r[0]/segment == ranges[i-1][0]/segment {
			require.Equal(t, ranges[i-1][1], r[0], "%v", ranges)
		}
	}
	require.Greater(t, ranges[len(ranges)-1][1], end)
	require.Less(t, len(ranges), int((end-first)/(256<<10)), "calls")
}
