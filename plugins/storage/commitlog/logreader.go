package commitlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"

	"github.com/hardpointmq/hardpoint/core/message"
)

const (
	openRead = os.O_RDONLY
	openRW   = os.O_RDWR
)

// readWindow is what a logReader reads at a time.
const readWindow = 1 << 20

// logReader reads records in order with large reads, past mappings: a scan
// should not fill page tables, and an I/O error must be an error and no signal.
type logReader struct {
	list segments
	seg  *segment
	buf  *buffer
	off  int64 // of buf in seg
	// window is how much is read at a time.
	window int
}

func newLogReader(list segments) *logReader {
	return &logReader{list: list, buf: getBuffer(readWindow), window: readWindow}
}

func (r *logReader) close() { r.buf.free() }

// bytes returns n bytes at an offset of seg, fewer at its end. They are valid
// until the next call.
func (r *logReader) bytes(seg *segment, off int64, n int) ([]byte, error) {
	n = int(min(int64(n), seg.size-off))
	if r.seg == seg && off >= r.off && off+int64(n) <= r.off+int64(len(r.buf.b)) {
		b := r.buf.b[off-r.off:]
		return b[:n:n], nil
	}
	if n > cap(r.buf.b) {
		r.buf.free()
		r.buf = getBuffer(n)
	}
	w := int(min(int64(max(n, r.window)), seg.size-off))
	r.seg, r.off, r.buf.b = seg, off, r.buf.b[:w]
	if err := seg.readAt(r.buf.b, off); err != nil {
		r.seg, r.buf.b = nil, r.buf.b[:0]
		return nil, err
	}
	return r.buf.b[:n:n], nil
}

// record parses the record at pos; errors as those of message.Parse, and I/O
// errors.
func (r *logReader) record(pos message.Position, v *message.View) error {
	seg := r.list.at(pos)
	if seg == nil {
		return os.ErrNotExist
	}
	off := int64(pos) - seg.base
	head, err := r.bytes(seg, off, message.BlankSize)
	if err != nil {
		return err
	}
	if len(head) < message.BlankSize {
		return message.ErrShort
	}
	size := message.BlankSize
	if m := binary.BigEndian.Uint32(head[4:]); m == message.MagicV1 || m == message.MagicV2 {
		size = int(max(message.Size(head), message.BlankSize))
		if int64(size) > seg.size-off {
			return message.ErrShort
		}
		if size > readWindow { // do not read a segment because of a wild size
			fixed, err := r.bytes(seg, off, message.FixedSize+24)
			if err != nil {
				return err
			}
			if !plausible(fixed, size) {
				return message.ErrLength
			}
		}
	}
	b, err := r.bytes(seg, off, size)
	if err != nil {
		return err
	}
	return message.Parse(b, v)
}

// plausible compares a record's size with its body's: the rest is bounded.
func plausible(fixed []byte, size int) bool {
	const rest = message.FixedSize + 24 + 2*(1<<15)
	at := 84
	flag := int32(binary.BigEndian.Uint32(fixed[36:]))
	if flag&message.SysBornHostV6 != 0 {
		at += 12
	}
	if flag&message.SysStoreHostV6 != 0 {
		at += 12
	}
	body := int(int32(binary.BigEndian.Uint32(fixed[at:])))
	return body >= 0 && body <= size && size-body <= rest
}

// good is record, and checks that the record states its own position and, with
// crc, that its body is whole.
func (r *logReader) good(pos message.Position, v *message.View, crc bool) error {
	if err := r.record(pos, v); err != nil {
		return err
	}
	if v.Position != pos {
		return errPosition
	}
	if !crc {
		return nil
	}
	if err := v.CheckBody(); err != nil {
		return err
	}
	if lostPage(v) {
		return errLostPage
	}
	return nil
}

// diskPage is the unit in which a power loss loses bytes.
const diskPage = 4096

// lostPage reports whether a part of the properties, which no CRC covers, is
// zero exactly as far as a page goes, or their end is: no property string ends
// with a zero byte, for the broker's own properties stand last.
func lostPage(v *message.View) bool {
	p := v.Properties
	if n := len(p); n > 0 && p[n-1] == 0 {
		return true
	}
	from := v.Position + message.Position(int(v.Size)-len(p))
	for at := (from + diskPage - 1) / diskPage * diskPage; at < from+message.Position(len(p)); at += diskPage {
		rest := p[at-from:]
		rest = rest[:min(len(rest), diskPage)]
		if len(bytes.Trim(rest, "\x00")) == 0 {
			return true
		}
	}
	return false
}

// magicStart is what all magic words of records begin with.
var magicStart = []byte{0xDA, 0xA3, 0x20}

// maxHole is how many zeros in a row end the search of a segment: so many are
// not damage but the part that was never written.
const maxHole = 64 << 20

// findGood looks for the first good record at or above from for which accept is
// true. lastUsed is the end of the last bytes seen that are not zero, from when
// all are; open tells that not all bytes were looked at.
func (r *logReader) findGood(from message.Position, accept func(*message.View) bool) (pos message.Position, found bool, lastUsed message.Position, open bool, err error) {
	var v message.View
	lastUsed = from
	for _, seg := range r.list {
		if seg.base+seg.size <= int64(from) {
			continue
		}
		hole := int64(0)
		for off := max(int64(from)-seg.base, 0); off < seg.size; {
			if hole >= maxHole {
				open = true
				break
			}
			w, err := r.bytes(seg, off, readWindow)
			if err != nil {
				return 0, false, 0, false, err
			}
			if n := len(trimZeros(w)); n > 0 {
				lastUsed = message.Position(seg.base + off + int64(n))
				hole = 0
			} else {
				hole += int64(len(w))
			}
			for at := 0; ; {
				i := bytes.Index(w[at:], magicStart)
				if i < 0 {
					break
				}
				at += i + 1
				p := message.Position(seg.base + off + int64(at-1) - 4)
				if p < from || int64(p) < seg.base {
					continue
				}
				switch err := r.good(p, &v, true); {
				case err == nil && accept(&v):
					return p, true, lastUsed, open, nil
				case err != nil && !isRecordFault(err):
					return 0, false, 0, false, err
				}
				if w, err = r.bytes(seg, off, readWindow); err != nil { // the window may have moved
					return 0, false, 0, false, err
				}
			}
			step := int64(len(w))
			if off+step < seg.size {
				step -= int64(len(magicStart) - 1) // a magic word across the windows
			}
			off += step
		}
	}
	return 0, false, lastUsed, open, nil
}

// each calls do for the good records in [from, to), and passes over what is none.
func (r *logReader) each(from, to message.Position, do func(*message.View) error) error {
	var v message.View
	for pos := from; pos < to; {
		seg := r.list.at(pos)
		if seg == nil {
			return nil
		}
		err := r.good(pos, &v, false)
		switch {
		case err == nil:
			if err := do(&v); err != nil {
				return err
			}
			pos += message.Position(v.Size)
		case errors.Is(err, message.ErrBlank):
			pos = message.Position(seg.base + seg.size)
		case isRecordFault(err):
			next, more, _, _, err := r.findGood(pos+1, func(*message.View) bool { return true })
			if err != nil || !more {
				return err
			}
			pos = next
		default:
			return err
		}
	}
	return nil
}

// trimZeros cuts zeros off the end of b.
func trimZeros(b []byte) []byte {
	for n := len(b) - len(zeros); n >= 0 && bytes.Equal(b[n:], zeros[:]); n -= len(zeros) { // much faster
		b = b[:n]
	}
	return bytes.TrimRight(b, "\x00")
}

// parentOf is the directory above.
func parentOf(dir string) string { return filepath.Dir(dir) }
