package vfs_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/vfstest"
)

// lockEnv makes the test binary a process that holds a lock until its standard input ends.
const lockEnv = "VFS_TEST_LOCK"

func TestMain(m *testing.M) {
	if name := os.Getenv(lockEnv); name != "" {
		os.Exit(holdLock(name))
	}
	os.Exit(m.Run())
}

func holdLock(name string) int {
	l, err := vfs.OS{}.Lock(name)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("locked")
	_, _ = io.Copy(io.Discard, os.Stdin) // any end of it will do
	if l.Close() != nil {
		return 1
	}
	return 0
}

func TestOS(t *testing.T) {
	vfstest.Run(t, vfstest.Harness{New: func(t *testing.T) (vfs.FS, string) { return vfs.OS{}, t.TempDir() }})
}

func TestLockExcludesOtherProcess(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	start := func() (cmd *exec.Cmd, stdin io.Closer, answer string) {
		cmd = exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), lockEnv+"="+name)
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		answer, err = bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		return cmd, in, answer
	}

	holder, stdin, answer := start()
	require.Equal(t, "locked\n", answer)
	_, err := vfs.OS{}.Lock(name)
	require.ErrorIs(t, err, vfs.ErrLocked)
	if runtime.GOOS != "windows" {
		require.ErrorContains(t, err, strconv.Itoa(holder.Process.Pid))
	}
	require.NoError(t, stdin.Close())
	require.NoError(t, holder.Wait())

	l, err := vfs.OS{}.Lock(name)
	require.NoError(t, err)
	// A refused second locker of this process must not have cost us the lock.
	_, err = vfs.OS{}.Lock(name)
	require.ErrorIs(t, err, vfs.ErrLocked)
	second, stdin, answer := start()
	require.Contains(t, answer, vfs.ErrLocked.Error())
	if runtime.GOOS != "windows" {
		require.Contains(t, answer, strconv.Itoa(os.Getpid()))
	}
	require.NoError(t, stdin.Close())
	require.Error(t, second.Wait())
	require.NoError(t, l.Close())

	// kill -9 releases it too
	holder, _, answer = start()
	require.Equal(t, "locked\n", answer)
	require.NoError(t, holder.Process.Kill())
	require.Error(t, holder.Wait())
	l, err = vfs.OS{}.Lock(name)
	require.NoError(t, err)
	require.NoError(t, l.Close())
}
