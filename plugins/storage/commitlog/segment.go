package commitlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

// segment is one file of the log. It is opened and mapped at first use.
type segment struct {
	fs         vfs.FS
	base, size int64
	path       string
	// writable asks for a mapping that can be written; readOnly for none, and a
	// file that is not changed.
	writable, readOnly bool

	mu     sync.Mutex // opening
	opened atomic.Bool
	file   vfs.File
	m      vfs.Mapping
	mem    []byte // nil where files cannot be mapped

	// refs is 1 for the list of segments and 1 for each chunk that holds it.
	refs     atomic.Int32
	retiring atomic.Bool   // no new holders: about to be cut or removed
	drained  chan struct{} // told when a holder of a retiring segment leaves

	// end is the offset behind the last record where the segment is sealed and
	// that is known: the place of the blank. -1 otherwise.
	end                 atomic.Int64
	walked              atomic.Int64 // a record edge; no blank lies before it
	firstTime, lastTime atomic.Int64 // store times, 0 when not known
	populated           atomic.Int64 // bytes ready for mapped writes
	// Of reads in order: where they began, the end of the last one, how many bytes
	// they were, and up to where the system was told to read. See readAhead.
	runFrom, runEnd, runBytes, ahead atomic.Int64
}

func newSegment(fsys vfs.FS, dir string, base, size int64) *segment {
	s := &segment{fs: fsys, base: base, size: size, path: filepath.Join(dir, fileName(base)), drained: make(chan struct{}, 1)}
	s.refs.Store(1)
	s.end.Store(-1)
	return s
}

// fileName is the name of the file that begins at base.
func fileName(base int64) string { return fmt.Sprintf("%020d", base) }

// parseFileName is the reverse of fileName.
func parseFileName(name string) (int64, bool) {
	if len(name) != 20 {
		return 0, false
	}
	n, err := strconv.ParseUint(name, 10, 63)
	return int64(n), err == nil
}

// open opens and maps the file; it is cheap when that is done.
func (s *segment) open() error {
	if s.opened.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened.Load() {
		return nil
	}
	if s.readOnly {
		f, err := s.fs.OpenFile(s.path, openRead, 0)
		if err == nil {
			s.file = f
			s.opened.Store(true)
		}
		return err
	}
	f, err := s.fs.OpenFile(s.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	s.adopt(f)
	return nil
}

// adopt takes an open file. A file that cannot be mapped is read and written by
// position.
func (s *segment) adopt(f vfs.File) {
	s.file = f
	if m, err := f.Map(0, s.size, s.writable); err == nil {
		s.m, s.mem = m, m.Bytes()
	}
	s.opened.Store(true)
}

// acquire takes a reference; false when the segment is going away.
func (s *segment) acquire() bool {
	for {
		n := s.refs.Load()
		if n <= 0 || s.retiring.Load() {
			return false
		}
		if s.refs.CompareAndSwap(n, n+1) {
			if s.retiring.Load() { // lost the race against retire
				s.release()
				return false
			}
			return true
		}
	}
}

func (s *segment) release() {
	if n := s.refs.Add(-1); n == 0 {
		s.close()
	} else if s.retiring.Load() {
		select {
		case s.drained <- struct{}{}:
		default:
		}
	}
}

// leases counts the chunks that hold the segment.
func (s *segment) leases() int32 { return max(s.refs.Load()-1, 0) }

func (s *segment) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.opened.Load() {
		return
	}
	if s.m != nil {
		_ = s.m.Close() // nothing can be done, and nothing is lost: bytes are in the page cache
	}
	_ = s.file.Close()
	s.m, s.mem, s.file = nil, nil, nil
	if s.readOnly {
		s.opened.Store(false)
	}
}

// readAt fills p from offset off; the file is at its full size, or it is only
// looked at: then what it lacks reads as zeros.
func (s *segment) readAt(p []byte, off int64) error {
	if err := s.open(); err != nil {
		return err
	}
	n, err := s.file.ReadAt(p, off)
	if s.readOnly && errors.Is(err, io.EOF) {
		clear(p[n:])
		return nil
	}
	return err
}

const (
	// aheadBytes is how far the system reads ahead of reads in order, once they
	// have been that for a while; below aheadFrom it is not told at all.
	aheadBytes, aheadFrom = 4 << 20, 64 << 10
	// aheadNear is how far a read may be from the last one and still be in order:
	// several read a log side by side.
	aheadNear = 1 << 20
	// aheadShare is which part of the log they must read at least (one in so many
	// bytes); for the records of a rare queue the rest would be read for nothing.
	aheadShare = 16
)

// readAhead is told of a read below what is certainly in memory. Where such reads
// go on in order, it has the system read what comes next, so that a backlog comes
// at the speed of the disk: what the kernel reads ahead by itself is little, and
// it takes readers that alternate for reads at random.
func (s *segment) readAhead(off, n int64) {
	end := s.runEnd.Swap(off + n)
	if s.m == nil {
		return
	}
	if off > end+aheadNear || off < end-aheadNear {
		s.runFrom.Store(off)
		s.runBytes.Store(n)
		return
	}
	run, bytes := off-s.runFrom.Load(), s.runBytes.Add(n)
	if run < 0 {
		s.runFrom.Store(off)
	}
	if run < aheadFrom || bytes*aheadShare < run {
		return
	}
	window := min(4*run, aheadBytes)
	old := s.ahead.Load()
	have := old
	if have < off || have > off+2*aheadBytes { // of another run
		have = off
	}
	to := min(off+window, s.size)
	if to-have < min(window/2, s.size-off) || !s.ahead.CompareAndSwap(old, to) {
		return
	}
	_ = s.m.Advise(have, to-have, vfs.AdviceWillNeed) // without it reads are slower, no more
}

// segments is an immutable list in log order, without gaps.
type segments []*segment

// at finds the segment that holds pos.
func (l segments) at(pos message.Position) *segment {
	if len(l) == 0 {
		return nil
	}
	i := (int64(pos) - l[0].base) / l[0].size
	if int64(pos) < l[0].base || i >= int64(len(l)) {
		return nil
	}
	return l[i]
}

func (l segments) last() *segment {
	if len(l) == 0 {
		return nil
	}
	return l[len(l)-1]
}

// createSegment makes a file at its full size with its space reserved, and
// makes it durable. Nothing stays behind when it fails.
func createSegment(fsys vfs.FS, dir string, base, size int64, mapped, warm bool) (_ *segment, err error) {
	s := newSegment(fsys, dir, base, size)
	f, err := fsys.OpenFile(s.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err == nil {
			return
		}
		if s.opened.Load() {
			s.close()
		} else {
			_ = f.Close()
		}
		if rmErr := fsys.Remove(s.path); rmErr != nil && !errors.Is(rmErr, fs.ErrNotExist) {
			err = errors.Join(err, rmErr)
		}
	}()
	err = f.Reserve(0, size)
	if errors.Is(err, vfs.ErrReserveUnsupported) {
		mapped, err = false, nil // a mapped write could meet a full disk
	}
	if err != nil {
		return nil, err
	}
	if err = f.Sync(); err != nil {
		return nil, err
	}
	if err = fsys.SyncDir(dir); err != nil {
		return nil, err
	}
	s.writable = mapped
	s.adopt(f)
	if mapped && warm && s.m != nil {
		if err := s.m.Advise(0, size, vfs.AdvicePopulateWrite); err == nil {
			s.populated.Store(size)
		}
	}
	return s, nil
}

// preparer makes the next segment in the background.
type preparer struct {
	create func(base int64) (*segment, error)

	mu      sync.Mutex
	base    int64 // asked for
	running chan struct{}
	seg     *segment
	err     error
}

// ask starts making the segment at base unless it is there or on its way.
func (p *preparer) ask(base int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.start(base)
}

// start is ask with the lock held; a failed attempt is made again.
func (p *preparer) start(base int64) {
	if p.running != nil || p.seg != nil {
		return
	}
	done := make(chan struct{})
	p.running, p.base, p.err = done, base, nil
	go func() {
		seg, err := p.create(base)
		p.mu.Lock()
		p.seg, p.err, p.running = seg, err, nil
		p.mu.Unlock()
		close(done)
	}()
}

// take waits for the segment at base. A failure is forgotten, so that the next
// call tries again.
func (p *preparer) take(base int64) (*segment, error) {
	p.mu.Lock()
	for {
		if p.running == nil && p.seg != nil && p.base != base {
			p.dropLocked() // asked for before a cut or a reset
		}
		p.start(base)
		done := p.running
		if done != nil {
			p.mu.Unlock()
			<-done
			p.mu.Lock()
		}
		if p.running != nil || p.base != base {
			continue
		}
		seg, err := p.seg, p.err
		p.seg, p.err = nil, nil
		if seg == nil && err == nil {
			continue
		}
		p.mu.Unlock()
		return seg, err
	}
}

// drop waits for a segment under way and removes it.
func (p *preparer) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.running != nil {
		done := p.running
		p.mu.Unlock()
		<-done
		p.mu.Lock()
	}
	p.dropLocked()
}

func (p *preparer) dropLocked() {
	if p.seg != nil {
		path, fsys := p.seg.path, p.seg.fs
		p.seg.release()
		_ = fsys.Remove(path) // an empty file that stays is removed by the next start
	}
	p.seg, p.err = nil, nil
}
