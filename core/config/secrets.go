package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

// largestSecret bounds the file of ${file:PATH}: certificates fit, a wrong path
// does not.
const largestSecret = 64 << 10

const howToRefer = "write ${file:PATH} or ${env:NAME}, or $${ for a dollar sign and a brace"

// isReference reports whether s is one reference and nothing else, so that it can
// be shown: what it stands for is not in it.
func isReference(s string) bool {
	return (strings.HasPrefix(s, "${file:") || strings.HasPrefix(s, "${env:")) && strings.IndexByte(s, '}') == len(s)-1
}

// secrets resolves references in the values of plugins. What was resolved once is
// kept, so that an update of a running process reads nothing anew.
type secrets struct {
	getenv func(name string) (string, bool)
	known  map[string]string
}

// lookupIn looks up variables in an environment of the form of os.Environ.
func lookupIn(environ []string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := len(environ) - 1; i >= 0; i-- { // as for the system, the last one counts
			if v, ok := strings.CutPrefix(environ[i], name+"="); ok {
				return v, true
			}
		}
		return "", false
	}
}

// text replaces the references in s; found tells whether there were any. Paths
// are relative to dir.
func (r *secrets) text(s, dir string) (out string, found bool, err error) {
	var b strings.Builder
	for {
		i := strings.Index(s, "${")
		if i < 0 {
			b.WriteString(s)
			return b.String(), found, nil
		}
		if i > 0 && s[i-1] == '$' {
			b.WriteString(s[:i-1] + "${")
			s = s[i+2:]
			continue
		}
		end := strings.IndexByte(s[i:], '}')
		if end < 0 {
			return "", false, fmt.Errorf("a reference begins with ${ and does not end; %s", howToRefer)
		}
		b.WriteString(s[:i])
		kind, arg, _ := strings.Cut(s[i+2:i+end], ":")
		v, err := r.one(kind, strings.TrimSpace(arg), dir)
		if err != nil {
			return "", false, err
		}
		b.WriteString(v)
		found, s = true, s[i+end+1:]
	}
}

func (r *secrets) one(kind, arg, dir string) (v string, err error) {
	key := kind + ":" + arg
	if kind == "file" && !filepath.IsAbs(arg) {
		key = kind + ":" + filepath.Join(dir, arg)
	}
	if v, ok := r.known[key]; ok {
		return v, nil
	}
	switch {
	case arg == "":
		return "", errors.New(howToRefer)
	case kind == "file":
		v, err = readSecret(strings.TrimPrefix(key, "file:"))
	case kind == "env":
		v, err = r.variable(arg)
	default:
		err = fmt.Errorf("there is no reference ${%s:…}; %s", shorten(kind), howToRefer)
	}
	if err == nil {
		r.known[key] = v
	}
	return v, err
}

func (r *secrets) variable(name string) (string, error) {
	v, ok := r.getenv(name)
	switch {
	case !ok:
		return "", fmt.Errorf("the environment variable %s is not set", name)
	case v == "":
		return "", fmt.Errorf("the environment variable %s is empty", name)
	case !utf8.ValidString(v):
		return "", fmt.Errorf("the environment variable %s is not UTF-8", name)
	}
	return v, nil
}

// readSecret reads a file without its last line break, which editors add.
func readSecret(path string) (string, error) {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("the file %s does not exist", path)
	case err != nil:
		return "", err
	case !st.Mode().IsRegular() || st.Size() > largestSecret: // a pipe may never end
		return "", fmt.Errorf("the file %s is no regular file or longer than %d bytes", path, largestSecret)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	b = bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r"))
	switch {
	case len(b) == 0:
		return "", fmt.Errorf("the file %s is empty", path)
	case !utf8.Valid(b):
		return "", fmt.Errorf("the file %s is not UTF-8", path)
	}
	return string(b), nil
}

// resolve puts what references stand for in their place, as plugin.Secret: at any
// depth below path, whose errors are told with the place.
func (l *loader) resolve(path string, v any) any {
	switch v := v.(type) {
	case string:
		out, found, err := l.secrets.text(v, dirOf(l.placeOf(path)))
		if err != nil {
			// The value is not told: part of it may be a secret, written out.
			l.fail(&Error{Kind: ErrReference, Key: path, Reason: err.Error(), Source: l.placeOf(path)})
			return v
		}
		if found {
			return plugin.Secret(out)
		}
		return out
	case map[string]any:
		for k, e := range v {
			v[k] = l.resolve(path+"."+k, e)
		}
	case []any:
		for i, e := range v {
			v[i] = l.resolve(path, e)
		}
	}
	return v
}

// placeOf is where the value of path, or what holds it, was written.
func (l *loader) placeOf(path string) Source {
	for {
		if src, ok := l.origin[path]; ok {
			return src
		}
		i := strings.LastIndexByte(path, '.')
		if i < 0 {
			return Source{}
		}
		path = path[:i]
	}
}

// dirOf is what relative paths written at src are relative to: the folder of the
// file, else the working directory.
func dirOf(src Source) string {
	if src.Kind == FromFile {
		return filepath.Dir(src.Name)
	}
	return ""
}

// RawOf encodes the configuration of a plugin for its factory, secrets included:
// what it returns is not for people.
func RawOf(fields map[string]any) (plugin.Raw, error) { return json.Marshal(revealed(fields)) }

func revealed(v any) any {
	switch v := v.(type) {
	case plugin.Secret:
		return v.Reveal()
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = revealed(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = revealed(e)
		}
		return out
	default:
		return v
	}
}

// shortestHidden is how long a secret must be to be taken out of a text: what is
// shorter would take half the text away and is hardly a secret.
const shortestHidden = 4

// Users with passwords in addresses, SCHEME://USER:PASSWORD@HOST or without the scheme.
// A password may hold anything, so all up to the last @ of a word goes, rather too much
// than too little.
var (
	userOfURL     = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)\S*@`)
	quotedUser    = regexp.MustCompile(`"[^"\s]*@`)
	userOfAddress = regexp.MustCompile(`[^\s:/@"']+:[^\s/]\S*@`)
)

// withoutPasswords is a text for people, without who is named in the addresses in it.
func withoutPasswords(text string) string {
	if !strings.Contains(text, "@") {
		return text
	}
	text = userOfURL.ReplaceAllString(text, "${1}"+redacted+"@")
	return userOfAddress.ReplaceAllString(text, redacted+"@")
}

// withoutSecrets replaces the secrets in v wherever text repeats them.
func withoutSecrets(text string, v any) string {
	switch v := v.(type) {
	case plugin.Secret:
		if s := v.Reveal(); len(s) >= shortestHidden {
			return strings.ReplaceAll(text, s, redacted)
		}
	case map[string]any:
		for _, e := range v {
			text = withoutSecrets(text, e)
		}
	case []any:
		for _, e := range v {
			text = withoutSecrets(text, e)
		}
	}
	return text
}
