package indexfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

const (
	headerSize = 40
	slotSize   = 4
	entrySize  = 20
	// reserveStep is how far ahead entries are reserved.
	reserveStep = 4 << 20
)

// ErrHeader marks a header that cannot be. Test with errors.Is.
var ErrHeader = errors.New("damaged header of an index file")

// Sizes are the slots and entries of a file; entry 0 is never used.
type Sizes struct{ Slots, Entries int32 }

// FileSize is the size of such a file in bytes.
func (z Sizes) FileSize() int64 {
	return headerSize + int64(z.Slots)*slotSize + int64(z.Entries)*entrySize
}

func (z Sizes) slot(n int32) int64  { return headerSize + int64(n)*slotSize }
func (z Sizes) entry(n int32) int64 { return headerSize + int64(z.Slots)*slotSize + int64(n)*entrySize }

// Header is the head of a file.
type Header struct {
	// BeginTime and EndTime are the store times of the first and last entry, ms.
	BeginTime, EndTime int64
	// BeginAt and EndAt are their records.
	BeginAt, EndAt message.Position
	// Slots counts slots in use. Count is the number of the next entry; an
	// empty file has 1.
	Slots, Count int32
}

// ParseHeader reads a header and checks that it can be one of a file of sizes
// z. Errors match ErrHeader.
func ParseHeader(b []byte, z Sizes) (Header, error) {
	if len(b) < headerSize {
		return Header{}, fmt.Errorf("%w: %d bytes", ErrHeader, len(b))
	}
	be := binary.BigEndian
	h := Header{
		BeginTime: int64(be.Uint64(b)), EndTime: int64(be.Uint64(b[8:])),
		BeginAt: message.Position(be.Uint64(b[16:])), EndAt: message.Position(be.Uint64(b[24:])),
		Slots: int32(be.Uint32(b[32:])), Count: int32(be.Uint32(b[36:])),
	}
	if h.Count == 0 { // a file that was made and never written
		h.Count = 1
	}
	if h.Count < 1 || h.Count > z.Entries || h.Slots < 0 || h.Slots > z.Slots || h.Slots >= h.Count || h.BeginAt < 0 || h.EndAt < h.BeginAt || h.BeginTime < 0 || h.EndTime < h.BeginTime {
		return Header{}, fmt.Errorf("%w: %+v in a file of %d slots and %d entries", ErrHeader, h, z.Slots, z.Entries)
	}
	return h, nil
}

func (h *Header) put(b []byte) {
	be := binary.BigEndian
	be.PutUint64(b, uint64(h.BeginTime))
	be.PutUint64(b[8:], uint64(h.EndTime))
	be.PutUint64(b[16:], uint64(h.BeginAt))
	be.PutUint64(b[24:], uint64(h.EndAt))
	be.PutUint32(b[32:], uint32(h.Slots))
	be.PutUint32(b[36:], uint32(h.Count))
}

// File is an open index file.
type File struct {
	Path string
	// H is the header as it is; changed by Put, Cut and Rebuild only.
	H Header

	z             Sizes
	fs            vfs.FS
	f             vfs.File
	m             vfs.Mapping
	mem           []byte // nil when written by position
	room          int32  // entries below are reserved
	dirty         bool
	slotsReserved bool
	scratch       [headerSize]byte
}

// Create makes an empty file. prev, when not nil, is the header of the file
// before it, whose ends RocketMQ takes over.
func Create(fsys vfs.FS, path string, z Sizes, prev *Header) (*File, error) {
	f, err := fsys.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	x := &File{Path: path, z: z, fs: fsys, f: f, H: Header{Count: 1}}
	if prev != nil {
		x.H.BeginTime, x.H.EndTime, x.H.BeginAt, x.H.EndAt = prev.EndTime, prev.EndTime, prev.EndAt, prev.EndAt
	}
	if err = f.Truncate(z.FileSize()); err == nil {
		x.mapFile()
		if err = x.Reserve(1); err == nil {
			err = x.PutHeader()
		}
	}
	if err != nil {
		_ = x.Close()
		return nil, errors.Join(err, fsys.Remove(path))
	}
	return x, nil
}

// Open opens a file of the right size. With ErrHeader the file is returned all
// the same, for [File.Rebuild].
func Open(fsys vfs.FS, path string, z Sizes) (*File, error) {
	f, err := fsys.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	x := &File{Path: path, z: z, fs: fsys, f: f}
	var b [headerSize]byte
	if _, err = f.ReadAt(b[:], 0); err != nil && !errors.Is(err, io.EOF) {
		_ = x.Close()
		return nil, err
	}
	x.mapFile()
	x.H, err = ParseHeader(b[:], z)
	if err != nil {
		x.H = Header{Count: 1}
		return x, fmt.Errorf("%s: %w", path, err)
	}
	return x, nil
}

// mapFile maps the file if that is possible.
func (x *File) mapFile() {
	if m, err := x.f.Map(0, x.z.FileSize(), true); err == nil {
		x.m, x.mem = m, m.Bytes()
	}
}

// reserveSlots makes the slots safe to be written through the mapping. Where
// space cannot be reserved, the file is written by position from then on.
func (x *File) reserveSlots() error {
	if x.mem == nil || x.slotsReserved {
		return nil
	}
	err := x.f.Reserve(0, headerSize+int64(x.z.Slots)*slotSize)
	if errors.Is(err, vfs.ErrReserveUnsupported) {
		x.mem = nil
		err = nil
	}
	x.slotsReserved = err == nil
	return err
}

// Close closes the file without flushing it.
func (x *File) Close() error {
	var err error
	if x.m != nil {
		err = x.m.Close()
		x.m, x.mem = nil, nil
	}
	if x.f != nil {
		err = errors.Join(err, x.f.Close())
		x.f = nil
	}
	return err
}

// Full reports whether no entry can be put any more.
func (x *File) Full() bool { return x.H.Count >= x.z.Entries }

// Room tells how many more entries are reserved.
func (x *File) Room() int { return max(int(x.room-x.H.Count), 0) }

// Reserve reserves space for n more entries, or as many as the file can hold,
// and returns an error when the disk has none.
func (x *File) Reserve(n int) error {
	want := int32(min(int64(x.H.Count)+int64(n), int64(x.z.Entries)))
	if want <= x.room {
		return nil
	}
	if err := x.reserveSlots(); err != nil {
		return err
	}
	from := x.z.entry(max(x.room, x.H.Count))
	size := max(x.z.entry(want)-from, reserveStep)
	size = min(size, x.z.FileSize()-from)
	if x.mem != nil {
		err := x.f.Reserve(from, size)
		if need := x.z.entry(want) - from; errors.Is(err, vfs.ErrNoSpace) && need < size { // perhaps there is enough for these
			size = need
			err = x.f.Reserve(from, size)
		}
		if err != nil {
			return err
		}
	}
	x.room = int32((from + size - x.z.entry(0)) / entrySize)
	return nil
}

func (x *File) read(off int64, n int) ([]byte, error) {
	if x.mem != nil {
		return x.mem[off : off+int64(n)], nil
	}
	b := x.scratch[:n]
	if _, err := x.f.ReadAt(b, off); err != nil {
		return nil, err
	}
	return b, nil
}

// write is for files that are written by position.
func (x *File) write(off int64, b []byte) error {
	_, err := x.f.WriteAt(b, off)
	return err
}

// PutHeader writes the header; call it after the last Put of a run.
func (x *File) PutHeader() error {
	x.dirty = true
	if x.mem != nil {
		x.H.put(x.mem)
		return nil
	}
	x.H.put(x.scratch[:])
	return x.write(0, x.scratch[:headerSize])
}

// slot reads the newest entry of a slot; numbers that cannot be are 0.
func (x *File) slot(n int32) (int32, error) {
	b, err := x.read(x.z.slot(n), slotSize)
	if err != nil {
		return 0, err
	}
	v := int32(binary.BigEndian.Uint32(b))
	if v <= 0 || v >= x.H.Count {
		v = 0
	}
	return v, nil
}

func (x *File) setSlot(n, v int32) error {
	off := x.z.slot(n)
	if x.mem != nil {
		binary.BigEndian.PutUint32(x.mem[off:], uint32(v))
		return nil
	}
	binary.BigEndian.PutUint32(x.scratch[:], uint32(v))
	return x.write(off, x.scratch[:slotSize])
}

type entry struct {
	hash, diff, prev int32
	at               message.Position
}

func (x *File) entry(n int32) (entry, error) {
	b, err := x.read(x.z.entry(n), entrySize)
	if err != nil {
		return entry{}, err
	}
	return decodeEntry(b), nil
}

func decodeEntry(b []byte) entry {
	_ = b[entrySize-1]
	be := binary.BigEndian
	return entry{hash: int32(be.Uint32(b)), at: message.Position(be.Uint64(b[4:])), diff: int32(be.Uint32(b[12:])), prev: int32(be.Uint32(b[16:]))}
}

func (x *File) setEntry(n int32, e entry) error {
	off := x.z.entry(n)
	if x.mem != nil {
		e.put(x.mem[off:])
		return nil
	}
	e.put(x.scratch[:])
	return x.write(off, x.scratch[:entrySize])
}

func (e entry) put(b []byte) {
	_ = b[entrySize-1]
	be := binary.BigEndian
	be.PutUint32(b, uint32(e.hash))
	be.PutUint64(b[4:], uint64(e.at))
	be.PutUint32(b[12:], uint32(e.diff))
	be.PutUint32(b[16:], uint32(e.prev))
}

// Put adds an entry; the file is not full. Keys come in log order. The header in
// the file is left behind until PutHeader.
func (x *File) Put(k message.Key) error {
	n := x.H.Count
	slot := k.Hash % x.z.Slots
	prev, err := x.slot(slot)
	if err != nil {
		return err
	}
	var diff int64
	if x.H.BeginTime > 0 {
		diff = min(max((k.StoreTime-x.H.BeginTime)/1000, 0), math.MaxInt32)
	}
	if err := x.setEntry(n, entry{k.Hash, int32(diff), prev, k.At}); err != nil {
		return err
	}
	if err := x.setSlot(slot, n); err != nil {
		return err
	}
	if n == 1 {
		x.H.BeginAt, x.H.BeginTime = k.At, k.StoreTime
	}
	if prev == 0 {
		x.H.Slots++
	}
	x.H.Count++
	x.H.EndAt, x.H.EndTime = k.At, max(k.StoreTime, x.H.BeginTime)
	x.dirty = true
	return nil
}

// time gives the store time of an entry to the second, rounded down.
func (x *File) time(n int32, e entry) int64 {
	if n == 1 { // its difference is to the file before
		return x.H.BeginTime
	}
	return x.H.BeginTime + int64(e.diff)*1000
}

// Find calls yield for the entries of a hash, newest first, whose store time
// may lie in [from, to], until it returns false.
func (x *File) Find(hash int32, from, to int64, yield func(message.Position) bool) error {
	if x.H.Count <= 1 || x.H.BeginTime > to || x.H.EndTime < from {
		return nil
	}
	n, err := x.slot(hash % x.z.Slots)
	for n > 0 && err == nil {
		var e entry
		if e, err = x.entry(n); err != nil {
			break
		}
		t := x.time(n, e)
		// Times are kept in seconds: the record may be up to 999 ms younger.
		if e.hash == hash && t <= to && t+999 >= from && !yield(e.at) {
			return nil
		}
		if e.prev <= 0 || e.prev >= n { // chains go back in time
			break
		}
		n = e.prev
	}
	return err
}

// Cut removes the entries of records at or above pos. It tells whether any
// remain.
func (x *File) Cut(pos message.Position) (bool, error) {
	changed := false
	for x.H.Count > 1 {
		n := x.H.Count - 1
		e, err := x.entry(n)
		if err != nil {
			return false, err
		}
		if e.at < pos {
			if changed {
				x.H.EndAt, x.H.EndTime = e.at, x.time(n, e)+999
			}
			break
		}
		if e.prev < 0 || e.prev >= n {
			e.prev = 0
		}
		if err := x.setSlot(e.hash%x.z.Slots, e.prev); err != nil {
			return false, err
		}
		if e.prev == 0 && x.H.Slots > 0 {
			x.H.Slots--
		}
		if err := x.setEntry(n, entry{}); err != nil {
			return false, err
		}
		x.H.Count, changed = n, true
	}
	if x.H.Count <= 1 {
		x.H = Header{Count: 1}
	}
	if !changed {
		return x.H.Count > 1, nil
	}
	return x.H.Count > 1, x.PutHeader()
}

// Rebuild makes slots, chains and header anew from the entries of records below
// pos, after a crash that may have lost some pages of the file. It tells whether
// any entry remains.
func (x *File) Rebuild(pos message.Position) (bool, error) {
	if err := x.reserveSlots(); err != nil {
		return false, err
	}
	begin := x.H
	if begin.Count <= 1 {
		b, err := x.read(0, headerSize)
		if err != nil {
			return false, err
		}
		begin.BeginTime = max(int64(binary.BigEndian.Uint64(b)), 0)
	}
	// The first entry may be zero, that of the log's first record with hash 0. The
	// one behind it may not.
	empty := begin.Count <= 1
	if empty && x.z.Entries > 2 {
		e, err := x.entry(2)
		if err != nil {
			return false, err
		}
		empty = e == entry{}
	}
	x.H = Header{BeginTime: begin.BeginTime, Count: 1}
	// Most is as it should be, and what is not written need not be flushed.
	slots := make([]int32, x.z.Slots)
	end := x.z.Entries
	err := x.walk(x.z.entry(0), entrySize, 1, x.z.Entries, func(n int32, b []byte) (bool, error) {
		e := decodeEntry(b)
		if e.hash < 0 || e.diff < 0 || e.at < x.H.EndAt || e.at >= pos || e.at == 0 && e.hash == 0 && (n > 1 || empty) {
			end = n
			return false, nil
		}
		slot := &slots[e.hash%x.z.Slots]
		if prev := *slot; e.prev != prev {
			e.prev = prev
			if err := x.setEntry(n, e); err != nil {
				return false, err
			}
		}
		*slot = n
		if n == 1 {
			x.H.BeginAt = e.at
		}
		if e.prev == 0 {
			x.H.Slots++
		}
		x.H.Count, x.H.EndAt, x.H.EndTime = n+1, e.at, x.time(n, e)+999
		return true, nil
	})
	if err != nil {
		return false, err
	}
	err = x.walk(x.z.slot(0), slotSize, 0, x.z.Slots, func(n int32, b []byte) (bool, error) {
		if want := slots[n]; int32(binary.BigEndian.Uint32(b)) != want {
			return true, x.setSlot(n, want)
		}
		return true, nil
	})
	if err != nil {
		return false, err
	}
	// What lies behind was written and not flushed.
	err = x.walk(x.z.entry(0), entrySize, end, x.z.Entries, func(n int32, b []byte) (bool, error) {
		if decodeEntry(b) == (entry{}) {
			return false, nil
		}
		return true, x.setEntry(n, entry{})
	})
	if err != nil {
		return false, err
	}
	return x.H.Count > 1, x.PutHeader()
}

// walk calls do for what has the numbers from to below to and lies, size bytes each,
// from off on with number 0, until it returns false.
func (x *File) walk(off int64, size int, from, to int32, do func(n int32, b []byte) (more bool, err error)) error {
	const window = 64 << 10
	var buf []byte
	if x.mem == nil {
		buf = make([]byte, window)
	}
	for n := from; n < to; {
		k := min(int(to-n), window/size)
		at := off + int64(n)*int64(size)
		b := buf[:min(len(buf), k*size)]
		if x.mem != nil {
			b = x.mem[at : at+int64(k*size)]
		} else if _, err := x.f.ReadAt(b, at); err != nil {
			return err
		}
		for ; len(b) > 0; b = b[size:] {
			if more, err := do(n, b[:size]); !more || err != nil {
				return err
			}
			n++
		}
	}
	return nil
}

// Flush makes the file durable if it changed.
func (x *File) Flush() error {
	if !x.dirty {
		return nil
	}
	x.dirty = false
	if x.m != nil {
		if err := x.m.Sync(0, x.z.FileSize()); err != nil {
			return err
		}
	}
	return x.f.Sync()
}
