package storagewire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// kind is what a frame is.
type kind uint8

// Kinds of frames. Requests go to the plugin, the others to the host.
const (
	kindAppend kind = iota + 1
	kindPublish
	kindTruncate
	kindReset
	kindExpire
	kindDrop
	kindSync
	kindRead
	kindGet
	kindReadLog
	kindOffsets
	kindCancel // of the request with the same id; on the read connection
	kindDone   // answer without an error
	kindFailed // answer: a Failure
	kindEvent
)

// headSize: uint32 length of the body, uint8 kind, 3 bytes zero, uint64 id,
// int64 nanoseconds that the caller still has (0: no deadline). Little endian.
const headSize = 24

// maxFrame bounds a body. A batch lies in one segment, and answers are bounded
// by what was asked for.
const maxFrame = 1 << 30

var errFrame = errors.New("malformed frame on the data socket of a storage plugin")

type head struct {
	size    uint32
	kind    kind
	id      uint64
	timeout int64
}

func (h *head) put(b []byte) {
	binary.LittleEndian.PutUint32(b, h.size)
	b[4], b[5], b[6], b[7] = byte(h.kind), 0, 0, 0
	binary.LittleEndian.PutUint64(b[8:], h.id)
	binary.LittleEndian.PutUint64(b[16:], uint64(h.timeout))
}

func parseHead(b []byte) (head, error) {
	h := head{
		size: binary.LittleEndian.Uint32(b), kind: kind(b[4]),
		id: binary.LittleEndian.Uint64(b[8:]), timeout: int64(binary.LittleEndian.Uint64(b[16:])),
	}
	if h.size > maxFrame {
		return h, fmt.Errorf("%w: a body of %d bytes, at most %d are allowed", errFrame, h.size, maxFrame)
	}
	if h.kind < kindAppend || h.kind > kindEvent || h.timeout < 0 {
		return h, fmt.Errorf("%w: kind %d, timeout %d", errFrame, h.kind, h.timeout)
	}
	return h, nil
}

// begin starts a frame in b; finish completes it when the body is appended, with
// tail bytes to follow in other buffers.
func begin(b []byte) []byte { return append(b, make([]byte, headSize)...) }

func finish(b []byte, start int, k kind, id uint64, timeout int64, tail int) {
	h := head{size: uint32(len(b) - start - headSize + tail), kind: k, id: id, timeout: timeout}
	h.put(b[start:])
}

const (
	readerSize = 128 << 10
	keepSize   = 8 << 20 // larger buffers are dropped after use
)

// frameReader reads frames into one buffer. A frame that is alone in flight
// costs one system call and no copy.
type frameReader struct {
	r          io.Reader
	buf        []byte
	start, end int // of what was read and not yet returned
}

func newFrameReader(r io.Reader) *frameReader {
	return &frameReader{r: r, buf: make([]byte, readerSize)}
}

// next returns a frame; its body is valid until the next call.
func (f *frameReader) next() (head, []byte, error) {
	if n := copy(f.buf, f.buf[f.start:f.end]); true {
		f.start, f.end = 0, n
	}
	if len(f.buf) > keepSize && f.end < readerSize {
		f.buf = append(make([]byte, 0, readerSize), f.buf[:f.end]...)[:readerSize]
	}
	if err := f.fill(headSize); err != nil {
		return head{}, nil, err
	}
	h, err := parseHead(f.buf)
	if err != nil {
		return h, nil, err
	}
	whole := headSize + int(h.size)
	if err := f.fill(whole); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return h, nil, err
	}
	f.start = whole
	return h, f.buf[headSize:whole:whole], nil
}

// fill reads until n bytes are there. It grows the buffer with what has really
// arrived, so that a length alone reserves no memory.
func (f *frameReader) fill(n int) error {
	for f.end < n {
		if f.end == len(f.buf) {
			grown := make([]byte, min(max(2*len(f.buf), readerSize), max(n, readerSize)))
			copy(grown, f.buf[:f.end])
			f.buf = grown
		}
		m, err := f.r.Read(f.buf[f.end:])
		f.end += m
		if err != nil && f.end < n {
			if err == io.EOF && f.end > 0 {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// buffers are shared by requests and answers.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 4096); return &b }}

func takeBuffer() *[]byte { return buffers.Get().(*[]byte) }

func giveBuffer(b *[]byte) {
	if cap(*b) > keepSize {
		return
	}
	*b = (*b)[:0]
	buffers.Put(b)
}

// sender writes frames to a connection, each with one system call.
type sender struct {
	mu   sync.Mutex
	conn net.Conn
	vec  net.Buffers
	back [8][]byte
}

// send writes first and then rest; a nil error says that all of it is on its
// way.
func (s *sender) send(first []byte, rest ...[]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(rest) == 0 {
		_, err := s.conn.Write(first)
		return err
	}
	s.vec = append(append(s.back[:0], first), rest...)
	_, err := s.vec.WriteTo(s.conn)
	clear(s.back[:])
	s.vec = nil
	return err
}
