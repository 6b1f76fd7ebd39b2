package indexfile

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
	"github.com/hardpointmq/hardpoint/core/vfs/vfstest"
)

var sizes = Sizes{Slots: 7, Entries: 50}

func create(t *testing.T, fsys vfs.FS, prev *Header) *File {
	t.Helper()
	x, err := Create(fsys, "/index", sizes, prev)
	require.NoError(t, err)
	t.Cleanup(func() { _ = x.Close() })
	return x
}

func find(t *testing.T, x *File, hash int32, from, to int64) []message.Position {
	t.Helper()
	var at []message.Position
	require.NoError(t, x.Find(hash, from, to, func(p message.Position) bool { at = append(at, p); return true }))
	return at
}

// fill puts entries of one record each: hash i%5, position i*100, a second apart.
func fill(t *testing.T, x *File, n int) {
	t.Helper()
	for i := range n {
		require.NoError(t, x.Reserve(1))
		require.NoError(t, x.Put(message.Key{Hash: int32(i % 5), At: message.Position(i * 100), StoreTime: int64(10_000 + i*1000)}))
	}
	require.NoError(t, x.PutHeader())
}

// check compares a file with entries 0 … n−1 of fill.
func check(t *testing.T, x *File, n int) {
	t.Helper()
	require.EqualValues(t, n+1, x.H.Count)
	for h := range int32(5) {
		var want []message.Position
		for i := n - 1; i >= 0; i-- {
			if int32(i%5) == h {
				want = append(want, message.Position(i*100))
			}
		}
		require.Equal(t, want, find(t, x, h, 0, 1<<60), "hash %d", h)
	}
}

// TestLayout checks the bytes against RocketMQ's layout.
func TestLayout(t *testing.T) {
	fsys := memfs.New(1)
	x := create(t, fsys, nil)
	require.NoError(t, x.Put(message.Key{Hash: 9, At: 1000, StoreTime: 5000}))
	require.NoError(t, x.Put(message.Key{Hash: 2, At: 2000, StoreTime: 8500}))
	require.NoError(t, x.PutHeader())
	b, err := vfs.ReadFile(fsys, "/index")
	require.NoError(t, err)
	require.Len(t, b, 40+7*4+50*20)
	be := binary.BigEndian
	require.Equal(t, []uint64{5000, 8500, 1000, 2000}, []uint64{be.Uint64(b), be.Uint64(b[8:]), be.Uint64(b[16:]), be.Uint64(b[24:])})
	require.Equal(t, []uint32{1, 3}, []uint32{be.Uint32(b[32:]), be.Uint32(b[36:])})
	require.EqualValues(t, 2, be.Uint32(b[40+2*4:]), "both hashes have slot 2, its newest entry is 2")
	e := b[40+7*4+2*20:]
	require.EqualValues(t, 2, be.Uint32(e))
	require.EqualValues(t, 2000, be.Uint64(e[4:]))
	require.EqualValues(t, 3, be.Uint32(e[12:]), "seconds after the first")
	require.EqualValues(t, 1, be.Uint32(e[16:]), "the entry before it in the slot")
	// The next file takes the end over.
	next, err := Create(fsys, "/next", sizes, &x.H)
	require.NoError(t, err)
	require.Equal(t, Header{BeginTime: 8500, EndTime: 8500, BeginAt: 2000, EndAt: 2000, Count: 1}, next.H)
	require.NoError(t, next.Close())
}

func TestFindCutRebuild(t *testing.T) {
	for _, mapped := range []bool{true, false} {
		t.Run(fmt.Sprint(mapped), func(t *testing.T) {
			f := vfstest.NewFaults(memfs.New(1))
			if !mapped {
				f.Add(vfstest.Rule{Op: vfstest.OpMap, Err: vfs.ErrMapUnsupported})
			}
			x := create(t, f, nil)
			fill(t, x, 49)
			require.True(t, x.Full())
			check(t, x, 49)
			require.Equal(t, []message.Position{1500, 1000}, find(t, x, 0, 20_000, 25_000))
			ok, err := x.Cut(3000)
			require.NoError(t, err)
			require.True(t, ok)
			check(t, x, 30)
			require.NoError(t, x.Flush())
			require.NoError(t, x.Close())
			y, err := Open(f, "/index", sizes)
			require.NoError(t, err)
			check(t, y, 30)
			// Slots and header of another time.
			require.NoError(t, y.setSlot(3, 44))
			y.H.Count = 12
			ok, err = y.Rebuild(2500)
			require.NoError(t, err)
			require.True(t, ok)
			check(t, y, 25)
			ok, err = y.Cut(0)
			require.NoError(t, err)
			require.False(t, ok)
			require.NoError(t, y.Close())
		})
	}
}

func TestOpenDamaged(t *testing.T) {
	fsys := memfs.New(1)
	x := create(t, fsys, nil)
	fill(t, x, 10)
	x.H.Count = 99
	require.NoError(t, x.PutHeader())
	y, err := Open(fsys, "/index", sizes)
	require.ErrorIs(t, err, ErrHeader)
	ok, err := y.Rebuild(1 << 60)
	require.NoError(t, err)
	require.True(t, ok)
	check(t, y, 10)
	require.NoError(t, y.Close())
}

func FuzzHeader(f *testing.F) {
	f.Add([]byte{})
	var b [headerSize]byte
	(&Header{BeginTime: 1, EndTime: 2, BeginAt: 3, EndAt: 4, Slots: 1, Count: 2}).put(b[:])
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHeader(b, sizes)
		if err != nil {
			require.ErrorIs(t, err, ErrHeader)
			return
		}
		require.True(t, h.Count >= 1 && h.Count <= sizes.Entries && h.Slots <= sizes.Slots)
	})
}

// A file that was made ahead has no entry, not one of the log's first record.
func TestRebuildEmpty(t *testing.T) {
	x := create(t, memfs.New(1), nil)
	defer x.Close()
	ok, err := x.Rebuild(1000)
	require.NoError(t, err)
	require.False(t, ok)
	require.Equal(t, int32(1), x.H.Count)
}
