package packaging

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/test/harness"
)

// unit is a unit of systemd: values by section and name, in order.
type unit map[string][]string

func readUnit(t *testing.T, name string) unit {
	t.Helper()
	u, section := unit{}, ""
	for line := range strings.Lines(read(t, "packaging/systemd/"+name)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if line[0] == '[' {
			section = strings.Trim(line, "[]")
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		require.True(t, ok, line)
		u[section+"."+key] = append(u[section+"."+key], value)
	}
	return u
}

func (u unit) one(t *testing.T, key string) string {
	t.Helper()
	require.Len(t, u[key], 1, key)
	return u[key][0]
}

var unitModes = map[string]string{"hardpoint-broker.service": "broker", "hardpoint-broker@.service": "broker", "hardpoint-namesrv.service": "namesrv"}

// TestUnits: what a unit says to the program is understood by it, and it has the time
// that a stop may take.
func TestUnits(t *testing.T) {
	for name, mode := range unitModes {
		t.Run(name, func(t *testing.T) {
			u := readUnit(t, name)
			words := strings.Fields(u.one(t, "Service.ExecStart"))
			require.Equal(t, []string{"/usr/bin/hardpoint", mode}, words[:2])
			understood(t, words[1:], nil)
			var file string
			for _, e := range u["Service.Environment"] {
				key, value, _ := strings.Cut(e, "=")
				require.Equal(t, "HARDPOINT_CONFIG", key)
				file = value
			}
			require.True(t, strings.HasPrefix(file, "/etc/hardpoint/"+mode), file)

			require.Equal(t, "notify", u.one(t, "Service.Type"), "TestServiceManager of cmd/hardpoint")
			require.Equal(t, "mixed", u.one(t, "Service.KillMode"), "plugins are stopped by the broker")
			require.Contains(t, u.one(t, "Service.ExecReload"), "kill -HUP")
			limit, err := time.ParseDuration(u.one(t, "Service.TimeoutStopSec") + "s")
			require.NoError(t, err)
			require.GreaterOrEqual(t, limit, stopTime(t, mode))

			require.Equal(t, "hardpoint", u.one(t, "Service.User"))
			require.Contains(t, read(t, "packaging/sysusers/hardpoint.conf"), "\nu hardpoint ")
			state := "/var/lib/" + u.one(t, "Service.StateDirectory")
			require.Equal(t, state, u.one(t, "Service.WorkingDirectory"))
			if !strings.Contains(name, "@") {
				l, err := config.Load(config.Options{Mode: modeOf(mode), File: filepath.Join(root, "packaging", "etc", filepath.Base(file))})
				require.NoError(t, err)
				require.Empty(t, l.Warnings)
				require.Equal(t, state, l.Config.Node.Data, "what the configuration names can be written")
			}
		})
	}
	one, many := read(t, "packaging/systemd/hardpoint-broker.service"), read(t, "packaging/systemd/hardpoint-broker@.service")
	many = strings.NewReplacer("broker-%i", "broker", "broker@NAME", "broker", " %i", "").Replace(many)
	require.Equal(t, one, many, "the template is the unit but for names")
}

// TestExamples: every key that an example of a configuration offers in a comment is one.
func TestExamples(t *testing.T) {
	for file, mode := range map[string]config.Mode{"broker.yaml": config.Broker, "namesrv.yaml": config.Namesrv} {
		var text strings.Builder
		offered := 0
		for line := range strings.Lines(read(t, "packaging/etc/"+file)) {
			if rest, ok := strings.CutPrefix(line, "#"); ok && !strings.HasPrefix(rest, " ") && strings.Contains(rest, ": ") {
				line = rest
				offered++
			}
			text.WriteString(line)
		}
		require.GreaterOrEqual(t, offered, 2, file)
		path := filepath.Join(t.TempDir(), file)
		require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o644))
		l, err := config.Load(config.Options{Mode: mode, File: path})
		require.NoError(t, err)
		require.Empty(t, l.Warnings)
	}
}

func modeOf(word string) config.Mode {
	return map[string]config.Mode{"broker": config.Broker, "namesrv": config.Namesrv, "standalone": config.Standalone}[word]
}

// understood checks a command line and an environment against the program: the command
// and its flags are there, and each variable is a key with a fitting value.
func understood(t *testing.T, args []string, env map[string]string) {
	t.Helper()
	command(t, nil, harness.Binary(t, false), append(args, "--help")...)
	mode := modeOf(args[0])
	if mode == 0 {
		mode = config.Standalone // a tool
	}
	l, err := config.Load(config.Options{Mode: mode, Env: pairs(env), Hostname: "pod"})
	require.NoError(t, err)
	for _, w := range l.Warnings {
		// The operator gives the one; network.yaml keeps strangers from the other.
		require.Contains(t, []string{"namesrvAddr", "adminListen"}, w.Key, "%s", w)
	}
}
