package config

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/knadh/koanf/parsers/toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// readTOML walks the expressions of the document, whose keys know their place.
// As with YAML, values of known keys stay text.
func readTOML(b []byte, src Source) (entries []entry, errs []*Error) {
	defer func() { // the parser is documented as unstable; bad input must not end the process
		if p := recover(); p != nil {
			entries, errs = nil, []*Error{{Kind: ErrSyntax, Source: src, Reason: fmt.Sprintf("not TOML: %v", p)}}
		}
	}()
	r := tomlReader{src: src, text: b}
	r.p.Reset(b)
	prefix := ""
	for r.p.NextExpression() {
		e := r.p.Expression()
		switch e.Kind {
		case unstable.Table:
			name, _ := r.key(e)
			prefix = name + "."
		case unstable.ArrayTable:
			name, line := r.key(e)
			r.fail(line, "[[%s]]: lists of tables are not supported", name)
			prefix = name + "."
		case unstable.KeyValue:
			r.keyValue(prefix, e, 0)
		}
	}
	if err := r.p.Error(); err != nil {
		line := 0
		var pe *unstable.ParserError
		if errors.As(err, &pe) && len(pe.Highlight) > 0 {
			line = r.line(int(r.p.Range(pe.Highlight).Offset))
		}
		r.entries = nil // an error may cut the last value short
		r.fail(line, "not TOML: %s", strings.TrimPrefix(err.Error(), "toml: "))
	}
	if len(r.errs) == 0 && !r.twice() {
		// What the walk cannot see, such as a table opened twice.
		if _, err := toml.Parser().Unmarshal(b); err != nil {
			r.fail(0, "not TOML: %s", strings.TrimPrefix(err.Error(), "toml: "))
		}
	}
	return r.entries, r.errs
}

type tomlReader struct {
	p       unstable.Parser
	src     Source
	text    []byte
	entries []entry
	errs    []*Error
}

func (r *tomlReader) fail(line int, format string, args ...any) {
	s := r.src
	s.Line = line
	r.errs = append(r.errs, &Error{Kind: ErrSyntax, Source: s, Reason: fmt.Sprintf(format, args...)})
}

func (r *tomlReader) line(offset int) int {
	return bytes.Count(r.text[:min(offset, len(r.text))], []byte("\n")) + 1
}

// twice reports whether a name occurs twice; that is told with both lines
// later, and the library's error would only repeat it.
func (r *tomlReader) twice() bool {
	seen := map[string]bool{}
	for _, e := range r.entries {
		if seen[e.name] {
			return true
		}
		seen[e.name] = true
	}
	return false
}

// key joins the parts of a key with dots and tells the line of its first part.
func (r *tomlReader) key(n *unstable.Node) (string, int) {
	var parts []string
	line := 0
	for it := n.Key(); it.Next(); {
		if line == 0 {
			line = r.line(int(it.Node().Raw.Offset))
		}
		parts = append(parts, string(it.Node().Data))
	}
	return strings.Join(parts, "."), line
}

func (r *tomlReader) keyValue(prefix string, e *unstable.Node, depth int) {
	name, line := r.key(e)
	name = prefix + name
	v := e.Value()
	if v.Kind == unstable.InlineTable && depth < deepest {
		empty := true
		for it := v.Children(); it.Next(); {
			empty = false
			r.keyValue(name+".", it.Node(), depth+1)
		}
		if !empty {
			return
		}
	}
	if value, ok := r.value(v, line, isPluginKey(name), depth); ok {
		s := r.src
		s.Line = line
		r.entries = append(r.entries, entry{name, value, s})
	}
}

func (r *tomlReader) value(n *unstable.Node, line int, typed bool, depth int) (any, bool) {
	if depth > deepest {
		r.fail(line, "nested too deep")
		return nil, false
	}
	text := string(n.Data)
	switch n.Kind {
	case unstable.Integer:
		// 1_000 and 0x10 are TOML's own ways to write a number.
		i, err := strconv.ParseInt(strings.TrimPrefix(text, "+"), 0, 64)
		if err != nil || strings.HasPrefix(strings.TrimLeft(text, "+-"), "0") && len(strings.TrimLeft(text, "+-")) > 1 && !strings.ContainsAny(text, "xob") {
			return strings.ReplaceAll(text, "_", ""), true
		}
		if typed {
			return i, true
		}
		return strconv.FormatInt(i, 10), true
	case unstable.Float:
		text = strings.ReplaceAll(text, "_", "")
		if typed {
			return inferScalar(text), true
		}
		return text, true
	case unstable.Bool:
		if typed {
			return text == "true", true
		}
		return text, true
	case unstable.String, unstable.LocalDate, unstable.LocalTime, unstable.LocalDateTime, unstable.DateTime:
		return text, true
	case unstable.Array:
		list := []any{}
		for it := n.Children(); it.Next(); {
			if it.Node().Kind == unstable.Comment {
				continue
			}
			v, ok := r.value(it.Node(), line, typed, depth+1)
			if !ok {
				return nil, false
			}
			list = append(list, v)
		}
		return list, true
	case unstable.InlineTable:
		m := map[string]any{}
		for it := n.Children(); it.Next(); {
			name, at := r.key(it.Node())
			v, ok := r.value(it.Node().Value(), at, typed, depth+1)
			if !ok {
				return nil, false
			}
			m[name] = v
		}
		return m, true
	default:
		r.fail(line, "a value of kind %s is not supported", n.Kind)
		return nil, false
	}
}
