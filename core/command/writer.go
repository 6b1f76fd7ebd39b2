package command

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
	"unsafe"
)

// ErrHeaderTooLarge: a header to be written is longer than MaxHeader, an ext key
// longer than the binary header's 32767 bytes, or a frame longer than its length
// word can say.
var ErrHeaderTooLarge = errors.New("remoting header too large")

// extOpen begins the ext fields of a JSON header.
const extOpen = `,"extFields":{`

const (
	maxRemark = 64 << 10 // bytes; longer remarks are cut
	maxExtKey = 1<<15 - 1
)

// Writer encodes one header behind a byte slice. Make it with Begin, finish it
// with End. It is a value: kept in a local variable it allocates nothing but what
// the slice must grow. JSON is written as Java writes it: members in alphabetical
// order, no white space, ext values always strings.
type Writer struct {
	Language Language // LanguageGo unless changed before End
	Version  int32    // Version unless changed before End

	buf                []byte
	remark             string
	err                error
	code, opaque, flag int32
	start              int // of the frame in buf
	ext                int // JSON: number of fields; binary: unused
	typ                HeaderType
}

// Begin starts a frame of type t behind dst: prefix and header go there, the
// body does not. flag is 0 for a request, FlagResponse for a response, with
// FlagOneway where no answer is wanted. A code that needs more than the 16 bits
// of the binary header is written as JSON.
func Begin(dst []byte, t HeaderType, code, opaque, flag int32) Writer {
	if t == RocketMQ && code != int32(int16(code)) {
		t = JSON
	}
	w := Writer{Language: LanguageGo, Version: Version, code: code, opaque: opaque, flag: flag, start: len(dst), typ: t}
	if t == RocketMQ {
		var fixed [prefixLen + binFixed + 4]byte
		w.buf = append(dst, fixed[:]...)
		return w
	}
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	dst = append(dst, `{"code":`...)
	w.buf = strconv.AppendInt(dst, int64(code), 10)
	return w
}

// Remark sets the human-readable text; "" leaves it out. Above 64 KiB it is cut.
func (w *Writer) Remark(s string) {
	if len(s) > maxRemark {
		s = s[:maxRemark]
		for len(s) > 0 && !utf8.RuneStart(s[len(s)-1]) {
			s = s[:len(s)-1]
		}
		if len(s) > 0 && s[len(s)-1] >= utf8.RuneSelf {
			s = s[:len(s)-1]
		}
	}
	w.remark = s
}

// Ext adds an ext field. Writing the same key twice is the caller's mistake;
// readers take the last.
func (w *Writer) Ext(key, value string) { w.ExtBytes(key, stringBytes(value)) }

// ExtBytes is Ext for bytes, which are copied. Invalid UTF-8 is replaced by
// U+FFFD in JSON and copied in the binary header.
func (w *Writer) ExtBytes(key string, value []byte) {
	if w.typ == JSON {
		w.buf = append(appendEscaped(w.jsonKey(key), value), '"')
		return
	}
	if w.binKey(key) {
		w.buf = appendBinText(w.buf, value)
	}
}

// ExtInt adds an ext field as a decimal number.
func (w *Writer) ExtInt(key string, value int64) {
	if w.typ == JSON {
		w.buf = append(appendDecimal(w.jsonKey(key), value), '"')
		return
	}
	if w.binKey(key) {
		w.buf = appendBinInt(w.buf, value)
	}
}

// ExtBool adds an ext field as true or false.
func (w *Writer) ExtBool(key string, value bool) {
	if value {
		w.Ext(key, "true")
		return
	}
	w.Ext(key, "false")
}

// jsonKey writes a key and what stands before its value's text.
func (w *Writer) jsonKey(key string) []byte {
	b := w.buf
	if w.ext == 0 {
		b = append(b, extOpen...)
	} else {
		b = append(b, ',')
	}
	w.ext++
	b = appendEscaped(append(b, '"'), stringBytes(key))
	return append(b, '"', ':', '"')
}

func (w *Writer) binKey(key string) bool {
	if len(key) > maxExtKey {
		w.err = fmt.Errorf("%w: ext key of %d bytes, limit %d", ErrHeaderTooLarge, len(key), maxExtKey)
		return false
	}
	w.buf = binary.BigEndian.AppendUint16(w.buf, uint16(len(key)))
	w.buf = append(w.buf, key...)
	return true
}

// End finishes the header, patches the lengths for a body of bodyLen bytes and
// returns dst with prefix and header behind it. If the frame cannot be expressed
// (see Err), ext and remark are replaced by a remark that says so, and a response
// becomes a SYSTEM_ERROR, so that the peer gets an answer. A body that does not
// fit the length word (2 GiB) must then not be sent; the receiver's limit for
// frames, MaxFrame, is the caller's business.
func (w *Writer) End(bodyLen int) []byte {
	w.finish()
	hlen := len(w.buf) - w.start - prefixLen
	if hlen > MaxHeader {
		w.err = errHeaderTooLarge(hlen)
	} else if int64(hlen)+int64(bodyLen)+4 > 1<<31-1 {
		w.err = fmt.Errorf("%w: a body of %d bytes does not fit a frame", ErrHeaderTooLarge, bodyLen)
		bodyLen = 0
	}
	if w.err != nil {
		w.restart()
		hlen = len(w.buf) - w.start - prefixLen
	}
	p := w.buf[w.start : w.start+prefixLen]
	binary.BigEndian.PutUint32(p, uint32(4+hlen+bodyLen))
	binary.BigEndian.PutUint32(p[4:], uint32(w.typ)<<24|uint32(hlen))
	return w.buf
}

func errHeaderTooLarge(n int) error {
	return fmt.Errorf("%w: %d bytes, limit %d", ErrHeaderTooLarge, n, MaxHeader)
}

// Err tells after End whether the header had to be replaced; it wraps
// ErrHeaderTooLarge.
func (w *Writer) Err() error { return w.err }

// restart writes the header again without its fields.
func (w *Writer) restart() {
	code := w.code
	if w.flag&FlagResponse != 0 {
		code = RespSystemError
	}
	again := Begin(w.buf[:w.start], w.typ, code, w.opaque, w.flag)
	again.Language, again.Version, again.err = w.Language, w.Version, w.err
	again.Remark(w.err.Error())
	again.finish()
	*w = again
}

func (w *Writer) finish() {
	if w.typ == RocketMQ {
		w.finishBinary()
		return
	}
	b := w.buf
	if w.ext > 0 {
		b = append(b, '}')
	}
	b = append(b, `,"flag":`...)
	b = strconv.AppendInt(b, int64(w.flag), 10)
	b = append(b, `,"language":"`...)
	b = append(b, w.Language.String()...)
	b = append(b, `","opaque":`...)
	b = strconv.AppendInt(b, int64(w.opaque), 10)
	if w.remark != "" {
		b = append(b, `,"remark":`...)
		b = appendQuoted(b, stringBytes(w.remark))
	}
	b = append(b, `,"serializeTypeCurrentRPC":"JSON","version":`...)
	b = strconv.AppendInt(b, int64(w.Version), 10)
	w.buf = append(b, '}')
}

func (w *Writer) finishBinary() {
	from := w.start + prefixLen
	extLen := len(w.buf) - from - binFixed - 4
	if n := len(w.remark); n > 0 { // the remark goes before the ext fields; remarks are rare
		w.buf = append(w.buf, w.remark...)
		copy(w.buf[from+binFixed+n:], w.buf[from+binFixed:len(w.buf)-n])
		copy(w.buf[from+binFixed:], w.remark)
	}
	b := w.buf[from:]
	binary.BigEndian.PutUint16(b, uint16(w.code))
	b[2] = byte(w.Language)
	binary.BigEndian.PutUint16(b[3:], uint16(w.Version))
	binary.BigEndian.PutUint32(b[5:], uint32(w.opaque))
	binary.BigEndian.PutUint32(b[9:], uint32(w.flag))
	binary.BigEndian.PutUint32(b[binRemarkLen:], uint32(len(w.remark)))
	binary.BigEndian.PutUint32(b[binFixed+len(w.remark):], uint32(extLen))
}

// AppendResponse appends a whole header without ext fields: the answer for
// errors and for what has nothing to say. bodyLen counts the body that follows.
func AppendResponse(dst []byte, t HeaderType, code, opaque int32, remark string, bodyLen int) []byte {
	w := Begin(dst, t, code, opaque, FlagResponse)
	w.Remark(remark)
	return w.End(bodyLen)
}

// stringBytes views s as bytes that are only read.
func stringBytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

const hexUpper = "0123456789ABCDEF"

// appendQuoted appends s as a JSON string.
func appendQuoted(dst, s []byte) []byte { return append(appendEscaped(append(dst, '"'), s), '"') }

// appendEscaped appends s as it stands in a JSON string. Like fastjson it escapes
// quote, backslash and the control characters; invalid UTF-8 becomes U+FFFD.
func appendEscaped(dst, s []byte) []byte {
	from, i := 0, 0
	for {
		if i = plainEnd(s, i); i >= len(s) {
			break
		}
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRune(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(dst, s[from:i]...)
				dst = append(dst, "\uFFFD"...)
				from = i + 1
			}
			i += n
			continue
		}
		dst = append(dst, s[from:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexUpper[c>>4], hexUpper[c&15])
		}
		i++
		from = i
	}
	return append(dst, s[from:]...)
}

// plainEnd returns the index of the first byte of s from i on that a JSON string
// cannot hold as it is: a control character, quote, backslash, or not ASCII.
func plainEnd(s []byte, i int) int {
	for i+8 <= len(s) && !special(word(s, i)) {
		i += 8
	}
	if n := len(s); i+8 > n && n >= 8 && !special(word(s, n-8)) {
		return n
	}
	for i < len(s) && s[i] >= 0x20 && s[i] < utf8.RuneSelf && s[i] != '"' && s[i] != '\\' {
		i++
	}
	return i
}

// special tells whether one of eight bytes is not plain.
func special(x uint64) bool {
	q, b := x^(lowBits*'"'), x^(lowBits*'\\')
	return ((q-lowBits)&^q|(b-lowBits)&^b|(x-lowBits*0x20)&^x|x)&highBits != 0
}
