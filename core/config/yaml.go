package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// deepest bounds the nesting of a file; a configuration needs five levels.
const deepest = 32

// readYAML walks the node tree, which knows the lines. Values of known keys
// stay text, so that the key table alone decides what a value means: 04 is not
// an octal number and yes is not true.
func readYAML(b []byte, src Source) (entries []entry, errs []*Error) {
	defer func() { // the library panics on some malformed documents
		if p := recover(); p != nil {
			entries, errs = nil, []*Error{{Kind: ErrSyntax, Source: src, Reason: fmt.Sprintf("not YAML: %v", p)}}
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(b))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		return nil, []*Error{yamlError(err, src)}
	}
	r := yamlReader{src: src}
	if len(doc.Content) == 1 {
		root := doc.Content[0]
		switch {
		case root.Kind == yaml.MappingNode:
			r.mapping("", root, 0)
		case root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null":
		default:
			r.fail(root, "the file must be a list of KEY: VALUE lines")
		}
	}
	var next yaml.Node
	switch err := dec.Decode(&next); {
	case err == nil:
		r.fail(&next, "a second document; there may be one only")
	case !errors.Is(err, io.EOF):
		r.errs = append(r.errs, yamlError(err, src))
	}
	return r.entries, r.errs
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func yamlError(err error, src Source) *Error {
	text := err.Error()
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		text = text[len(m[0]):]
		if n, err := strconv.Atoi(m[1]); err == nil {
			src.Line = n
		}
	}
	return &Error{Kind: ErrSyntax, Source: src, Reason: "not YAML: " + text}
}

type yamlReader struct {
	src     Source
	entries []entry
	errs    []*Error
}

func (r *yamlReader) at(n *yaml.Node) Source {
	s := r.src
	s.Line = n.Line
	return s
}

func (r *yamlReader) fail(n *yaml.Node, format string, args ...any) {
	r.errs = append(r.errs, &Error{Kind: ErrSyntax, Source: r.at(n), Reason: fmt.Sprintf(format, args...)})
}

// mapping flattens nested mappings into dotted names.
func (r *yamlReader) mapping(prefix string, m *yaml.Node, depth int) {
	if depth > deepest {
		r.fail(m, "nested too deep")
		return
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		k, v := m.Content[i], m.Content[i+1]
		if k.Kind != yaml.ScalarNode || k.ShortTag() == "!!merge" {
			r.fail(k, "a key must be a word; anchors, aliases and merges are not supported")
			continue
		}
		name := prefix + k.Value
		if v.Kind == yaml.MappingNode && len(v.Content) > 0 {
			r.mapping(name+".", v, depth+1)
			continue
		}
		if value, ok := r.value(v, isPluginKey(name), depth); ok {
			r.entries = append(r.entries, entry{name, value, r.at(k)})
		}
	}
}

func (r *yamlReader) value(n *yaml.Node, typed bool, depth int) (any, bool) {
	if depth > deepest {
		r.fail(n, "nested too deep")
		return nil, false
	}
	switch n.Kind {
	case yaml.ScalarNode:
		tag := n.ShortTag()
		switch tag {
		case "!!null":
			return "", true
		case "!!str", "!!int", "!!float", "!!bool", "!!timestamp":
		default:
			r.fail(n, "the tag %s is not supported", tag)
			return nil, false
		}
		if typed && tag != "!!str" && tag != "!!timestamp" {
			return inferScalar(n.Value), true
		}
		return n.Value, true
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for _, c := range n.Content {
			v, ok := r.value(c, typed, depth+1)
			if !ok {
				return nil, false
			}
			list = append(list, v)
		}
		return list, true
	case yaml.MappingNode:
		if len(n.Content) == 0 || typed {
			m := map[string]any{}
			for i := 0; i+1 < len(n.Content); i += 2 {
				v, ok := r.value(n.Content[i+1], typed, depth+1)
				if !ok {
					return nil, false
				}
				m[n.Content[i].Value] = v
			}
			return m, true
		}
		r.fail(n, "a list may hold plain values only")
		return nil, false
	default:
		r.fail(n, "anchors, aliases and merges are not supported")
		return nil, false
	}
}
