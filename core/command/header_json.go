package command

import (
	"encoding/binary"
	"fmt"
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

// decodeJSON scans a JSON header once. Text is validated as it is passed (shape,
// escapes, numbers), and only remembered.
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
		key, next, err := h.scanKey(b, i)
		if err != nil {
			return err
		}
		if i, err = h.member(b, key, next); err != nil {
			return err
		}
		i = skipSpace(b, i)
		if i >= len(b) {
			return errJSON(b, i, "unexpected end")
		}
		switch b[i] {
		case ',':
			i = skipSpace(b, i+1)
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

// scanKey reads `"key" :` at i and returns the key and the start of the value.
func (h *Header) scanKey(b []byte, i int) (span, int, error) {
	if i >= len(b) || b[i] != '"' {
		return span{}, 0, errJSON(b, i, "expected a key in quotes")
	}
	end, esc := stringEnd(b, i+1)
	if end < 0 {
		return span{}, 0, errJSON(b, i, "key without end or with a bad escape")
	}
	key := span{int32(i + 1), int32(end), spanRaw}
	if esc {
		key.kind = spanEscaped
		h.unescapeSpan(&key) // at once, so that the length of a key is its real one
	}
	i = end + 1
	if i >= len(b) || b[i] != ':' {
		if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
			return span{}, 0, errJSON(b, i, "expected ':'")
		}
	}
	i++
	if i < len(b) && b[i] <= ' ' {
		i = skipSpace(b, i)
	}
	return key, i, nil
}

// member takes one top-level member whose value starts at i.
func (h *Header) member(b []byte, key span, i int) (int, error) {
	name := h.text(&key)
	if string(name) == "extFields" {
		h.fields = h.fields[:0] // of duplicates the last wins
		if i < len(b) && b[i] == '{' {
			return h.extFields(b, i)
		}
	}
	v, next, err := scanValue(b, i, 0)
	if err != nil {
		return 0, err
	}
	switch string(name) {
	case "code":
		err = h.topInt(v, b, &h.Code)
	case "flag":
		err = h.topInt(v, b, &h.Flag)
	case "opaque":
		err = h.topInt(v, b, &h.Opaque)
	case "version":
		err = h.topInt(v, b, &h.Version)
	case "language":
		h.Language = h.language(v)
	case "remark":
		h.remark = v
	case "extFields":
		if v.kind != spanNull {
			err = errJSON(b, i, "extFields is no object")
		}
	}
	return next, err
}

// topInt takes a number or a number in quotes; null is 0, as in fastjson.
func (h *Header) topInt(v span, b []byte, to *int32) error {
	*to = 0
	if v.kind == spanNull {
		return nil
	}
	n, why := parseInt(h.text(&v), 32)
	if why != "" {
		return fmt.Errorf("%w: %q: %s", ErrHeader, clip(h.text(&v)), why)
	}
	*to = int32(n)
	return nil
}

// language takes a name or an ordinal; unknown ones are no error, and null is
// the default.
func (h *Header) language(v span) Language {
	if v.kind == spanNull {
		return LanguageJava
	}
	t := h.text(&v)
	if n, why := parseInt(t, 32); why == "" {
		return languageByOrdinal(n)
	}
	return languageByName(t)
}

// extFields reads the object that starts at i and returns the index behind it.
func (h *Header) extFields(b []byte, i int) (int, error) {
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1, nil
	}
	for {
		var key, value span
		var err error
		// A key of one plain letter is the usual case of the usual request.
		if i+4 < len(b) && b[i] == '"' && b[i+1]-'a' < 26 && b[i+2] == '"' && b[i+3] == ':' {
			key = span{int32(i + 1), int32(i + 2), spanRaw}
			i = skipSpace(b, i+4)
		} else if key, i, err = h.scanKey(b, i); err != nil {
			return 0, err
		}
		if i < len(b) && b[i] == '"' {
			end, esc := stringEnd(b, i+1)
			if end < 0 {
				return 0, errJSON(b, i, "text without end or with a bad escape")
			}
			value = span{int32(i + 1), int32(end), spanRaw}
			if esc {
				value.kind = spanEscaped
			}
			i = end + 1
		} else if value, i, err = scanValue(b, i, 0); err != nil {
			return 0, err
		}
		if !h.addField(key, value) {
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

// scanValue passes the value at i, of any kind, and returns its text (of a
// string without quotes) and the index behind it.
func scanValue(b []byte, i, depth int) (span, int, error) {
	if i >= len(b) {
		return span{}, 0, errJSON(b, i, "expected a value")
	}
	from := i
	switch c := b[i]; {
	case c == '"':
		end, esc := stringEnd(b, i+1)
		if end < 0 {
			return span{}, 0, errJSON(b, i, "text without end or with a bad escape")
		}
		v := span{int32(i + 1), int32(end), spanRaw}
		if esc {
			v.kind = spanEscaped
		}
		return v, end + 1, nil
	case c == '{' || c == '[':
		next, err := skipNested(b, i, depth+1)
		return span{int32(from), int32(next), spanRaw}, next, err
	case c == 'n' && hasWord(b, i, "null"):
		return span{}, i + 4, nil
	case c == 't' && hasWord(b, i, "true"):
		return span{int32(from), int32(from + 4), spanRaw}, i + 4, nil
	case c == 'f' && hasWord(b, i, "false"):
		return span{int32(from), int32(from + 5), spanRaw}, i + 5, nil
	}
	end := numberEnd(b, i)
	if end < 0 {
		return span{}, 0, errJSON(b, i, "expected a value")
	}
	return span{int32(from), int32(end), spanRaw}, end, nil
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
			end, _ := stringEnd(b, i+1)
			if end < 0 {
				return 0, errJSON(b, i, "key without end or with a bad escape")
			}
			if i = skipSpace(b, end+1); i >= len(b) || b[i] != ':' {
				return 0, errJSON(b, i, "expected ':'")
			}
			i = skipSpace(b, i+1)
		}
		_, next, err := scanValue(b, i, depth)
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
// is at i, and whether there are escapes on the way; -1 if it has no end or an
// escape is malformed. Eight bytes at a time: in the xor a sought byte is zero,
// and the lowest high bit of the classic zero-byte test is exact.
func stringEnd(b []byte, i int) (end int, esc bool) {
	for {
		if i+8 <= len(b) {
			x := binary.LittleEndian.Uint64(b[i:])
			q, s := x^(lowBits*'"'), x^(lowBits*'\\')
			m := ((q-lowBits)&^q | (s-lowBits)&^s) & highBits
			if m == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(m) >> 3
		} else {
			for i < len(b) && b[i] != '"' && b[i] != '\\' {
				i++
			}
			if i >= len(b) {
				return -1, esc
			}
		}
		if b[i] == '"' {
			return i, esc
		}
		esc = true
		n := escapeLen(b[i:])
		if n == 0 {
			return -1, true
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

// appendUnescaped appends s, the inside of a JSON string whose escapes
// stringEnd has checked. Lone surrogates become U+FFFD. No escape is shorter than
// what it stands for, so room for s is room enough; eight bytes more let whole
// words be copied.
func appendUnescaped(dst, s []byte) []byte {
	at := len(dst)
	dst = slices.Grow(dst, len(s)+8)
	d := dst[at : at+len(s)+8]
	n := 0
	for i := 0; i < len(s); {
		if i+8 <= len(s) {
			x := binary.LittleEndian.Uint64(s[i:])
			binary.LittleEndian.PutUint64(d[n:], x)
			x ^= lowBits * '\\'
			m := (x - lowBits) &^ x & highBits
			if m == 0 {
				i, n = i+8, n+8
				continue
			}
			k := bits.TrailingZeros64(m) >> 3
			i, n = i+k, n+k
		} else if s[i] != '\\' {
			d[n] = s[i]
			i, n = i+1, n+1
			continue
		}
		l := escapeLen(s[i:])
		switch {
		case l == 6:
			r := hexRune(s[i+2:])
			if r < utf8.RuneSelf { // the separators of a property string
				d[n] = byte(r)
				n++
				break
			}
			if utf16.IsSurrogate(r) {
				low := rune(-1)
				if rest := s[i+6:]; len(rest) >= 6 && rest[0] == '\\' && rest[1] == 'u' {
					low = hexRune(rest[2:])
				}
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					l = 12
				}
			}
			n += utf8.EncodeRune(d[n:n+4], r)
		case l == 2:
			d[n] = plainEscape(s[i+1])
			n++
		default: // not reached after stringEnd
			return dst[:at+n]
		}
		i += l
	}
	return dst[:at+n]
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
