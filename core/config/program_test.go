package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

func TestPrograms(t *testing.T) {
	sum := strings.Repeat("0a", 32)
	for name, text := range map[string]string{
		"c.yaml": "storage: acme\nplugins:\n  storage:\n    acme:\n      path: bin/acme\n      checksum: sha256:" + strings.ToUpper(sum) + "\n      args: [serve, --depth, 3]\n      env: [A=b, C=]\n      depth: 7\n",
		"c.toml": "storage='acme'\n[plugins.storage.acme]\npath='bin/acme'\nchecksum='" + sum + "'\nargs=['serve','--depth',3]\nenv=['A=b','C=']\ndepth=7\n",
		"c.conf": "storage=acme\nplugins.storage.acme.path=bin/acme\nplugins.storage.acme.checksum=" + sum + "\nplugins.storage.acme.args=serve --depth 3\nplugins.storage.acme.env=A=b C=\nplugins.storage.acme.depth=7\n",
	} {
		file := write(t, name, text)
		l, err := Load(Options{Mode: Broker, File: file})
		require.NoError(t, err, name)
		require.Equal(t, map[string]Program{"storage.acme": {
			Kind: "storage", Name: "acme", Path: filepath.Join(filepath.Dir(file), "bin/acme"), Checksum: sum,
			Args: []string{"serve", "--depth", "3"}, Env: []string{"A=b", "C="},
		}}, l.Config.Programs, name)
		require.Empty(t, l.Config.Processes, name)
		raw, err := l.Config.PluginRaw("storage", "acme")
		require.NoError(t, err)
		require.JSONEq(t, `{"depth":7}`, string(raw), name)
		require.ErrorContains(t, l.Config.WithoutProcesses(), "plugins.storage.acme.path", name)
	}

	// A field below another is the plugin's own, and without a file the working
	// directory counts: never PATH.
	l, err := Load(Options{Env: []string{"HARDPOINT_PLUGINS__ALLOCATE__NEAR__PATH=near", "HARDPOINT_PLUGINS__ALLOCATE__NEAR__SUB__PATH=x"}})
	require.NoError(t, err)
	require.Equal(t, "./near", filepath.ToSlash(l.Config.Programs["allocate.near"].Path))
	raw, err := l.Config.PluginRaw("allocate", "near")
	require.NoError(t, err)
	require.JSONEq(t, `{"sub":{"path":"x"}}`, string(raw))
}

func TestBadPrograms(t *testing.T) {
	for text, want := range map[string]string{
		"path: ''":                             "write the path of a program",
		"path: [a]":                            "write the path of a program",
		"path: a\nchecksum: 12":                "64 hexadecimal digits",
		"path: a\nargs: {a: b}":                "args of a plugin is no table",
		"path: a\nargs: [1.5]":                 "put it in quotes",
		"path: a\nenv: [NAME]":                 "NAME=VALUE",
		"path: a\nargs: -x \"a b\"":            "write a list of texts",
		"path: a\nenv: A='b c'":                "write a list of texts",
		"path: a\nargs: [\"a\\0\"]":            "control character",
		"path: a\nargs: ['${env:X}']":          "everybody on the machine can see",
		"path: a\nenv: ['A=${file:x}']":        "everybody on the machine can see",
		"path: a\nprocess: false":              "always a process of its own",
		"args: [x]":                            "there is no plugins.storage.acme.path",
		"checksum: " + strings.Repeat("0", 64): "there is no plugins.storage.acme.path",
		"process: maybe":                       "write true or false",
	} {
		indented := "      " + strings.ReplaceAll(text, "\n", "\n      ")
		_, err := loadText(t, Broker, "c.yaml", "plugins:\n  storage:\n    acme:\n"+indented+"\n")
		e := fault(t, err)
		require.ErrorContains(t, e, want, text)
		require.Regexp(t, `c\.yaml:[45]: plugins\.storage\.acme\.`, e.Error(), text)
	}
}

func TestSecretsOfPlugins(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "key"), []byte("s3cret\n"), 0o600))
	file := filepath.Join(dir, "c.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`plugins:
  storage:
    acme:
      path: acme
      password: ${file:key}
      url: "tcp://u:${env:PASS}@host"
      list: [{pin: "${env:PIN}"}, "$${x}"]
    pebble: {mark: "${file:KEY}"}
`), 0o600))
	env := []string{"PASS=hunter22", "PIN=0042"}
	l, err := Load(Options{File: file, Env: env, Flags: parseFlags(t, "--set", "plugins.storage.pebble.mark="+"${file:"+filepath.Join(dir, "key")+"}")})
	require.NoError(t, err, "what is overridden is not looked for")
	raw, err := l.Config.PluginRaw("storage", "acme")
	require.NoError(t, err)
	require.JSONEq(t, `{"password":"s3cret","url":"tcp://u:hunter22@host","list":[{"pin":"0042"},"${x}"]}`, string(raw))
	raw, err = l.Config.PluginRaw("storage", "pebble")
	require.NoError(t, err)
	require.JSONEq(t, `{"mark":"s3cret"}`, string(raw))

	// No way of printing shows them.
	text, err := json.Marshal(l.Config)
	require.NoError(t, err)
	all := fmt.Sprintf("%v %+v %#v %s %v %s", l.Config, l.Config, l.Config.Plugins, text, l.Show(), l.Properties())
	fault := l.Config.PluginError("storage", "acme", errors.New("password is s3cret, it must be longer"))
	require.EqualError(t, fault, file+":5: password is (hidden), it must be longer")
	for _, secret := range []string{"s3cret", "hunter22", "0042"} {
		require.NotContains(t, all+fault.Error(), secret)
	}
	require.Contains(t, all, "{plugins.storage.acme.password ${file:key}")

	// An update of a running process keeps them, wherever they have gone since.
	require.NoError(t, os.Remove(filepath.Join(dir, "key")))
	after, _, err := l.Update([]byte("logLevel=debug\n"))
	require.NoError(t, err)
	require.Equal(t, plugin.Secret("s3cret"), after.Config.Plugins["storage"]["acme"]["password"])
	require.Equal(t, "hunter22", strings.TrimSuffix(strings.TrimPrefix(after.Config.Plugins["storage"]["acme"]["url"].(plugin.Secret).Reveal(), "tcp://u:"), "@host"))
}

// TestPasswordsInAddresses: who is named in an address is told nobody, neither by what
// is wrong with it nor where the configuration is shown.
func TestPasswordsInAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"https://u:s3cret@h:4317 is bad":                         "https://(hidden)@h:4317 is bad",
		"\"redis+tls://:s3cret@h/0\"":                            "\"redis+tls://(hidden)@h/0\"",
		"http://token-s3cret@h":                                  "http://(hidden)@h",
		"http://u:s3/cre@t@h:1/path":                             "http://(hidden)@h:1/path",
		"u:s3cret@h:4317":                                        "(hidden)@h:4317",
		"at broker.conf:3: u:s3cret@h":                           "at broker.conf:3: (hidden)@h",
		"http://h:1/v1":                                          "http://h:1/v1",
		"10.0.0.1:9876;10.0.0.2:9876":                            "10.0.0.1:9876;10.0.0.2:9876",
		"user@host, hardpoint-broker@a, 127.0.0.1:1 @ somewhere": "user@host, hardpoint-broker@a, 127.0.0.1:1 @ somewhere",
	} {
		require.Equal(t, want, withoutPasswords(text))
	}
	long := "u:s3cret" + strings.Repeat("x", 200) + "@h:1"
	for text, want := range map[string]string{
		"metricsGrpcExporterTarget=https://u:s3cret@h:4317": "names a user",
		"tracesExporterTarget=u:s3cret@h:4317":              "names a user",
		"metricsGrpcExporterTarget=ftp://u:s3cret@h":        "begins with ftp://",
		"metricsGrpcExporterTarget=" + long:                 "names a user",
		"listen=http://u:s3cret@h":                          "listen",
		"flushDiskType=u:s3cret@h":                          "ASYNC_FLUSH",
		"flushDiskType=" + long:                             "ASYNC_FLUSH",
		"namesrvAddr=u:s3cret@h":                            "namesrvAddr",
	} {
		_, err := loadText(t, Broker, "broker.conf", text)
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "s3cret", text)
		var all *Errors
		require.ErrorAs(t, err, &all)
		for _, e := range all.List {
			require.NotContains(t, e.Value+e.Reason, "s3cret", text)
		}
	}
	l, err := loadText(t, Broker, "c.yaml", "plugins:\n  storage:\n    acme: {path: acme, url: 'tcp://u:s3cret@h', list: ['u:s3cret@h']}\n")
	require.NoError(t, err)
	fault := l.Config.PluginError("storage", "acme", errors.New("no answer from tcp://u:s3cret@h"))
	require.NotContains(t, fmt.Sprint(l.Show(), fault.Error(), string(l.Properties())), "s3cret")
	raw, err := l.Config.PluginRaw("storage", "acme")
	require.NoError(t, err)
	require.Contains(t, string(raw), "tcp://u:s3cret@h", "the plugin gets it")
}

func TestBadSecrets(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "empty"), []byte("\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "long"), make([]byte, largestSecret+1), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "latin"), []byte("\xe9"), 0o600))
	for value, want := range map[string]string{
		"${file:nowhere}": "the file " + filepath.Join(dir, "nowhere") + " does not exist",
		"${file:empty}":   "is empty",
		"${file:long}":    "longer than",
		"${file:latin}":   "is not UTF-8",
		"${file:.}":       "no regular file",
		"${file:}":        "write ${file:PATH}",
		"${env:NOWHERE}":  "the environment variable NOWHERE is not set",
		"${env:EMPTY}":    "the environment variable EMPTY is empty",
		"${vault:x}":      "there is no reference ${vault:…}",
		"x ${env:A":       "does not end",
		"p4ss${env:NO}":   "NO is not set",
	} {
		file := filepath.Join(dir, "c.yaml")
		require.NoError(t, os.WriteFile(file, []byte("plugins:\n  storage:\n    pebble:\n      key: '"+value+"'\n"), 0o600))
		_, err := Load(Options{File: file, Env: []string{"EMPTY="}})
		e := fault(t, err)
		require.ErrorIs(t, e, ErrReference, value)
		require.Equal(t, Source{Kind: FromFile, Name: file, Line: 4}, e.Source, value)
		require.ErrorContains(t, e, "plugins.storage.pebble.key: ")
		require.ErrorContains(t, e, want)
		require.NotContains(t, e.Error(), "p4ss")
	}
}
