// Package data is what the data sockets of plugin processes have in common: raw
// frames, how numbers and batches of records stand in them, and how both ends
// find each other.
package data

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// Kind is what a frame is; the protocol of each data socket has its own, from 1
// on.
type Kind uint8

// HeadSize: uint32 length of the body, uint8 kind, 3 bytes zero, uint64 id,
// int64 nanoseconds that the caller still has (0: no deadline). Little endian.
const HeadSize = 24

// MaxFrame bounds a body. A batch lies in one segment, and answers are bounded
// by what was asked for.
const MaxFrame = 1 << 30

// ErrFrame: the other end does not speak the protocol, or speaks another version.
var ErrFrame = errors.New("malformed frame on the data socket of a plugin")

// Head begins a frame.
type Head struct {
	Size uint32
	Kind Kind
	ID   uint64
	// Timeout is in nanoseconds, 0 for no deadline.
	Timeout int64
}

// Put writes the head to b, which has room for it.
func (h *Head) Put(b []byte) {
	binary.LittleEndian.PutUint32(b, h.Size)
	b[4], b[5], b[6], b[7] = byte(h.Kind), 0, 0, 0
	binary.LittleEndian.PutUint64(b[8:], h.ID)
	binary.LittleEndian.PutUint64(b[16:], uint64(h.Timeout))
}

// Context is that of a call: it ends with parent, and when the caller has no time
// left.
func (h *Head) Context(parent context.Context) (context.Context, context.CancelFunc) {
	if h.Timeout > 0 {
		return context.WithTimeout(parent, time.Duration(h.Timeout))
	}
	return context.WithCancel(parent)
}

// ParseHead reads a head; last is the highest kind that there is.
func ParseHead(b []byte, last Kind) (Head, error) {
	h := Head{
		Size: binary.LittleEndian.Uint32(b), Kind: Kind(b[4]),
		ID: binary.LittleEndian.Uint64(b[8:]), Timeout: int64(binary.LittleEndian.Uint64(b[16:])),
	}
	if h.Size > MaxFrame {
		return h, fmt.Errorf("%w: a body of %d bytes, at most %d are allowed", ErrFrame, h.Size, MaxFrame)
	}
	if h.Kind == 0 || h.Kind > last || h.Timeout < 0 {
		return h, fmt.Errorf("%w: kind %d, timeout %d", ErrFrame, h.Kind, h.Timeout)
	}
	return h, nil
}

// Begin starts a frame in b.
func Begin(b []byte) []byte { return append(b, make([]byte, HeadSize)...) }

// Finish completes the frame that begins at b[start] when its body is appended,
// with tail bytes to follow in other buffers.
func Finish(b []byte, start int, k Kind, id uint64, timeout int64, tail int) {
	h := Head{Size: uint32(len(b) - start - HeadSize + tail), Kind: k, ID: id, Timeout: timeout}
	h.Put(b[start:])
}

// KeepSize is the size above which buffers are dropped after use.
const KeepSize = 8 << 20

const readerSize = 128 << 10

// Reader reads frames into one buffer. A frame that is alone in flight
// costs one system call and no copy.
type Reader struct {
	r          io.Reader
	last       Kind
	buf        []byte
	start, end int // of what was read and not yet returned
}

// NewReader makes a Reader of frames whose kinds are 1 to last.
func NewReader(r io.Reader, last Kind) *Reader {
	return &Reader{r: r, last: last, buf: make([]byte, readerSize)}
}

// Next returns a frame; its body is valid until the next call.
func (f *Reader) Next() (Head, []byte, error) {
	if n := copy(f.buf, f.buf[f.start:f.end]); true {
		f.start, f.end = 0, n
	}
	if len(f.buf) > KeepSize && f.end < readerSize {
		f.buf = append(make([]byte, 0, readerSize), f.buf[:f.end]...)[:readerSize]
	}
	if err := f.fill(HeadSize); err != nil {
		return Head{}, nil, err
	}
	h, err := ParseHead(f.buf, f.last)
	if err != nil {
		return h, nil, err
	}
	whole := HeadSize + int(h.Size)
	if err := f.fill(whole); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return h, nil, err
	}
	f.start = whole
	return h, f.buf[HeadSize:whole:whole], nil
}

// fill reads until n bytes are there. It grows the buffer with what has really
// arrived, so that a length alone reserves no memory.
func (f *Reader) fill(n int) error {
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

// TakeBuffer gives an empty buffer.
func TakeBuffer() *[]byte { return buffers.Get().(*[]byte) }

// GiveBuffer takes it back.
func GiveBuffer(b *[]byte) {
	if cap(*b) > KeepSize {
		return
	}
	*b = (*b)[:0]
	buffers.Put(b)
}

// Sender writes frames to a connection, each with one system call. Safe for
// concurrent use.
type Sender struct {
	Conn io.ReadWriteCloser

	mu   sync.Mutex
	vec  net.Buffers
	back [8][]byte
}

// Send writes first and then rest; a nil error says that all of it is on its
// way.
func (s *Sender) Send(first []byte, rest ...[]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(rest) == 0 {
		_, err := s.Conn.Write(first)
		return err
	}
	s.vec = append(append(s.back[:0], first), rest...)
	_, err := s.vec.WriteTo(s.Conn)
	clear(s.back[:])
	s.vec = nil
	return err
}

// bodyStep bounds what is reserved before bytes arrive.
const bodyStep = 1 << 20

// ReadBody appends n bytes.
func ReadBody(b []byte, in io.Reader, n int) ([]byte, error) {
	for n > 0 {
		step := min(n, max(bodyStep, len(b)))
		start := len(b)
		if cap(b)-start < step {
			b = append(make([]byte, 0, start+step), b...)
		}
		b = b[:start+step]
		if _, err := io.ReadFull(in, b[start:]); err != nil {
			return b[:start], err
		}
		n -= step
	}
	return b, nil
}

// Left is what remains of a context's time in nanoseconds, 0 without a deadline. The
// error is that of a context that is over.
func Left(ctx context.Context) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	d, ok := ctx.Deadline()
	if !ok {
		return 0, nil
	}
	return max(int64(time.Until(d)), 1), nil
}

// ReadAlone reads a frame after which nothing comes unasked, with one system call
// when it fits into b. b holds what of it was read before; what comes back begins
// with the head, and after an error it is what there is, so that a read that was
// broken off can go on.
func ReadAlone(r io.Reader, b []byte, last Kind) (h Head, _ []byte, err error) {
	for need := HeadSize; ; {
		for len(b) < need {
			if len(b) == cap(b) { // what has not arrived reserves little memory
				b = slices.Grow(b, min(max(need-len(b), 4096), max(cap(b), bodyStep)))
			}
			n, err := r.Read(b[len(b):cap(b)])
			b = b[:len(b)+n]
			if err == nil || len(b) >= need {
				continue
			}
			if errors.Is(err, io.EOF) && len(b) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return h, b, err
		}
		if h, err = ParseHead(b, last); err != nil {
			return h, b, err
		}
		switch whole := HeadSize + int(h.Size); {
		case len(b) == whole:
			return h, b, nil
		case len(b) > whole:
			return h, b, fmt.Errorf("%w: %d bytes behind frame %d, which comes alone", ErrFrame, len(b)-whole, h.ID)
		default:
			need = whole
		}
	}
}
