package packaging

import (
	"encoding/json"
	"errors"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/hardpointmq/hardpoint/core/config"
)

// image is what a Containerfile says of a container: its last stage.
type image struct {
	env                         map[string]string
	entrypoint, command, health []string
	user, volume                string
	ports                       []string
}

func readImage(t *testing.T) image {
	t.Helper()
	text := strings.ReplaceAll(read(t, "packaging/container/Containerfile"), "\\\n", " ")
	i := image{env: map[string]string{}}
	for line := range strings.Lines(text[strings.LastIndex(text, "\nFROM ")+1:]) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		list := func(s string) (words []string) {
			require.NoError(t, json.Unmarshal([]byte(s), &words), line)
			return words
		}
		switch word {
		case "FROM":
			require.Equal(t, "scratch", rest)
		case "ENV":
			for _, e := range strings.Fields(rest) {
				name, value, ok := strings.Cut(e, "=")
				require.True(t, ok, e)
				i.env[name] = value
			}
		case "ENTRYPOINT":
			i.entrypoint = list(rest)
		case "CMD":
			i.command = list(rest)
		case "HEALTHCHECK":
			_, cmd, _ := strings.Cut(rest, "CMD ")
			i.health = list(cmd)
		case "USER":
			i.user = rest
		case "VOLUME":
			i.volume = rest
		case "EXPOSE":
			i.ports = strings.Fields(rest)
		case "", "#", "COPY", "STOPSIGNAL":
		default:
			if !strings.HasPrefix(word, "#") {
				t.Fatalf("not looked at: %s", line)
			}
		}
	}
	return i
}

func TestImage(t *testing.T) {
	i := readImage(t)
	require.Equal(t, []string{"/usr/bin/hardpoint"}, i.entrypoint)
	require.Equal(t, i.entrypoint[0], i.health[0])
	for _, args := range [][]string{i.command, i.health[1:], {"namesrv"}, {"standalone"}} {
		understood(t, args, i.env)
	}
	require.NotEqual(t, "0", strings.SplitN(i.user, ":", 2)[0])
	require.Equal(t, i.volume, i.env["HARDPOINT_DATA"])
	require.Contains(t, read(t, "packaging/container/Containerfile"), "ARG GO_VERSION="+goVersion(t)+"\n", "as go.mod has it")
	require.Equal(t, []string{"9876", "10909", "10911"}, i.ports)
}

// goVersion is the one of go.mod, without its last number.
func goVersion(t *testing.T) string {
	t.Helper()
	for line := range strings.Lines(read(t, "go.mod")) {
		if v, ok := strings.CutPrefix(line, "go "); ok {
			return strings.Join(strings.Split(strings.TrimSpace(v), ".")[:2], ".")
		}
	}
	t.Fatal("go.mod names no version of Go")
	return ""
}

// documents decodes a file of YAML strictly: a name that is none of the type's is an error.
func documents[T any](t *testing.T, file string) []T {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(read(t, file)))
	d.KnownFields(true)
	var all []T
	for {
		var v T
		err := d.Decode(&v)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err, file)
		all = append(all, v)
	}
}

type composeFile struct {
	Name     string
	Common   composeService `yaml:"x-hardpoint"`
	Services map[string]composeService
	Volumes  map[string]any
}

type composeService struct {
	Image           string
	Build           struct{ Context, Dockerfile string }
	Restart         string
	StopGracePeriod string `yaml:"stop_grace_period"`
	ReadOnly        bool   `yaml:"read_only"`
	Tmpfs           []string
	CapDrop         []string `yaml:"cap_drop"`
	SecurityOpt     []string `yaml:"security_opt"`
	Command         []string
	Ports           []string
	Volumes         []string
	Environment     map[string]string
	DependsOn       []string `yaml:"depends_on"`
}

// TestCompose: two name servers and two groups that find them, and that clients reach
// under the ports that they are told.
func TestCompose(t *testing.T) {
	i := readImage(t)
	all := documents[composeFile](t, "packaging/container/compose.yaml")
	require.Len(t, all, 1)
	brokers := map[string]bool{}
	for name, s := range all[0].Services {
		require.Equal(t, "packaging/container/Containerfile", path.Clean(s.Build.Dockerfile), name)
		wait, err := time.ParseDuration(s.StopGracePeriod)
		require.NoError(t, err)
		require.GreaterOrEqual(t, wait, stopTime(t, s.Command[0]), name)
		env := map[string]string{}
		for key, value := range i.env {
			env[key] = value
		}
		for key, value := range s.Environment {
			if strings.HasPrefix(value, "${HARDPOINT_HOST:?") {
				value = "192.0.2.10"
			}
			env[key] = value
		}
		understood(t, s.Command, env)
		source, at, _ := strings.Cut(s.Volumes[0], ":")
		require.Contains(t, all[0].Volumes, source)
		require.Equal(t, i.volume, at)
		for _, on := range s.DependsOn {
			require.Contains(t, all[0].Services, on)
		}
		if s.Command[0] != "broker" {
			continue
		}
		brokers[env["HARDPOINT_BROKER_NAME"]] = true
		l, err := config.Load(config.Options{Mode: config.Broker, Env: pairs(env)})
		require.NoError(t, err)
		for _, addr := range l.Config.Broker.NamesrvAddrs {
			host, _, _ := strings.Cut(addr, ":")
			require.Equal(t, []string{"namesrv"}, all[0].Services[host].Command, addr)
		}
		port, err := strconv.Atoi(strings.TrimPrefix(l.Config.Network.Listen, ":"))
		require.NoError(t, err)
		for _, p := range []int{port, port - 2} {
			require.Contains(t, s.Ports, strconv.Itoa(p)+":"+strconv.Itoa(p), "%s: it advertises the port that it listens on", name)
		}
	}
	require.Len(t, brokers, 2)
}

func pairs(env map[string]string) (list []string) {
	for name, value := range env {
		if strings.HasPrefix(name, "HARDPOINT_") {
			list = append(list, name+"="+value)
		}
	}
	slices.Sort(list)
	return list
}
