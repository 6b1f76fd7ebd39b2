package vfstest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hardpointmq/hardpoint/core/vfs"
)

// Harness tells [Run] how to get the file system under test.
type Harness struct {
	// New returns a file system and an existing empty directory in it.
	New func(t *testing.T) (fsys vfs.FS, dir string)

	// LacksMap: Map answers [vfs.ErrMapUnsupported]; any other answer fails.
	LacksMap bool

	// LacksReserve: Reserve extends the file and answers [vfs.ErrReserveUnsupported].
	LacksReserve bool
}

// Run checks a file system against the contract of package vfs.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(*suite)
	}{
		{"OpenFlags", testOpenFlags},
		{"ReadWrite", testReadWrite},
		{"Truncate", testTruncate},
		{"Closed", testClosed},
		{"Names", testNames},
		{"Rename", testRename},
		{"Directories", testDirectories},
		{"RemoveOpen", testRemoveOpen},
		{"Reserve", testReserve},
		{"ZeroRange", testZeroRange},
		{"Map", testMap},
		{"MapRanges", testMapRanges},
		{"MapGrow", testMapGrow},
		{"Lock", testLock},
		{"Usage", testUsage},
		{"WriteFileAtomic", testWriteFileAtomic},
		{"Allocations", testAllocations},
	} {
		t.Run(test.name, func(t *testing.T) {
			fsys, dir := h.New(t)
			test.run(&suite{T: t, Harness: h, fs: fsys, dir: dir})
		})
	}
}

type suite struct {
	*testing.T
	Harness
	fs  vfs.FS
	dir string
}

func (s *suite) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

func (s *suite) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("unexpected error: %v", err)
	}
}

func (s *suite) is(err, target error) {
	s.Helper()
	if !errors.Is(err, target) {
		s.Fatalf("error is %v, want %v", err, target)
	}
}

func (s *suite) open(name string, flag int) vfs.File {
	s.Helper()
	f, err := s.fs.OpenFile(s.path(name), flag, 0o644)
	s.ok(err)
	s.Cleanup(func() { _ = f.Close() }) // most tests close earlier; this is for those that fail
	return f
}

func (s *suite) create(name string) vfs.File {
	s.Helper()
	return s.open(name, os.O_RDWR|os.O_CREATE)
}

func (s *suite) write(f vfs.File, data string, off int64) {
	s.Helper()
	n, err := f.WriteAt([]byte(data), off)
	s.ok(err)
	if n != len(data) {
		s.Fatalf("wrote %d of %d bytes without an error", n, len(data))
	}
}

func (s *suite) wantContent(f vfs.File, want string) {
	s.Helper()
	size, err := f.Size()
	s.ok(err)
	got := make([]byte, size)
	if size > 0 {
		_, err = f.ReadAt(got, 0)
		if !errors.Is(err, io.EOF) {
			s.ok(err)
		}
	}
	if string(got) != want {
		s.Fatalf("content is %.100q (%d bytes), want %.100q (%d bytes)", got, len(got), want, len(want))
	}
}

func (s *suite) wantList(dir string, want ...string) {
	s.Helper()
	got, err := s.fs.List(dir)
	s.ok(err)
	if !slices.Equal(got, want) {
		s.Fatalf("List(%s) is %q, want %q", dir, got, want)
	}
}

func testOpenFlags(s *suite) {
	_, err := s.fs.OpenFile(s.path("f"), os.O_RDWR, 0)
	s.is(err, fs.ErrNotExist)
	_, err = s.fs.OpenFile(s.path("missing", "f"), os.O_RDWR|os.O_CREATE, 0o644)
	s.is(err, fs.ErrNotExist)
	_, err = s.fs.OpenFile(s.path("f"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	s.is(err, fs.ErrInvalid)
	s.wantList(s.dir)

	f := s.create("f")
	s.write(f, "content", 0)
	if f.Name() != s.path("f") {
		s.Fatalf("Name is %q", f.Name())
	}
	s.ok(f.Close())
	_, err = s.fs.OpenFile(s.path("f"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	s.is(err, fs.ErrExist)

	f = s.open("f", os.O_RDONLY)
	s.wantContent(f, "content")
	if _, err := f.WriteAt([]byte("x"), 0); err == nil {
		s.Fatal("a file opened for reading was written")
	}
	if err := f.Truncate(0); err == nil {
		s.Fatal("a file opened for reading was truncated")
	}
	s.ok(f.Close())

	f = s.open("f", os.O_WRONLY)
	if _, err := f.ReadAt(make([]byte, 1), 0); err == nil {
		s.Fatal("a file opened for writing was read")
	}
	s.ok(f.Close())

	f = s.open("f", os.O_RDWR|os.O_TRUNC)
	s.wantContent(f, "")
	s.ok(f.Close())

	s.ok(s.fs.MkdirAll(s.path("d")))
	if _, err := s.fs.OpenFile(s.path("d"), os.O_RDONLY, 0); err == nil {
		s.Fatal("a directory was opened as a file")
	}
}

func testReadWrite(s *suite) {
	f := s.create("f")
	s.write(f, "world", 5)
	s.write(f, "hello", 0)
	s.wantContent(f, "helloworld")
	s.write(f, "", 100)
	s.wantContent(f, "helloworld")

	p := make([]byte, 8)
	n, err := f.ReadAt(p, 5)
	s.is(err, io.EOF)
	if n != 5 || string(p[:n]) != "world" {
		s.Fatalf("short read gives %d bytes %q", n, p[:n])
	}
	n, err = f.ReadAt(p, 1000)
	s.is(err, io.EOF)
	if n != 0 {
		s.Fatalf("read beyond the end gives %d bytes", n)
	}
	if _, err = f.ReadAt(p, -1); err == nil {
		s.Fatal("read at a negative offset succeeded")
	}
	if _, err = f.WriteAt(p, -1); err == nil {
		s.Fatal("write at a negative offset succeeded")
	}

	const far = 1 << 20 // a sparse write
	s.write(f, "far", far)
	size, err := f.Size()
	s.ok(err)
	if size != far+3 {
		s.Fatalf("size is %d, want %d", size, far+3)
	}
	p = make([]byte, 4096)
	_, err = f.ReadAt(p, far/2)
	s.ok(err)
	if !bytes.Equal(p, make([]byte, len(p))) {
		s.Fatal("a hole does not read as zeros")
	}
	s.ok(f.Sync())
	s.ok(f.SyncData())

	other := s.open("f", os.O_RDWR) // handles see each other
	s.write(other, "HELLO", 0)
	p = p[:5]
	_, err = f.ReadAt(p, 0)
	s.ok(err)
	if string(p) != "HELLO" {
		s.Fatalf("the first handle reads %q", p)
	}
	s.ok(other.Close())
}

func testTruncate(s *suite) {
	f := s.create("f")
	s.write(f, "0123456789", 0)
	s.ok(f.Truncate(4))
	s.wantContent(f, "0123")
	s.ok(f.Truncate(8))
	s.wantContent(f, "0123\x00\x00\x00\x00")
	if err := f.Truncate(-1); err == nil {
		s.Fatal("a negative size was accepted")
	}
}

func testClosed(s *suite) {
	f := s.create("f")
	s.write(f, "0123456789", 0)
	s.ok(f.Close())
	_, err := f.ReadAt(make([]byte, 1), 0)
	s.is(err, fs.ErrClosed)
	_, err = f.WriteAt([]byte("x"), 0)
	s.is(err, fs.ErrClosed)
	_, err = f.Size()
	s.is(err, fs.ErrClosed)
	_, err = f.Map(0, 1, false)
	s.is(err, fs.ErrClosed)
	for name, call := range map[string]func() error{
		"Truncate":  func() error { return f.Truncate(0) },
		"Reserve":   func() error { return f.Reserve(0, 1) },
		"ZeroRange": func() error { return f.ZeroRange(0, 1) },
		"Sync":      f.Sync,
		"SyncData":  f.SyncData,
		"Close":     f.Close,
	} {
		if err := call(); !errors.Is(err, fs.ErrClosed) {
			s.Errorf("%s after Close: %v", name, err)
		}
	}
}

func testNames(s *suite) {
	s.wantList(s.dir)
	for _, name := range []string{"b", "a", "00000000001073741824", "00000000000000000000", "B"} {
		s.ok(s.create(name).Close())
	}
	s.ok(s.fs.MkdirAll(s.path("aa", "deep")))
	s.wantList(s.dir, "00000000000000000000", "00000000001073741824", "B", "a", "aa", "b")
	s.ok(s.fs.SyncDir(s.dir))

	f := s.open("a", os.O_RDWR)
	s.write(f, "12345", 0)
	info, err := s.fs.Stat(s.path("a"))
	s.ok(err)
	if info.Name != "a" || info.Size != 5 || info.IsDir || info.ModTime.IsZero() {
		s.Fatalf("Stat of a file is %+v", info)
	}
	info, err = s.fs.Stat(s.path("aa"))
	s.ok(err)
	if info.Name != "aa" || !info.IsDir {
		s.Fatalf("Stat of a directory is %+v", info)
	}
	s.ok(f.Close())

	s.ok(s.fs.Remove(s.path("a")))
	s.is(s.fs.Remove(s.path("a")), fs.ErrNotExist)
	_, err = s.fs.Stat(s.path("a"))
	s.is(err, fs.ErrNotExist)
	_, err = s.fs.List(s.path("a"))
	s.is(err, fs.ErrNotExist)
	s.is(s.fs.SyncDir(s.path("a")), fs.ErrNotExist)
	if _, err = s.fs.List(s.path("b")); err == nil {
		s.Fatal("a file was listed like a directory")
	}
}

func testRename(s *suite) {
	f := s.create("old")
	s.write(f, "old", 0)
	s.ok(f.Close())
	f = s.create("target")
	s.write(f, "target", 0)
	s.ok(f.Close())

	s.ok(s.fs.Rename(s.path("old"), s.path("target")))
	s.wantList(s.dir, "target")
	f = s.open("target", os.O_RDONLY)
	s.wantContent(f, "old")
	s.ok(f.Close())

	s.is(s.fs.Rename(s.path("old"), s.path("target")), fs.ErrNotExist)
	s.ok(s.fs.Rename(s.path("target"), s.path("target")))

	s.ok(s.fs.MkdirAll(s.path("d", "e")))
	s.ok(s.fs.Rename(s.path("target"), s.path("d", "e", "moved")))
	s.ok(s.fs.Rename(s.path("d"), s.path("d2")))
	s.wantList(s.dir, "d2")
	s.wantList(s.path("d2", "e"), "moved")
	if err := s.fs.Rename(s.path("d2"), s.path("d2", "e", "d2")); err == nil {
		s.Fatal("a directory was moved into itself")
	}
}

func testDirectories(s *suite) {
	s.ok(s.fs.MkdirAll(s.path("a", "b", "c")))
	s.ok(s.fs.MkdirAll(s.path("a", "b", "c")))
	s.ok(s.create(filepath.Join("a", "b", "f")).Close())
	if err := s.fs.MkdirAll(s.path("a", "b", "f", "g")); err == nil {
		s.Fatal("a directory was made below a file")
	}
	if err := s.fs.Remove(s.path("a")); err == nil {
		s.Fatal("Remove took a directory that is not empty")
	}
	s.ok(s.fs.Remove(s.path("a", "b", "c")))
	s.ok(s.fs.RemoveAll(s.path("a")))
	s.ok(s.fs.RemoveAll(s.path("a")))
	s.ok(s.fs.RemoveAll(s.path("x", "y")))
	s.wantList(s.dir)

	s.ok(vfs.EnsureDir(s.fs, s.path("e", "f")))
	s.ok(vfs.EnsureDir(s.fs, s.path("e", "f")))
	s.wantList(s.path("e"), "f")
	s.ok(s.create(filepath.Join("e", "file")).Close())
	if err := vfs.EnsureDir(s.fs, s.path("e", "file")); err == nil {
		s.Fatal("EnsureDir accepted a file")
	}
}

func testRemoveOpen(s *suite) {
	if filepath.Separator == '\\' {
		s.Skip("Windows does not remove open files")
	}
	f := s.create("f")
	s.write(f, "still here", 0)
	s.ok(s.fs.Remove(s.path("f")))
	s.wantContent(f, "still here")
	s.write(f, "STILL", 0)
	s.wantContent(f, "STILL here")
	g := s.create("f")
	s.wantContent(g, "")
}

func testReserve(s *suite) {
	f := s.create("f")
	s.write(f, "head", 0)
	const size = 1 << 20
	err := f.Reserve(0, size)
	if s.LacksReserve {
		s.is(err, vfs.ErrReserveUnsupported)
	} else {
		s.ok(err)
	}
	s.wantContent(f, "head"+string(make([]byte, size-4)))
	info, err := s.fs.Stat(s.path("f"))
	s.ok(err)
	if info.Allocated >= 0 && info.Allocated < size && !s.LacksReserve {
		s.Fatalf("only %d of %d bytes are allocated", info.Allocated, size)
	}
	if s.LacksReserve {
		return
	}
	s.ok(f.Reserve(10, 100)) // inside: length stays
	s.ok(f.Reserve(size-1, 101))
	n, err := f.Size()
	s.ok(err)
	if n != size+100 {
		s.Fatalf("size is %d", n)
	}
	s.ok(f.Reserve(0, 0))
	s.is(f.Reserve(-1, 10), fs.ErrInvalid)
	s.is(f.Reserve(10, -1), fs.ErrInvalid)
}

func testZeroRange(s *suite) {
	f := s.create("f")
	s.write(f, "0123456789", 0)
	s.ok(f.ZeroRange(3, 2))
	s.wantContent(f, "012\x00\x0056789")
	s.ok(f.ZeroRange(8, 1<<20)) // what lies beyond the end is ignored
	s.wantContent(f, "012\x00\x00567\x00\x00")
	s.ok(f.ZeroRange(100, 10))
	s.ok(f.ZeroRange(0, 0))
	s.is(f.ZeroRange(-1, 1), fs.ErrInvalid)
	s.wantContent(f, "012\x00\x00567\x00\x00")

	big := bytes.Repeat([]byte("x"), 300<<10)
	s.write(f, string(big), 0)
	s.ok(f.ZeroRange(5000, 200<<10))
	clear(big[5000 : 5000+200<<10])
	s.wantContent(f, string(big))
}

// mapped returns a mapping, or nil when the system has none.
func (s *suite) mapped(f vfs.File, off, size int64, writable bool) vfs.Mapping {
	s.Helper()
	m, err := f.Map(off, size, writable)
	if s.LacksMap {
		s.is(err, vfs.ErrMapUnsupported)
		return nil
	}
	s.ok(err)
	s.Cleanup(func() { _ = m.Close() }) // most tests close earlier; this is for those that fail
	return m
}

func testMap(s *suite) {
	f := s.create("f")
	const size = 256 << 10
	if err := f.Reserve(0, size); !s.LacksReserve {
		s.ok(err)
	}
	m := s.mapped(f, 0, size, true)
	if m == nil {
		return
	}
	b := m.Bytes()
	if len(b) != size || !bytes.Equal(b, make([]byte, size)) {
		s.Fatalf("the mapping has %d bytes, or some are not zero", len(b))
	}
	s.write(f, "written", 5000)
	if got := string(b[5000:5007]); got != "written" {
		s.Fatalf("the mapping shows %q", got)
	}
	copy(b[9000:], "mapped")
	p := make([]byte, 6)
	_, err := f.ReadAt(p, 9000)
	s.ok(err)
	if string(p) != "mapped" {
		s.Fatalf("the file shows %q", p)
	}
	reader := s.mapped(f, 8999, 100, false) // not page aligned
	if got := string(reader.Bytes()[1:7]); got != "mapped" || len(reader.Bytes()) != 100 {
		s.Fatalf("the second mapping shows %q", got)
	}
	s.ok(f.ZeroRange(9000, 6))
	if got := reader.Bytes()[1:7]; !bytes.Equal(got, make([]byte, 6)) {
		s.Fatalf("the mapping shows %q after ZeroRange", got)
	}
	s.ok(reader.Advise(0, 100, vfs.AdvicePopulateRead))
	s.is(reader.Advise(0, 100, vfs.AdvicePopulateWrite), fs.ErrInvalid)
	s.ok(reader.Close())
	s.is(reader.Close(), fs.ErrClosed)
	if reader.Bytes() != nil {
		s.Fatal("a closed mapping has bytes")
	}

	s.ok(m.Sync(9000, 6))
	s.ok(m.Sync(0, size))
	s.ok(m.Sync(0, 0))
	for a := vfs.AdviceNormal; a <= vfs.AdvicePopulateWrite; a++ {
		s.ok(m.Advise(4097, 10000, a))
	}
	s.ok(m.Advise(0, 10, vfs.Advice(1000)))
	if string(b[5000:5007]) != "written" {
		s.Fatal("advice changed the content")
	}
	n, err := m.Resident(100, 10000)
	if !errors.Is(err, errors.ErrUnsupported) {
		s.ok(err)
		if n < 0 || n > 10000 {
			s.Fatalf("%d of 10000 bytes are resident", n)
		}
	}
	if err := m.Lock(0, 4096); err == nil { // RLIMIT_MEMLOCK may be 0
		s.ok(m.Unlock(0, 4096))
	}

	s.ok(f.Close()) // the mapping stays
	copy(b, "after close")
	s.ok(m.Sync(0, 11))
	f = s.open("f", os.O_RDONLY)
	p = make([]byte, 11)
	_, err = f.ReadAt(p, 0)
	s.ok(err)
	if string(p) != "after close" {
		s.Fatalf("the file shows %q", p)
	}
	if _, err := f.Map(0, 10, true); err == nil {
		s.Fatal("a writable mapping of a file opened for reading")
	}
	s.ok(m.Close())
}

func testMapRanges(s *suite) {
	if s.LacksMap {
		s.Skip("no mappings")
	}
	f := s.create("f")
	s.ok(f.Truncate(10000))
	for _, r := range [][2]int64{{0, 0}, {0, 10001}, {9999, 2}, {-1, 1}, {0, -1}, {1, 1<<63 - 1}} {
		_, err := f.Map(r[0], r[1], false)
		s.is(err, fs.ErrInvalid)
	}
	m := s.mapped(f, 100, 500, true)
	for _, r := range [][2]int64{{-1, 1}, {0, 501}, {500, 1}, {501, 0}, {0, -1}, {1, 1<<63 - 1}} {
		s.is(m.Sync(r[0], r[1]), fs.ErrInvalid)
		s.is(m.Advise(r[0], r[1], vfs.AdviceWillNeed), fs.ErrInvalid)
		_, err := m.Resident(r[0], r[1])
		s.is(err, fs.ErrInvalid)
		s.is(m.Lock(r[0], r[1]), fs.ErrInvalid)
		s.is(m.Unlock(r[0], r[1]), fs.ErrInvalid)
	}
	s.ok(m.Sync(500, 0))
	s.ok(m.Close())
	s.is(m.Sync(0, 1), fs.ErrClosed)
	s.is(m.Advise(0, 1, vfs.AdviceNormal), fs.ErrClosed)
}

// testMapGrow extends a file while a part is mapped.
func testMapGrow(s *suite) {
	f := s.create("f")
	s.ok(f.Truncate(8192))
	m := s.mapped(f, 0, 8192, true)
	if m == nil {
		return
	}
	s.write(f, "grown", 100_000)
	second := s.mapped(f, 100_000, 5, false)
	if string(second.Bytes()) != "grown" {
		s.Fatalf("the new part shows %q", second.Bytes())
	}
	copy(m.Bytes(), "first")
	p := make([]byte, 5)
	_, err := f.ReadAt(p, 0)
	s.ok(err)
	if string(p) != "first" {
		s.Fatalf("the first mapping lost the file: %q", p)
	}
}

func testLock(s *suite) {
	l, err := s.fs.Lock(s.path("lock"))
	s.ok(err)
	_, err = s.fs.Lock(s.path("lock"))
	s.is(err, vfs.ErrLocked)
	s.write(l, "lock", 0)
	s.ok(l.Sync())
	s.wantContent(l, "lock")
	s.ok(l.Close())
	s.is(l.Close(), fs.ErrClosed)

	l, err = s.fs.Lock(s.path("lock")) // free again, content kept
	s.ok(err)
	s.wantContent(l, "lock")
	other, err := s.fs.Lock(s.path("other"))
	s.ok(err)
	s.ok(other.Close())
	_, err = s.fs.Lock(s.path("lock"))
	s.is(err, vfs.ErrLocked)
	s.ok(l.Close())
	_, err = s.fs.Lock(s.path("missing", "lock"))
	s.is(err, fs.ErrNotExist)
}

func testUsage(s *suite) {
	u, err := s.fs.Usage(s.dir)
	s.ok(err)
	if u.Total == 0 || u.Free > u.Total || u.Available > u.Free {
		s.Fatalf("usage is %+v", u)
	}
	if p := u.UsedPercent(); p < 0 || p > 100 {
		s.Fatalf("used percent is %d", p)
	}
	_, err = s.fs.Usage(s.path("missing"))
	s.is(err, fs.ErrNotExist)
}

func testWriteFileAtomic(s *suite) {
	name := s.path("config.json")
	_, err := vfs.ReadFile(s.fs, name)
	s.is(err, fs.ErrNotExist)
	for _, want := range []string{"first", "", "a longer second content"} {
		s.ok(vfs.WriteFileAtomic(s.fs, name, []byte(want)))
		got, err := vfs.ReadFile(s.fs, name)
		s.ok(err)
		if string(got) != want {
			s.Fatalf("content is %q, want %q", got, want)
		}
		s.wantList(s.dir, "config.json")
	}
	s.is(vfs.WriteFileAtomic(s.fs, s.path("missing", "f"), nil), fs.ErrNotExist)
}

func testAllocations(s *suite) {
	f := s.create("f")
	s.ok(f.Truncate(1 << 20))
	p := make([]byte, 4096)
	steps := map[string]func(){
		"WriteAt": func() { _, _ = f.WriteAt(p, 8192) },
		"ReadAt":  func() { _, _ = f.ReadAt(p, 8192) },
	}
	if m := s.mapped(f, 0, 1<<20, false); m != nil {
		steps["Bytes"] = func() { p[0] = m.Bytes()[0] }
		steps["Resident"] = func() { _, _ = m.Resident(0, 1<<20) }
	}
	if _, wrapper := s.fs.(*Faults); wrapper {
		return // a test double may allocate
	}
	for name, step := range steps {
		if n := testing.AllocsPerRun(100, step); n > 0 {
			s.Errorf("%s allocates %.1f times", name, n)
		}
	}
}
