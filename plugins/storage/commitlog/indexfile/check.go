package indexfile

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/hardpointmq/hardpoint/core/message"
)

// Entry is one of a file, as a [Reader] gives it.
type Entry struct {
	// N is its number, from 1.
	N int32
	// Hash and Diff are as they stand in the file; Diff is in seconds.
	Hash, Diff int32
	At         message.Position
	// Chained tells that the entry names the one before it in its slot.
	Chained bool
}

// Reader reads the entries of a file in order, without changing it, and checks how
// they are chained. It needs 4 bytes for each slot.
type Reader struct {
	// H is the header; where it cannot be, that of an empty file.
	H Header

	f     io.ReaderAt
	z     Sizes
	next  int32
	heads []int32
	buf   []byte
	from  int32 // number of the first entry in buf
}

// NewReader reads the header. Errors match [ErrHeader] when it cannot be; the reader
// is of use all the same.
func NewReader(f io.ReaderAt, z Sizes) (*Reader, error) {
	r := &Reader{f: f, z: z, next: 1, H: Header{Count: 1}}
	var b [headerSize]byte
	if err := readFull(f, b[:], 0); err != nil {
		return nil, err
	}
	h, err := ParseHeader(b[:], z)
	if err == nil {
		r.H = h
	}
	return r, err
}

// readFull is ReadAt; what lies behind the end of the file reads as zeros.
func readFull(f io.ReaderAt, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if errors.Is(err, io.EOF) {
		clear(b[n:])
		return nil
	}
	return err
}

// readEntries is how many are read at a time.
const readEntries = 4096

// Next gives the next entry; false behind the last one.
func (r *Reader) Next() (e Entry, ok bool, err error) {
	if r.next >= r.H.Count {
		return Entry{}, false, nil
	}
	if r.heads == nil {
		r.heads = make([]int32, r.z.Slots)
	}
	if at := int(r.next-r.from) * entrySize; r.buf == nil || at >= len(r.buf) {
		n := min(readEntries, r.H.Count-r.next)
		if r.buf == nil {
			r.buf = make([]byte, readEntries*entrySize)
		}
		r.buf, r.from = r.buf[:int(n)*entrySize], r.next
		if err := readFull(r.f, r.buf, r.z.entry(r.next)); err != nil {
			return Entry{}, false, err
		}
	}
	x := decodeEntry(r.buf[int(r.next-r.from)*entrySize:])
	e = Entry{N: r.next, Hash: x.hash, Diff: x.diff, At: x.at}
	if x.hash >= 0 {
		head := &r.heads[x.hash%r.z.Slots]
		e.Chained = x.prev == *head
		*head = r.next
	}
	r.next++
	return e, true, nil
}

// Slots compares the slots with the entries that were read, and returns how many
// are wrong and the first of them. Those that name entries behind the last one are
// left out: a broker that was killed has them.
func (r *Reader) Slots() (wrong, first int32, err error) {
	const window = 16 << 10
	b := make([]byte, window*slotSize)
	for n := int32(0); n < int32(len(r.heads)); n += window {
		w := b[:min(window, int32(len(r.heads))-n)*slotSize]
		if err := readFull(r.f, w, r.z.slot(n)); err != nil {
			return 0, 0, err
		}
		for i := range int32(len(w) / slotSize) {
			v := int32(binary.BigEndian.Uint32(w[i*slotSize:]))
			if v == r.heads[n+i] || v >= r.H.Count {
				continue
			}
			if wrong++; wrong == 1 {
				first = n + i
			}
		}
	}
	return wrong, first, nil
}

// EntryAt is the byte in the file at which entry n begins, SlotAt that of a slot.
func (z Sizes) EntryAt(n int32) int64 { return z.entry(n) }

// SlotAt is the byte in the file at which slot n begins.
func (z Sizes) SlotAt(n int32) int64 { return z.slot(n) }

// MaxSlots is how many slots a file may have: who checks one keeps 4 bytes for each.
const MaxSlots = 100_000_000

// FindSizes finds out with which sizes a file of size bytes was made, by where its
// first and its last entry lie; false when that cannot be told, as of an empty one.
func FindSizes(f io.ReaderAt, size int64) (Sizes, bool, error) {
	var head [headerSize]byte
	if err := readFull(f, head[:], 0); err != nil {
		return Sizes{}, false, err
	}
	words := (size - headerSize) / slotSize // slots + 5 × entries
	if size < headerSize || (size-headerSize)%slotSize != 0 || words > 5<<31 {
		return Sizes{}, false, nil
	}
	count := int32(binary.BigEndian.Uint32(head[36:]))
	begin, end := binary.BigEndian.Uint64(head[16:]), binary.BigEndian.Uint64(head[24:])
	if count <= 1 {
		return Sizes{}, false, nil
	}
	const window = 1 << 20
	b := make([]byte, window+2*entrySize)
	for base := int64(0); base < words; base += window / slotSize {
		if err := readFull(f, b, headerSize+base*slotSize); err != nil {
			return Sizes{}, false, err
		}
		for i := int64(0); i < window/slotSize; i++ {
			slots := base + i
			if slots < 1 || slots > MaxSlots || (words-slots)%5 != 0 || (words-slots)/5 < int64(count) {
				continue
			}
			e := decodeEntry(b[i*slotSize+entrySize:])
			if uint64(e.at) != begin || e.prev != 0 || e.hash <= 0 {
				continue
			}
			z := Sizes{Slots: int32(slots), Entries: int32((words - slots) / 5)}
			var last [entrySize]byte
			if err := readFull(f, last[:], z.entry(count-1)); err != nil {
				return Sizes{}, false, err
			}
			var slot [slotSize]byte
			if err := readFull(f, slot[:], z.slot(e.hash%z.Slots)); err != nil {
				return Sizes{}, false, err
			}
			if uint64(decodeEntry(last[:]).at) == end && binary.BigEndian.Uint32(slot[:]) != 0 {
				return z, true, nil
			}
		}
	}
	return Sizes{}, false, nil
}
