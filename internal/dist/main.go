// Command dist makes what is released: for each target an archive with the binary and
// what belongs beside it and a bill of materials, for Linux a deb and an rpm as well, and
// SHA256SUMS of all. What was made is read again: each program is one of its system and
// machine and, on Linux, needs no other file. The same sources with the same Go give the
// same bytes: every time stamp is SOURCE_DATE_EPOCH.
//
//	go run ./internal/dist -version 1.2.3 -nfpm bin/tools/nfpm linux/amd64 windows/arm64
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// name is that of the program, of the packages and of the archives.
const name = "hardpoint"

// release is one run.
type release struct {
	out      string // folder of the results
	nfpm     string // the program that makes deb and rpm; empty: none
	binary   string // instead of building: for tests, with one target
	version  string // without v
	revision string
	epoch    time.Time

	work   string // folder of this run
	host   string // a binary that runs here
	common []file // what is in every archive
	made   []string
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

// semver is what both kinds of packages and Go can name.
var semver = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$`)

func run(args []string) (err error) {
	r := release{epoch: time.Unix(0, 0).UTC()}
	f := flag.NewFlagSet("dist", flag.ContinueOnError)
	f.StringVar(&r.out, "out", "dist", "`folder` of the results")
	f.StringVar(&r.nfpm, "nfpm", "", "the `program` nfpm, for deb and rpm; empty: none are made")
	f.StringVar(&r.binary, "binary", "", "a built `file` for the one target, which runs on this machine; empty: it is built")
	f.StringVar(&r.version, "version", "", "version `X.Y.Z[-PRE.RELEASE]`")
	f.StringVar(&r.revision, "revision", "", "the `commit`")
	if err := f.Parse(args); err != nil {
		return err
	}
	r.version = strings.TrimPrefix(r.version, "v")
	switch {
	case !semver.MatchString(r.version):
		return fmt.Errorf("-version is %q: allowed is X.Y.Z, or X.Y.Z-PRE.RELEASE without further hyphens", r.version)
	case f.NArg() == 0:
		return errors.New("name the targets, as in linux/amd64")
	case r.binary != "" && f.NArg() != 1:
		return fmt.Errorf("-binary is of one target; %d are given", f.NArg())
	}
	if text := os.Getenv("SOURCE_DATE_EPOCH"); text != "" {
		s, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH is %q: allowed are seconds since 1970", text)
		}
		r.epoch = time.Unix(s, 0).UTC()
	}
	if r.work, err = os.MkdirTemp("", "hardpoint-dist-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.work)) }()
	return r.make(f.Args())
}

func (r *release) make(targets []string) error {
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	here := runtime.GOOS + "/" + runtime.GOARCH
	var err error
	if r.host, err = r.build(here); err != nil {
		return err
	}
	if r.common, err = r.beside(); err != nil {
		return err
	}
	for _, t := range targets {
		binary := r.host
		if t != here && r.binary == "" {
			if binary, err = r.build(t); err != nil {
				return err
			}
		}
		if err := r.target(t, binary); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
		if err := r.check(t); err != nil {
			return fmt.Errorf("%s: what was made is not what it should be: %w", t, err)
		}
	}
	return r.sums()
}

// build makes the binary of a target.
func (r *release) build(target string) (string, error) {
	if r.binary != "" {
		return r.binary, nil
	}
	system, arch, ok := strings.Cut(target, "/")
	if !ok {
		return "", fmt.Errorf("target %q: allowed is SYSTEM/ARCHITECTURE, as in linux/amd64", target)
	}
	path := filepath.Join(r.work, system+"-"+arch, program(system))
	c := exec.Command("go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", fmt.Sprintf("-s -w -buildid= -X main.version=%s -X main.revision=%s", r.version, r.revision),
		"-o", path, "./cmd/hardpoint")
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=")
	return path, output(c)
}

// program is the file name of the binary.
func program(system string) string {
	if system == "windows" {
		return name + ".exe"
	}
	return name
}

// output runs a command; what it printed is part of the error.
func output(c *exec.Cmd) error {
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(c.Args, " "), err, out)
	}
	return nil
}

// target makes what there is for one of them.
func (r *release) target(target, binary string) error {
	system, arch, _ := strings.Cut(target, "/")
	base := fmt.Sprintf("%s-%s-%s-%s", name, r.version, system, arch)
	bill, licences, err := r.materials(binary)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	files := append([]file{{program(system), 0o755, content}, {"THIRD-PARTY", 0o644, licences}}, r.common...)
	if system == "linux" {
		units, err := folder("systemd", "packaging/systemd")
		if err != nil {
			return err
		}
		files = append(files, units...)
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	archive, pack := base+".tar.gz", tarGz
	if system == "windows" {
		archive, pack = base+".zip", zipped
	}
	packed, err := pack(base, files, r.epoch)
	if err != nil {
		return err
	}
	if err := errors.Join(r.write(archive, packed), r.write(base+".cdx.json", bill)); err != nil {
		return err
	}
	if system != "linux" || r.nfpm == "" {
		return nil
	}
	return r.packages(arch, files)
}

// write puts a result into the folder of results.
func (r *release) write(file string, content []byte) error {
	r.made = append(r.made, file)
	return os.WriteFile(filepath.Join(r.out, file), content, 0o644)
}

// packages makes deb and rpm of the files of an archive.
func (r *release) packages(arch string, files []file) error {
	stage := filepath.Join(r.work, "stage-"+arch)
	for _, f := range files {
		name, content := f.name, f.content
		if strings.HasPrefix(name, "man/") {
			name, content = name+".gz", gzipped(content)
		}
		path := filepath.Join(stage, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, f.mode); err != nil {
			return err
		}
	}
	for _, kind := range []string{"deb", "rpm"} {
		// nfpm knows the names that the packagers have for architectures.
		file := fmt.Sprintf("%s-%s-linux-%s.%s", name, r.version, arch, kind)
		c := exec.Command(r.nfpm, "package", "--config", "packaging/nfpm.yaml", "--packager", kind, "--target", filepath.Join(r.out, file))
		c.Env = append(os.Environ(), "VERSION="+r.version, "ARCH="+arch, "STAGE="+stage, fmt.Sprintf("SOURCE_DATE_EPOCH=%d", r.epoch.Unix()))
		if err := output(c); err != nil {
			return err
		}
		r.made = append(r.made, file)
	}
	return nil
}

// sums writes SHA256SUMS, as `sha256sum --check` reads it.
func (r *release) sums() error {
	var b strings.Builder
	slices.Sort(r.made)
	for _, file := range r.made {
		content, err := os.ReadFile(filepath.Join(r.out, file))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(content), file)
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(b.String()), 0o644)
}
