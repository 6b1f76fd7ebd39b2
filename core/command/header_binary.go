package command

import (
	"encoding/binary"
	"fmt"
)

// The binary header: code int16, language int8, version int16, opaque int32,
// flag int32, remark length int32, remark, ext length int32, ext entries of key
// length int16, key, value length int32, value. All big-endian.
const (
	binRemarkLen = 13
	binFixed     = 17 // up to and with the remark length
)

func (h *Header) decodeBinary(b []byte) error {
	if len(b) < binFixed+4 {
		return fmt.Errorf("%w: %d bytes, a binary header has at least %d", ErrHeader, len(b), binFixed+4)
	}
	h.Code = int32(int16(binary.BigEndian.Uint16(b)))
	h.Language = languageByOrdinal(int64(b[2]))
	h.Version = int32(int16(binary.BigEndian.Uint16(b[3:])))
	h.Opaque = int32(binary.BigEndian.Uint32(b[5:]))
	h.Flag = int32(binary.BigEndian.Uint32(b[9:]))
	n := int64(int32(binary.BigEndian.Uint32(b[binRemarkLen:])))
	if n < 0 || n > int64(len(b)-binFixed-4) {
		return fmt.Errorf("%w: remark of %d bytes in a header of %d", ErrHeader, n, len(b))
	}
	i := binFixed + int(n)
	h.remark = binSpan(binFixed, i)
	n = int64(int32(binary.BigEndian.Uint32(b[i:])))
	i += 4
	if n != int64(len(b)-i) {
		return fmt.Errorf("%w: ext section of %d bytes, %d are left of the header", ErrHeader, n, len(b)-i)
	}
	for i < len(b) {
		if len(b)-i < 2 {
			return fmt.Errorf("%w: ext entry cut off at byte %d", ErrHeader, i)
		}
		klen := int(int16(binary.BigEndian.Uint16(b[i:])))
		i += 2
		if klen < 0 || klen > len(b)-i-4 {
			return fmt.Errorf("%w: ext key of %d bytes at byte %d of %d", ErrHeader, klen, i, len(b))
		}
		key := binSpan(i, i+klen)
		i += klen
		vlen := int64(int32(binary.BigEndian.Uint32(b[i:])))
		i += 4
		if vlen < 0 || vlen > int64(len(b)-i) {
			return fmt.Errorf("%w: ext value of %d bytes at byte %d of %d", ErrHeader, vlen, i, len(b))
		}
		value := binSpan(i, i+int(vlen))
		i += int(vlen)
		if !key.null() && !h.addField(key, value, slotOf(bytesString(h.text(key)))) {
			return errTooManyFields()
		}
	}
	return nil
}

// binSpan is null for no bytes: Java reads a string of length zero as null.
func binSpan(from, to int) span {
	if from == to {
		return span{}
	}
	return span{int32(from), int32(to)}
}
