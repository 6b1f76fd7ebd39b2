package packaging

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/internal/hosttest"
	"github.com/hardpointmq/hardpoint/test/harness"
)

const (
	version = "1.2.3-test.4"
	epoch   = "1764547200" // 1 December 2025
)

// TestDist: what is released holds what it should, and the program in it runs with the
// configuration in it.
func TestDist(t *testing.T) {
	out := t.TempDir()
	base := "hardpoint-" + version + "-linux-" + runtime.GOARCH
	command(t, []string{"SOURCE_DATE_EPOCH=" + epoch}, "go", "run", "./internal/dist", "-version", "v"+version, "-nfpm", nfpm(t),
		"-binary", harness.Binary(t, false), "-out", out, "linux/"+runtime.GOARCH)

	t.Run("sums", func(t *testing.T) {
		sums, err := os.ReadFile(filepath.Join(out, "SHA256SUMS"))
		require.NoError(t, err)
		var named []string
		for line := range strings.Lines(string(sums)) {
			sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
			require.True(t, ok, line)
			b, err := os.ReadFile(filepath.Join(out, name))
			require.NoError(t, err)
			require.Equal(t, sum, hash(b), name)
			named = append(named, strings.TrimPrefix(name, base))
		}
		require.Equal(t, []string{".cdx.json", ".deb", ".rpm", ".tar.gz"}, named)
	})
	t.Run("materials", func(t *testing.T) {
		b, err := os.ReadFile(filepath.Join(out, base+".cdx.json"))
		require.NoError(t, err)
		var bill struct {
			BOMFormat  string
			Components []struct{ PURL string }
		}
		require.NoError(t, json.Unmarshal(b, &bill))
		require.Equal(t, "CycloneDX", bill.BOMFormat)
		require.Greater(t, len(bill.Components), 50)
		require.Contains(t, string(b), `"pkg:golang/go.uber.org/fx@v`)
	})
	t.Run("archive", func(t *testing.T) {
		files := archive(t, filepath.Join(out, base+".tar.gz"))
		for name, mode := range map[string]fs.FileMode{
			"hardpoint": 0o755, "LICENSE": 0o644, "README.md": 0o644, "THIRD-PARTY": 0o644, "etc/broker.yaml": 0o644, "etc/namesrv.yaml": 0o644,
			"completions/hardpoint.bash": 0o644, "completions/_hardpoint": 0o644, "completions/hardpoint.fish": 0o644, "completions/hardpoint.ps1": 0o644,
			"man/hardpoint.1": 0o644, "man/hardpoint-broker.1": 0o644, "systemd/hardpoint-broker.service": 0o644,
		} {
			f, ok := files[base+"/"+name]
			require.True(t, ok, name)
			require.Equal(t, mode, f.mode, name)
		}
		for name, f := range files {
			require.EqualValues(t, 1764547200, f.at, name)
		}
		require.Contains(t, string(files[base+"/man/hardpoint-broker.1"].content), "Dec 2025")
		require.Contains(t, string(files[base+"/THIRD-PARTY"].content), "Redistribution and use in source and binary forms")
		require.NotContains(t, files, base+"/man/hardpoint-man.1", "what is not listed")
	})
	t.Run("rpm", func(t *testing.T) {
		h := readRPM(t, filepath.Join(out, base+".rpm"))
		require.Equal(t, "hardpoint", h.text(rpmName))
		require.Equal(t, "1.2.3~test.4", h.text(rpmVersion), "comes before 1.2.3")
		require.Equal(t, map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH], h.text(rpmArch))
		files := h.files()
		for name, f := range packaged(t) {
			got, ok := files[name]
			require.True(t, ok, name)
			require.Equal(t, f.mode, got.mode, name)
			if f.config {
				require.EqualValues(t, rpmConfigNoReplace, got.flags&rpmConfigNoReplace, "%s: an upgrade leaves it", name)
			}
			if f.source != "" {
				require.Equal(t, hash([]byte(read(t, f.source))), got.sha256, name)
			}
		}
		for tag, script := range map[uint32]string{rpmPostInstall: "postinstall", rpmPreRemove: "preremove", rpmPostRemove: "postremove"} {
			require.Equal(t, strings.TrimSpace(read(t, "packaging/scripts/"+script+".sh")), strings.TrimSpace(h.text(tag)))
		}
	})
	t.Run("deb", func(t *testing.T) { debOf(t, filepath.Join(out, base+".deb")) })
}

// debOf looks into a deb, unpacks it and runs its program.
func debOf(t *testing.T, deb string) {
	t.Helper()
	tool := hosttest.Program(t, "dpkg-deb", "which unpacks a deb")
	require.Equal(t, "1.2.3~test.4", strings.TrimSpace(command(t, nil, tool, "--field", deb, "Version")))
	require.Equal(t, runtime.GOARCH, strings.TrimSpace(command(t, nil, tool, "--field", deb, "Architecture")))
	into := t.TempDir()
	command(t, nil, tool, "--raw-extract", deb, into)
	var keeps []string
	for name, f := range packaged(t) {
		st, err := os.Stat(filepath.Join(into, name))
		require.NoError(t, err)
		require.Equal(t, f.mode, st.Mode().Perm(), name)
		if f.config {
			keeps = append(keeps, name)
		}
		if f.source != "" {
			got, err := os.ReadFile(filepath.Join(into, name))
			require.NoError(t, err)
			require.Equal(t, read(t, f.source), string(got))
		}
	}
	conffiles, err := os.ReadFile(filepath.Join(into, "DEBIAN", "conffiles"))
	require.NoError(t, err)
	require.ElementsMatch(t, keeps, strings.Fields(string(conffiles)))

	program := filepath.Join(into, "usr", "bin", "hardpoint")
	require.Contains(t, command(t, nil, program, "version"), "hardpoint ")
	for mode, file := range map[string]string{"broker": "broker.yaml", "namesrv": "namesrv.yaml"} {
		require.Contains(t, command(t, nil, program, "config", "check", "--mode", mode, filepath.Join(into, "etc", "hardpoint", file)), ": 0 warnings")
	}
	starts(t, program, filepath.Join(into, "etc", "hardpoint", "broker.yaml"))
}

// starts runs a program with the packaged configuration of a broker, on other ports and
// with its data elsewhere: name server and broker, until they are ready.
func starts(t *testing.T, program, config string) {
	t.Helper()
	admin := fmt.Sprintf("127.0.0.1:%d", harness.FreePort(t))
	c := exec.Command(program, "standalone", "--config", config, "--data", t.TempDir(), "--dev", "--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0", "--admin-listen", admin)
	c.Env = append(os.Environ(), hosttest.AnyDisk()...)
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	harness.Until(t, time.Minute, "the program of the package is ready", func() bool {
		_, err := tryCommand(t, nil, program, "health", "--admin-listen", admin)
		return err == nil
	})
}

// inPackage is a file that deb and rpm have.
type inPackage struct {
	mode   fs.FileMode
	config bool
	source string // the file of the sources that it is; empty: it is built
}

func packaged(t *testing.T) map[string]inPackage {
	t.Helper()
	files := map[string]inPackage{
		"/usr/bin/hardpoint":                                  {0o755, false, ""},
		"/etc/hardpoint/broker.yaml":                          {0o640, true, "packaging/etc/broker.yaml"},
		"/etc/hardpoint/namesrv.yaml":                         {0o640, true, "packaging/etc/namesrv.yaml"},
		"/usr/lib/sysusers.d/hardpoint.conf":                  {0o644, false, "packaging/sysusers/hardpoint.conf"},
		"/usr/share/doc/hardpoint/copyright":                  {0o644, false, "LICENSE"},
		"/usr/share/doc/hardpoint/THIRD-PARTY":                {0o644, false, ""},
		"/usr/share/man/man1/hardpoint.1.gz":                  {0o644, false, ""},
		"/usr/share/bash-completion/completions/hardpoint":    {0o644, false, ""},
		"/usr/share/zsh/site-functions/_hardpoint":            {0o644, false, ""},
		"/usr/share/fish/vendor_completions.d/hardpoint.fish": {0o644, false, ""},
	}
	units, err := filepath.Glob(filepath.Join(root, "packaging", "systemd", "*"))
	require.NoError(t, err)
	require.Len(t, units, 3)
	for _, u := range units {
		files["/usr/lib/systemd/system/"+filepath.Base(u)] = inPackage{0o644, false, "packaging/systemd/" + filepath.Base(u)}
	}
	return files
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

type archived struct {
	mode    fs.FileMode
	at      int64
	content []byte
}

func archive(t *testing.T, path string) map[string]archived {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	files := map[string]archived{}
	for in := tar.NewReader(z); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		b, err := io.ReadAll(in)
		require.NoError(t, err)
		files[h.Name] = archived{fs.FileMode(h.Mode), h.ModTime.Unix(), b}
	}
}

// TestDistRefuses: a release with a wrong name is none.
func TestDistRefuses(t *testing.T) {
	for args, says := range map[string]string{
		"-version 1.2":                         "allowed is X.Y.Z",
		"-version 1.2.3-a-b linux/amd64":       "without further hyphens",
		"-version 1.2.3":                       "name the targets",
		"-version 1.2.3 linux":                 "allowed is SYSTEM/ARCHITECTURE",
		"-version 1.2.3 -binary x a/b c/d":     "-binary is of one target",
		"-version 1.2.3 -binary README.md a/b": "completion script",
	} {
		out, err := tryCommand(t, nil, "go", append([]string{"run", "./internal/dist", "-out", t.TempDir()}, strings.Fields(args)...)...)
		require.Error(t, err, args)
		require.Contains(t, out, says, args)
	}
}

// TestDistRepeats: the same sources give the same bytes, wherever they lie, and a program
// that needs no library of the system.
func TestDistRepeats(t *testing.T) {
	if !harness.Long() {
		return // it builds the program twice; make verify-long
	}
	sums := map[string]bool{}
	elsewhere := t.TempDir()
	require.NoError(t, os.CopyFS(elsewhere, sources{os.DirFS(root)}))
	for _, dir := range []string{root, elsewhere} {
		out := t.TempDir()
		c := exec.CommandContext(t.Context(), "go", "run", "./internal/dist", "-version", version, "-nfpm", nfpm(t), "-out", out, runtime.GOOS+"/"+runtime.GOARCH)
		c.Dir, c.Env = dir, append(os.Environ(), "SOURCE_DATE_EPOCH="+epoch)
		said, err := c.CombinedOutput()
		require.NoError(t, err, "%s", said)
		b, err := os.ReadFile(filepath.Join(out, "SHA256SUMS"))
		require.NoError(t, err)
		sums[string(b)] = true

		base := "hardpoint-" + version + "-linux-" + runtime.GOARCH
		program, err := elf.NewFile(bytes.NewReader(archive(t, filepath.Join(out, base+".tar.gz"))[base+"/hardpoint"].content))
		require.NoError(t, err)
		for _, p := range program.Progs {
			require.NotContains(t, []elf.ProgType{elf.PT_INTERP, elf.PT_DYNAMIC}, p.Type, "the program is not static")
		}
	}
	require.Len(t, sums, 1, "%v", sums)
}

// sources is a checkout without what was built in it.
type sources struct{ fs.FS }

func (s sources) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(s.FS, name)
	var kept []fs.DirEntry
	for _, e := range entries {
		if name == "." && strings.Contains(" .git bin data dist ", " "+e.Name()+" ") || e.Name() == "lib" && strings.HasSuffix(name, "interop") {
			continue
		}
		kept = append(kept, e)
	}
	return kept, err
}
