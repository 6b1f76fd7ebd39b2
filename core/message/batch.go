package message

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrBatch marks a client batch whose lengths disagree. Test with errors.Is.
var ErrBatch = errors.New("malformed batch")

// batchFixed is the size of a batch entry but for body and properties.
const batchFixed = 22

// BatchItem is one message of a client batch (SEND_BATCH_MESSAGE). The slices
// alias the batch.
type BatchItem struct {
	Flag       int32
	Body       []byte
	Properties []byte
}

// NextBatchItem reads the first entry of a batch body and returns what follows
// it. The entry's magic and CRC are ignored, as RocketMQ does
// (MessageDecoder.encodeMessage). Errors match ErrBatch.
func NextBatchItem(b []byte, it *BatchItem) (rest []byte, err error) {
	be := binary.BigEndian
	if len(b) < batchFixed {
		return nil, fmt.Errorf("%w: %d bytes left, an entry has at least %d", ErrBatch, len(b), batchFixed)
	}
	total := int(int32(be.Uint32(b)))
	if total < batchFixed || total > len(b) {
		return nil, fmt.Errorf("%w: entry of %d bytes where %d are left", ErrBatch, total, len(b))
	}
	e := b[:total:total]
	it.Flag = int32(be.Uint32(e[12:]))
	n := int(int32(be.Uint32(e[16:])))
	if n < 0 || n > total-batchFixed {
		return nil, fmt.Errorf("%w: body of %d bytes in an entry of %d", ErrBatch, n, total)
	}
	it.Body = e[20 : 20+n]
	p := int(int16(be.Uint16(e[20+n:])))
	if p != total-batchFixed-n {
		return nil, fmt.Errorf("%w: properties of %d bytes where %d remain", ErrBatch, p, total-batchFixed-n)
	}
	it.Properties = e[22+n:]
	return b[total:], nil
}

// AppendBatchItem appends an entry to a batch body; properties are at most
// MaxProperties bytes long.
func AppendBatchItem(dst []byte, it BatchItem) []byte {
	be := binary.BigEndian
	dst = be.AppendUint32(dst, uint32(batchFixed+len(it.Body)+len(it.Properties)))
	dst = be.AppendUint64(dst, 0)
	dst = be.AppendUint32(dst, uint32(it.Flag))
	dst = be.AppendUint32(dst, uint32(len(it.Body)))
	dst = append(dst, it.Body...)
	dst = be.AppendUint16(dst, uint16(len(it.Properties)))
	return append(dst, it.Properties...)
}
