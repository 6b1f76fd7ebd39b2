package commitlog

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

const (
	besideSegment = 1 << 30
	besideFlush   = 500 * time.Millisecond // flushIntervalCommitLog
)

// BenchmarkBeside appends and, in turns, writes the same bytes to a reserved
// file with nothing but a system call, so that both meet the same machine. An op
// is a turn of both. cache: into memory; what was written is thrown away before
// the system would make writers wait. sustained: onto the disk; both are synced
// every half second and at the end of a turn.
//
// cpu-ns/record is what the writer's thread used, where the system tells; other
// load on the machine does not count in it.
func BenchmarkBeside(b *testing.B) {
	for _, size := range []int{128, 1024} {
		for _, batch := range []int{1, 16, 64, 1024} {
			b.Run(fmt.Sprintf("cache/%dB/batch=%d", size, batch), func(b *testing.B) {
				benchBeside(b, size, batch, 64<<20, false)
			})
		}
	}
	for _, size := range []int{128, 1024} {
		b.Run(fmt.Sprintf("sustained/%dB/batch=1024", size), func(b *testing.B) {
			benchBeside(b, size, 1024, besideSegment-4<<20, true)
		})
	}
}

// spent is what one side used.
type spent struct{ wall, cpu time.Duration }

func (s *spent) measure(do func()) {
	t, cpu := time.Now(), threadCPU()
	do()
	s.wall += time.Since(t)
	s.cpu += threadCPU() - cpu
}

func benchBeside(b *testing.B, size, batch int, turn int64, sustained bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s, err := NewFactory().Build(b.Context(), storage.Params{
		Settings: plugin.Settings{Name: "commitlog", Dir: b.TempDir()}.WithDefaults(),
		Segment:  besideSegment, Index: message.IndexRules{DelayLevels: message.DefaultDelayLevels()},
	}, nil)
	require.NoError(b, err)
	require.NoError(b, s.Start(b.Context()))
	log := s.Capabilities().RawLog
	b.Cleanup(func() {
		require.NoError(b, log.Reset(background(b), 0, nil)) // it need not go to the disk
		require.NoError(b, s.Shutdown(background(b)))
	})
	var p storage.Pending
	w := storagetest.NewWriter(message.IndexRules{})
	for i := range batch {
		w.Add(&p, storagetest.Message{Queue: message.Queue{Topic: "BenchmarkTest", ID: int32(i % 8)}, Tags: "TagA", UniqueKey: fmt.Sprintf("%032X", i), Body: make([]byte, size)})
	}
	units, keys := slices.Clone(p.Units), slices.Clone(p.Keys)
	name := filepath.Join(b.TempDir(), "raw")
	var ours, theirs spent
	records := int64(0)
	for b.Loop() {
		// A new log and a new file for each 512 MiB, or each turn.
		seq := storagetest.OpenSequencer(b, s, plugin.SystemClock{}, 1)
		if end := int64(seq.Tail()) + turn; sustained || end > 512<<20 {
			require.NoError(b, log.Reset(b.Context(), 0, nil))
			seq = storagetest.OpenSequencer(b, s, plugin.SystemClock{}, 1)
		}
		from := int64(seq.Tail())
		end := from + turn
		ours.measure(func() {
			stop := flushing(b, sustained, func() error { return s.Sync(b.Context(), s.State().Tail) })
			for int64(seq.Tail()) < end {
				require.NoError(b, seq.Assign(&p, 0))
				require.NoError(b, s.Append(b.Context(), &p.Batches[0]))
				copy(p.Units, units)
				copy(p.Keys, keys)
				records += int64(batch)
			}
			stop()
		})
		if from == 0 {
			_ = os.Remove(name)
			f, err := vfs.OS{}.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
			require.NoError(b, err)
			require.NoError(b, f.Reserve(0, besideSegment))
			require.NoError(b, f.Sync())
			require.NoError(b, f.Close())
		}
		f, err := vfs.OS{}.OpenFile(name, os.O_RDWR, 0)
		require.NoError(b, err)
		theirs.measure(func() {
			stop := flushing(b, sustained, f.SyncData)
			for off := from; off < end; off += int64(len(p.Buf)) {
				_, err := f.WriteAt(p.Buf, off)
				require.NoError(b, err)
			}
			stop()
		})
		require.NoError(b, f.Close())
	}
	perSecond := func(s spent) float64 { return float64(records) / s.wall.Seconds() }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(perSecond(ours), "records/s")
	b.ReportMetric(perSecond(theirs), "raw-records/s")
	b.ReportMetric(perSecond(ours)/perSecond(theirs), "of-raw")
	if sustained {
		b.ReportMetric(perSecond(ours)*float64(len(p.Buf)/batch)/1e6, "MB/s")
		b.ReportMetric(perSecond(theirs)*float64(len(p.Buf)/batch)/1e6, "raw-MB/s")
	} else if ours.cpu > 0 {
		b.ReportMetric(float64(ours.cpu)/float64(records), "cpu-ns/record")
		b.ReportMetric(float64(theirs.cpu)/float64(records), "raw-cpu-ns/record")
	}
}

// flushing syncs every half second until the returned function is called, which
// syncs once more.
func flushing(b *testing.B, on bool, sync func() error) (stop func()) {
	if !on {
		return func() {}
	}
	return every(besideFlush, func() { require.NoError(b, sync()) })
}

// every calls do at intervals, and once more in the function that ends it.
func every(d time.Duration, do func()) (stop func()) {
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(d)
		defer t.Stop()
		for {
			select {
			case <-quit:
				return
			case <-t.C:
				do()
			}
		}
	})
	return func() {
		close(quit)
		wg.Wait()
		do()
	}
}
