package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/internal/hosttest"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
)

// TestCheckFullFolder: when the folder for temporary files is full, nothing is known of a
// plugin that needs it; it is not called bad.
func TestCheckFullFolder(t *testing.T) {
	program, err := exec.LookPath("hardpoint")
	require.NoError(t, err)
	tmp := hosttest.Tmpfs(t, "size=1m,nr_inodes=200")
	f, err := os.Create(filepath.Join(tmp, "ballast"))
	require.NoError(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, f.Close())
	t.Setenv("TMPDIR", tmp)
	check := func(args ...string) (int, string) {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append([]string{"plugin", "check"}, args...), nil, &stdout, &stderr)
		return code, stdout.String() + stderr.String()
	}
	code, out := check(program, "plugin", "serve", "storage", memory.Name)
	require.Equal(t, exitOK, code, out)
	store := []string{program, "plugin", "serve", "storage", "commitlog"}
	code, out = check(store...)
	require.Equal(t, exitUnknown, code, out)
	require.Contains(t, out, "not tried: storage commitlog: the folder for temporary files, "+tmp+", has less than the ")
	require.Contains(t, out, program+" could not be checked\n")
	code, out = check(append([]string{"--output", "json"}, store...)...)
	require.Equal(t, exitUnknown, code, out)
	var found checkedProgram
	require.NoError(t, json.Unmarshal([]byte(out), &found))
	require.False(t, found.Good)
	require.Empty(t, found.Problems)
	require.NotEmpty(t, found.Plugins[0].Untried)

	// No files can be made any more, not even that of a socket.
	for i := 0; ; i++ {
		f, err := os.Create(filepath.Join(tmp, fmt.Sprint("file", i)))
		if errors.Is(err, syscall.ENOSPC) {
			break
		}
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	code, out = check(store...)
	require.Equal(t, exitUnknown, code, out)
	require.Contains(t, out, "not tried: the folder for temporary files, "+tmp+", has less than the ")
}
