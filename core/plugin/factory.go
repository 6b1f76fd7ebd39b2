package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
)

// Raw is the configuration of one plugin as JSON, one object. Empty means all
// defaults. It crosses to plugin processes as it is.
type Raw []byte

// Description is what a plugin says of itself before anything opens. Start
// must agree with it: the host refuses a plugin whose Capabilities differ from
// Facets.
type Description struct {
	// Name and Version identify the implementation.
	Name, Version string
	// Contract is kind and major version, "storage/1".
	Contract string
	// Facets names the optional abilities offered, sorted.
	Facets []string
	// Needs names the facets of other plugins that this one cannot work
	// without, as "storage.RawLog".
	Needs []string
	// Publish is said by replication plugins: "immediate" or "explicit".
	Publish string
	// LargestRecord is the largest encoded record in bytes that the plugin
	// takes, 0 when it has no limit of its own.
	LargestRecord int64
	// Schema is a JSON Schema of the configuration.
	Schema json.RawMessage
}

// Has reports whether facet is among the Facets.
func (d Description) Has(facet string) bool {
	for _, f := range d.Facets {
		if f == facet {
			return true
		}
	}
	return false
}

// Factory makes instances of one plugin. P is what the host passes in code,
// T the contract. Factories are immutable and safe for concurrent use. They
// are made by [NewFactory] or [NewRawFactory] only.
type Factory[P, T any] interface {
	// Name is the name under which configuration selects the plugin:
	// lower_snake_case, equal to the folder.
	Name() string
	// Describe checks raw and tells what an instance with it would offer. It
	// opens nothing; for a plugin in a process of its own it may launch it.
	// Errors match ErrConfig when raw is at fault.
	Describe(ctx context.Context, raw Raw) (Description, error)
	// Build makes an instance. It does no I/O, but that a plugin in a process of
	// its own may be launched to ask what the instance offers. Errors match
	// ErrConfig when raw is at fault.
	Build(ctx context.Context, p P, raw Raw) (T, error)

	sealed()
}

// Validator is implemented by a Config that has rules between fields or
// ranges. Validate names the field, the value and what is allowed, and reports
// all faults at once with errors.Join.
type Validator interface{ Validate() error }

type factory[P, T any] struct {
	name     string
	describe func(context.Context, Raw) (Description, error)
	build    func(context.Context, P, Raw) (T, error)
}

func (f *factory[P, T]) Name() string { return f.name }
func (f *factory[P, T]) Describe(ctx context.Context, raw Raw) (Description, error) {
	return f.describe(ctx, raw)
}
func (f *factory[P, T]) Build(ctx context.Context, p P, raw Raw) (T, error) {
	return f.build(ctx, p, raw)
}
func (f *factory[P, T]) sealed() {}

// NewRawFactory makes a factory whose configuration stays raw: for hosts of
// plugin processes, whose configuration is decoded on the other side.
func NewRawFactory[P, T any](
	name string,
	describe func(ctx context.Context, raw Raw) (Description, error),
	build func(ctx context.Context, p P, raw Raw) (T, error),
) Factory[P, T] {
	return &factory[P, T]{name: name, describe: describe, build: build}
}

// NewFactory makes a factory from a typed configuration. describe fills what
// depends on the configuration; Name, Contract (when empty) and Schema are
// filled in. New gets a decoded and validated Config. S is the concrete type,
// so that a nil of it cannot slip out as a non-nil T.
func NewFactory[C, P, T any, S any](
	name, contract string,
	describe func(C) Description,
	newDefault func() C,
	newInstance func(ctx context.Context, p P, cfg C) (S, error),
	as func(S) T,
) Factory[P, T] {
	decode := func(raw Raw) (C, error) {
		c := newDefault()
		if err := Decode(name, raw, &c); err != nil {
			var zero C
			return zero, err
		}
		return c, nil
	}
	return &factory[P, T]{
		name: name,
		describe: func(_ context.Context, raw Raw) (Description, error) {
			c, err := decode(raw)
			if err != nil {
				return Description{}, err
			}
			d := describe(c)
			d.Name = name
			if d.Contract == "" {
				d.Contract = contract
			}
			if d.Schema == nil {
				d.Schema = schemaOf(newDefault())
			}
			return d, nil
		},
		build: func(ctx context.Context, p P, raw Raw) (T, error) {
			var none T
			c, err := decode(raw)
			if err != nil {
				return none, err
			}
			s, err := newInstance(ctx, p, c)
			if err != nil {
				return none, fmt.Errorf("%s %s: %w", contract, name, err)
			}
			if v := reflect.ValueOf(s); !v.IsValid() || (v.Kind() == reflect.Pointer && v.IsNil()) {
				return none, fmt.Errorf("%s %s: its constructor returned neither an instance nor an error; this is a fault of the plugin", contract, name)
			}
			return as(s), nil
		},
	}
}

// Decode fills cfg, which holds the defaults, from raw: unknown fields are
// refused, and Validate is called when cfg has it. Every error matches
// ErrConfig and names the plugin.
func Decode(name string, raw Raw, cfg any) error {
	if text := bytes.TrimSpace(raw); len(text) > 0 {
		if text[0] != '{' { // null would take a pointer's defaults away
			return fmt.Errorf("%w of %q: it must be one JSON object", ErrConfig, name)
		}
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields()
		if err := d.Decode(cfg); err != nil {
			return fmt.Errorf("%w of %q: %w", ErrConfig, name, explain(err, cfg))
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return fmt.Errorf("%w of %q: text after the end of the object", ErrConfig, name)
		}
	}
	v, ok := cfg.(Validator)
	if !ok { // a Config that is a pointer itself
		if p := reflect.ValueOf(cfg); p.Kind() == reflect.Pointer && !p.IsNil() {
			v, ok = p.Elem().Interface().(Validator)
		}
	}
	if ok {
		if err := v.Validate(); err != nil {
			return fmt.Errorf("%w of %q: %w", ErrConfig, name, err)
		}
	}
	return nil
}

// explain says in a user's words what the decoder says in those of Go, and which
// fields are known when one is not.
func explain(err error, cfg any) error {
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) && wrong.Field != "" {
		if number, ok := strings.CutPrefix(wrong.Value, "number "); ok {
			return fmt.Errorf("%s is %s, it must be %s", wrong.Field, number, rangeOf(wrong.Type))
		}
		return fmt.Errorf("%s is of the type %s, it must be of the type %s", wrong.Field, wrong.Value, schemaType(wrong.Type))
	}
	if !strings.Contains(err.Error(), "unknown field") {
		return err
	}
	var names []string
	for _, f := range fieldsOf(reflect.TypeOf(cfg)) {
		names = append(names, f.name)
	}
	if len(names) == 0 {
		return fmt.Errorf("%w; this plugin has none", err)
	}
	return fmt.Errorf("%w; known fields are %s", err, strings.Join(names, ", "))
}

type field struct {
	name string
	typ  reflect.Type
	idx  int
}

func fieldsOf(t reflect.Type) []field {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	var out []field
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		out = append(out, field{name, f.Type, i})
	}
	return out
}

// schemaOf derives a JSON Schema from a configuration with its defaults.
func schemaOf(c any) json.RawMessage {
	v := reflect.Indirect(reflect.ValueOf(c))
	props := map[string]any{}
	if v.IsValid() {
		for _, f := range fieldsOf(v.Type()) {
			props[f.name] = map[string]any{"type": schemaType(f.typ), "default": v.Field(f.idx).Interface()}
		}
	}
	b, err := json.Marshal(map[string]any{"type": "object", "additionalProperties": false, "properties": props})
	if err != nil { // a Config with channels or functions: say nothing rather than something wrong
		return json.RawMessage(`{"type":"object"}`)
	}
	return b
}

// rangeOf is what a field of the type t takes, for one that got another number.
func rangeOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("an integer from 0 to %d", uint64(math.MaxUint64)>>(64-t.Bits()))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return fmt.Sprintf("an integer from %d to %d", int64(math.MinInt64)>>(64-t.Bits()), int64(math.MaxInt64)>>(64-t.Bits()))
	}
	return "of the type " + schemaType(t)
}

func schemaType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "integer"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Slice, reflect.Array:
		return "array"
	case reflect.Struct, reflect.Map:
		return "object"
	default:
		return "string"
	}
}
