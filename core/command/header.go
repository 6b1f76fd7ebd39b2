package command

import (
	"fmt"
	"strconv"
	"unsafe"
)

// Bits of the flag word.
const (
	FlagResponse int32 = 1 << 0 // RPC_TYPE: the frame is a response
	FlagOneway   int32 = 1 << 1 // RPC_ONEWAY: the sender wants no answer (Go clients never set it)
)

// MaxExtFields is the most ext fields a header may carry.
const MaxExtFields = 256

const (
	maxDepth    = 32       // of nested values that are skipped
	keepScratch = 64 << 10 // largest scratch kept from one Decode to the next
	fullScratch = 1 << 20  // DecodeMore starts a new scratch above this
)

// Header is a decoded frame header of either encoding and the state to decode
// the next one: reuse it, then nothing is allocated. Ext fields are kept as
// offsets into the frame and looked at when asked for.
//
// What Remark, Ext and Fields return aliases the frame or, if it had escapes, a
// scratch buffer of the Header: it lives as long as the frame and until the next
// Decode. Not for concurrent use; its readers alone may run at the same time.
type Header struct {
	Type     HeaderType
	Language Language
	Code     int32 // request or response code, as IsResponse says
	Version  int32 // MQVersion ordinal of the sender
	Opaque   int32 // echoed in the response
	Flag     int32

	raw     []byte
	scratch []byte
	fields  []extField
	slots   [slotCount]uint16 // see slotOf; 1 + index of the last field in a slot, 0: none
	remark  span
	last    repeat
}

// span is a piece of text. With from above zero it is in raw, below zero in
// scratch from ^from on; the zero span is null, for no text begins at byte 0.
type span struct{ from, to int32 }

func (s span) null() bool { return s.from == 0 }

// extField is one field and the one before it in the same slot, as in slots.
type extField struct {
	key, value span
	next       uint16
}

// Slots spread the fields by name, so that a typed header finds each of its
// fields at once whatever their order; Go clients shuffle them. Each small letter
// has a slot of its own, for the field with that name alone; the others share the
// rest.
const (
	letterSlots = 'z' - 'a' + 1
	longSlots   = 32
	slotCount   = 2 * longSlots
)

// slotOf is the slot of a name. The factors leave the fewest names of one typed
// header in one slot.
func slotOf(key string) uint {
	n := uint(len(key))
	if n == 0 {
		return longSlots
	}
	if n == 1 && key[0]-'a' < letterSlots {
		return uint(key[0] - 'a')
	}
	return longSlots + (uint(key[0])+9*uint(key[n-1])+3*uint(key[n/2])+4*n)%longSlots
}

// Decode reads the header of f (Type and Header are looked at) and forgets what
// was decoded before. Errors wrap ErrHeader; then the Header's content is void.
func (h *Header) Decode(f *Frame) error {
	if cap(h.scratch) > keepScratch {
		h.scratch = nil
	}
	h.scratch = h.scratch[:0]
	return h.decode(f)
}

// DecodeMore is Decode, except that what was returned from earlier frames stays
// valid until the next Decode: for one batch of frames whose fields are needed
// together.
func (h *Header) DecodeMore(f *Frame) error {
	if len(h.scratch) > fullScratch {
		h.scratch = nil // the older views keep the old array alive
	}
	return h.decode(f)
}

func (h *Header) decode(f *Frame) error {
	l := &h.last
	l.seq++
	if len(l.text) > 0 && f.Type == JSON && len(f.Header) <= MaxHeader && h.decodeRepeat(f.Header) {
		l.misses = 0
		return nil
	}
	l.text, l.changed, l.opaqueAt = l.text[:0], allChanged, span{}
	h.Type, h.Language, h.Code, h.Version, h.Opaque, h.Flag = f.Type, LanguageJava, 0, 0, 0, 0
	h.raw, h.remark = f.Header, span{}
	h.dropFields()
	if len(f.Header) > MaxHeader {
		return fmt.Errorf("%w: %d bytes, a header has at most %d", ErrHeader, len(f.Header), MaxHeader)
	}
	switch f.Type {
	case JSON:
		err := h.decodeJSON(f.Header)
		if err == nil {
			h.remember(f.Header)
		}
		return err
	case RocketMQ:
		return h.decodeBinary(f.Header)
	}
	return fmt.Errorf("%w: header type %d, known are 0 (JSON) and 1 (ROCKETMQ)", ErrHeader, uint8(f.Type))
}

// IsResponse tells a response from a request.
func (h *Header) IsResponse() bool { return h.Flag&FlagResponse != 0 }

// IsOneway tells whether the sender of a request wants no answer.
func (h *Header) IsOneway() bool { return h.Flag&FlagOneway != 0 }

// Remark is the human-readable text of the header, nil if there is none.
func (h *Header) Remark() []byte { return h.text(h.remark) }

// text is a span's text, nil if it is null.
func (h *Header) text(s span) []byte {
	if s.from > 0 {
		return h.raw[s.from:s.to:s.to]
	}
	if s.from < 0 {
		return h.scratch[^s.from:s.to:s.to]
	}
	return nil
}

// letter returns the value of the last field whose name is that small letter,
// null if there is none.
func (h *Header) letter(c byte) span {
	if n := h.slots[(c-'a')%slotCount]; n != 0 {
		return h.fields[n-1].value
	}
	return span{}
}

// find returns the value of the last field named key, since the last duplicate
// wins; null if there is none.
func (h *Header) find(key string) span {
	for n := h.slots[slotOf(key)%slotCount]; n != 0; {
		f := &h.fields[n-1]
		if string(h.text(f.key)) == key {
			return f.value
		}
		n = f.next
	}
	return span{}
}

// Ext returns the ext field named key; false if it is missing or null.
func (h *Header) Ext(key string) ([]byte, bool) {
	v := h.find(key)
	return h.text(v), !v.null()
}

// ExtString is Ext as a string of its own, "" if missing.
func (h *Header) ExtString(key string) string {
	v, _ := h.Ext(key)
	return string(v)
}

// ExtInt32 parses the ext field named key as a decimal number. A present value
// that is none, or exceeds 32 bits, gives a *FieldError.
func (h *Header) ExtInt32(key string) (v int32, ok bool, err error) {
	n, ok, err := h.extInt(key, 32)
	return int32(n), ok, err
}

// ExtInt64 is ExtInt32 for 64 bits.
func (h *Header) ExtInt64(key string) (v int64, ok bool, err error) { return h.extInt(key, 64) }

func (h *Header) extInt(key string, bits int) (int64, bool, error) {
	t, ok := h.Ext(key)
	if !ok {
		return 0, false, nil
	}
	n, why := parseInt(t, bits)
	if why != "" {
		return 0, true, &FieldError{Code: h.Code, Field: key, Value: clip(t), Reason: why}
	}
	return n, true, nil
}

// ExtBool is true when the ext field named key reads "true" in any case; as in
// Java every other text is false.
func (h *Header) ExtBool(key string) (v, ok bool) {
	t, ok := h.Ext(key)
	return isTrue(t), ok
}

// Fields calls f for each ext field in the order of the frame, nulls left out
// and of duplicates only the last, until f returns false.
func (h *Header) Fields(f func(key, value []byte) bool) {
	for i := range h.fields {
		x := &h.fields[i]
		if x.value.null() || h.shadowed(i) {
			continue
		}
		if !f(h.text(x.key), h.text(x.value)) {
			return
		}
	}
}

// shadowed tells whether a later field has the name of field i.
func (h *Header) shadowed(i int) bool {
	key := h.text(h.fields[i].key)
	n := int(h.slots[slotOf(bytesString(key))%slotCount])
	for n != i+1 && string(h.text(h.fields[n-1].key)) != string(key) {
		n = int(h.fields[n-1].next)
	}
	return n != i+1
}

func (h *Header) dropFields() {
	h.fields, h.slots = h.fields[:0], [slotCount]uint16{}
}

// addField adds a field whose key has a slot; false if there are too many.
func (h *Header) addField(key, value span, slot uint) bool {
	n := len(h.fields)
	if n >= MaxExtFields {
		return false
	}
	s := &h.slots[slot%slotCount]
	h.fields = append(h.fields, extField{key, value, *s})
	*s = uint16(n + 1)
	return true
}

func errTooManyFields() error {
	return fmt.Errorf("%w: more than %d ext fields", ErrHeader, MaxExtFields)
}

// FieldError reports a typed header field that is missing or unusable.
type FieldError struct {
	Code   int32  // request code, or the response code of a response
	Field  string // ext key
	Value  string // what it held, shortened; "" if missing
	Reason string
}

func (e *FieldError) Error() string {
	return "header field " + strconv.Quote(e.Field) + " = " + strconv.Quote(e.Value) + " of code " + strconv.Itoa(int(e.Code)) + ": " + e.Reason
}

// clip shortens hostile text for messages.
func clip(b []byte) string {
	if len(b) > 64 {
		return string(b[:64]) + "…"
	}
	return string(b)
}

// bytesString views b as a string that is not kept.
func bytesString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func isTrue(b []byte) bool {
	return len(b) == 4 && b[0]|0x20 == 't' && b[1]|0x20 == 'r' && b[2]|0x20 == 'u' && b[3]|0x20 == 'e'
}

const (
	maxUint64  = 1<<64 - 1
	notDecimal = "not a decimal number"
	tooBig32   = "does not fit 32 bits"
	tooBig64   = "does not fit 64 bits"
)

// parseInt accepts what Java's parseInt and parseLong do: digits with one
// optional sign. why is empty on success.
func parseInt(b []byte, bits int) (n int64, why string) {
	neg := false
	d := b
	if len(d) > 0 && (d[0] == '-' || d[0] == '+') {
		neg, d = d[0] == '-', d[1:]
	}
	if len(d) == 0 {
		return 0, notDecimal
	}
	var u uint64
	if len(d) < 19 { // cannot wrap
		for _, c := range d {
			c -= '0'
			if c > 9 {
				return 0, notDecimal
			}
			u = u*10 + uint64(c)
		}
	} else if u, why = parseLong(d); why != "" {
		return 0, why
	}
	limit := uint64(1)<<(bits-1) - 1
	if neg {
		limit++
	}
	if u > limit {
		if bits == 32 {
			return 0, tooBig32
		}
		return 0, tooBig64
	}
	if neg {
		return -int64(u), ""
	}
	return int64(u), ""
}

// parseLong reads digits of any number; too large ones become maxUint64.
func parseLong(d []byte) (u uint64, why string) {
	over := false
	for _, c := range d {
		c -= '0'
		if c > 9 {
			return 0, notDecimal
		}
		if over = over || u > maxUint64/10-1; !over {
			u = u*10 + uint64(c)
		}
	}
	if over {
		return maxUint64, ""
	}
	return u, ""
}
