package config

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

const redacted = "(hidden)"

// Row is one line of `config show`.
type Row struct {
	Key     string
	Value   string // hidden for secrets
	Default bool
	Source  Source
}

var secretField = regexp.MustCompile(`(?i)(password|secret|token|credential|private.?key|access.?key)`)

// Show lists every key with an effect in this mode, every other key that was
// set, and the plugins' fields, with the value and where it came from.
func (l *Loaded) Show() []Row {
	var rows []Row
	for _, k := range keyTable().keys {
		src, set := l.Config.origin[k.Name]
		if !set && (k.Status != Honoured || k.Applies&l.Mode == 0 || k.Sets != "") {
			continue
		}
		rows = append(rows, Row{k.Name, k.shown(l.k.Get(k.path())), !set, src})
	}
	for _, name := range slices.Sorted(maps.Keys(l.Config.origin)) {
		if !isPluginKey(name) {
			continue
		}
		rows = append(rows, Row{name, fmt.Sprint(hide(name, l.pluginValue(name))), false, l.Config.origin[name]})
	}
	return rows
}

// hide replaces what is named like a secret, at any depth.
func hide(name string, v any) any {
	if s, ok := v.(string); ok && isReference(s) {
		return s
	}
	if secretField.MatchString(name[strings.LastIndexByte(name, '.')+1:]) && v != "" {
		return redacted
	}
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = hide(k, e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = hide("", e)
		}
		return out
	case string:
		return withoutPasswords(v)
	default:
		return v
	}
}

func (l *Loaded) pluginValue(name string) any {
	parts := strings.SplitN(name, ".", 4)
	if p, ok := l.Config.Processes[parts[1]+"."+parts[2]]; ok && parts[3] == fieldProcess {
		return p
	}
	return l.k.Get(name)
}

func (k Key) shown(v any) string {
	s := k.format(v)
	if k.Secret && s != "" {
		return redacted
	}
	return withoutPasswords(s)
}

// As is the same configuration as one part of the process sees it, the broker or the
// name server of a standalone one: Update and Properties are about the keys of that
// part. Zero: the whole process.
func (l *Loaded) As(part Mode) *Loaded {
	c := *l
	c.part = part
	return &c
}

// applies is what Update and Properties are about.
func (l *Loaded) applies() Mode {
	if l.part != 0 {
		return l.part
	}
	return l.Mode
}

// Change is one key that an update changed, as text.
type Change struct{ Key, Old, New string }

// Update applies properties text to a running configuration, as RocketMQ's
// update-config request carries it, with the strictness of Load. All or
// nothing: the new configuration and what changed, or [*Errors]. A key that is
// not reloadable may be named with the value it has. The receiver stays as it is.
func (l *Loaded) Update(text []byte) (*Loaded, []Change, error) {
	n := newLoader(l.Mode, nil)
	n.k, n.origin = l.k.Copy(), maps.Clone(l.Config.origin)
	n.secrets.known = maps.Clone(l.secrets) // plugins keep theirs
	entries, errs := readEntries(FormatProperties, text, Source{Kind: FromRequest})
	n.errs = errs
	flat := n.accept(entries)
	var changes []Change
	for i := range n.table.keys {
		k := &n.table.keys[i]
		v, given := flat[k.path()]
		if !given || k.Status != Honoured {
			continue
		}
		old := l.k.Get(k.path())
		if k.Sets != "" {
			old = l.partOf(*k)
		}
		src := n.origin[k.Name]
		switch {
		case reflect.DeepEqual(old, v):
			delete(flat, k.path())
			n.restore(k.Name, l.Config.origin)
		case k.Applies&l.applies() == 0:
			n.fail(&Error{Kind: ErrNotReloadable, Key: k.Name, Value: k.shown(v), Source: src,
				Reason: fmt.Sprintf("it is a key of the %s and this is a %s", k.Applies, l.applies())})
		case !k.Reloadable:
			n.fail(&Error{Kind: ErrNotReloadable, Key: k.Name, Value: k.shown(v), Source: src,
				Reason: "it is " + k.shown(old) + "; change the configuration and restart"})
		default:
			changes = append(changes, Change{k.Name, k.shown(old), k.shown(v)})
		}
	}
	for path := range flat {
		if isPluginKey(path) {
			n.fail(&Error{Kind: ErrNotReloadable, Key: path, Source: n.origin[path], Reason: "change the configuration and restart"})
		}
	}
	n.merge(flat)
	if len(n.errs) > 0 {
		return nil, nil, &Errors{n.errs}
	}
	out := n.finish()
	if len(n.errs) > 0 {
		return nil, nil, &Errors{n.errs}
	}
	out.File, out.part = l.File, l.part
	return out, changes, nil
}

// Describe says what an update changed, for the answer to who asked for it; what is
// the program that it lasts as long as.
func Describe(changes []Change, what string) string {
	if len(changes) == 0 {
		return "nothing changed"
	}
	said := make([]string, len(changes))
	for i, c := range changes {
		said[i] = fmt.Sprintf("%s: %s -> %s", c.Key, c.Old, c.New)
	}
	return strings.Join(said, "; ") + " (until the " + what + " stops; write it into its configuration to keep it)"
}

// restore takes the origin of a key from before the update.
func (l *loader) restore(name string, before map[string]Source) {
	if src, ok := before[name]; ok {
		l.origin[name] = src
	} else {
		delete(l.origin, name)
	}
}

// partOf is the present value of a key that sets a part of another one.
func (l *Loaded) partOf(k Key) any {
	switch k.Name {
	case "listenPort":
		return int64(portOf(l.listen()))
	case "bindAddress":
		return hostOf(l.listen())
	case "useTLS":
		return l.Config.TLS.Enable
	default:
		return hostOf(l.Config.Network.Advertise)
	}
}

func (l *Loaded) listen() string {
	if l.applies() == Namesrv {
		return l.Config.Namesrv.Listen
	}
	return l.Config.Network.Listen
}

// idle is what a key that has no effect is said to be: RocketMQ's default, or of what
// is refused a value that asks for nothing; 0 for numbers that RocketMQ takes from
// the machine.
func (k Key) idle() any {
	text := k.Default
	if k.Status == Refused && len(k.Harmless) > 0 && !slices.Contains(k.Harmless, text) {
		text = k.Harmless[0]
	}
	v, err := k.parse(text)
	switch {
	case err == nil:
		return v
	case k.Type == Int: // "16 + 2 cpu"
		return 0
	default:
		return text
	}
}

// Properties writes the effective configuration in RocketMQ's form, as the
// get-config request is answered: bytes and the key's own unit without
// suffixes, secrets and keys of other modes left out. Keys of RocketMQ that have no
// effect are in it, with what was set or RocketMQ's default: tools look for them
// and some fail when one is missing. What has an effect is what `config show` lists.
func (l *Loaded) Properties() []byte {
	var b bytes.Buffer
	for _, k := range keyTable().keys {
		if k.Applies&l.applies() == 0 || k.Secret {
			continue
		}
		v := l.k.Get(k.path())
		if k.Status != Honoured && v == nil {
			v = k.idle()
		}
		if k.Sets != "" {
			if v = l.partOf(k); v == "" {
				continue
			}
		}
		fmt.Fprintf(&b, "%s=%s\n", k.Name, withoutPasswords(fmt.Sprint(k.plain(v))))
	}
	return b.Bytes()
}
