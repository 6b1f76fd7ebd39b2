package config

import (
	"errors"
	"fmt"
	"strings"
)

// The kinds of faults; every [Error] matches one of them, or [ErrAddress], with errors.Is.
var (
	ErrUnknownKey    = errors.New("unknown key")
	ErrBadValue      = errors.New("bad value")
	ErrDuplicateKey  = errors.New("key given twice")
	ErrRefused       = errors.New("not supported")
	ErrSyntax        = errors.New("syntax error")
	ErrEncoding      = errors.New("not valid UTF-8")
	ErrConflict      = errors.New("contradiction")
	ErrNotReloadable = errors.New("cannot change while running")
	ErrFile          = errors.New("cannot read configuration file")
	ErrReference     = errors.New("cannot resolve a reference")
)

// SourceKind is the layer that a value came from.
type SourceKind uint8

// The layers in the order in which they override each other.
const (
	FromDefault SourceKind = iota
	FromFile
	FromEnv
	FromFlag
	FromRequest // an update of a running process
)

// Source is the place that a value came from. The zero value is the default.
type Source struct {
	Kind SourceKind
	Name string // file as the user named it, variable, or flag without dashes
	Line int    // in the file or the request, from 1; 0 when not known
}

// String is the place as a person looks for it: "broker.conf:12",
// "environment variable HARDPOINT_LISTEN", "flag --listen", "default".
func (s Source) String() string {
	switch s.Kind {
	case FromFile:
		if s.Line > 0 {
			return fmt.Sprintf("%s:%d", s.Name, s.Line)
		}
		return s.Name
	case FromEnv:
		return "environment variable " + s.Name
	case FromFlag:
		return "flag --" + s.Name
	case FromRequest:
		if s.Line > 0 {
			return fmt.Sprintf("update request line %d", s.Line)
		}
		return "update request"
	default:
		return "default"
	}
}

// Error is one fault in the configuration.
type Error struct {
	Kind    error  // one of these sentinels
	Key     string // as written
	Value   string // as written; empty for secrets
	Reason  string // what is wrong and what is allowed
	Nearest string // the known key closest to an unknown one
	Source  Source
	Earlier Source // of ErrDuplicateKey and ErrConflict: the other place
}

// Error names the place, the key and what to do about it.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Source != (Source{}) {
		b.WriteString(e.Source.String())
		b.WriteString(": ")
	}
	switch {
	case errors.Is(e.Kind, ErrUnknownKey):
		fmt.Fprintf(&b, "unknown key %q", e.Key)
		if e.Nearest != "" {
			fmt.Fprintf(&b, "; did you mean %s?", e.Nearest)
		} else {
			b.WriteString("; `hardpoint config explain` lists the known ones")
		}
	case errors.Is(e.Kind, ErrDuplicateKey):
		fmt.Fprintf(&b, "%s is given twice; the first is at %s; remove one", e.Key, e.Earlier)
	case errors.Is(e.Kind, ErrBadValue):
		fmt.Fprintf(&b, "%s = %q: %s", e.Key, e.Value, e.Reason)
	case e.Key != "" && e.Value != "":
		fmt.Fprintf(&b, "%s = %q: %s: %s", e.Key, e.Value, e.Kind, e.Reason)
	case e.Key != "":
		fmt.Fprintf(&b, "%s: %s: %s", e.Key, e.Kind, e.Reason)
	default:
		fmt.Fprintf(&b, "%s: %s", e.Kind, e.Reason)
	}
	return b.String()
}

// Unwrap gives the kind.
func (e *Error) Unwrap() error { return e.Kind }

// Errors is every fault that was found, in the order of the layers and lines.
type Errors struct{ List []*Error }

// Error lists the faults, one a line.
func (e *Errors) Error() string {
	if len(e.List) == 1 {
		return "configuration: " + e.List[0].Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "configuration has %d errors:", len(e.List))
	for _, x := range e.List {
		b.WriteString("\n  ")
		b.WriteString(x.Error())
	}
	return b.String()
}

// Unwrap gives the faults, for errors.Is and errors.As.
func (e *Errors) Unwrap() []error {
	out := make([]error, len(e.List))
	for i, x := range e.List {
		out[i] = x
	}
	return out
}

// Warning is something accepted that does not do what its writer may think.
type Warning struct {
	Key    string
	Source Source
	Text   string
}

// String is the warning with its place.
func (w Warning) String() string {
	if w.Source == (Source{}) {
		return w.Key + ": " + w.Text
	}
	return w.Source.String() + ": " + w.Key + ": " + w.Text
}
