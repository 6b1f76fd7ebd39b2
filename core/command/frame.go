package command

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// HeaderType is the encoding of a frame's header: the top byte of its second
// word. The receiver decides by this byte per frame, so one conversation may mix
// both; answer with the type of the request.
type HeaderType uint8

// The header encodings.
const (
	// JSON is the text header every official client writes unless told otherwise.
	JSON HeaderType = 0
	// RocketMQ is the compact binary header. Its request code has 16 bits, so
	// the POP family (200050…) cannot travel in it.
	RocketMQ HeaderType = 1
)

// String names the type as RocketMQ's serializeTypeCurrentRPC does.
func (t HeaderType) String() string {
	switch t {
	case JSON:
		return "JSON"
	case RocketMQ:
		return "ROCKETMQ"
	}
	return fmt.Sprintf("HeaderType(%d)", uint8(t))
}

const (
	// MaxFrame is the largest whole frame, length word included, in bytes:
	// RocketMQ's com.rocketmq.remoting.frameMaxLength.
	MaxFrame = 16 << 20
	// MaxHeader is the largest header in bytes: its length has 24 bits on the wire.
	MaxHeader = 1<<24 - 1

	prefixLen = 8 // length word and header word
)

// Errors of frames and headers. Match with errors.Is; the text carries the numbers.
// After any of them the byte stream has no known position any more: close the connection.
var (
	// ErrFrameTooLarge: a frame or its header is longer than the limit.
	ErrFrameTooLarge = errors.New("remoting frame too large")
	// ErrHeader: a frame or its header is malformed.
	ErrHeader = errors.New("malformed remoting header")
)

// Limits bounds what Split accepts, in bytes. A zero field means MaxFrame, MaxHeader.
type Limits struct {
	Frame  int // whole frame, length word included
	Header int // header alone
}

// DefaultLimits are the limits of the protocol itself.
func DefaultLimits() Limits { return Limits{Frame: MaxFrame, Header: MaxHeader} }

// Frame is one frame of the protocol, or a run of encoded ones. It owns nothing:
// all slices belong to whoever made them.
//
// Incoming (made by Split): Type, Header (the header alone), Body and Raw (the
// whole frame with its prefix) alias the read buffer and are lent for as long as
// the reader says (a transport: until Arrived returns). Bodies is nil. An incoming
// frame may be sent on as it is, since Raw holds it whole.
//
// Outgoing: if Raw is not nil, Raw is a run of one or more complete encoded
// frames and nothing else is looked at. Otherwise Header holds prefix and header
// as [Writer.End] returns them, followed on the wire by Body and then by each of
// Bodies; their lengths together must be the body length told to End. Send it
// with one vectored write. The slices are lent until Send returns; a transport
// copies what the socket refuses.
type Frame struct {
	Type   HeaderType
	Header []byte
	Body   []byte
	Raw    []byte
	// Bodies are further fragments of the body, so that an answer to a pull can
	// carry several stretches of the CommitLog without copying them.
	Bodies [][]byte
}

// Len is the number of bytes an outgoing frame takes on the wire.
func (f *Frame) Len() int {
	if f.Raw != nil {
		return len(f.Raw)
	}
	n := len(f.Header) + len(f.Body)
	for _, b := range f.Bodies {
		n += len(b)
	}
	return n
}

// Append appends the wire bytes of an outgoing frame to dst.
func (f *Frame) Append(dst []byte) []byte {
	if f.Raw != nil {
		return append(dst, f.Raw...)
	}
	dst = append(append(dst, f.Header...), f.Body...)
	for _, b := range f.Bodies {
		dst = append(dst, b...)
	}
	return dst
}

// Parts appends the non-empty pieces of an outgoing frame to dst, in wire order,
// for a vectored write. The pieces alias the frame.
func (f *Frame) Parts(dst [][]byte) [][]byte {
	if f.Raw != nil {
		if len(f.Raw) > 0 {
			dst = append(dst, f.Raw)
		}
		return dst
	}
	if len(f.Header) > 0 {
		dst = append(dst, f.Header)
	}
	if len(f.Body) > 0 {
		dst = append(dst, f.Body)
	}
	for _, b := range f.Bodies {
		if len(b) > 0 {
			dst = append(dst, b)
		}
	}
	return dst
}

// Split cuts the whole frames of a read buffer and appends them to frames. The
// frames alias buf. used is the number of bytes they take; the rest, if any, is
// the beginning of a frame whose full size is want, or 0 when not even the length
// word is there. Split allocates only to grow frames.
//
// A frame above a limit gives ErrFrameTooLarge as soon as its length word is
// there, a malformed prefix ErrHeader; out and used still describe the frames
// before it.
func Split(buf []byte, frames []Frame, lim Limits) (out []Frame, used, want int, err error) {
	if lim.Frame <= 0 {
		lim.Frame = MaxFrame
	}
	if lim.Header <= 0 {
		lim.Header = MaxHeader
	}
	for len(buf)-used >= 4 {
		rest := buf[used:]
		length := binary.BigEndian.Uint32(rest)
		total := int64(length) + 4
		if total > int64(lim.Frame) {
			return frames, used, 0, fmt.Errorf("%w: frame of %d bytes, limit %d%s", ErrFrameTooLarge, total, lim.Frame, stranger([4]byte(rest)))
		}
		if length < 4 {
			return frames, used, 0, fmt.Errorf("%w: frame length %d is below 4", ErrHeader, length)
		}
		if len(rest) < prefixLen {
			return frames, used, int(total), nil
		}
		word := binary.BigEndian.Uint32(rest[4:])
		typ, hlen := HeaderType(word>>24), int(word&MaxHeader)
		if typ > RocketMQ {
			return frames, used, 0, fmt.Errorf("%w: header type %d, known are 0 (JSON) and 1 (ROCKETMQ)", ErrHeader, uint8(typ))
		}
		if hlen > lim.Header {
			return frames, used, 0, fmt.Errorf("%w: header of %d bytes, limit %d", ErrFrameTooLarge, hlen, lim.Header)
		}
		if int64(hlen) > total-prefixLen {
			return frames, used, 0, fmt.Errorf("%w: header of %d bytes in a frame of %d", ErrHeader, hlen, total)
		}
		if int64(len(rest)) < total {
			return frames, used, int(total), nil
		}
		raw := rest[:total:total]
		body := prefixLen + hlen
		frames = append(frames, Frame{Type: typ, Header: raw[prefixLen:body:body], Body: raw[body:], Raw: raw})
		used += int(total)
	}
	return frames, used, 0, nil
}

// stranger says what begins with these bytes, when it is no frame but what often comes to
// or from a port that is another one than somebody thought.
func stranger(b [4]byte) string {
	if (b[0] == 0x15 || b[0] == 0x16) && b[1] == 3 { // alert, handshake
		return "; it is TLS"
	}
	for _, c := range b {
		if c < ' ' || c > '~' {
			return ""
		}
	}
	return fmt.Sprintf("; it begins with %q, which is another protocol", b[:])
}
