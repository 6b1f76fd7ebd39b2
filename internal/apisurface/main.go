// Command apisurface keeps the exported API of the stable packages as text
// under docs/api, one file a package, so that a change of the public surface is
// seen in review.
//
//	apisurface write    write docs/api
//	apisurface check    fail if docs/api is not what the sources say, or if it
//	                    changed since origin/main without a fragment in changes/
//
// It reads the sources with go/parser alone: no package has to compile for it,
// and no dependency is needed. The surface is the one of linux/amd64.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// stable lists the packages whose exported API is kept; "/..." takes all
// packages below.
var stable = []string{
	"core/message", "core/command", "core/api", "core/plugin", "core/vfs", "core/wiring",
	"core/storage/...", "core/replication/...", "core/transport/...", "core/allocate/...",
	"sdk/...",
}

const apiDir = "docs/api"

func main() {
	if len(os.Args) != 2 || os.Args[1] != "write" && os.Args[1] != "check" {
		fmt.Fprintln(os.Stderr, "usage: apisurface write|check")
		os.Exit(2)
	}
	run := write
	if os.Args[1] == "check" {
		run = check
	}
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "apisurface:", err)
		os.Exit(1)
	}
}

// surfaces renders every stable package below root, by the name of its file in
// docs/api.
func surfaces(root string) (map[string]string, error) {
	dirs, err := stableDirs(root)
	if err != nil {
		return nil, err
	}
	out := make(map[string]string, len(dirs))
	for _, dir := range dirs {
		text, err := render(filepath.Join(root, filepath.FromSlash(dir)), dir)
		if err != nil {
			return nil, err
		}
		if text != "" {
			out[fileName(dir)] = text
		}
	}
	return out, nil
}

func stableDirs(root string) ([]string, error) {
	var dirs []string
	for _, name := range stable {
		base, below := strings.CutSuffix(name, "/...")
		err := filepath.WalkDir(filepath.Join(root, filepath.FromSlash(base)), func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if !d.IsDir() {
				return nil
			}
			rel, err := filepath.Rel(root, p)
			if err != nil {
				return err
			}
			rel = filepath.ToSlash(rel)
			switch n := d.Name(); {
			case n == "testdata", n == "internal":
				return fs.SkipDir
			case rel != base && !below:
				return fs.SkipDir
			}
			dirs = append(dirs, rel)
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return dirs, nil
}

// fileName is the file in docs/api of a package: core/storage is core.storage.txt.
func fileName(dir string) string { return strings.ReplaceAll(dir, "/", ".") + ".txt" }

func packageName(file string) string {
	return strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), ".txt"), ".", "/")
}

func write(root string) error {
	have, want, err := both(root)
	if err != nil {
		return err
	}
	dir := filepath.Join(root, apiDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name := range have {
		if _, ok := want[name]; !ok {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	for name, text := range want {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// both gives the committed surfaces and those of the sources.
func both(root string) (have, want map[string]string, err error) {
	if want, err = surfaces(root); err != nil {
		return nil, nil, err
	}
	have, err = committed(root)
	return have, want, err
}

func committed(root string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(root, apiDir, "*.txt"))
	if err != nil {
		return nil, err
	}
	out := make(map[string]string, len(files))
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		out[filepath.Base(f)] = string(text)
	}
	return out, nil
}

func check(root string) error {
	have, want, err := both(root)
	if err != nil {
		return err
	}
	if stale := differences(have, want); len(stale) > 0 {
		var b strings.Builder
		for _, c := range stale {
			b.WriteString(c.String())
		}
		return fmt.Errorf("the exported API is not the one in %s:\n%srun `make apidiff-accept`, and describe the change in changes/ (CONTRIBUTING.md, \"The public surface\")", apiDir, b.String())
	}
	base, ok := baseSurfaces(root)
	if !ok {
		return nil
	}
	fragments, err := readFragments(root)
	if err != nil {
		return err
	}
	return described(differences(base, want), fragments)
}

// change is what became different in the surface of one package.
type change struct {
	pkg            string
	added, removed []string
}

func (c change) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s\n", c.pkg)
	for _, l := range c.removed {
		fmt.Fprintf(&b, "    - %s\n", l)
	}
	for _, l := range c.added {
		fmt.Fprintf(&b, "    + %s\n", l)
	}
	return b.String()
}

// differences compares two sets of surfaces line by line. A line names its
// declaration in full, so that order and position do not matter.
func differences(from, to map[string]string) []change {
	names := map[string]bool{}
	for n := range from {
		names[n] = true
	}
	for n := range to {
		names[n] = true
	}
	var out []change
	for n := range names {
		a, b := lines(from[n]), lines(to[n])
		c := change{pkg: packageName(n)}
		for _, l := range a {
			if !slices.Contains(b, l) {
				c.removed = append(c.removed, l)
			}
		}
		for _, l := range b {
			if !slices.Contains(a, l) {
				c.added = append(c.added, l)
			}
		}
		if len(c.added)+len(c.removed) > 0 {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b change) int { return strings.Compare(a.pkg, b.pkg) })
	return out
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// baseSurfaces reads docs/api as it was where this branch left origin/main.
// Without git, or without that branch, there is nothing to compare with.
func baseSurfaces(root string) (map[string]string, bool) {
	base, err := git(root, "merge-base", "origin/main", "HEAD")
	if err != nil {
		return nil, false
	}
	list, err := git(root, "ls-tree", "--name-only", base, apiDir+"/")
	if err != nil {
		return nil, false
	}
	out := map[string]string{}
	for _, f := range lines(list) {
		if !strings.HasSuffix(f, ".txt") {
			continue
		}
		text, err := git(root, "show", base+":"+f)
		if err != nil {
			return nil, false
		}
		out[filepath.Base(f)] = text + "\n"
	}
	return out, true
}

func git(root string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = root
	out, err := cmd.Output()
	return strings.TrimRight(string(out), "\n"), err
}
