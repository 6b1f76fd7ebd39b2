package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	koanfmaps "github.com/knadh/koanf/maps"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/spf13/pflag"
)

// Options is what Load reads.
type Options struct {
	// Mode is what the process runs as; zero means Standalone.
	Mode Mode
	// File is the configuration file. Empty: the flag --config, then the
	// variable HARDPOINT_CONFIG, then none.
	File string
	// Env is the environment in the form of os.Environ; nil means none.
	Env []string
	// Secrets is the environment in which ${env:NAME} in the configuration of a
	// plugin is looked up; nil means Env.
	Secrets []string
	// Flags is a parsed set to which RegisterFlags was applied; nil means none.
	Flags *pflag.FlagSet
	// NoStore: whoever reads the configuration opens no store by it, so that one which
	// would begin a store in the wrong place is no fault.
	NoStore bool
	// Hostname is the default of brokerName; empty means os.Hostname.
	Hostname string
}

// Loaded is a configuration with where it came from. It is never written after
// Load and safe for concurrent use.
type Loaded struct {
	Config   Config
	Warnings []Warning
	Mode     Mode
	File     string // the file that was read; empty: none

	part    Mode // see As; 0: the whole process
	k       *koanf.Koanf
	secrets map[string]string // that references stood for
}

// Origin tells where the value of a key came from, by name or alias.
func (l *Loaded) Origin(key string) Source {
	if k, ok := keyTable().lookup(key); ok {
		key = k.Name
	}
	return l.Config.origin[key]
}

// Load reads all layers and checks them. The error is [*Errors] with every
// fault that was found; several files are one ([LoadGroups] takes them).
func Load(o Options) (*Loaded, error) {
	o = o.withDefaults()
	path := ""
	if files := o.files(); len(files) > 1 {
		return nil, &Errors{[]*Error{onlyOne(files, "only `hardpoint broker` and `hardpoint standalone` take several, one broker group each")}}
	} else if len(files) == 1 {
		path = files[0]
	}
	l := o.read(path)
	l.loadTLSFile()
	out := l.finish()
	if len(l.errs) > 0 {
		return nil, &Errors{l.errs}
	}
	out.File = path
	return out, nil
}

func (o Options) withDefaults() Options {
	if o.Mode == 0 {
		o.Mode = Standalone
	}
	if o.Secrets == nil {
		o.Secrets = o.Env
	}
	return o
}

// read reads all layers, with path as the file; empty: none.
func (o Options) read(path string) *loader {
	l := newLoader(o.Mode, o.Secrets)
	l.defaults(o)
	if path != "" {
		l.loadFile(path)
	}
	l.loadEnv(o.Env)
	if o.Flags != nil {
		l.loadFlags(o.Flags)
	}
	if !o.NoStore {
		l.apacheHome(path, o.Secrets)
	}
	return l
}

type loader struct {
	table    *table
	mode     Mode
	k        *koanf.Koanf
	origin   map[string]Source
	errs     []*Error
	warnings []Warning
	seen     map[string]Source // names of the layer being read
	secrets  *secrets
}

func newLoader(mode Mode, environ []string) *loader {
	return &loader{table: keyTable(), mode: mode, k: koanf.New("."), origin: map[string]Source{}, secrets: &secrets{lookupIn(environ), map[string]string{}}}
}

func (l *loader) fail(e *Error) {
	e.Value, e.Reason = withoutPasswords(e.Value), withoutPasswords(e.Reason)
	if strings.Contains(e.Value, redacted+"@") { // and parts of the value
		e.Reason = quotedUser.ReplaceAllString(e.Reason, `"`+redacted+"@")
	}
	l.errs = append(l.errs, e)
}

func (l *loader) warn(key string, src Source, format string, args ...any) {
	l.warnings = append(l.warnings, Warning{key, src, withoutPasswords(fmt.Sprintf(format, args...))})
}

// invariant reports an error of koanf that no input can cause.
func invariant(err error) {
	if err != nil {
		panic("config: invariant broken: " + err.Error())
	}
}

// merge puts values by koanf path over what is there.
func (l *loader) merge(flat map[string]any) {
	invariant(l.k.Load(confmap.Provider(flat, "."), nil))
}

// defaults loads the lowest layer from the key table.
func (l *loader) defaults(o Options) {
	host := o.Hostname
	if host == "" {
		if host, _ = os.Hostname(); host == "" {
			host = "DEFAULT_BROKER"
		}
	}
	flat := map[string]any{}
	for _, k := range l.table.keys {
		if k.Status != Honoured || k.Sets != "" {
			continue
		}
		text := k.Default
		switch {
		case k.Name == "brokerName":
			text = host
		case k.Name == "adminListen" && l.mode == Namesrv:
			text = "127.0.0.1:9879" // a broker beside it has the other one
		}
		v, err := k.parse(text)
		if err != nil {
			panic(fmt.Sprintf("config: invariant broken: default of %s: %v", k.Name, err))
		}
		flat[k.path()] = v
	}
	l.merge(flat)
}

// files are the configuration files to read.
func (o Options) files() []string {
	if o.File != "" {
		return []string{o.File}
	}
	if o.Flags != nil {
		if f := o.Flags.Lookup(flagConfig); f != nil && f.Changed && annotated(f) != "" {
			list, _ := f.Value.(pflag.SliceValue)
			files := make([]string, 0, len(list.GetSlice()))
			for _, path := range list.GetSlice() {
				files = append(files, strings.TrimSpace(path))
			}
			return files
		}
	}
	for _, v := range o.Env {
		if path, ok := strings.CutPrefix(v, envPrefix+"CONFIG="); ok && strings.TrimSpace(path) != "" {
			return []string{strings.TrimSpace(path)}
		}
	}
	return nil
}

// parser is koanf's view of readEntries.
type parser struct {
	l      *loader
	format Format
	src    Source
}

func (p parser) Unmarshal(b []byte) (map[string]any, error) {
	entries, errs := readEntries(p.format, b, p.src)
	p.l.errs = append(p.l.errs, errs...)
	return koanfmaps.Unflatten(p.l.accept(entries), "."), nil
}

func (parser) Marshal(map[string]any) ([]byte, error) { return nil, errors.ErrUnsupported }

func (l *loader) loadFile(path string) {
	src := Source{Kind: FromFile, Name: path}
	format, err := FormatOf(path)
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			l.fail(e)
		}
		return
	}
	// A device or a pipe tells no size, and reading it may never end.
	if st, err := os.Stat(path); err == nil && (!st.Mode().IsRegular() || st.Size() > largestFile) {
		l.fail(&Error{Kind: ErrFile, Source: src, Reason: fmt.Sprintf("it is no regular file or longer than %d bytes", largestFile)})
		return
	}
	if err := l.k.Load(file.Provider(path), parser{l, format, src}); err != nil {
		reason := err.Error()
		if errors.Is(err, fs.ErrNotExist) {
			reason = "it does not exist"
		}
		l.fail(&Error{Kind: ErrFile, Source: src, Reason: reason})
	}
}

func (l *loader) loadEnv(environ []string) {
	l.seen = map[string]Source{}
	invariant(l.k.Load(env.Provider(".", env.Opt{
		Prefix:      envPrefix,
		EnvironFunc: func() []string { return slices.Sorted(slices.Values(environ)) },
		TransformFunc: func(variable, value string) (string, any) {
			src := Source{Kind: FromEnv, Name: variable}
			name, ok := l.envKey(strings.TrimPrefix(variable, envPrefix), src)
			if !ok {
				return "", nil
			}
			path, v, ok := l.one(entry{name, value, src})
			if !ok {
				return "", nil
			}
			return path, v
		},
	}), nil))
}

// envKey turns the name of a variable, without the prefix, into a key.
func (l *loader) envKey(name string, src Source) (string, bool) {
	switch {
	case name == "CONFIG", strings.HasPrefix(name, "PLUGIN_"), strings.HasPrefix(name, "TEST_"):
		return "", false // not of this package: the file, the handshake with plugin processes, the project's tests
	case strings.HasPrefix(name, "PLUGINS__"):
		return pluginEnvKey(name), true
	}
	if i, ok := l.table.byEnv[name]; ok {
		return l.table.keys[i].Name, true
	}
	l.unknown(src.Name, src, func(string) string { return l.table.nearestEnv(name) })
	return "", false
}

func (l *loader) loadFlags(flags *pflag.FlagSet) {
	l.seen = map[string]Source{}
	if f := flags.Lookup(flagSet); f != nil && f.Changed && annotated(f) != "" {
		flat := map[string]any{}
		list, _ := f.Value.(pflag.SliceValue)
		for _, kv := range list.GetSlice() {
			name, value, ok := strings.Cut(kv, "=")
			name = strings.TrimSpace(name)
			src := Source{Kind: FromFlag, Name: flagSet + " " + name}
			if !ok || name == "" {
				l.fail(&Error{Kind: ErrSyntax, Source: src, Reason: "write --set KEY=VALUE"})
				continue
			}
			if path, v, ok := l.one(entry{name, value, src}); ok {
				flat[path] = v
			}
		}
		l.merge(l.withoutClashes(flat))
	}
	invariant(l.k.Load(posflag.ProviderWithFlag(flags, ".", l.k, func(f *pflag.Flag) (string, any) {
		name := annotated(f)
		if !f.Changed || name == "" || f.Name == flagSet || f.Name == flagConfig {
			return "", nil
		}
		path, v, ok := l.one(entry{name, f.Value.String(), Source{Kind: FromFlag, Name: f.Name}})
		if !ok {
			return "", nil
		}
		return path, v
	}), nil))
}

// accept checks the entries of one source and returns their values by path.
func (l *loader) accept(entries []entry) map[string]any {
	l.seen = map[string]Source{}
	flat := map[string]any{}
	for _, e := range entries {
		if path, v, ok := l.one(e); ok {
			flat[path] = v
		}
	}
	return l.withoutClashes(flat)
}

// one checks an entry and returns the path and typed value for koanf; false
// when there is nothing to load.
func (l *loader) one(e entry) (string, any, bool) {
	name := strings.TrimSpace(e.name)
	if isPluginKey(name) || name == "plugins" {
		return l.onePlugin(name, e)
	}
	k, ok := l.table.lookup(name)
	if !ok {
		l.unknown(name, e.src, l.table.nearest)
		return "", nil, false
	}
	if l.duplicate(k.Name, name, e.src) {
		return "", nil, false
	}
	text, ok := l.text(k, e)
	if !ok {
		return "", nil, false
	}
	v, err := k.parse(text)
	if err != nil {
		l.bad(k, text, e.src, err)
		return "", nil, false
	}
	if name != k.Name && e.src.Kind != FromEnv {
		l.warn(name, e.src, "is an older spelling of %s", k.Name)
	}
	if !l.served(k, v, text, e.src) {
		return "", nil, false
	}
	l.origin[k.Name] = e.src
	return k.path(), v, true
}

// mostSuggestions bounds the search for the nearest key, which is quick for a
// typing error and slow for a file that is no configuration at all.
const mostSuggestions = 50

func (l *loader) unknown(name string, src Source, nearest func(string) string) {
	e := &Error{Kind: ErrUnknownKey, Key: shorten(name), Source: src}
	if len(l.errs) < mostSuggestions {
		e.Nearest = nearest(name)
	}
	l.fail(e)
}

func (l *loader) duplicate(name, written string, src Source) bool {
	if earlier, twice := l.seen[name]; twice {
		l.fail(&Error{Kind: ErrDuplicateKey, Key: written, Source: src, Earlier: earlier})
		return true
	}
	l.seen[name] = src
	return false
}

func (l *loader) bad(k Key, text string, src Source, err error) {
	kind := ErrBadValue
	if errors.Is(err, ErrEncoding) {
		kind = ErrEncoding
		text = ""
	}
	if k.Secret {
		text = redacted
	}
	l.fail(&Error{Kind: kind, Key: k.Name, Value: shorten(strings.TrimSpace(text)), Reason: err.Error(), Source: src})
}

// shorten is a value for people. What hides a password looks at all of it.
func shorten(s string) string {
	s = withoutPasswords(s)
	if r := []rune(s); len(r) > 80 {
		return string(r[:77]) + "..."
	}
	return s
}

// text joins a list for keys that take one.
func (l *loader) text(k Key, e entry) (string, bool) {
	switch v := e.value.(type) {
	case string:
		return v, true
	case []any:
		if !k.list() && k.Type != Delays {
			break
		}
		parts := make([]string, 0, len(v))
		for _, p := range v {
			s, ok := p.(string)
			if !ok {
				l.bad(k, fmt.Sprint(e.value), e.src, fmt.Errorf("allowed is %s", k.AllowedText()))
				return "", false
			}
			parts = append(parts, s)
		}
		if k.Type == Delays {
			return strings.Join(parts, " "), true
		}
		return strings.Join(parts, ";"), true
	}
	l.bad(k, fmt.Sprint(e.value), e.src, fmt.Errorf("a list or a table; allowed is %s", k.AllowedText()))
	return "", false
}

// served says what cannot be served, and warns of what has no effect.
func (l *loader) served(k Key, v any, text string, src Source) bool {
	value := k.format(v)
	shown := shorten(value)
	if k.Secret {
		shown = redacted
	}
	if reason, ok := k.Refuses[value]; ok {
		l.fail(&Error{Kind: ErrRefused, Key: k.Name, Value: shown, Reason: reason, Source: src})
		return false
	}
	switch k.Status {
	case Refused:
		if !k.harmless(v) {
			l.fail(&Error{Kind: ErrRefused, Key: k.Name, Value: shown, Reason: k.Reason, Source: src})
			return false
		}
	case Ignored:
		l.warn(k.Name, src, "has no effect: %s", k.Reason)
	case Honoured:
		if k.Applies&l.mode == 0 {
			l.warn(k.Name, src, "has no effect: it is a key of the %s and this is a %s", k.Applies, l.mode)
		}
	}
	return true
}

func (k Key) harmless(v any) bool {
	value := k.format(v)
	if value == "" {
		return true
	}
	for _, h := range k.Harmless {
		if p, err := k.parse(h); err == nil && k.format(p) == value {
			return true
		}
	}
	return false
}

// strict decodes a group into its struct; both sides must know the same keys.
func (l *loader) strict(group Group, out any) {
	invariant(l.k.UnmarshalWithConf(string(group), out, koanf.UnmarshalConf{
		DecoderConfig: &mapstructure.DecoderConfig{ErrorUnused: true, ErrorUnset: true, TagName: "koanf"},
	}))
}

// finish derives what follows from other keys, checks rules between keys, and
// makes the typed configuration.
func (l *loader) finish() *Loaded {
	l.derive()
	c := Config{}
	for g, out := range map[Group]any{GroupNode: &c.Node, GroupNetwork: &c.Network, GroupBroker: &c.Broker, GroupTopics: &c.Topics,
		GroupConsume: &c.Consume, GroupStore: &c.Store, GroupRetention: &c.Retention, GroupMetrics: &c.Metrics, GroupProcess: &c.PluginProcesses, GroupNamesrv: &c.Namesrv, GroupTLS: &c.TLS} {
		l.strict(g, out)
	}
	l.plugins(&c)
	c.Store.Process = c.Store.Process || c.Processes["storage."+c.Store.Storage]
	c.raw = l.pluginKeys(&c)
	l.check(&c)
	c.origin = maps.Clone(l.origin)
	return &Loaded{Config: c, Warnings: l.warnings, Mode: l.mode, k: l.k, secrets: l.secrets.known}
}

// pluginKeys gathers the top-level keys that belong to the chosen plugins and
// were set. One of a plugin that is not chosen has no effect.
func (l *loader) pluginKeys(c *Config) map[string]map[string]any {
	chosen := []string{"storage." + c.Store.Storage, "replication." + c.Broker.Replication}
	for _, name := range c.Network.Transports() {
		chosen = append(chosen, "transport."+name)
	}
	raw := map[string]map[string]any{}
	for _, k := range l.table.keys {
		src, set := l.origin[k.Name]
		if len(k.Plugins) == 0 || !set {
			continue
		}
		used := false
		for _, p := range chosen {
			if !slices.Contains(k.Plugins, p) {
				continue
			}
			used = true
			if raw[p] == nil {
				raw[p] = map[string]any{}
			}
			raw[p][k.field()] = k.plain(l.k.Get(k.path()))
			if s, ok := raw[p][k.field()].(string); ok && k.Secret {
				raw[p][k.field()] = plugin.Secret(s)
			}
		}
		switch v := l.k.Get(k.path()); {
		case used:
		case k.asksForTLS(v):
			l.fail(&Error{Kind: ErrRefused, Key: k.Name, Value: k.shown(v), Source: src, Reason: notForTransports(c.Network.Transports())})
		case k.Group != GroupTLS:
			l.warn(k.Name, src, "has no effect with %s: it belongs to %s", strings.Join(chosen, " and "), orList(k.Plugins))
		}
	}
	return raw
}
