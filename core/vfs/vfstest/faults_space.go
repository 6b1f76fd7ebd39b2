package vfstest

import (
	"path/filepath"
	"strings"

	"github.com/hardpointmq/hardpoint/core/vfs"
)

// space is the account of a disk that is nearly full. A file is charged up to the highest byte that was reserved or
// written, holes included; a file that was there before is charged with its length when it is first used, without
// taking from free. Writes through a mapping are not seen: reserve before mapping, as a store has to.
type space struct {
	total uint64 // sizes and free at the time of the limit, for Usage; 0 means: of the wrapped file system
	free  int64
	files map[string]int64 // charged bytes by cleaned name
}

// SetFree limits the disk: from now on n more bytes can be reserved or written before [vfs.ErrNoSpace]; a write that
// fits in part is done in part. Removing, replacing and truncating files gives space back, also that of files from
// before. A negative n removes the limit.
func (f *Faults) SetFree(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case n < 0:
		f.space = nil
	case f.space == nil:
		f.space = &space{free: n, files: map[string]int64{}}
	default:
		f.space.free = n
	}
}

// SetTotal sets the size of the disk that Usage reports while a limit is set, so that a test can place the used share
// where it wants it: used is total minus free. 0 means the size of the wrapped file system.
func (f *Faults) SetTotal(total uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.space != nil {
		f.space.total = total
	}
}

// Free returns how many bytes are left of the limit; -1 without one.
func (f *Faults) Free() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.space == nil {
		return -1
	}
	return f.space.free
}

func (f *Faults) spaceUsage(u *vfs.Usage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.space == nil {
		return
	}
	if f.space.total > 0 {
		u.Total = f.space.total
	}
	u.Free = min(uint64(f.space.free), u.Total)
	u.Available = u.Free
}

// charge asks for the bytes of name up to end and returns how far the space goes, end if it suffices. length is the
// length of the file, for files that the account does not know yet. Nothing is charged when it falls short and part is
// false.
func (f *Faults) charge(name string, length, end int64, part bool) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.space
	if s == nil {
		return end
	}
	name = filepath.Clean(name)
	charged, known := s.files[name]
	if !known {
		charged = length
		s.files[name] = charged
	}
	want := max(end-charged, 0)
	if want > s.free {
		if !part {
			return charged
		}
		want = s.free
		end = charged + want
	}
	s.free -= want
	s.files[name] = charged + want
	return end
}

// spaceTruncated gives back what lies beyond size. length is the one before.
func (f *Faults) spaceTruncated(name string, length, size int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.space
	if s == nil {
		return
	}
	name = filepath.Clean(name)
	charged, known := s.files[name]
	if !known {
		charged = length
	}
	if charged > size {
		s.free += charged - size
		charged = size
	}
	s.files[name] = charged
}

// spaceEnter charges name and what is below it with their lengths, as far as they are unknown. It is called before an
// operation that may free them, when their lengths can still be seen.
func (f *Faults) spaceEnter(name string) {
	if !f.limited() {
		return
	}
	info, err := f.inner.Stat(name)
	if err != nil {
		return // nothing there, or the operation itself will say why not
	}
	if !info.IsDir {
		f.charge(name, info.Size, 0, false)
		return
	}
	names, err := f.inner.List(name)
	if err != nil {
		return // as above
	}
	for _, n := range names {
		f.spaceEnter(filepath.Join(name, n))
	}
}

func (f *Faults) limited() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.space != nil
}

func (f *Faults) spaceRemoved(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.space == nil {
		return
	}
	name = filepath.Clean(name)
	for file, charged := range f.space.files {
		if file == name || strings.HasPrefix(file, name+string(filepath.Separator)) {
			f.space.free += charged
			delete(f.space.files, file)
		}
	}
}

func (f *Faults) spaceRenamed(oldName, newName string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.space == nil {
		return
	}
	oldName, newName = filepath.Clean(oldName), filepath.Clean(newName)
	moved := map[string]int64{}
	for file, charged := range f.space.files {
		switch {
		case file == oldName || strings.HasPrefix(file, oldName+string(filepath.Separator)):
			moved[newName+file[len(oldName):]] = charged
			delete(f.space.files, file)
		case file == newName && oldName != newName: // replaced
			f.space.free += charged
			delete(f.space.files, file)
		}
	}
	for file, charged := range moved {
		f.space.files[file] = charged
	}
}
