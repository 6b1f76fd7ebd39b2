package config

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Program is a plugin that is a program of its own: what was written about it
// under plugins.KIND.NAME beside its own configuration.
type Program struct {
	Kind, Name string
	// Path is the program: absolute, or relative to the working directory.
	Path string
	// Checksum is its SHA-256 in lower case hexadecimal digits; empty: not checked.
	Checksum string
	Args     []string
	Env      []string // NAME=VALUE
}

// Key is that of a field of the plugin, as "path".
func (p Program) Key(field string) string {
	return strings.Join([]string{"plugins", p.Kind, p.Name, field}, ".")
}

// The fields of a plugin that are the host's.
const (
	fieldProcess  = "process"
	fieldPath     = "path"
	fieldChecksum = "checksum"
	fieldArgs     = "args"
	fieldEnv      = "env"
)

var hostFields = []string{fieldArgs, fieldChecksum, fieldEnv, fieldPath, fieldProcess}

// HostField is a field of plugins.KIND.NAME that the host reads itself.
type HostField struct {
	Name, Type string // of JSON Schema
	Default    json.RawMessage
	Desc       string
}

// HostFields are the fields that every plugin has.
func HostFields() []HostField {
	return []HostField{
		{fieldProcess, "boolean", json.RawMessage("false"), "Runs the plugin as a process of its own. A program (path) always is one."},
		{fieldPath, "string", nil, "The program that is this plugin, in place of one of this name in the broker; relative to the configuration file."},
		{fieldChecksum, "string", nil, "The SHA-256 that the program must have, as sha256sum prints it."},
		{fieldArgs, "array", nil, "Arguments of the program."},
		{fieldEnv, "array", nil, "NAME=VALUE for the program, beside the few variables that it inherits."},
	}
}

// hostValue checks the value of a host's field and gives it its type.
func hostValue(field string, v any) (any, error) {
	switch field {
	case fieldProcess:
		return Key{Type: Bool}.parse(fmt.Sprint(v))
	case fieldPath:
		s, ok := v.(string)
		if s = strings.TrimSpace(s); !ok || s == "" {
			return nil, fmt.Errorf("write the path of a program")
		}
		return s, nil
	case fieldChecksum:
		s := strings.ToLower(strings.TrimPrefix(strings.TrimSpace(fmt.Sprint(v)), "sha256:"))
		if b, err := hex.DecodeString(s); err != nil || len(b) != 32 {
			return nil, fmt.Errorf("allowed is a SHA-256 as 64 hexadecimal digits, which `sha256sum` prints")
		}
		return s, nil
	}
	list, err := words(v)
	if err != nil || field != fieldEnv {
		return list, err
	}
	for _, kv := range list {
		if name, _, ok := strings.Cut(kv, "="); !ok || name == "" {
			return nil, fmt.Errorf("%q is not of the form NAME=VALUE", shorten(kv))
		}
	}
	return list, nil
}

// words takes a list, or the words of a text where a source has no lists. Quotes in
// such a text are refused: somebody expects them to hold words together.
func words(v any) ([]string, error) {
	var out []string
	switch v := v.(type) {
	case string:
		if strings.ContainsAny(v, `"'`) {
			return nil, fmt.Errorf("a text is split at its blanks, whatever its quotes; write a list of texts, in a file that has lists (.yaml, .toml)")
		}
		out = strings.Fields(v)
	case []any:
		for _, e := range v {
			switch e := e.(type) {
			case string:
				out = append(out, e)
			case int64, bool:
				out = append(out, fmt.Sprint(e))
			default:
				return nil, fmt.Errorf("%v is no text; put it in quotes", e)
			}
		}
	default:
		return nil, fmt.Errorf("write a list of texts")
	}
	for _, s := range out {
		if err := checkText(s); err != nil {
			return nil, err
		}
	}
	if slices.ContainsFunc(out, func(s string) bool { return strings.Contains(s, "${") }) {
		return nil, fmt.Errorf("${…} is not resolved here: everybody on the machine can see arguments and environment of a process; write it into a field of the plugin's own configuration")
	}
	return out, nil
}

// takeHostFields takes the host's fields out of the tree of one plugin, and
// checks what they come to together.
func (l *loader) takeHostFields(kind, name string, tree map[string]any) (p Program, process, isProgram bool) {
	p = Program{Kind: kind, Name: name}
	p.Path, isProgram = tree[fieldPath].(string)
	p.Checksum, _ = tree[fieldChecksum].(string)
	p.Args, _ = tree[fieldArgs].([]string)
	p.Env, _ = tree[fieldEnv].([]string)
	process, said := tree[fieldProcess].(bool)
	for _, field := range hostFields {
		_, set := tree[field]
		delete(tree, field)
		switch {
		case !set:
		case !isProgram && field != fieldProcess:
			l.fail(&Error{Kind: ErrConflict, Key: p.Key(field), Source: l.origin[p.Key(field)],
				Reason: fmt.Sprintf("it is about a program, and there is no %s", p.Key(fieldPath))})
		case isProgram && field == fieldProcess && said && !process:
			l.fail(&Error{Kind: ErrConflict, Key: p.Key(field), Source: l.origin[p.Key(field)], Earlier: l.origin[p.Key(fieldPath)],
				Reason: fmt.Sprintf("a program is always a process of its own, and %s names one at %s", p.Key(fieldPath), l.origin[p.Key(fieldPath)])})
		}
	}
	if isProgram && !filepath.IsAbs(p.Path) {
		// Never the bare name: that would be looked for in PATH.
		p.Path = filepath.Join(dirOf(l.origin[p.Key(fieldPath)]), p.Path)
		if !strings.ContainsRune(p.Path, filepath.Separator) {
			p.Path = "." + string(filepath.Separator) + p.Path
		}
	}
	return p, process, isProgram
}
