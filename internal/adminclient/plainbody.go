package adminclient

import (
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/hardpointmq/hardpoint/core/message"
)

// ErrCompression: a body is compressed in a way that nobody knows. Test with errors.Is.
var ErrCompression = errors.New("the body is compressed")

// largestWindow bounds what a body in zstd can make its decoder keep: more than the
// largest messages need.
const largestWindow = 64 << 20

// decompressors are what reads a body, by the bits 0x700 of the message's flags
// (CompressionType of RocketMQ).
var decompressors = [8]func(io.Reader) (io.ReadCloser, error){
	0: zlib.NewReader, // of clients that know no other
	1: func(r io.Reader) (io.ReadCloser, error) { return io.NopCloser(lz4.NewReader(r)), nil },
	2: func(r io.Reader) (io.ReadCloser, error) {
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(largestWindow))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	},
	3: zlib.NewReader,
}

// PlainBody is the body, decompressed (zlib, lz4 in frames, zstd), and cut behind most
// bytes. A body whose compression has no name is ErrCompression.
func (m *Message) PlainBody(most int) (body []byte, cut bool, err error) {
	body = m.Body
	if m.SysFlag&message.SysCompressed != 0 {
		if body, err = m.decompressed(int64(most) + 1); err != nil {
			return nil, false, err
		}
	}
	if len(body) > most {
		return body[:most], true, nil
	}
	return body, false, nil
}

// decompressed is the body, of which no more than most bytes are read.
func (m *Message) decompressed(most int64) ([]byte, error) {
	kind := m.SysFlag >> 8 & 7
	open := decompressors[kind]
	if open == nil {
		return nil, fmt.Errorf("%w with type %d, which is not known, %d bytes", ErrCompression, kind, len(m.Body))
	}
	z, err := open(bytes.NewReader(m.Body))
	if err != nil {
		return nil, fmt.Errorf("the body cannot be decompressed: %w", err)
	}
	body, err := io.ReadAll(io.LimitReader(z, most))
	if err = errors.Join(err, z.Close()); err != nil {
		return nil, fmt.Errorf("the body cannot be decompressed: %w", err)
	}
	return body, nil
}
