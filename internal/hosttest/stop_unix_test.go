//go:build unix

package hosttest

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStop(t *testing.T) {
	cmd := exec.Command(Program(t, "cat", "which waits"))
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	require.False(t, stopped(t, cmd.Process.Pid))
	Stop(t, cmd.Process.Pid)
	require.True(t, stopped(t, cmd.Process.Pid))
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	require.NoError(t, stdin.Close())
	require.NoError(t, cmd.Wait())
}
