package config

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/magiconair/properties"
)

// readProperties reads Java properties. Lines are split here, because the
// library tells neither lines nor duplicates; what is inside a line (escapes,
// the three separators) is the library's business.
func readProperties(b []byte, src Source) ([]entry, []*Error) {
	var entries []entry
	var errs []*Error
	for _, l := range logicalLines(b) {
		l.text = bytes.TrimLeft(l.text, " \t\f")
		if len(l.text) == 0 {
			continue // a continuation of nothing
		}
		at := src
		at.Line = l.number
		name, value, err := parseProperty(l.text)
		if err != nil {
			errs = append(errs, &Error{Kind: ErrSyntax, Source: at, Reason: err.Error()})
			continue
		}
		entries = append(entries, entry{name, value, at})
	}
	return entries, errs
}

// parseProperty reads one logical line. ${…} is left alone: RocketMQ does not
// expand it either, and a password may contain it.
func parseProperty(line []byte) (name, value string, err error) {
	if line[0] == '=' || line[0] == ':' {
		// Told here, because the library's lexer goroutine stays behind when its
		// parser meets a value without a key.
		return "", "", fmt.Errorf("write KEY=VALUE: the key is missing")
	}
	defer func() { // the library panics on some malformed escapes
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	p, err := loader.LoadBytes(line)
	if err != nil {
		return "", "", fmt.Errorf("write KEY=VALUE: %s", strings.TrimPrefix(err.Error(), "properties: "))
	}
	keys := p.Keys()
	if len(keys) != 1 {
		return "", "", fmt.Errorf("write KEY=VALUE: found %d keys in the line", len(keys))
	}
	value, _ = p.Get(keys[0])
	return keys[0], value, nil
}

type logicalLine struct {
	text   []byte
	number int // of its first line in the file
}

// logicalLines joins continued lines (an odd number of backslashes at the end)
// and drops blank ones and comments. Lines end with LF, CRLF or CR.
func logicalLines(b []byte) []logicalLine {
	b = bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n"))
	b = bytes.ReplaceAll(b, []byte("\r"), []byte("\n"))
	var out []logicalLine
	continued := false
	for i, line := range bytes.Split(b, []byte("\n")) {
		t := bytes.TrimLeft(line, " \t\f")
		if !continued && (len(t) == 0 || t[0] == '#' || t[0] == '!') {
			continue
		}
		slashes := len(t) - len(bytes.TrimRight(t, `\`))
		body := t
		if slashes%2 == 1 {
			body = t[:len(t)-1]
		}
		if continued {
			last := &out[len(out)-1]
			last.text = append(last.text, body...)
		} else {
			out = append(out, logicalLine{bytes.Clone(body), i + 1})
		}
		continued = slashes%2 == 1
	}
	return out
}
