package plugins

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/internal/tartest"
	"github.com/hardpointmq/hardpoint/test/harness"
)

// ours is what a go.mod says of Hardpoint.
var ours = regexp.MustCompile(`(?m)^.*github\.com/hardpointmq/hardpoint.*$`)

// copied makes a module outside of this repository from a folder of testdata, with
// the go.mod of a new plugin: the modules that this repository's has, too, so that
// nothing is asked for. knows tells whether it may import Hardpoint.
func copied(t *testing.T, name string, knows bool) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", name))))
	withModule(t, dir, "example.com/"+name, knows)
	return dir
}

// withModule writes go.mod and go.sum into a folder.
func withModule(t *testing.T, dir, module string, knows bool) {
	t.Helper()
	begin := filepath.Join(t.TempDir(), "begin")
	command(t, ".", harness.Binary(t, false), "plugin", "new", "storage", "begin", "--hardpoint", "../..", "--dir", begin, "--module", "MODULE")
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(begin, name))
		require.NoError(t, err)
		if !knows {
			text = ours.ReplaceAll(text, nil)
		}
		text = bytes.Replace(text, []byte("module MODULE"), []byte("module "+module), 1)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
}

// command runs a program in dir and returns its output.
func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOPROXY=off", "GOFLAGS=", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
	return string(out)
}

// TestSuitesOutside: a module of somebody else imports the four conformance suites
// and passes them.
func TestSuitesOutside(t *testing.T) {
	out := command(t, copied(t, "outside", true), "go", "test", "-v", "./...")
	for _, name := range []string{"TestStore", "TestAllocator", "TestTransport", "TestReplicator"} {
		require.Contains(t, out, "\n--- PASS: "+name)
	}
}

// TestWireOfVersion1: a plugin that was written against version 1 of the wire is
// hosted by this build. It knows the protos as they were and nothing of Hardpoint.
func TestWireOfVersion1(t *testing.T) {
	dir := copied(t, "wire1", false)
	require.NotContains(t, command(t, dir, "go", "list", "-deps", "."), "hardpointmq")
	binary := filepath.Join(dir, "wire1")
	if runtime.GOOS == "windows" {
		binary += ".exe"
	}
	command(t, dir, "go", "build", "-o", binary, ".")
	config := filepath.Join(dir, "c.yaml")
	require.NoError(t, os.WriteFile(config, []byte("plugins:\n  allocate:\n    wire1:\n      path: "+filepath.Base(binary)+"\n"), 0o600))
	require.Regexp(t, "(?m)^allocate +wire1 +[^ ]+ +allocate/1 +process ", command(t, ".", harness.Binary(t, false), "plugin", "list", "--config", config))
	t.Setenv("ALLOCATOR", binary)
	t.Setenv("ALLOCATOR_NAME", "wire1")
	out := command(t, copied(t, "outside", true), "go", "test", "-v", "-run", "TestProgram", ".")
	require.Contains(t, out, "--- PASS: TestProgram/wire1/process/Allocator/")
}

// TestFrozenSDK: a store that was built with the SDK of version 1 of the wire
// (testdata/sdk-wire1.tar.gz, made by the script freeze) is hosted by this build.
// The long form runs the whole suite on it.
func TestFrozenSDK(t *testing.T) {
	dir := t.TempDir()
	tartest.Unpack(t, "testdata/sdk-wire1.tar.gz", dir, nil)
	withModule(t, dir, "github.com/hardpointmq/hardpoint", false)
	binary := filepath.Join(dir, "journal")
	command(t, dir, "go", "build", "-o", binary, "./examples/custom-store")
	require.Regexp(t, "(?m)^storage +journal +[^ ]+ +storage/1 .* good: ", command(t, ".", harness.Binary(t, false), "plugin", "check", binary))
	if harness.Long() {
		t.Setenv("STORE", binary)
		t.Setenv("STORE_NAME", "journal")
		// That SDK does not tell that the blank at the log's end is published; the host gives a store up for that.
		out := command(t, copied(t, "outside", true), "go", "test", "-v", "-run", "TestProgram", "-skip", "TestProgram/journal/process/raw_log/mark_of_a_blank", ".")
		require.Contains(t, out, "--- PASS: TestProgram/journal/process/store/")
		require.Contains(t, out, "--- PASS: TestProgram/journal/process/raw_log/mark_at_an_edge")
	}
}
