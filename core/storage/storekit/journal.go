package storekit

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/hardpointmq/hardpoint/core/storage"
)

// Log is an append-only backend: one file that grows, or whatever looks like
// one. Open comes first, Close last. ReadAt may be called by several goroutines
// and beside the others, which are called by one at a time but for Sync.
type Log interface {
	// Open takes the log exclusively and tells its size in bytes.
	Open(ctx context.Context) (size int64, err error)
	// Append writes p at the end. When it returns, p survives what
	// Options.Survives says. After an error the kit truncates to the old size;
	// one that matches storage.ErrFull leaves the store usable, any other fails
	// it.
	Append(p []byte) error
	io.ReaderAt
	// Sync returns when everything appended before survives power loss. After
	// an error it is not called again.
	Sync() error
	// Truncate makes the log shorter.
	Truncate(size int64) error
	// Close releases what Open took.
	Close() error
}

// FromLog makes a store of an append-only backend. It does no I/O.
//
// The log takes frames: length and CRC-32C of what follows (4 bytes each,
// big-endian), then the changes that FromKV would make in one step. A map in
// memory, rebuilt at Start by reading the log once, holds the index; records
// stay in the log and are read from there. A torn last frame is cut; a bad frame
// with a good one behind it is damage, and Start fails rather than lose what
// follows.
//
// It is thin: the index must fit into memory (about 250 bytes a record), and
// the log does not get shorter when records expire.
func FromLog(p storage.Params, log Log, opt Options) *Store {
	return FromKV(p, &journal{log: log, name: p.Dir}, opt)
}

const frameHead = 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// journal is a Log as a KV.
type journal struct {
	log  Log
	name string
	mem  MemKV
	size int64

	buf    []byte // the frame under way
	values arena  // what goes into memory
}

// Values in memory begin with a byte that tells whether they are the value or
// say where in the log it stands.
const (
	inline  = 0
	outside = 1
)

// Open implements KV.
func (j *journal) Open(ctx context.Context) error {
	size, err := j.log.Open(ctx)
	if err != nil {
		return err
	}
	j.mem, j.size = MemKV{}, 0
	if err := j.replay(ctx, size); err != nil {
		return errors.Join(err, j.log.Close())
	}
	return nil
}

// replay reads the frames up to size and cuts a torn one at the end.
func (j *journal) replay(ctx context.Context, size int64) error {
	r := bufio.NewReaderSize(io.NewSectionReader(j.log, 0, size), 1<<20)
	for j.size < size {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := readFrame(r, size-j.size, &j.buf)
		if err != nil {
			return err
		}
		if n == 0 {
			return j.cut(size)
		}
		if err := j.remember(j.buf, j.size); err != nil {
			return err
		}
		j.size += n
	}
	return nil
}

// readFrame reads a frame into buf; n is 0 when there is no good one.
func readFrame(r io.Reader, left int64, buf *[]byte) (n int64, err error) {
	b := append((*buf)[:0], make([]byte, frameHead)...)
	if left < frameHead {
		return 0, nil
	}
	if _, err := io.ReadFull(r, b); err != nil {
		return 0, err
	}
	length := int64(be.Uint32(b))
	if length > left-frameHead || length == 0 {
		return 0, nil
	}
	b = append(b, make([]byte, length)...)
	*buf = b
	if _, err := io.ReadFull(r, b[frameHead:]); err != nil {
		return 0, err
	}
	if crc32.Checksum(b[frameHead:], castagnoli) != be.Uint32(b[4:]) {
		return 0, nil
	}
	return frameHead + length, nil
}

// cut takes away a torn end, unless a good frame follows the bad one.
func (j *journal) cut(size int64) error {
	var head [frameHead]byte
	if n, err := j.log.ReadAt(head[:], j.size); n == frameHead && (err == nil || errors.Is(err, io.EOF)) {
		next := j.size + frameHead + int64(be.Uint32(head[:]))
		if next < size {
			var buf []byte
			n, err := readFrame(io.NewSectionReader(j.log, next, size-next), size-next, &buf)
			if err != nil {
				return err
			}
			if n > 0 {
				return &storage.CorruptError{File: j.name, Offset: j.size, Reason: "a frame does not match its checksum, but the next one does"}
			}
		}
	}
	if err := j.log.Truncate(j.size); err != nil {
		return err
	}
	return j.log.Sync()
}

// Apply implements KV.
func (j *journal) Apply(ops []Op, sync bool) error {
	b := append(j.buf[:0], make([]byte, frameHead)...)
	for i := range ops {
		op := &ops[i]
		kind, value := byte(0), op.Value
		if op.Until != nil {
			kind, value = 1, op.Until
		}
		b = binary.AppendUvarint(append(b, kind), uint64(len(op.Key)))
		b = append(b, op.Key...)
		b = binary.AppendUvarint(b, uint64(len(value)))
		b = append(b, value...)
	}
	j.buf = b
	if len(b) == frameHead {
		return nil
	}
	be.PutUint32(b, uint32(len(b)-frameHead))
	be.PutUint32(b[4:], crc32.Checksum(b[frameHead:], castagnoli))
	if err := j.log.Append(b); err != nil {
		if e := j.log.Truncate(j.size); e != nil {
			// What is there now is unknown, so it is not just full.
			return fmt.Errorf("append: %w; and what was written of it cannot be cut: %w", err, e)
		}
		return err
	}
	at := j.size
	j.size += int64(len(b))
	if err := j.remember(b, at); err != nil {
		return err
	}
	if sync {
		return j.log.Sync()
	}
	return nil
}

// remember does the changes of a frame, which lies at a position of the log, in
// memory.
func (j *journal) remember(frame []byte, at int64) error {
	j.values.reset()
	bad := &storage.CorruptError{File: j.name, Offset: at, Reason: "a frame with a good checksum holds no changes"}
	for pos := frameHead; pos < len(frame); {
		kind := frame[pos]
		pos++
		var part [2][]byte
		var begin int
		for i := range part {
			n, w := binary.Uvarint(frame[pos:])
			if w <= 0 || n > uint64(len(frame)-pos-w) {
				return bad
			}
			begin = pos + w
			part[i] = frame[begin : begin+int(n)]
			pos = begin + int(n)
		}
		if kind == 1 {
			j.values.remove(part[0], part[1])
			continue
		}
		j.values.room(1 + largeValue)
		n := len(j.values.block)
		if len(part[1]) < largeValue {
			j.values.block = append(append(j.values.block, inline), part[1]...)
		} else {
			j.values.block = be.AppendUint64(append(j.values.block, outside), uint64(at)+uint64(begin))
			j.values.block = be.AppendUint32(j.values.block, uint32(len(part[1])))
		}
		j.values.set(part[0], j.values.take(n))
	}
	return j.mem.Apply(j.values.ops, false)
}

// value appends the value that v stands for to dst.
func (j *journal) value(dst, v []byte) ([]byte, error) {
	if v[0] == inline {
		return append(dst, v[1:]...), nil
	}
	off, n := int64(be.Uint64(v[1:])), len(dst)
	dst = append(dst, make([]byte, be.Uint32(v[9:]))...)
	got, err := j.log.ReadAt(dst[n:], off)
	if got == len(dst)-n {
		return dst, nil
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return dst[:n], fmt.Errorf("read %s at %d: %w", j.name, off, err)
}

// Get implements KV.
func (j *journal) Get(key, dst []byte) ([]byte, bool, error) {
	var small [1 + largeValue]byte
	v, found, err := j.mem.Get(key, small[:0])
	if err != nil || !found {
		return dst, false, err
	}
	dst, err = j.value(dst, v)
	return dst, err == nil, err
}

// Scan implements KV.
func (j *journal) Scan(from, to []byte, reverse bool, each func(key, value []byte) bool) error {
	var buf []byte
	var failed error
	err := j.mem.Scan(from, to, reverse, func(k, v []byte) bool {
		if v[0] == inline {
			return each(k, v[1:])
		}
		if buf, failed = j.value(buf[:0], v); failed != nil {
			return false
		}
		return each(k, buf)
	})
	return errors.Join(err, failed)
}

// Sync implements KV.
func (j *journal) Sync() error { return j.log.Sync() }

// Close implements KV.
func (j *journal) Close() error {
	return errors.Join(j.mem.Close(), j.log.Close())
}
