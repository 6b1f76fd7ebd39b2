package commitlog

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs/vfstest"
)

// TestReadAhead gives what a logReader gives, wherever the reader goes.
func TestReadAhead(t *testing.T) {
	const segment = 4 << 20 // several windows, and records that are larger than one
	f := vfstest.NewFaults(newDisk(1))
	r := newRig(t, f, storage.Immediate, nil)
	r.stop()
	r.fs, r.params.Segment, r.dir = f, segment, "/data/other"
	r.params.Dir = r.dir
	r.start()
	for i := range 40 {
		body := i * 7000
		if i%20 == 7 {
			body = readWindow + i
		}
		require.NoError(t, r.send(queueN(i%3), body))
	}
	list := *r.s.list.Load()
	require.Greater(t, len(list), 1)
	hurt := r.sent[21]
	seg := list.at(hurt.pos)
	require.NoError(t, flip(seg.file, int64(hurt.pos)-seg.base+100))
	a, plain := newAheadReader(list, true), newLogReader(list)
	defer a.close()
	defer plain.close()
	var got, want message.View
	same := func(pos message.Position) {
		t.Helper()
		err := plain.good(pos, &want, true)
		require.Equal(t, err, a.good(pos, &got), "at %d", pos)
		if err == nil {
			require.Equal(t, want, got)
		}
	}
	edge := message.Position(0)
	for round := range 3 {
		for i := range r.sent {
			x := &r.sent[i]
			if round == 1 { // back and forth
				x = &r.sent[(i*37)%len(r.sent)]
			}
			if base := x.pos / segment * segment; base != edge && round == 0 {
				same(r.sent[i-1].end()) // the blank
				edge = base
			}
			same(x.pos)
			if round == 2 && i%8 == 0 {
				same(x.pos + 1)
				same(x.pos)
			}
		}
	}
	same(r.s.State().Tail)
	require.ErrorIs(t, a.good(hurt.pos, &got), message.ErrCRC)

	broken := errors.New("the disk is broken")
	f.SetHook(func(c vfstest.Call) error {
		if c.Op == vfstest.OpRead {
			return broken
		}
		return nil
	})
	require.ErrorIs(t, a.good(r.sent[30].pos, &got), broken)
	f.SetHook(nil)
}
