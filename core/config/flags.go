package config

import (
	"github.com/spf13/pflag"
)

const (
	flagConfig = "config"
	flagSet    = "set"
	// flagMark is the annotation by which Load knows the flags of this package
	// among others of the same set.
	flagMark = "hardpoint_config_key"
)

// RegisterFlags adds the flags of the configuration to fs: --config, --set,
// and one for each of the most used keys. Load reads only those that were
// given, so the flags carry no defaults of their own.
func RegisterFlags(fs *pflag.FlagSet) {
	add := func(f *pflag.Flag, key string) {
		f.Annotations = map[string][]string{flagMark: {key}}
	}
	fs.StringArray(flagConfig, nil, "configuration `file`: .yaml, .toml, or RocketMQ's .conf; where broker groups are served, one group for each")
	add(fs.Lookup(flagConfig), flagConfig)
	fs.StringArray(flagSet, nil, "any `key=value` of the configuration; may be repeated")
	add(fs.Lookup(flagSet), flagSet)
	for _, k := range keyTable().keys {
		if k.Flag == "" {
			continue
		}
		usage := k.Desc
		if k.Type == Enum {
			usage += " Allowed: " + k.AllowedText() + "."
		}
		if k.Default != "" {
			usage += " Default " + k.Default + "."
		}
		f := fs.VarPF(&textValue{typ: flagType(k)}, k.Flag, "", usage)
		if k.Type == Bool {
			f.NoOptDefVal = "true"
		}
		add(f, k.Name)
	}
}

// HideFlags leaves flags of keys that have no effect in mode out of the help.
// They are still taken, with the warning that they have none.
func HideFlags(fs *pflag.FlagSet, mode Mode) {
	for _, k := range keyTable().keys {
		if k.Flag != "" && k.Applies&mode == 0 {
			fs.Lookup(k.Flag).Hidden = true
		}
	}
}

func flagType(k Key) string {
	switch k.Type {
	case Bool:
		return "bool"
	case Path:
		return "path"
	case Address, Addresses, Listeners:
		return "address"
	default:
		return "text"
	}
}

// textValue keeps the text as it was given; the key table judges it, so that a
// flag is as strict as the file.
type textValue struct{ text, typ string }

func (v *textValue) String() string     { return v.text }
func (v *textValue) Set(s string) error { v.text = s; return nil }
func (v *textValue) Type() string       { return v.typ }

func annotated(f *pflag.Flag) string {
	if a := f.Annotations[flagMark]; len(a) == 1 {
		return a[0]
	}
	return ""
}
