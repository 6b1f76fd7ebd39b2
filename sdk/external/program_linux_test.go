package external

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

// TestPinnedProgramIsSwapped puts another program under the name of a pinned one,
// in the moment between hash and start: what was hashed is started. Without a pin
// it is the other one, which shows that this test would notice.
func TestPinnedProgramIsSwapped(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	text, err := os.ReadFile(self)
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		pinned     bool
		ends, says string
	}{
		"pinned":     {true, "exit status 3", "there is no licence for Tuesdays"}, // role exit of this binary
		"not pinned": {false, "exit status 7", "swapped"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, other := filepath.Join(dir, "plugin"), filepath.Join(dir, "other")
			require.NoError(t, os.WriteFile(path, text, 0o700))
			require.NoError(t, os.WriteFile(other, []byte("#!/bin/sh\necho swapped\nexit 7\n"), 0o700))
			c := Command{Path: path}
			if tc.pinned {
				sum := sha256.Sum256(text)
				c.Checksum = hex.EncodeToString(sum[:])
			}
			// As launcher.launch does it.
			prog, err := openProgram(c)
			require.NoError(t, err)
			defer prog.close()
			require.NoError(t, os.Rename(other, path))
			out := newPump("p", nil, plugin.SystemClock{})
			r := newRunner(prog, nil, out)
			r.cmd.Env = []string{"HARDPOINT_TEST_ROLE=exit"}
			require.NoError(t, r.Start(t.Context()))
			require.Error(t, r.wait())
			out.stop()
			require.Contains(t, r.status(), tc.ends)
			require.Contains(t, out.last(), tc.says)
		})
	}
}
