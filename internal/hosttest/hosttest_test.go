package hosttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// scripted notes how a test was ended.
type scripted struct {
	testing.TB
	fatal, skip string
}

func (s *scripted) Helper()                      {}
func (s *scripted) Name() string                 { return "TestX" }
func (s *scripted) Fatalf(f string, args ...any) { s.fatal = fmt.Sprintf(f, args...) }
func (s *scripted) Skipf(f string, args ...any)  { s.skip = fmt.Sprintf(f, args...) }
func (s *scripted) Skip(args ...any)             { s.skip = fmt.Sprint(args...) }

func TestMissing(t *testing.T) {
	t.Setenv(StrictEnv, "")
	t.Setenv("CI", "")
	at := &scripted{TB: t}
	Missing(at, "no %s", "tool")
	require.Equal(t, scripted{TB: t, skip: "no tool"}, *at, "at a desk")
	for _, env := range []string{StrictEnv, "CI"} {
		t.Run(env, func(t *testing.T) {
			t.Setenv(env, "true")
			at := &scripted{TB: t}
			Missing(at, "no %s", "tool")
			require.Empty(t, at.skip)
			require.Contains(t, at.fatal, "no tool: install it")
		})
	}
}

func TestRefused(t *testing.T) {
	told := filepath.Join(t.TempDir(), "skipped")
	t.Setenv(StrictEnv, "1")
	t.Setenv(SkippedEnv, told)
	for range 2 {
		at := &scripted{TB: t}
		Refused(at, "no right:\n%d", 7)
		require.Equal(t, scripted{TB: t, skip: "no right:\n7"}, *at, "nothing can be installed")
	}
	b, err := os.ReadFile(told)
	require.NoError(t, err)
	require.Equal(t, "TestX: no right: 7\nTestX: no right: 7\n", string(b))
}

// TestChildren in both forms: the one of this system, and pgrep where it exists.
func TestChildren(t *testing.T) {
	require.Empty(t, Children(t, os.Getpid()))
	cmd := exec.Command(Program(t, "cat", "which waits"))
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	require.Equal(t, []int{cmd.Process.Pid}, Children(t, os.Getpid()))
	require.NoError(t, stdin.Close())
	require.NoError(t, cmd.Wait())
	require.Empty(t, Children(t, os.Getpid()))
}
