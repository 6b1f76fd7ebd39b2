package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hardpointmq/hardpoint/internal/hosttest"
)

// Long tells whether the long form of the tests was asked for (make verify-long).
func Long() bool { return os.Getenv("HARDPOINT_TEST_LONG") != "" }

var (
	buildMu   sync.Mutex
	buildDir  string
	buildDone = map[bool]built{}
)

type built struct {
	path string
	err  error
}

// Main is the body of a TestMain: it runs the tests and removes what was built.
// The process ends with the tests' exit code, because TestMain returns after it.
func Main(m *testing.M) {
	m.Run()
	buildMu.Lock()
	defer buildMu.Unlock()
	if buildDir != "" {
		_ = os.RemoveAll(buildDir)
	}
}

// Binary builds cmd/hardpoint once per test process and form and returns its
// path. race asks for the race detector; it is left out where the machine cannot
// build it (no C compiler), because the tests are worth running without.
func Binary(t testing.TB, race bool) string {
	t.Helper()
	if p := os.Getenv("HARDPOINT_TEST_BINARY"); p != "" {
		return p
	}
	if os.Getenv("HARDPOINT_TEST_NORACE") != "" {
		race = false
	}
	buildMu.Lock()
	defer buildMu.Unlock()
	b, ok := buildDone[race]
	if !ok {
		b.path, b.err = build(race)
		if b.err != nil && race {
			if _, err := exec.LookPath("cc"); err != nil && !hosttest.Strict() {
				t.Logf("no C compiler: the broker runs without the race detector")
				b.path, b.err = build(false)
			}
		}
		buildDone[race] = b
	}
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.path
}

func build(race bool) (string, error) {
	if buildDir == "" {
		dir, err := os.MkdirTemp("", "hardpoint-test-")
		if err != nil {
			return "", err
		}
		buildDir = dir
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	name := "hardpoint"
	// A clone that belongs to another user has no version that Go would read.
	args := []string{"build", "-buildvcs=false"}
	env := append(os.Environ(), "CGO_ENABLED=0") // as make build does
	if race {
		name += "-race"
		args, env = append(args, "-race"), append(os.Environ(), "CGO_ENABLED=1")
	}
	path := filepath.Join(buildDir, name)
	cmd := exec.Command("go", append(args, "-o", path, "./cmd/hardpoint")...)
	cmd.Dir, cmd.Env = root, env
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building cmd/hardpoint in %s: %w\n%s", root, err, out)
	}
	return path, nil
}

// moduleRoot is the directory of the product's module: the one above test/.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "cmd", "hardpoint")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("no directory with cmd/hardpoint above the working directory")
		}
		dir = up
	}
}
