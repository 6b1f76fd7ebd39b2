package config

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/hardpointmq/hardpoint/internal/suggest"
)

// pluginKinds are the four contracts.
var pluginKinds = []string{"allocate", "replication", "storage", "transport"}

var pluginName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

// IsPluginName tells whether a plugin can have that name: lower case letters,
// digits and underscores, a letter first, 64 at most.
func IsPluginName(name string) bool { return pluginName.MatchString(name) }

func isPluginKey(name string) bool { return strings.HasPrefix(name, "plugins.") }

// inferScalar gives text from a source without types the type that it looks
// like, because a plugin decodes JSON strictly. Quotes keep a text a text.
func inferScalar(text string) any {
	text = strings.TrimSpace(text)
	if len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"' {
		return text[1 : len(text)-1]
	}
	switch text {
	case "true", "True", "TRUE":
		return true
	case "false", "False", "FALSE":
		return false
	}
	if i, err := strconv.ParseInt(text, 10, 64); err == nil && strconv.FormatInt(i, 10) == text {
		return i
	}
	if decimal.MatchString(text) {
		if f, err := strconv.ParseFloat(text, 64); err == nil {
			return f
		}
	}
	return text
}

var decimal = regexp.MustCompile(`^-?[0-9]+\.[0-9]+$`)

// pluginEnvKey turns PLUGINS__STORAGE__PEBBLE__CACHE_SIZE into
// plugins.storage.pebble.cacheSize. A part that has lower case is kept.
func pluginEnvKey(name string) string {
	parts := strings.Split(name, "__")
	for i, p := range parts {
		if strings.ToUpper(p) != p {
			continue
		}
		if i <= 2 { // plugins, kind, name: lower_snake_case
			parts[i] = strings.ToLower(p)
			continue
		}
		words := strings.Split(strings.ToLower(p), "_")
		for j, w := range words[1:] {
			if w != "" {
				words[j+1] = strings.ToUpper(w[:1]) + w[1:]
			}
		}
		parts[i] = strings.Join(words, "")
	}
	return strings.Join(parts, ".")
}

// PluginEnv is the environment variable of a plugin's field,
// HARDPOINT_PLUGINS__STORAGE__PEBBLE__CACHE_BYTES for
// plugins.storage.pebble.cacheBytes.
func PluginEnv(key string) string {
	var b strings.Builder
	b.WriteString(envPrefix)
	for _, r := range key {
		switch {
		case r == '.':
			b.WriteString("__")
		case unicode.IsUpper(r):
			b.WriteByte('_')
			b.WriteRune(r)
		default:
			b.WriteRune(unicode.ToUpper(r))
		}
	}
	return b.String()
}

// onePlugin checks plugins.KIND.NAME.FIELD. The fields are the plugin's own
// business; only the host's (see [Program]) are ours.
func (l *loader) onePlugin(name string, e entry) (string, any, bool) {
	parts := strings.Split(name, ".")
	syntax := func(reason string) (string, any, bool) {
		l.fail(&Error{Kind: ErrSyntax, Key: name, Reason: reason, Source: e.src})
		return "", nil, false
	}
	if m, ok := e.value.(map[string]any); ok && len(m) == 0 && len(parts) < 4 {
		return "", nil, false // plugins: {} and the like
	}
	if s, ok := e.value.(string); ok && strings.TrimSpace(s) == "" && len(parts) < 4 {
		return "", nil, false
	}
	if len(parts) > deepest {
		name = shorten(name)
		return syntax(fmt.Sprintf("the name has more than %d parts", deepest))
	}
	if slices.Contains(parts, "") {
		return syntax("a part of the name is empty")
	}
	if len(parts) < 4 {
		return syntax("write plugins.KIND.NAME.FIELD, with KIND one of " + orList(pluginKinds))
	}
	if !slices.Contains(pluginKinds, parts[1]) {
		l.fail(&Error{Kind: ErrUnknownKey, Key: name, Nearest: suggest.Nearest(parts[1], slices.Values(pluginKinds)), Source: e.src})
		return "", nil, false
	}
	if !IsPluginName(parts[2]) {
		return syntax(fmt.Sprintf("%q is not a plugin's name: lower case letters, digits and underscores", parts[2]))
	}
	if l.duplicate(name, name, e.src) {
		return "", nil, false
	}
	v := e.value
	if s, ok := v.(string); ok {
		if err := checkText(strings.TrimSpace(s)); err != nil {
			l.fail(&Error{Kind: ErrBadValue, Key: name, Reason: err.Error(), Source: e.src})
			return "", nil, false
		}
		if e.src.Kind == FromEnv || e.src.Kind == FromFlag || e.src.Kind == FromRequest || formatIsProperties(e.src) {
			v = inferScalar(s)
		}
	}
	if slices.Contains(hostFields, parts[3]) {
		if len(parts) > 4 {
			return syntax(fmt.Sprintf("%s of a plugin is no table", parts[3]))
		}
		if s, ok := e.value.(string); ok {
			v = s // whatever it looks like
		}
		h, err := hostValue(parts[3], v)
		if err != nil {
			l.fail(&Error{Kind: ErrBadValue, Key: name, Value: shorten(fmt.Sprint(v)), Reason: err.Error(), Source: e.src})
			return "", nil, false
		}
		v = h
	}
	l.origin[name] = e.src
	return name, v, true
}

func formatIsProperties(src Source) bool {
	f, err := FormatOf(src.Name)
	return src.Kind == FromFile && err == nil && f == FormatProperties
}

// withoutClashes drops paths that lie under a path that has a value, and says so.
func (l *loader) withoutClashes(flat map[string]any) map[string]any {
	for _, path := range slices.Sorted(maps.Keys(flat)) {
		if !isPluginKey(path) {
			continue
		}
		for i := strings.LastIndexByte(path, '.'); i > 0; i = strings.LastIndexByte(path[:i], '.') {
			if _, clash := flat[path[:i]]; clash {
				l.fail(&Error{Kind: ErrConflict, Key: path, Source: l.seen[path], Earlier: l.seen[path[:i]],
					Reason: fmt.Sprintf("%s has a value of its own at %s", path[:i], l.seen[path[:i]])})
				delete(flat, path)
				break
			}
		}
	}
	return flat
}

// plugins fills in the trees of the plugins, which run as a process, and which
// are programs.
func (l *loader) plugins(c *Config) {
	c.Plugins, c.Processes, c.Programs = map[string]map[string]map[string]any{}, map[string]bool{}, map[string]Program{}
	kinds, _ := l.k.Get("plugins").(map[string]any)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		c.Plugins[kind] = map[string]map[string]any{}
		names, _ := kinds[kind].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			tree, _ := names[name].(map[string]any)
			_, said := tree[fieldProcess]
			p, process, isProgram := l.takeHostFields(kind, name, tree)
			switch {
			case isProgram:
				c.Programs[kind+"."+name] = p
			case said:
				c.Processes[kind+"."+name] = process
			}
			l.resolve(strings.Join([]string{"plugins", kind, name}, "."), tree)
			c.Plugins[kind][name] = tree
		}
	}
}

// PluginError is a plugin's refusal of its part of the configuration, with the
// place where the fault was written.
type PluginError struct {
	// Key is what the plugin complains about, or the key that chose the plugin.
	Key    string
	Source Source
	Err    error

	hide any // secrets of the configuration that Err is about
}

// Error is the place and the plugin's own text, without secrets that were
// resolved for it.
func (e *PluginError) Error() string {
	return fmt.Sprintf("%v: %s", e.Source, withoutPasswords(withoutSecrets(e.Err.Error(), e.hide)))
}

// Unwrap gives the plugin's error.
func (e *PluginError) Unwrap() error { return e.Err }

// WithoutProcesses refuses a configuration that asks for a plugin as a process of
// its own (storageProcess, plugins.KIND.NAME.process or path), with the place. It is for
// programs that do not do what the hardpoint program does about it.
func (c *Config) WithoutProcesses() error {
	refuse := func(key string) error {
		return &PluginError{Key: key, Source: c.origin[key], Err: fmt.Errorf("%w: this program runs a plugin as a process of its own when its list of plugins has external.Storage (package sdk/external) for it, not by %s", ErrRefused, key)}
	}
	for _, which := range slices.Sorted(maps.Keys(c.Processes)) {
		if c.Processes[which] {
			return refuse("plugins." + which + ".process")
		}
	}
	for _, which := range slices.Sorted(maps.Keys(c.Programs)) {
		return refuse(c.Programs[which].Key(fieldPath))
	}
	if c.Store.Process {
		return refuse("storageProcess")
	}
	return nil
}

// UnknownPlugins asks known for every plugin that has something written under
// plugins.KIND.NAME, and returns its errors, each with the place of the first
// such key: a name that no plugin has is a typing error, and what was meant
// would be lost in silence.
func (c *Config) UnknownPlugins(known func(kind, name string) error) []error {
	var faults []error
	asked := map[[2]string]bool{}
	for _, key := range slices.Sorted(maps.Keys(c.origin)) {
		if !isPluginKey(key) {
			continue
		}
		parts := strings.SplitN(key, ".", 4)
		which := [2]string{parts[1], parts[2]}
		if asked[which] {
			continue
		}
		asked[which] = true
		if err := known(parts[1], parts[2]); err != nil {
			faults = append(faults, &PluginError{Key: key, Source: c.origin[key], Err: err})
		}
	}
	return faults
}

// PluginError says where the fault was written that a plugin found in its part of
// the configuration: plugins do not know files and lines, but their errors name
// the field. A configuration that was not loaded knows no places; there, err is
// returned as it is.
func (c *Config) PluginError(kind, name string, err error) error {
	if err == nil || c.origin == nil {
		return err
	}
	var placed *PluginError
	if errors.As(err, &placed) {
		return err // it is known better
	}
	key, longest := kind, 0 // names contain each other
	if kind == "transport" && name != c.Network.Transport {
		key = "moreListeners"
	}
	if p, ok := c.Programs[kind+"."+name]; ok {
		key = p.Key(fieldPath)
	}
	look := func(field, full string) {
		if len(field) > longest && regexp.MustCompile(`\b`+regexp.QuoteMeta(field)+`\b`).MatchString(err.Error()) {
			key, longest = full, len(field)
		}
	}
	if p := c.Programs[kind+"."+name]; p.Checksum != "" {
		look(fieldChecksum, p.Key(fieldChecksum))
	}
	for _, k := range keyTable().keys {
		if _, set := c.raw[kind+"."+name][k.field()]; set && slices.Contains(k.Plugins, kind+"."+name) {
			look(k.field(), k.Name)
		}
	}
	for field := range c.Plugins[kind][name] {
		look(field, strings.Join([]string{"plugins", kind, name, field}, "."))
	}
	src, ok := c.origin[key]
	if k, known := keyTable().lookup(key); known {
		src, ok = c.origin[k.Name]
	}
	for full, o := range c.origin { // a table has no place of its own, but where it begins
		if strings.HasPrefix(full, key+".") && (!ok || o.Line < src.Line) {
			src, ok = o, true
		}
	}
	return &PluginError{Key: key, Source: src, Err: err, hide: c.Plugins[kind][name]}
}
