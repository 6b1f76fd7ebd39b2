package commitlog

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
)

const fuzzSegment = 4096

// fuzzLog makes a small log of two segments; the content is what a store wrote.
func fuzzLog(f testing.TB) []byte { return fuzzLogOn(f, memfs.New(1)) }

func fuzzLogOn(f testing.TB, d vfs.FS) []byte {
	s := openOn(f, d, storage.Params{Settings: plugin.Settings{Dir: "/s"}, Segment: fuzzSegment}, nil)
	seq := storagetest.OpenSequencer(f, s, plugin.SystemClock{}, 1)
	w := storagetest.NewWriter(message.IndexRules{})
	for i := range 14 {
		p := w.Pending([]storagetest.Message{{Queue: queueN(i % 2), Keys: "k", Body: bytes.Repeat([]byte{byte('a' + i)}, 100+i*20)}})
		require.NoError(f, seq.Assign(p, 0))
		require.NoError(f, s.Append(f.Context(), &p.Batches[0]))
	}
	require.NoError(f, s.Shutdown(background(f)))
	var log []byte
	for _, base := range []int64{0, fuzzSegment} {
		b, err := vfs.ReadFile(d, s.path.log+"/"+fileName(base))
		require.NoError(f, err)
		log = append(log, b...)
	}
	return log
}

// FuzzRecovery opens a store over a log in which bytes were changed: it neither
// panics nor invents records, and takes new ones.
func FuzzRecovery(f *testing.F) {
	log := fuzzLog(f)
	f.Add(uint16(0), []byte{})
	f.Add(uint16(3), []byte{0xFF})
	f.Add(uint16(700), make([]byte, 900))
	f.Add(uint16(fuzzSegment), make([]byte, fuzzSegment))
	f.Add(uint16(2000), []byte{0xCB, 0xD4, 0x31, 0x94})
	f.Add(uint16(2*fuzzSegment-8), []byte{0, 0, 0, 8, 0xCB, 0xD4, 0x31, 0x94})
	f.Fuzz(func(t *testing.T, at uint16, change []byte) { checkMutated(t, log, at, change) })
}

func checkMutated(t *testing.T, log []byte, at uint16, change []byte) {
	b := bytes.Clone(log)
	if int(at) < len(b) {
		copy(b[at:], change)
	}
	d := memfs.New(1)
	require.NoError(t, vfs.EnsureDir(d, "/s/commitlog"))
	for i := range 2 {
		require.NoError(t, vfs.WriteFileAtomic(d, "/s/commitlog/"+fileName(int64(i*fuzzSegment)), b[i*fuzzSegment:(i+1)*fuzzSegment]))
	}
	s := openOn(t, d, storage.Params{Settings: plugin.Settings{Dir: "/s"}, Segment: fuzzSegment}, nil)
	st := s.State()
	require.Equal(t, st.Tail, st.Published)
	var a storage.OffsetAnswers
	require.NoError(t, s.Offsets(t.Context(), nil, &a))
	for _, e := range a.Answers {
		if e.Max-e.Min > 1000 { // an offset that the fuzzer made up
			continue
		}
		units, recs := readQueue(t, s, e.Queue)
		for i, u := range units {
			require.Equal(t, b[u.At:u.At+message.Position(u.Size)], recs[i])
			var v message.View
			require.NoError(t, message.Parse(recs[i], &v))
			require.NoError(t, v.CheckBody())
			require.Equal(t, u.At, v.Position)
		}
	}
	seq := storagetest.OpenSequencer(t, s, plugin.SystemClock{}, 1)
	p := storagetest.NewWriter(message.IndexRules{}).Pending([]storagetest.Message{{Queue: message.Queue{Topic: "fresh"}, Body: []byte("x")}})
	require.NoError(t, seq.Assign(p, 0))
	require.NoError(t, s.Append(t.Context(), &p.Batches[0]))
	require.NoError(t, s.Shutdown(background(t)))
}

func FuzzCheckpoint(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, checkpointSize))
	good := make([]byte, checkpointSize)
	binary.BigEndian.PutUint64(good[cpIndexAt:], 77)
	binary.BigEndian.PutUint64(good[cpIndexSum:], ^uint64(77))
	f.Add(good)
	f.Fuzz(func(t *testing.T, b []byte) {
		c := parseCheckpoint(b)
		require.GreaterOrEqual(t, c.confirm, int64(0))
		require.GreaterOrEqual(t, c.since(), int64(0))
		require.GreaterOrEqual(t, c.indexAt, int64(-1))
		require.EqualValues(t, -1, c.flushed("a log", "a mark"))
	})
}

func FuzzDamaged(f *testing.F) {
	f.Add([]byte(`{"damaged":[{"from":0,"to":91,"head":1,"reason":"x"}]}`))
	f.Add([]byte(`{"damaged":[{"from":5,"to":5}]}`))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, b []byte) {
		known, err := parseDamage(b)
		if err != nil {
			return
		}
		for _, x := range known.Damaged {
			require.GreaterOrEqual(t, int64(x.From), int64(0))
			require.Greater(t, x.To, x.From)
		}
	})
}
