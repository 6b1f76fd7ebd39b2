package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strconv"
)

// ErrBody: a request or response body is not what its code says. Match with
// errors.Is.
var ErrBody = errors.New("malformed body")

// DecodeBody reads a JSON body into v as encoding/json does, and tries again by
// way of LenientJSON when the text is no strict JSON. Unknown keys are ignored,
// missing ones keep the zero value. Errors wrap ErrBody.
func DecodeBody(body []byte, v any) error {
	err := json.Unmarshal(body, v)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		strict, lerr := LenientJSON(body)
		if lerr != nil {
			return lerr
		}
		err = json.Unmarshal(strict, v)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBody, err)
	}
	return nil
}

// EncodeBody writes v as compact JSON, without the HTML escapes of encoding/json.
func EncodeBody(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode body: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}

// LenientJSON turns the dialect fastjson writes and reads into strict JSON:
// unquoted keys (numbers and identifiers), strings in single quotes, trailing
// commas, escapes and control characters JSON does not know, and objects as map
// keys, which become strings holding the object's JSON text. The result takes at
// most about seven times the input. Nesting is bounded, an object key within an
// object key is refused. Errors wrap ErrBody.
func LenientJSON(in []byte) ([]byte, error) {
	l := lenient{in: in, out: make([]byte, 0, len(in)+len(in)/8+16)}
	i, err := l.value(skipSpace(in, 0), 0, false)
	if err != nil {
		return nil, err
	}
	if i = skipSpace(in, i); i != len(in) {
		return nil, l.fail(i, "text after the value")
	}
	return l.out, nil
}

type lenient struct{ in, out []byte }

func (l *lenient) fail(i int, what string) error {
	return fmt.Errorf("%w: byte %d of %d: %s", ErrBody, i, len(l.in), what)
}

// value converts the value at i and returns the index behind it.
func (l *lenient) value(i, depth int, inKey bool) (int, error) {
	if depth > maxDepth {
		return 0, l.fail(i, "nested too deeply")
	}
	if i >= len(l.in) {
		return 0, l.fail(i, "expected a value")
	}
	switch c := l.in[i]; c {
	case '{':
		return l.object(i, depth, inKey)
	case '[':
		return l.array(i, depth, inKey)
	case '"', '\'':
		return l.text(i)
	case 't', 'f', 'n':
		for _, w := range [...]string{"true", "false", "null"} {
			if hasWord(l.in, i, w) {
				l.out = append(l.out, w...)
				return i + len(w), nil
			}
		}
	}
	end := numberEnd(l.in, i)
	if end < 0 {
		return 0, l.fail(i, "expected a value")
	}
	l.out = append(l.out, l.in[i:end]...)
	return end, nil
}

func (l *lenient) array(i, depth int, inKey bool) (int, error) {
	l.out = append(l.out, '[')
	i = skipSpace(l.in, i+1)
	for first := true; ; first = false {
		if i < len(l.in) && l.in[i] == ']' {
			l.out = append(l.out, ']')
			return i + 1, nil
		}
		if !first {
			l.out = append(l.out, ',')
		}
		next, err := l.value(i, depth+1, inKey)
		if err != nil {
			return 0, err
		}
		if i, err = l.separator(next, ']'); err != nil {
			return 0, err
		}
	}
}

func (l *lenient) object(i, depth int, inKey bool) (int, error) {
	l.out = append(l.out, '{')
	i = skipSpace(l.in, i+1)
	for first := true; ; first = false {
		if i < len(l.in) && l.in[i] == '}' {
			l.out = append(l.out, '}')
			return i + 1, nil
		}
		if !first {
			l.out = append(l.out, ',')
		}
		next, err := l.key(i, depth, inKey)
		if err != nil {
			return 0, err
		}
		if i = skipSpace(l.in, next); i >= len(l.in) || l.in[i] != ':' {
			return 0, l.fail(i, "expected ':'")
		}
		l.out = append(l.out, ':')
		if next, err = l.value(skipSpace(l.in, i+1), depth+1, inKey); err != nil {
			return 0, err
		}
		if i, err = l.separator(next, '}'); err != nil {
			return 0, err
		}
	}
}

// separator passes a comma, which may stand before the closing bracket, and
// returns the index of what follows it.
func (l *lenient) separator(i int, closing byte) (int, error) {
	i = skipSpace(l.in, i)
	switch {
	case i < len(l.in) && l.in[i] == ',':
		return skipSpace(l.in, i+1), nil
	case i < len(l.in) && l.in[i] == closing:
		return i, nil
	}
	return 0, l.fail(i, "expected ',' or a closing bracket")
}

func (l *lenient) key(i, depth int, inKey bool) (int, error) {
	if i >= len(l.in) {
		return 0, l.fail(i, "expected a key")
	}
	switch c := l.in[i]; {
	case c == '"' || c == '\'':
		return l.text(i)
	case c == '{':
		if inKey {
			return 0, l.fail(i, "an object key within an object key")
		}
		at := len(l.out)
		next, err := l.value(i, depth+1, true)
		if err != nil {
			return 0, err
		}
		object := bytes.Clone(l.out[at:])
		l.out = appendQuoted(l.out[:at], object)
		return next, nil
	}
	end := i
	for end < len(l.in) && isKeyByte(l.in[end]) {
		end++
	}
	if end == i {
		return 0, l.fail(i, "expected a key")
	}
	l.out = append(append(append(l.out, '"'), l.in[i:end]...), '"')
	return end, nil
}

func isKeyByte(c byte) bool {
	return c-'0' <= 9 || (c|0x20)-'a' <= 25 || c == '_' || c == '$' || c == '-'
}

// text converts the string whose quote is at i.
func (l *lenient) text(i int) (int, error) {
	quote := l.in[i]
	l.out = append(l.out, '"')
	for i++; i < len(l.in); i++ {
		switch c := l.in[i]; {
		case c == quote:
			l.out = append(l.out, '"')
			return i + 1, nil
		case c == '"':
			l.out = append(l.out, '\\', '"')
		case c < 0x20:
			l.control(c)
		case c != '\\':
			l.out = append(l.out, c)
		default:
			n := l.escape(l.in[i:])
			if n == 0 {
				return 0, l.fail(i, "bad escape")
			}
			i += n - 1
		}
	}
	return 0, l.fail(i, "string without end")
}

func (l *lenient) control(c byte) {
	l.out = append(l.out, '\\', 'u', '0', '0', hexUpper[c>>4], hexUpper[c&15])
}

// escape converts the escape b starts with and returns its length, 0 if it is none.
func (l *lenient) escape(b []byte) int {
	if n := escapeLen(b); n > 0 {
		l.out = append(l.out, b[:n]...)
		return n
	}
	if len(b) < 2 {
		return 0
	}
	switch c := b[1]; {
	case c == '\'':
		l.out = append(l.out, '\'')
		return 2
	case c == 'v':
		l.control('\v')
		return 2
	case c >= '0' && c <= '7':
		l.control(c - '0')
		return 2
	case c == 'x' && len(b) >= 4 && hexValue(b[2])|hexValue(b[3]) < 16:
		l.control(hexValue(b[2])<<4 | hexValue(b[3]))
		return 4
	}
	return 0
}

// Integer is any integer a map of fastjson may be keyed with.
type Integer interface {
	~int | ~int32 | ~int64
}

// AppendIntKeyMap appends m as fastjson writes a map with integer keys, which
// are not quoted: for readers that want upstream's bytes. Keys are ascending.
func AppendIntKeyMap[K Integer, V any](dst []byte, m map[K]V, value func(dst []byte, v V) []byte) []byte {
	return appendIntMap(dst, m, false, value)
}

func appendIntMap[K Integer, V any](dst []byte, m map[K]V, quoted bool, value func(dst []byte, v V) []byte) []byte {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool { return keys[i] < keys[j] })
	dst = append(dst, '{')
	for i, k := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		if quoted {
			dst = append(dst, '"')
		}
		dst = strconv.AppendInt(dst, int64(k), 10)
		if quoted {
			dst = append(dst, '"')
		}
		dst = value(append(dst, ':'), m[k])
	}
	return append(dst, '}')
}

// AppendJSONString appends s as a JSON string.
func AppendJSONString(dst []byte, s string) []byte { return appendQuoted(dst, stringBytes(s)) }
