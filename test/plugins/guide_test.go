package plugins

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/internal/hosttest"
	"github.com/hardpointmq/hardpoint/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// patience bounds what a section of the guide takes on a busy machine: it builds,
// runs a conformance suite twice and starts brokers.
const patience = 8 * time.Minute

var (
	heading = regexp.MustCompile(`(?m)^## (.*)$`)
	shell   = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")
)

// TestGuide runs every command of docs/write-a-plugin.md as a reader does, in an
// empty folder: the commands before the first plugin, then those of a section in one
// shell. The long form runs the sections with long suites, too.
func TestGuide(t *testing.T) {
	page, err := os.ReadFile("../../docs/write-a-plugin.md")
	require.NoError(t, err)
	text := string(page)
	at := heading.FindAllStringSubmatchIndex(text, -1)
	require.NotEmpty(t, at)
	before, sections := "", 0
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		title, commands := text[m[2]:m[3]], ""
		for _, block := range shell.FindAllStringSubmatch(text[m[0]:end], -1) {
			commands += block[1]
		}
		switch {
		case commands == "":
		case before == "":
			require.Equal(t, "Before you begin", title)
			before = commands
		case title == "A store" && !harness.Long():
			sections++ // TestNewStore runs the short half of it
		default:
			sections++
			t.Run(strings.ReplaceAll(title, " ", "_"), func(t *testing.T) {
				if strings.Contains(title, "Python") {
					pythonFirst(t)
				}
				runShell(t, "../..", before+commands)
			})
		}
	}
	require.GreaterOrEqual(t, sections, 2, "have the marks of the guide changed?")
}

// TestNewStore makes a store and sends a message through a broker that runs on it.
// Its suite takes longer and is run with the guide.
func TestNewStore(t *testing.T) {
	runShell(t, t.TempDir(), `
hardpoint plugin new storage notes --hardpoint "$SOURCES"
cd notes
go vet ./...
go build -o bin/notes ./cmd/notes
hardpoint plugin check bin/notes
hardpoint config check broker.yaml
hardpoint standalone --config broker.yaml &
until hardpoint bench produce --namesrv 127.0.0.1:9876 --topic Notes --count 1; do sleep 0.2; done
kill -9 $! && wait $! || true
hardpoint standalone --config broker.yaml &
until hardpoint bench consume --namesrv 127.0.0.1:9876 --topic Notes --verify | grep '1 message'; do sleep 0.2; done
kill $! && wait $!
`)
}

// TestNewReplicator makes a replicator and kills the process of the store that it writes
// to: the replicator takes the next office over what comes back, and sends go on.
func TestNewReplicator(t *testing.T) {
	hosttest.Program(t, "pgrep", "which finds the process of the store")
	runShell(t, t.TempDir(), `
hardpoint plugin new replication copies --hardpoint "$SOURCES"
cd copies
go build -o bin/copies ./cmd/copies
hardpoint standalone --config broker.yaml --storage pebble --storage-process &
until hardpoint bench produce --namesrv 127.0.0.1:9876 --topic Copied --count 10 | grep '(10 messages'; do sleep 0.2; done
for round in 1 2; do
  kill -9 $(pgrep -P $! -f 'serve storage pebble')
  until hardpoint bench produce --namesrv 127.0.0.1:9876 --topic Copied --count 10 | grep '(10 messages'; do sleep 0.2; done
done
hardpoint bench consume --namesrv 127.0.0.1:9876 --topic Copied --verify | grep -E '[3-9][0-9] messages'
kill $! && wait $!
`)
}

// TestNewPythonStore runs the suite on a store as `plugin new` makes it in Python,
// which takes a minute.
func TestNewPythonStore(t *testing.T) {
	suite := "go vet ."
	if harness.Long() {
		suite = "go test -count=1 ."
	}
	pythonFirst(t)
	runShell(t, t.TempDir(), `
hardpoint plugin new storage tables --lang python --hardpoint "$SOURCES"
cd tables
(cd suite && `+suite+`)
hardpoint config check broker.yaml
hardpoint standalone --config broker.yaml &
until hardpoint bench produce --namesrv 127.0.0.1:9876 --topic Tables --count 1; do sleep 0.2; done
kill $! && wait $!
`)
}

// pythonFirst makes python3 in the PATH one that can run plugins.
func pythonFirst(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Symlink(hosttest.Python(t, "grpc", "google.protobuf"), filepath.Join(dir, "python3")))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// runShell runs commands as a reader would, with the ports of a broker replaced by
// free ones, and without asking for modules that this machine does not have.
func runShell(t *testing.T, dir, commands string) {
	t.Helper()
	bash := hosttest.Program(t, "bash", "in which the commands of the guide are run")
	namesrv := fmt.Sprintf("127.0.0.1:%d", harness.FreePort(t))
	commands = strings.ReplaceAll(commands, "127.0.0.1:9876", namesrv)
	sources, err := filepath.Abs("../..")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, bash, "-eux", "-o", "pipefail")
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(commands)
	cmd.Env = append(os.Environ(),
		"PATH="+filepath.Dir(harness.Binary(t, false))+string(os.PathListSeparator)+os.Getenv("PATH"), "SOURCES="+sources, "TMPDIR="+t.TempDir(),
		"GOPROXY=off", "GOFLAGS=", "GOWORK=off", "HARDPOINT_LISTEN=127.0.0.1:"+fmt.Sprint(harness.FreePort(t)), "HARDPOINT_VIP_CHANNEL=false",
		"HARDPOINT_NAMESRV_LISTEN="+namesrv, "HARDPOINT_ADMIN_LISTEN=off", "HARDPOINT_DATA="+t.TempDir())
	cmd.Env = append(cmd.Env, hosttest.AnyDisk()...)
	// What a failed command leaves in the background ends with the shell.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	require.NoError(t, err, string(out))
}
