package commitlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
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

const besideSegment = 1 << 30

// BenchmarkBeside appends and, in turns, writes the same bytes to a reserved
// file with nothing but a system call, so that both meet the same machine. An op
// is a turn of both. It writes into memory: what was written is thrown away before
// the system would make writers wait. BenchmarkSustained goes on to the disk.
//
// cpu-ns/record is what the writer's thread used, where the system tells; other
// load on the machine does not count in it.
func BenchmarkBeside(b *testing.B) {
	for _, size := range []int{128, 1024} {
		for _, batch := range []int{1, 16, 64, 1024} {
			b.Run(fmt.Sprintf("cache/%dB/batch=%d", size, batch), func(b *testing.B) { benchBeside(b, size, batch) })
		}
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

// beside is a store with a batch that is appended again and again.
type beside struct {
	b     *testing.B
	s     *Store
	log   storage.RawLog
	seq   *storage.Sequencer
	p     storage.Pending
	units []message.Unit
	keys  []message.Key
}

func newBeside(b *testing.B, size, batch int) *beside {
	s, err := New(vfs.OS{}, storage.Params{
		Settings: plugin.Settings{Name: "commitlog", Dir: b.TempDir()}.WithDefaults(),
		Segment:  besideSegment, Index: message.IndexRules{DelayLevels: message.DefaultDelayLevels()},
	}, NewDefaultConfig())
	require.NoError(b, err)
	require.NoError(b, s.Start(b.Context()))
	x := &beside{b: b, s: s, log: s.Capabilities().RawLog}
	b.Cleanup(func() {
		require.NoError(b, x.log.Reset(background(b), 0, nil)) // it need not go to the disk
		require.NoError(b, x.s.Shutdown(background(b)))
	})
	// No zeros: there are disks that store them for nothing.
	noise := rand.NewChaCha8([32]byte{1})
	w := storagetest.NewWriter(message.IndexRules{})
	for i := range batch {
		body := make([]byte, size)
		_, _ = noise.Read(body) // never fails
		w.Add(&x.p, storagetest.Message{Queue: message.Queue{Topic: "BenchmarkTest", ID: int32(i % 8)}, Tags: "TagA", UniqueKey: fmt.Sprintf("%032X", i), Body: body})
	}
	x.units, x.keys = slices.Clone(x.p.Units), slices.Clone(x.p.Keys)
	x.open()
	return x
}

// open begins at the end of the log.
func (x *beside) open() {
	x.seq = storagetest.OpenSequencer(x.b, x.s, plugin.SystemClock{}, 1)
}

// empty begins a new log.
func (x *beside) empty() {
	require.NoError(x.b, x.log.Reset(x.b.Context(), 0, nil))
	x.open()
}

// append is what is measured: require takes as long as 20 records.
func (x *beside) append() {
	err := x.seq.Assign(&x.p, 0)
	for i := range x.p.Batches { // two at the edge of a segment
		if err == nil {
			err = x.s.Append(x.b.Context(), &x.p.Batches[i])
		}
	}
	if err != nil {
		x.b.Fatal(err)
	}
	copy(x.p.Units, x.units)
	copy(x.p.Keys, x.keys)
}

func benchBeside(b *testing.B, size, batch int) {
	const turn = 64 << 20
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	x := newBeside(b, size, batch)
	name := filepath.Join(b.TempDir(), "raw")
	var ours, theirs spent
	records := int64(0)
	for b.Loop() {
		x.open()
		if int64(x.seq.Tail())+turn > 512<<20 { // a new log and a new file
			x.empty()
		}
		from := int64(x.seq.Tail())
		end := from + turn
		ours.measure(func() {
			for int64(x.seq.Tail()) < end {
				x.append()
				records += int64(batch)
			}
		})
		if from == 0 {
			_ = os.Remove(name)
			f := reserved(b, name)
			require.NoError(b, f.Sync())
			require.NoError(b, f.Close())
		}
		f, err := vfs.OS{}.OpenFile(name, os.O_RDWR, 0)
		require.NoError(b, err)
		theirs.measure(func() {
			for off := from; off < end; off += int64(len(x.p.Buf)) {
				if _, err := f.WriteAt(x.p.Buf, off); err != nil {
					b.Fatal(err)
				}
			}
		})
		require.NoError(b, f.Close())
	}
	perSecond := func(s spent) float64 { return float64(records) / s.wall.Seconds() }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(perSecond(ours), "records/s")
	b.ReportMetric(perSecond(theirs), "raw-records/s")
	b.ReportMetric(perSecond(ours)/perSecond(theirs), "of-raw")
	if ours.cpu > 0 {
		b.ReportMetric(float64(ours.cpu)/float64(records), "cpu-ns/record")
		b.ReportMetric(float64(theirs.cpu)/float64(records), "raw-cpu-ns/record")
	}
}

// reserved makes a file of the size of a segment.
func reserved(b *testing.B, name string) vfs.File {
	f, err := vfs.OS{}.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	require.NoError(b, err)
	require.NoError(b, f.Reserve(0, besideSegment))
	return f
}

// sustainedGiB is how much a turn of BenchmarkSustained writes: more than systems
// keep in memory before they make writers wait (Linux: a fifth of what is free).
func sustainedGiB(b *testing.B) int64 {
	n := int64(6)
	if v := os.Getenv("HARDPOINT_BENCH_GIB"); v != "" {
		var err error
		n, err = strconv.ParseInt(v, 10, 64)
		require.NoError(b, err)
		require.Positive(b, n)
	}
	return n
}

// BenchmarkSustained appends HARDPOINT_BENCH_GIB (6) and, in turns, writes as many
// of the same bytes to files of a segment's size with nothing but system calls.
// Both are synced every half second, as flushIntervalCommitLog has it, and the
// clock runs until everything is on the disk: of ours, the indexes too. An op is a
// turn of both, whose order changes; -benchtime 3x makes three.
func BenchmarkSustained(b *testing.B) {
	for _, size := range []int{128, 1024} {
		b.Run(fmt.Sprintf("%dB/batch=1024", size), func(b *testing.B) { benchSustained(b, size) })
	}
}

func benchSustained(b *testing.B, size int) {
	const flush = 500 * time.Millisecond
	x := newBeside(b, size, 1024)
	goal := sustainedGiB(b) << 30
	var ours, theirs spent
	ourBytes, theirBytes := int64(0), int64(0)
	log := func() {
		ours.measure(func() {
			stop := every(flush, func() { require.NoError(b, x.s.Sync(b.Context(), x.s.State().Tail)) })
			for int64(x.seq.Tail()) < goal {
				x.append()
			}
			stop()
			require.NoError(b, x.s.flushDerived(true))
		})
		require.Equal(b, x.s.State().Tail, x.s.State().Durable)
		ourBytes += int64(x.seq.Tail())
		x.empty()
	}
	raw := func() {
		dir := b.TempDir()
		theirs.measure(func() {
			for done := int64(0); done < goal; {
				f := reserved(b, filepath.Join(dir, fileName(done)))
				require.NoError(b, f.Sync())
				stop := every(flush, func() { require.NoError(b, f.SyncData()) })
				for off := int64(0); off+int64(len(x.p.Buf)) <= besideSegment && done < goal; off += int64(len(x.p.Buf)) {
					_, err := f.WriteAt(x.p.Buf, off)
					require.NoError(b, err)
					done += int64(len(x.p.Buf))
					theirBytes += int64(len(x.p.Buf))
				}
				stop()
				require.NoError(b, f.Close())
			}
		})
		require.NoError(b, os.RemoveAll(dir))
	}
	turns := [2]func(){log, raw}
	for b.Loop() {
		turns[0]()
		turns[1]()
		turns[0], turns[1] = turns[1], turns[0]
	}
	mb := func(n int64, s spent) float64 { return float64(n) / 1e6 / s.wall.Seconds() }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(mb(ourBytes, ours), "MB/s")
	b.ReportMetric(mb(theirBytes, theirs), "raw-MB/s")
	b.ReportMetric(mb(ourBytes, ours)/mb(theirBytes, theirs), "of-raw")
	b.ReportMetric(float64(ourBytes/int64(len(x.p.Buf))*1024)/ours.wall.Seconds(), "records/s")
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

// BenchmarkRestart fills a log of HARDPOINT_BENCH_GIB (6) at full speed, synced every
// half second as flushIntervalCommitLog has it, ends as kill -9 does, and starts again
// and again: an op is a start.
func BenchmarkRestart(b *testing.B) {
	x := newBeside(b, 1024, 64)
	goal := sustainedGiB(b) << 30
	stop := every(500*time.Millisecond, func() { _ = x.s.Sync(b.Context(), x.s.State().Tail) }) // the last one comes too late
	for int64(x.seq.Tail()) < goal {
		x.append()
	}
	kill := func() {
		_ = x.s.fail(errors.New("killed"))
		require.ErrorIs(b, x.s.Shutdown(background(b)), storage.ErrFailed)
	}
	for b.Loop() {
		b.StopTimer()
		kill()
		stop()
		stop = func() {}
		s, err := New(vfs.OS{}, x.s.p, x.s.cfg)
		require.NoError(b, err)
		x.s, x.log = s, s.Capabilities().RawLog
		b.StartTimer()
		require.NoError(b, s.Start(b.Context()))
	}
}
