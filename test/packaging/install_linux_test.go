package packaging

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/internal/hosttest"
)

// small makes a deb with the files and scripts of a real one around an empty program.
func small(t *testing.T, version string) string {
	t.Helper()
	stage, deb := t.TempDir(), filepath.Join(t.TempDir(), "hardpoint.deb")
	for _, name := range []string{"hardpoint", "THIRD-PARTY", "completions/hardpoint.bash", "completions/_hardpoint", "completions/hardpoint.fish", "man/hardpoint.1.gz"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(stage, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(stage, name), []byte("#!/bin/sh\n"), 0o755))
	}
	command(t, []string{"VERSION=" + version, "ARCH=amd64", "STAGE=" + stage}, nfpm(t), "package", "--config", "packaging/nfpm.yaml", "--packager", "deb", "--target", deb)
	return deb
}

// TestDebInstalls: what the operator wrote outlives upgrades, and messages everything.
func TestDebInstalls(t *testing.T) {
	dpkg := hosttest.Program(t, "dpkg", "which installs a deb")
	if os.Geteuid() != 0 {
		hosttest.Refused(t, "dpkg installs for root alone, also into another root")
	}
	into := t.TempDir()
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers"} {
		require.NoError(t, os.MkdirAll(filepath.Join(into, dir), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(into, "var/lib/dpkg/status"), nil, 0o644))
	run := func(args ...string) string {
		// The scripts run here, with DPKG_ROOT, since the other root has no shell.
		return command(t, []string{"DEBIAN_FRONTEND=noninteractive"}, dpkg, append([]string{"--root=" + into, "--force-script-chrootless", "--force-architecture", "--force-confdef", "--force-confold", "--log=/dev/null"}, args...)...)
	}
	path := func(name string) string { return filepath.Join(into, name) }
	written := "namesrvAddr: 192.0.2.1:9876\n"
	message := path("var/lib/hardpoint/broker/store/commitlog/00000000000000000000")

	run("--install", small(t, "1.0.0"))
	require.FileExists(t, path("usr/lib/systemd/system/hardpoint-broker.service"))
	st, err := os.Stat(path("etc/hardpoint/broker.yaml"))
	require.NoError(t, err)
	require.EqualValues(t, 0o640, st.Mode().Perm(), "it may hold passwords")
	require.NoError(t, os.WriteFile(path("etc/hardpoint/broker.yaml"), []byte(written), 0o644))
	require.NoError(t, os.MkdirAll(filepath.Dir(message), 0o755))
	require.NoError(t, os.WriteFile(message, []byte("m"), 0o644))

	run("--install", small(t, "1.0.1-rc.1"))
	require.Contains(t, read(t, "packaging/etc/namesrv.yaml"), "namesrvListen")
	got, err := os.ReadFile(path("etc/hardpoint/broker.yaml"))
	require.NoError(t, err)
	require.Equal(t, written, string(got), "after an upgrade")

	run("--remove", "hardpoint")
	require.NoFileExists(t, path("usr/bin/hardpoint"))
	require.FileExists(t, path("etc/hardpoint/broker.yaml"), "after a removal")
	require.FileExists(t, message)

	said := run("--purge", "hardpoint")
	require.NoFileExists(t, path("etc/hardpoint/broker.yaml"), "after a purge")
	require.FileExists(t, message, "nobody's messages are removed with a package")
	require.Contains(t, said, "are left")
}

// TestScripts: services are started anew by an upgrade, each by itself, stopped by a
// removal, and else left alone, whichever packager calls. The services may read a
// configuration as it was packaged; the modes of one that somebody changed stay.
func TestScripts(t *testing.T) {
	programs, calls := t.TempDir(), filepath.Join(t.TempDir(), "calls")
	for name, says := range map[string]string{
		"systemctl":        `case "$1" in list-units) echo "hardpoint-broker.service loaded active running x"; echo "hardpoint-namesrv.service loaded active running x" ;; *) echo "systemctl $*" >>"$CALLS" ;; esac`,
		"systemd-sysusers": `echo "systemd-sysusers $*" >>"$CALLS"`,
		"stat":             `case "$3" in */broker.yaml) echo 640:root ;; *) echo 600:hardpoint ;; esac`,
		"chgrp":            `echo "chgrp $1 ${2##*/}" >>"$CALLS"`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(programs, name), []byte("#!/bin/sh\n"+says+"\n"), 0o755))
	}
	etc := t.TempDir()
	for _, name := range []string{"broker.yaml", "namesrv.yaml"} {
		require.NoError(t, os.WriteFile(filepath.Join(etc, name), nil, 0o640))
	}
	const (
		user     = "systemd-sysusers hardpoint.conf|chgrp hardpoint broker.yaml"
		reload   = "systemctl daemon-reload"
		restarts = "systemctl try-restart hardpoint-broker.service|systemctl try-restart hardpoint-namesrv.service"
		stops    = "systemctl disable --now hardpoint-broker.service|systemctl disable --now hardpoint-namesrv.service|systemctl disable hardpoint-broker.service hardpoint-namesrv.service"
	)
	for call, want := range map[string]string{
		// Debian's policy, chapter 6.
		"postinstall configure":          user + "|" + reload,
		"postinstall configure 1.0.0":    user + "|" + reload + "|" + restarts,
		"postinstall abort-upgrade 1":    "",
		"postinstall abort-remove":       "",
		"preremove remove":               stops,
		"preremove upgrade 1.0.1":        "",
		"preremove failed-upgrade 1.0.0": "",
		"postremove remove":              reload,
		"postremove purge":               reload,
		"postremove upgrade 1.0.1":       reload,
		// RPM: the number of installed versions afterwards.
		"postinstall 1": user + "|" + reload,
		"postinstall 2": user + "|" + reload + "|" + restarts,
		"preremove 0":   stops,
		"preremove 1":   "",
		"postremove 0":  reload,
		"postremove 1":  reload,
	} {
		script, args, _ := strings.Cut(call, " ")
		_ = os.Remove(calls)
		// As on a machine that systemd runs.
		text := strings.NewReplacer("/run/systemd/system", programs, "/etc/hardpoint", etc).Replace(read(t, "packaging/scripts/"+script+".sh"))
		command(t, []string{"PATH=" + programs + ":" + os.Getenv("PATH"), "CALLS=" + calls, "DPKG_ROOT="}, "sh",
			append([]string{"-c", text, script}, strings.Fields(args)...)...)
		got, err := os.ReadFile(calls)
		if want == "" {
			require.ErrorIs(t, err, os.ErrNotExist, "%s: %s", call, got)
			continue
		}
		require.NoError(t, err, call)
		require.Equal(t, want, strings.ReplaceAll(strings.TrimSpace(string(got)), "\n", "|"), call)
	}
}
