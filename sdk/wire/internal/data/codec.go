package data

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Decoder reads a body. After the first fault every value is zero and Fault is
// set.
type Decoder struct {
	B     []byte // what is left
	Fault bool
}

// Uint reads an unsigned varint.
func (d *Decoder) Uint() uint64 {
	v, n := binary.Uvarint(d.B)
	if n <= 0 {
		d.Fault, d.B = true, nil
		return 0
	}
	d.B = d.B[n:]
	return v
}

// Int reads a signed varint.
func (d *Decoder) Int() int64 {
	v, n := binary.Varint(d.B)
	if n <= 0 {
		d.Fault, d.B = true, nil
		return 0
	}
	d.B = d.B[n:]
	return v
}

// Int32 reads a signed varint and refuses what does not fit.
func (d *Decoder) Int32() int32 {
	v := d.Int()
	if v < math.MinInt32 || v > math.MaxInt32 {
		d.Fault, d.B = true, nil
		return 0
	}
	return int32(v)
}

// Count reads how many elements follow, each of at least size bytes.
func (d *Decoder) Count(size int) int {
	n := d.Uint()
	if n > uint64(len(d.B)/size) {
		d.Fault, d.B = true, nil
		return 0
	}
	return int(n)
}

// Bytes reads bytes that have their number before them; they alias the body.
func (d *Decoder) Bytes() []byte {
	n := d.Count(1)
	b := d.B[:n:n]
	d.B = d.B[n:]
	return b
}

// Done is the error of a body that is read whole.
func (d *Decoder) Done(what string) error {
	if d.Fault {
		return fmt.Errorf("%w: a body of %s ends early or holds a number out of range", ErrFrame, what)
	}
	if len(d.B) > 0 {
		return fmt.Errorf("%w: %d bytes behind the end of %s", ErrFrame, len(d.B), what)
	}
	return nil
}

// PutUint appends what Decoder.Uint reads.
func PutUint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

// PutInt appends what Decoder.Int reads.
func PutInt[T ~int64 | ~int32](b []byte, v T) []byte {
	return binary.AppendVarint(b, int64(v))
}

// PutString appends what Decoder.Bytes reads.
func PutString[T ~string | ~[]byte](b []byte, s T) []byte {
	return append(PutUint(b, uint64(len(s))), s...)
}

// PutBool appends 1 or 0.
func PutBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}
