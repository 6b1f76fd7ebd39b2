package commitlog

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
)

func TestRecordTimes(t *testing.T) {
	for _, c := range []struct {
		times []int64
		want  int64
	}{
		{nil, 0},
		{[]int64{5}, 5},
		{[]int64{5, 6, 6, 9}, 9},
		{[]int64{5, 1 << 60}, 1 << 60},    // nothing refutes it yet
		{[]int64{5, 1 << 60, 6}, 1 << 60}, // one record alone may be the wrong one
		{[]int64{5, 1 << 60, 6, 7}, 7},    // two are not
		{[]int64{1 << 60, 6, 7, 8, 9}, 9}, // the first of all
		{[]int64{5, 6, 1 << 60, 1 << 61, 7}, 1 << 61},
		{[]int64{5, 6, 7, 3}, 7}, // what a cut left behind
		{[]int64{5, 6, 7, 3, 4}, 6},
		{[]int64{5, 6, 7, -1 << 60, 8}, 8},
	} {
		var r recordTimes
		for _, ms := range c.times {
			r.add(ms)
		}
		require.Equal(t, c.want, r.latest(), "%v", c.times)
	}
}

// TestWrongStoreTime: a record whose store time was damaged, which no CRC tells, does
// not make everything behind the next damage the end of the log.
func TestWrongStoreTime(t *testing.T) {
	const storeTimestamp = 56 // in a record
	for _, wrong := range []int{3, 39} {
		d := newDisk(1)
		r := newRig(t, d, storage.Immediate, nil)
		for i := range 200 {
			require.NoError(t, r.send(queueN(i%3), 400))
		}
		tail := r.s.State().Tail
		d.crash(memfs.KeepAll)
		_ = r.s.Shutdown(background(t))
		r.edit(r.sent[wrong].pos+storeTimestamp, flip)
		r.edit(r.sent[60].pos+100, flip)
		e := examination(d, rigDir)
		before, err := Examine(t.Context(), e)
		require.NoError(t, err)
		require.Equal(t, tail, before.Tail, findings(before))
		require.Contains(t, findings(before), "damaged in the middle of the log")
		r.start()
		require.Equal(t, tail, r.s.State().Tail)
		r.sent = append(r.sent[:60:60], r.sent[61:]...)
		last := r.s.State().LastStoreTime
		require.Less(t, last, r.clock.Now().UnixMilli(), "what comes next would have the wrong time, too")
	}
}
