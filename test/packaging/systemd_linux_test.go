package packaging

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/internal/hosttest"
	"github.com/hardpointmq/hardpoint/test/harness"
)

// TestUnitsVerify: systemd understands the units, and every setting in them.
func TestUnitsVerify(t *testing.T) {
	analyze := hosttest.Program(t, "systemd-analyze", "which checks units")
	dir := t.TempDir()
	for name := range unitModes {
		text := strings.ReplaceAll(read(t, "packaging/systemd/"+name), "/usr/bin/hardpoint", harness.Binary(t, false))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	for name := range unitModes {
		path := filepath.Join(dir, strings.Replace(name, "@", "@a", 1))
		out, err := tryCommand(t, []string{"SYSTEMD_LOG_LEVEL=warning"}, analyze, "verify", "--man=no", path)
		require.NoError(t, err, out)
		require.NotContains(t, out, name, "a warning about it")
	}
}

// TestSystemCalls: the filter lets through what the program calls besides what services may.
func TestSystemCalls(t *testing.T) {
	require.Contains(t, read(t, "core/vfs/os_map_unix.go"), "SYS_MINCORE")
	require.Contains(t, readUnit(t, "hardpoint-broker.service").one(t, "Service.SystemCallFilter"), " mincore")
}
