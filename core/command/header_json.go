package command

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

func errJSON(b []byte, i int, what string) error {
	return fmt.Errorf("%w: byte %d of %d: %s", ErrHeader, i, len(b), what)
}

// word is the eight bytes of b from i on, the first lowest.
func word(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[i : i+8 : i+8]) }

// stops marks, by the high bit of its byte, the lowest quote or backslash of a
// word; 0 if there is none. Marks above the lowest one mean nothing. In the xor a
// sought byte is zero, and the classic test for zero bytes is exact up to the first.
func stops(x uint64) uint64 {
	q, s := x^(lowBits*'"'), x^(lowBits*'\\')
	return ((q-lowBits)&^q | (s-lowBits)&^s) & highBits
}

// decodeJSON scans a JSON header once. Text is validated as it is passed (shape,
// escapes, numbers), and only remembered. What official clients write takes short
// cuts on the way (usualMember, names of one letter, short values), all else, of
// any legal shape, the steps below.
func (h *Header) decodeJSON(b []byte) error {
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		return errJSON(b, i, "expected '{'")
	}
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return h.endJSON(b, i+1)
	}
	for {
		next, err := h.usualMember(b, i)
		if next == 0 && err == nil {
			var key span
			if key, next, err = h.scanKey(b, i); err == nil {
				next, err = h.member(b, key, next)
			}
		}
		if err != nil {
			return err
		}
		if i = next; i < len(b) && b[i] <= ' ' {
			i = skipSpace(b, i)
		}
		if i >= len(b) {
			return errJSON(b, i, "unexpected end")
		}
		switch b[i] {
		case ',':
			if i++; i < len(b) && b[i] <= ' ' {
				i = skipSpace(b, i)
			}
		case '}':
			return h.endJSON(b, i+1)
		default:
			return errJSON(b, i, "expected ',' or '}'")
		}
	}
}

func (h *Header) endJSON(b []byte, i int) error {
	if i = skipSpace(b, i); i != len(b) {
		return errJSON(b, i, "text after the header")
	}
	return nil
}

// usualMember takes one top-level member whose quote is at i if it looks as
// official clients write it, and returns the index behind it; 0 if it does not.
func (h *Header) usualMember(b []byte, i int) (int, error) {
	if len(b)-i < 12 || b[i] != '"' {
		return 0, nil
	}
	var to *int32
	digits := i + 7
	switch m := b[i+1:]; m[0] {
	case 'c':
		if string(m[:6]) == `code":` {
			to = &h.Code
		}
	case 'f':
		if string(m[:6]) == `flag":` {
			to = &h.Flag
		}
	case 'o':
		if string(m[:8]) == `opaque":` {
			to, digits = &h.Opaque, i+9
		}
	case 'v':
		if string(m[:9]) == `version":` {
			to, digits = &h.Version, i+10
		}
	case 'l':
		const java, golang = `language":"JAVA"`, `language":"GO"`
		if len(m) > len(java) && string(m[:len(java)]) == java {
			h.Language = LanguageJava
			return i + 1 + len(java), nil
		}
		if len(m) > len(golang) && string(m[:len(golang)]) == golang {
			h.Language = LanguageGo
			return i + 1 + len(golang), nil
		}
	case 'e':
		if string(m[:11]) == `extFields":` && len(m) > 11 && m[11] == '{' {
			h.dropFields() // of duplicates the last wins
			return h.extFields(b, i+12)
		}
	case 'r':
		if string(m[:10]) == `remark":""` {
			h.remark = span{int32(i + 10), int32(i + 10)}
			return i + 11, nil
		}
	case 's':
		const usual = `serializeTypeCurrentRPC":"JSON"`
		if len(m) >= len(usual) && string(m[:len(usual)]) == usual {
			return i + 1 + len(usual), nil
		}
	}
	if to == nil {
		return 0, nil
	}
	n, next := smallNumber(b, digits)
	if next > 0 {
		*to = n
		if to == &h.Opaque {
			h.last.opaqueAt = span{int32(digits), int32(next)}
		}
	}
	return next, nil
}

// smallNumber reads the digits from i on, behind which the member ends, and
// returns the index behind them; 0 for anything else that a number may be.
func smallNumber(b []byte, i int) (int32, int) {
	from, n := i, int64(0)
	for ; i < len(b) && b[i]-'0' <= 9; i++ {
		if i == from+10 || n == 0 && i > from {
			return 0, 0
		}
		n = 10*n + int64(b[i]-'0')
	}
	if i == from || n > math.MaxInt32 || i >= len(b) || b[i] != ',' && b[i] != '}' {
		return 0, 0
	}
	return int32(n), i
}

// scanKey reads `"key" :` at i and returns the key and the start of the value.
func (h *Header) scanKey(b []byte, i int) (span, int, error) {
	if i >= len(b) || b[i] != '"' {
		return span{}, 0, errJSON(b, i, "expected a key in quotes")
	}
	key, next := h.scanText(b, i+1)
	if next == 0 {
		return span{}, 0, errJSON(b, i, "key without end or with a bad escape")
	}
	i = next
	if i >= len(b) || b[i] != ':' {
		if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
			return span{}, 0, errJSON(b, i, "expected ':'")
		}
	}
	return key, skipSpace(b, i+1), nil
}

// scanText passes a text whose first byte, behind the quote, is at from, and
// returns it and the index behind its closing quote; 0 if it has no end or an
// escape is malformed.
func (h *Header) scanText(b []byte, from int) (span, int) {
	end := textEnd(b, from)
	if end < len(b) && b[end] == '"' {
		return span{int32(from), int32(end)}, end + 1
	}
	return h.escapedText(b, from, end)
}

// escapedText is scanText for a text that has its first escape, if any, at i.
func (h *Header) escapedText(b []byte, from, i int) (span, int) {
	if i >= len(b) {
		return span{}, 0
	}
	at := len(h.scratch)
	h.scratch = append(h.scratch, b[from:i]...)
	h.scratch, i = unescape(h.scratch, b, i)
	return span{^int32(at), int32(len(h.scratch))}, i + 1
}

// textEnd is the index of the first quote or backslash from i on, len(b) if there
// is none.
func textEnd(b []byte, i int) int {
	for ; i+8 <= len(b); i += 8 {
		if m := stops(word(b, i)); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	for i < len(b) && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// member takes one top-level member whose value starts at i.
func (h *Header) member(b []byte, key span, i int) (int, error) {
	name := h.text(key)
	if string(name) == "extFields" {
		h.dropFields() // of duplicates the last wins
		if i < len(b) && b[i] == '{' {
			return h.extFields(b, i)
		}
	}
	v, next, err := h.scanValue(b, i)
	if err != nil {
		return 0, err
	}
	switch string(name) {
	case "code":
		err = h.topInt(v, &h.Code)
	case "flag":
		err = h.topInt(v, &h.Flag)
	case "opaque":
		h.last.opaqueAt = span{}
		err = h.topInt(v, &h.Opaque)
	case "version":
		err = h.topInt(v, &h.Version)
	case "language":
		h.Language = h.language(v)
	case "remark":
		h.remark = v
	case "extFields":
		if !v.null() {
			err = errJSON(b, i, "extFields is no object")
		}
	}
	return next, err
}

// topInt takes a number or a number in quotes; null is 0, as in fastjson.
func (h *Header) topInt(v span, to *int32) error {
	*to = 0
	if v.null() {
		return nil
	}
	n, why := parseInt(h.text(v), 32)
	if why != "" {
		return fmt.Errorf("%w: %q: %s", ErrHeader, clip(h.text(v)), why)
	}
	*to = int32(n)
	return nil
}

// language takes a name or an ordinal; unknown ones are no error, and null is
// the default.
func (h *Header) language(v span) Language {
	if v.null() {
		return LanguageJava
	}
	t := h.text(v)
	l := languageByName(t)
	if l == LanguageUnknown {
		if n, why := parseInt(t, 32); why == "" {
			return languageByOrdinal(n)
		}
	}
	return l
}

// extFields reads the object that starts at i and returns the index behind it.
func (h *Header) extFields(b []byte, i int) (int, error) {
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1, nil
	}
	const (
		// The first five bytes of "x":"… and all eight of "x":"0", are most of a send.
		keyMask  = 0xff_ff_ff_00_ff
		letter   = '"'<<32 | ':'<<24 | '"'<<16 | '"'
		oneMask  = 0xff_ff_00_ff_ff_ff_00_ff
		oneValue = ','<<56 | '"'<<48 | letter
	)
	for {
		var key, value span
		var slot uint
		var err error
		var w uint64
		if i+16 <= len(b) {
			w = word(b, i)
		}
		if slot = uint(byte(w>>8) - 'a'); w&keyMask != letter || slot >= letterSlots {
			key, slot, i, err = h.longKey(b, i)
		} else if key = (span{int32(i + 1), int32(i + 2)}); w&oneMask == oneValue && byte(w>>40)-'0' <= 9 {
			if !h.addField(key, span{int32(i + 5), int32(i + 6)}, slot) {
				return 0, errTooManyFields()
			}
			if i += 8; b[i] <= ' ' {
				i = skipSpace(b, i)
			}
			continue
		} else {
			i += 4
		}
		if err != nil {
			return 0, err
		}
		if value, i, err = h.extValue(b, i); err != nil {
			return 0, err
		}
		if !h.addField(key, value, slot) {
			return 0, errTooManyFields()
		}
		if i < len(b) && b[i] <= ' ' {
			i = skipSpace(b, i)
		}
		if i >= len(b) {
			return 0, errJSON(b, i, "unexpected end in extFields")
		}
		switch b[i] {
		case ',':
			if i++; i < len(b) && b[i] <= ' ' {
				i = skipSpace(b, i)
			}
		case '}':
			return i + 1, nil
		default:
			return 0, errJSON(b, i, "expected ',' or '}' in extFields")
		}
	}
}

// longKey reads the key of an ext field at i and returns it, its slot and the
// start of the value.
func (h *Header) longKey(b []byte, i int) (span, uint, int, error) {
	if i < len(b) && b[i] == '"' {
		end := textEnd(b, i+1)
		if end+2 < len(b) && b[end] == '"' && b[end+1] == ':' && b[end+2] > ' ' {
			return span{int32(i + 1), int32(end)}, slotOf(bytesString(b[i+1 : end])), end + 2, nil
		}
	}
	key, i, err := h.scanKey(b, i)
	return key, slotOf(bytesString(h.text(key))), i, err
}

// extValue reads the value at i and returns it and the index behind it.
func (h *Header) extValue(b []byte, i int) (span, int, error) {
	if i >= len(b) || b[i] != '"' {
		return h.scanValue(b, i)
	}
	i++
	end := textEnd(b, i)
	if end < len(b) && b[end] == '"' {
		return span{int32(i), int32(end)}, end + 1, nil
	}
	v, next := h.escapedText(b, i, end)
	if next == 0 {
		return span{}, 0, errJSON(b, i-1, "text without end or with a bad escape")
	}
	return v, next, nil
}

// scanValue passes the value at i, of any kind, and returns its text (of a
// string without quotes) and the index behind it.
func (h *Header) scanValue(b []byte, i int) (span, int, error) {
	if i >= len(b) {
		return span{}, 0, errJSON(b, i, "expected a value")
	}
	switch c := b[i]; {
	case c == '"':
		v, next := h.scanText(b, i+1)
		if next == 0 {
			return span{}, 0, errJSON(b, i, "text without end or with a bad escape")
		}
		return v, next, nil
	case c == 'n' && hasWord(b, i, "null"):
		return span{}, i + 4, nil
	}
	next, err := skipValue(b, i, 0)
	return span{int32(i), int32(next)}, next, err
}

// skipValue passes the value at i and returns the index behind it.
func skipValue(b []byte, i, depth int) (int, error) {
	if i >= len(b) {
		return 0, errJSON(b, i, "expected a value")
	}
	switch c := b[i]; {
	case c == '"':
		end := stringEnd(b, i+1)
		if end < 0 {
			return 0, errJSON(b, i, "text without end or with a bad escape")
		}
		return end + 1, nil
	case c == '{' || c == '[':
		return skipNested(b, i, depth+1)
	case c == 'n' && hasWord(b, i, "null"), c == 't' && hasWord(b, i, "true"):
		return i + 4, nil
	case c == 'f' && hasWord(b, i, "false"):
		return i + 5, nil
	}
	end := numberEnd(b, i)
	if end < 0 {
		return 0, errJSON(b, i, "expected a value")
	}
	return end, nil
}

func hasWord(b []byte, i int, w string) bool {
	return len(b)-i >= len(w) && string(b[i:i+len(w)]) == w
}

// skipNested passes the object or array at i.
func skipNested(b []byte, i, depth int) (int, error) {
	if depth > maxDepth {
		return 0, errJSON(b, i, "nested too deeply")
	}
	object := b[i] == '{'
	closing := b[i] + 2 // '}' and ']' are two behind their openings
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == closing {
		return i + 1, nil
	}
	for {
		if object {
			if i >= len(b) || b[i] != '"' {
				return 0, errJSON(b, i, "expected a key in quotes")
			}
			end := stringEnd(b, i+1)
			if end < 0 {
				return 0, errJSON(b, i, "key without end or with a bad escape")
			}
			if i = skipSpace(b, end+1); i >= len(b) || b[i] != ':' {
				return 0, errJSON(b, i, "expected ':'")
			}
			i = skipSpace(b, i+1)
		}
		next, err := skipValue(b, i, depth)
		if err != nil {
			return 0, err
		}
		if i = skipSpace(b, next); i >= len(b) {
			return 0, errJSON(b, i, "unexpected end")
		}
		switch b[i] {
		case ',':
			i = skipSpace(b, i+1)
		case closing:
			return i + 1, nil
		default:
			return 0, errJSON(b, i, "expected ',' or a closing bracket")
		}
	}
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// stringEnd returns the index of the quote that ends the string whose first byte
// is at i; -1 if it has no end or an escape is malformed.
func stringEnd(b []byte, i int) int {
	for {
		if i = textEnd(b, i); i >= len(b) {
			return -1
		}
		if b[i] == '"' {
			return i
		}
		n := escapeLen(b[i:])
		if n == 0 {
			return -1
		}
		i += n
	}
}

// escapeLen is the length of the escape that b starts with, 0 if malformed.
func escapeLen(b []byte) int {
	if len(b) >= 6 && b[1] == 'u' {
		if hexTable[b[2]]|hexTable[b[3]]|hexTable[b[4]]|hexTable[b[5]] < 16 {
			return 6
		}
		return 0
	}
	if len(b) >= 2 {
		switch b[1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			return 2
		}
	}
	return 0
}

// hexTable is the value of each hexadecimal digit, 0xff for all else.
const hexTable = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" +
	"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\xff\xff\xff\xff\xff\xff" +
	"\xff\x0a\x0b\x0c\x0d\x0e\x0f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" +
	"\xff\x0a\x0b\x0c\x0d\x0e\x0f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" +
	"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" +
	"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" +
	"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" +
	"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"

func hexValue(c byte) byte { return hexTable[c] }

// unescape appends to dst the rest of a string, of which b[i] is a backslash, and
// returns the index of the quote that ends it; -1 if it has no end or an escape is
// malformed. Lone surrogates become U+FFFD.
func unescape(dst, b []byte, i int) ([]byte, int) {
	n := len(dst)
	for {
		if cap(dst)-n < 16 { // an escape gives four bytes at most, and whole words are copied
			dst = slices.Grow(dst[:n], 256)
		}
		d := dst[:cap(dst)]
		l := 0
		if i+8 <= len(b) && string(b[i:i+5]) == `\u000` && hexTable[b[i+5]] < 16 { // the separators of a property string
			d[n] = hexTable[b[i+5]]
			n, i = n+1, i+6
			goto copy
		}
		l = escapeLen(b[i:])
		switch l {
		case 6:
			r := hexRune(b[i+2:])
			if utf16.IsSurrogate(r) {
				low := rune(-1)
				if rest := b[i+6:]; len(rest) >= 6 && rest[0] == '\\' && escapeLen(rest) == 6 {
					low = hexRune(rest[2:])
				}
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					l = 12
				}
			}
			n += utf8.EncodeRune(d[n:n+4], r)
		case 2:
			d[n] = plainEscape(b[i+1])
			n++
		default:
			return dst[:n], -1
		}
		i += l
	copy:
		for i+8 <= len(b) {
			if n+8 > len(d) {
				dst = slices.Grow(dst[:n], 256)
				d = dst[:cap(dst)]
			}
			x := word(b, i)
			binary.LittleEndian.PutUint64(d[n:n+8:n+8], x)
			m := stops(x)
			if m == 0 {
				i, n = i+8, n+8
				continue
			}
			k := bits.TrailingZeros64(m) >> 3
			i, n = i+k, n+k
			goto stop
		}
		if k := textEnd(b, i); k < len(b) {
			dst = append(dst[:n], b[i:k]...)
			i, n = k, len(dst)
		} else {
			return dst[:n], -1
		}
	stop:
		if b[i] == '"' {
			return dst[:n], i
		}
	}
}

func plainEscape(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

func hexRune(b []byte) rune {
	return rune(hexTable[b[0]])<<12 | rune(hexTable[b[1]])<<8 | rune(hexTable[b[2]])<<4 | rune(hexTable[b[3]])
}

// numberEnd returns the index behind the JSON number at i, -1 if there is none.
func numberEnd(b []byte, i int) int {
	if i < len(b) && b[i] == '-' {
		i++
	}
	switch {
	case i >= len(b) || b[i]-'0' > 9:
		return -1
	case b[i] == '0':
		i++
	default:
		i = digits(b, i)
	}
	if i < len(b) && b[i] == '.' {
		j := digits(b, i+1)
		if j == i+1 {
			return -1
		}
		i = j
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		j := digits(b, i)
		if j == i {
			return -1
		}
		i = j
	}
	return i
}

func digits(b []byte, i int) int {
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i
}
