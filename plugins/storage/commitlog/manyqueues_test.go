package commitlog

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/vfstest"
)

// manyQueues is the number of queues of TestVeryManyQueues.
func manyQueues(t *testing.T) int {
	n := 1000
	if v := os.Getenv("HARDPOINT_TEST_QUEUES"); v != "" {
		var err error
		n, err = strconv.Atoi(v)
		require.NoError(t, err)
	}
	return n
}

// held counts what is open and mapped of the ConsumeQueues.
type held struct {
	mu                  sync.Mutex
	opens               int // since reset
	files, maps         int // now
	mostFiles, mostMaps int
}

func (h *held) hook(c vfstest.Call) error {
	if !strings.Contains(filepath.ToSlash(c.Name), "/consumequeue/") {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch c.Op {
	case vfstest.OpOpen:
		h.opens++
		h.files++
	case vfstest.OpClose:
		h.files--
	case vfstest.OpMap:
		h.maps++
	case vfstest.OpUnmap:
		h.maps--
	}
	h.mostFiles, h.mostMaps = max(h.mostFiles, h.files), max(h.mostMaps, h.maps)
	return nil
}

func (h *held) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.opens = 0
}

// crowd is a store with very many queues in a directory of the system.
type crowd struct {
	t      *testing.T
	fs     *vfstest.Faults
	dir    string
	n      int
	change func(*Config)
	s      *Store
	w      *storagetest.Writer
	seq    *storage.Sequencer
	term   uint64
	rounds int
	held   held
}

func (c *crowd) queue(i int) message.Queue {
	return message.Queue{Topic: fmt.Sprintf("topic-%05d", i/8), ID: int32(i % 8)}
}

// start returns by how many bytes memory has grown.
func (c *crowd) start(what string) int {
	c.t.Helper()
	rules := message.IndexRules{DelayLevels: message.DefaultDelayLevels()}
	c.w, c.s, c.seq = storagetest.NewWriter(rules), nil, nil
	c.held.reset()
	before := heap()
	began := time.Now()
	c.s = build(c.t, c.fs, storage.Params{Settings: plugin.Settings{Dir: c.dir}, Segment: 64 << 20, Index: rules}, c.change)
	require.NoError(c.t, c.s.Start(c.t.Context()))
	took := time.Since(began)
	size := heap() - before
	c.t.Cleanup(func() { _ = c.s.Shutdown(background(c.t)) })
	c.t.Logf("start %s: %v, %d opens, %d bytes a queue", what, took.Round(time.Millisecond), c.held.opens, size/c.n)
	c.term++
	c.seq = storagetest.OpenSequencer(c.t, c.s, plugin.SystemClock{}, c.term)
	return size
}

func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func (c *crowd) timed(what string, do func()) {
	c.t.Helper()
	began := time.Now()
	do()
	c.t.Logf("%s: %v", what, time.Since(began).Round(time.Millisecond))
}

// send sends one message to each queue.
func (c *crowd) send() {
	c.t.Helper()
	c.timed("send", func() {
		for i := 0; i < c.n; i += 1000 {
			var groups [][]storagetest.Message
			for k := i; k < min(i+1000, c.n); k++ {
				groups = append(groups, []storagetest.Message{{Queue: c.queue(k), Body: fmt.Appendf(nil, "%d/%d", k, c.rounds)}})
			}
			p := c.w.Pending(groups...)
			require.NoError(c.t, c.seq.Assign(p, 0))
			for j := range p.Batches {
				b := p.Batches[j]
				require.NoError(c.t, c.s.Append(c.t.Context(), &b))
			}
		}
		c.rounds++
	})
}

// read reads everything of each queue.
func (c *crowd) read() {
	c.t.Helper()
	c.timed("read", func() {
		var chunk storage.Chunk
		var v message.View
		for i := range c.n {
			require.NoError(c.t, c.s.Read(c.t.Context(), storage.ReadRequest{Queue: c.queue(i), Hot: storage.Limit{Count: 32}}, &chunk))
			require.Equal(c.t, storage.Found, chunk.Status, "queue %s", c.queue(i))
			require.Equal(c.t, []int64{0, int64(c.rounds), int64(c.rounds)}, []int64{chunk.Min, chunk.Max, chunk.Next}, "queue %s", c.queue(i))
			k := 0
			for _, frag := range chunk.Frags {
				for ; len(frag) > 0; k++ {
					require.NoError(c.t, message.Parse(frag[:message.Size(frag)], &v))
					require.Equal(c.t, fmt.Sprintf("%d/%d", i, k), string(v.Body))
					frag = frag[v.Size:]
				}
			}
			require.Equal(c.t, c.rounds, k)
			chunk.Release()
		}
	})
}

func (c *crowd) stop() {
	c.t.Helper()
	c.timed("stop", func() { require.NoError(c.t, c.s.Shutdown(background(c.t))) })
}

// TestVeryManyQueues has many more queues than files may be open or mapped.
// HARDPOINT_TEST_QUEUES=80000 is the long form.
func TestVeryManyQueues(t *testing.T) {
	const most = 64
	for name, without := range map[string]*vfstest.Rule{
		"mapped":      nil,
		"not mapped":  {Op: vfstest.OpMap, Path: "*/consumequeue/*/*/*", Err: vfs.ErrMapUnsupported},
		"by position": {Op: vfstest.OpReserve, Path: "*/consumequeue/*/*/*", Err: vfs.ErrReserveUnsupported, After: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := &crowd{t: t, fs: vfstest.NewFaults(vfs.OS{}), dir: filepath.Join(t.TempDir(), "store"), n: manyQueues(t)}
			if without != nil {
				c.n = min(c.n, 4*heldFiles)
			}
			c.change = func(cfg *Config) {
				cfg.MaxMappedFiles = most
				if without != nil && c.n > 2*heldFiles { // descriptors are fewer in any case
					cfg.MaxMappedFiles = 60_000
				}
			}
			c.fs.SetHook(c.held.hook)
			if without != nil {
				c.fs.Add(*without)
			}
			c.start("empty")
			c.send()
			c.send()
			c.read()
			c.stop()
			size := c.start("after a clean end")
			require.Less(t, size, 512*c.n+8<<20)
			require.LessOrEqual(t, c.held.opens, 2*c.n, "once to find its end, once to compare what is new with the log")
			c.read()
			c.send()
			c.read()
			c.stop()
			require.NoError(t, os.WriteFile(c.s.path.abort, nil, 0o600))
			c.start("after a kill")
			require.LessOrEqual(t, c.held.opens, 2*c.n)
			c.read()
			c.send()
			c.stop()
			if without == nil {
				require.LessOrEqual(t, c.held.mostMaps, most)
				require.LessOrEqual(t, c.held.mostFiles, workers+2)
				require.Zero(t, c.held.maps)
			} else {
				require.LessOrEqual(t, c.held.mostFiles, heldFiles+workers+2)
			}
			require.Zero(t, c.held.files)
		})
	}
}
