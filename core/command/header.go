package command

import (
	"fmt"
	"strconv"
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
// Decode. Not for concurrent use, nor are its readers, for they unescape lazily.
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
	remark  span
}

// span is a piece of text: of raw, of raw with escapes, or of scratch.
type span struct {
	from, to int32
	kind     spanKind
}

type spanKind uint8

const (
	spanNull spanKind = iota
	spanRaw
	spanEscaped
	spanScratch
)

type extField struct{ key, value span }

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
	h.Type, h.Language, h.Code, h.Version, h.Opaque, h.Flag = f.Type, LanguageJava, 0, 0, 0, 0
	h.raw, h.fields, h.remark = f.Header, h.fields[:0], span{}
	if len(f.Header) > MaxHeader {
		return fmt.Errorf("%w: %d bytes, a header has at most %d", ErrHeader, len(f.Header), MaxHeader)
	}
	switch f.Type {
	case JSON:
		return h.decodeJSON(f.Header)
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
func (h *Header) Remark() []byte { return h.text(&h.remark) }

// text returns a span's text, unescaping it on first use.
func (h *Header) text(s *span) []byte {
	switch s.kind {
	case spanRaw:
		return h.raw[s.from:s.to:s.to]
	case spanEscaped:
		h.unescapeSpan(s)
		fallthrough
	case spanScratch:
		return h.scratch[s.from:s.to:s.to]
	}
	return nil
}

func (h *Header) unescapeSpan(s *span) {
	from := len(h.scratch)
	h.scratch = appendUnescaped(h.scratch, h.raw[s.from:s.to])
	*s = span{int32(from), int32(len(h.scratch)), spanScratch}
}

// find returns the last field named key, since the last duplicate wins.
func (h *Header) find(key string) *extField {
	for i := len(h.fields) - 1; i >= 0; i-- {
		f := &h.fields[i]
		if int(f.key.to-f.key.from) == len(key) && string(h.text(&f.key)) == key {
			return f
		}
	}
	return nil
}

// Ext returns the ext field named key; false if it is missing or null.
func (h *Header) Ext(key string) ([]byte, bool) {
	f := h.find(key)
	if f == nil || f.value.kind == spanNull {
		return nil, false
	}
	return h.text(&f.value), true
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
		if x.value.kind == spanNull || h.shadowed(i) {
			continue
		}
		if !f(h.text(&x.key), h.text(&x.value)) {
			return
		}
	}
}

// shadowed tells whether a later field has the name of field i.
func (h *Header) shadowed(i int) bool {
	k := &h.fields[i].key
	for j := i + 1; j < len(h.fields); j++ {
		l := &h.fields[j].key
		if k.to-k.from == l.to-l.from && string(h.text(k)) == string(h.text(l)) {
			return true
		}
	}
	return false
}

func (h *Header) addField(key, value span) bool {
	if len(h.fields) >= MaxExtFields {
		return false
	}
	h.fields = append(h.fields, extField{key, value})
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
	over := false
	for i, c := range d {
		c -= '0'
		if c > 9 {
			return 0, notDecimal
		}
		if i >= 19 && u > maxUint64/10-1 { // 19 digits cannot wrap, nor can more with this
			over = true
			continue
		}
		u = u*10 + uint64(c)
	}
	limit := uint64(1)<<(bits-1) - 1
	if neg {
		limit++
	}
	over = over || u > limit
	if over {
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
