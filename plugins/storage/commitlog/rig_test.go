package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
)

const (
	rigDir     = "/data/store"
	rigSegment = 16 << 10
)

// record is what a rig sent.
type record struct {
	pos    message.Position
	queue  message.Queue
	offset int64
	key    string
	bytes  []byte
	synced bool
}

func (r *record) end() message.Position { return r.pos + message.Position(len(r.bytes)) }

// rig is a store on some file system with a sender that remembers.
type rig struct {
	t      *testing.T
	fs     vfs.FS
	dir    string
	params storage.Params
	change func(*Config)
	s      *Store
	w      *storagetest.Writer
	seq    *storage.Sequencer
	term   uint64
	sent   []record
	n      int
	failed []error
	clock  ticking
	// also gives each message a second key.
	also bool
}

// ticking gives another millisecond each time it is asked.
type ticking struct {
	plugin.SystemClock
	ms int64
}

func (c *ticking) Now() time.Time {
	c.ms++
	return time.UnixMilli(1_700_000_000_000 + c.ms)
}

func newRig(t *testing.T, fsys vfs.FS, mode storage.PublishMode, change func(*Config)) *rig {
	t.Helper()
	return newRigIn(t, fsys, rigDir, mode, change)
}

func newRigIn(t *testing.T, fsys vfs.FS, dir string, mode storage.PublishMode, change func(*Config)) *rig {
	t.Helper()
	rules := message.IndexRules{DelayLevels: message.DefaultDelayLevels()}
	r := &rig{t: t, fs: fsys, dir: dir, change: change, w: storagetest.NewWriter(rules)}
	r.params = storage.Params{Settings: plugin.Settings{Dir: dir}, Segment: rigSegment, Publish: mode, Index: rules}
	r.params.Events.Failed = func(err error) { r.failed = append(r.failed, err) }
	r.start()
	return r
}

// start opens the store and begins an office.
func (r *rig) start() {
	r.t.Helper()
	s := build(r.t, r.fs, r.params, r.change)
	require.NoError(r.t, s.Start(r.t.Context()))
	r.t.Cleanup(func() { _ = s.Shutdown(background(r.t)) })
	r.s = s
	r.open()
}

func (r *rig) open() {
	r.t.Helper()
	r.term++
	if st := r.s.State(); st.Published == st.Tail {
		r.seq = storagetest.OpenSequencer(r.t, r.s, &r.clock, r.term)
	}
}

func (r *rig) stop() {
	r.t.Helper()
	require.NoError(r.t, r.s.Shutdown(background(r.t)))
}

// send appends one message and publishes it.
func (r *rig) send(q message.Queue, body int) error {
	r.t.Helper()
	r.n++
	key := fmt.Sprintf("k%d", r.n)
	keys := key
	if r.also {
		keys += " also-" + key
	}
	p := r.w.Pending([]storagetest.Message{{Queue: q, Keys: keys, Body: bytes.Repeat([]byte(key), body/len(key)+1)[:body]}})
	require.NoError(r.t, r.seq.Assign(p, 0))
	b := p.Batches[0]
	if err := r.s.Append(r.t.Context(), &b); err != nil {
		require.NoError(r.t, r.seq.Rewind(p))
		return err
	}
	if r.params.Publish == storage.Explicit {
		require.NoError(r.t, r.s.Publish(r.t.Context(), b.End()))
	}
	r.sent = append(r.sent, record{pos: b.At, queue: q, offset: b.Units[0].Offset, key: key, bytes: b.Buf})
	return nil
}

func (r *rig) sync() {
	r.t.Helper()
	require.NoError(r.t, r.s.Sync(r.t.Context(), r.s.State().Tail))
	for i := range r.sent {
		r.sent[i].synced = true
	}
}

// forget drops what a restart may have lost: what was not synced and is not
// there. What is there must be what was sent.
func (r *rig) forget(mayLose func(*record) bool) {
	r.t.Helper()
	var c storage.Chunk
	defer c.Release()
	kept := r.sent[:0]
	for _, x := range r.sent {
		require.NoError(r.t, r.s.Get(r.t.Context(), []message.Position{x.pos}, &c))
		if c.Units[0].Size == 0 && mayLose(&x) {
			continue
		}
		kept = append(kept, x)
	}
	r.sent = kept
}

// verify finds every record by position, by queue and by key, and nothing else
// in the queues.
func (r *rig) verify() {
	r.t.Helper()
	var c storage.Chunk
	defer c.Release()
	want := map[message.Queue]map[int64]*record{}
	for i := range r.sent {
		x := &r.sent[i]
		require.NoError(r.t, r.s.Get(r.t.Context(), []message.Position{x.pos}, &c))
		require.Equal(r.t, int32(len(x.bytes)), c.Units[0].Size, "record %s at %d of %+v", x.key, x.pos, r.s.State())
		require.True(r.t, bytes.Equal(x.bytes, bytes.Join(c.Frags, nil)), "record %s at %d", x.key, x.pos)
		keys := []string{x.key, "also-" + x.key}
		switch {
		case r.s.keys == nil:
			keys = nil
		case !r.also:
			keys = keys[:1]
		}
		for _, key := range keys {
			at, err := r.s.Find(r.t.Context(), storage.KeyQuery{Topic: x.queue.Topic, Key: key, To: 1 << 60, Max: 64}, nil)
			require.NoError(r.t, err)
			require.Contains(r.t, at, x.pos, "key %s", key)
		}
		if want[x.queue] == nil {
			want[x.queue] = map[int64]*record{}
		}
		want[x.queue][x.offset] = x
	}
	var a storage.OffsetAnswers
	require.NoError(r.t, r.s.Offsets(r.t.Context(), nil, &a))
	for _, e := range a.Answers {
		units, recs := readQueue(r.t, r.s, e.Queue)
		require.Len(r.t, units, len(want[e.Queue]), "queue %s of %+v", e.Queue, e)
		for i, u := range units {
			x := want[e.Queue][u.Offset]
			require.NotNil(r.t, x, "queue %s shows offset %d", e.Queue, u.Offset)
			require.Equal(r.t, x.pos, u.At)
			require.True(r.t, bytes.Equal(x.bytes, recs[i]))
		}
		delete(want, e.Queue)
	}
	require.Empty(r.t, want, "queues that are not listed")
}

// edit changes the bytes of the log's file that holds pos, while no store is
// open.
func (r *rig) edit(pos message.Position, change func(f vfs.File, off int64) error) {
	r.t.Helper()
	base := int64(pos) / rigSegment * rigSegment
	f, err := r.fs.OpenFile(filepath.Join(r.dir, "commitlog", fileName(base)), openRW, 0)
	require.NoError(r.t, err)
	require.NoError(r.t, errors.Join(change(f, int64(pos)-base), f.Sync(), f.Close()))
}

func flip(f vfs.File, off int64) error {
	var b [1]byte
	if _, err := f.ReadAt(b[:], off); err != nil {
		return err
	}
	b[0] ^= 0x40
	_, err := f.WriteAt(b[:], off)
	return err
}

func queueN(n int) message.Queue { return message.Queue{Topic: "T", ID: int32(n)} }

func TestKillLosesNothing(t *testing.T) {
	for _, mode := range []storage.PublishMode{storage.Immediate, storage.Explicit} {
		for _, write := range []string{WritePwrite, WriteMap} {
			t.Run(mode.String()+"/"+write, func(t *testing.T) {
				d := newDisk(1)
				r := newRig(t, d, mode, func(c *Config) { c.CommitLogWrite = write })
				rng := rand.New(rand.NewPCG(1, 2))
				for range 6 {
					for range 60 {
						require.NoError(t, r.send(queueN(rng.IntN(5)), rng.IntN(900)))
					}
					d.crash(memfs.KeepAll)
					_ = r.s.Shutdown(background(t))
					r.start()
					require.Empty(t, r.s.State().Damaged)
					r.verify()
				}
			})
		}
	}
}

// TestPowerLoss cuts the power at random moments; any subset of what was not
// synced survives. What was synced is there, and nothing is there that was not
// sent.
func TestPowerLoss(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			keep := []memfs.Keep{memfs.KeepRandom, memfs.KeepRandom, memfs.KeepNone}[seed%3]
			mode := []storage.PublishMode{storage.Immediate, storage.Explicit}[seed%2]
			d := newDisk(seed)
			r := newRig(t, d, mode, nil)
			rng := rand.New(rand.NewPCG(seed, 7))
			for range 5 {
				for range 20 + rng.IntN(60) {
					require.NoError(t, r.send(queueN(rng.IntN(3)), rng.IntN(1200)))
					switch rng.IntN(12) {
					case 0:
						r.sync()
					case 1:
						require.NoError(t, r.s.flushDerived(rng.IntN(2) == 0))
					}
				}
				published := r.s.State().Published
				d.crash(keep)
				_ = r.s.Shutdown(background(t))
				r.start()
				st := r.s.State()
				require.LessOrEqual(t, st.Published, published)
				if mode == storage.Explicit {
					require.NoError(t, r.s.Publish(t.Context(), st.Tail))
					r.open()
				}
				r.forget(func(x *record) bool { return !x.synced })
				r.verify()
			}
		})
	}
}
