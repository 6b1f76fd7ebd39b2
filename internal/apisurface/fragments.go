package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// fragment is the head of a file in changes/: see changes/README.md.
type fragment struct {
	name     string
	kind     string
	packages []string
	adr      string // path below docs/adr, "" if none is named
}

var kinds = []string{"added", "changed", "fixed", "removed", "security"}

func readFragments(root string) ([]fragment, error) {
	files, err := filepath.Glob(filepath.Join(root, "changes", "*.md"))
	if err != nil {
		return nil, err
	}
	var out []fragment
	for _, f := range files {
		if filepath.Base(f) == "README.md" {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		fr, err := parseFragment("changes/"+filepath.Base(f), string(text))
		if err != nil {
			return nil, err
		}
		if fr.adr != "" {
			_, err := os.Stat(filepath.Join(root, "docs", "adr", fr.adr))
			if errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("%s names the ADR %q, and docs/adr holds no file of that name", fr.name, fr.adr)
			}
			if err != nil {
				return nil, err
			}
		}
		out = append(out, fr)
	}
	return out, nil
}

// parseFragment reads the head: lines "Key: value" up to the first empty line.
func parseFragment(name, text string) (fragment, error) {
	fr := fragment{name: name}
	head, body, _ := strings.Cut(text, "\n\n")
	for _, line := range strings.Split(strings.TrimSpace(head), "\n") {
		key, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case ok && key == "Kind":
			fr.kind = value
		case ok && key == "Packages":
			for _, p := range strings.Split(value, ",") {
				fr.packages = append(fr.packages, strings.TrimSpace(p))
			}
		case ok && key == "ADR":
			fr.adr = value
		default:
			return fragment{}, fmt.Errorf("%s: the head line %q is none of Kind, Packages, ADR (changes/README.md)", name, line)
		}
	}
	if !slices.Contains(kinds, fr.kind) {
		return fragment{}, fmt.Errorf("%s: Kind is %q, it must be one of %s", name, fr.kind, strings.Join(kinds, ", "))
	}
	if strings.TrimSpace(body) == "" {
		return fragment{}, fmt.Errorf("%s says nothing below its head: write what changes for a user", name)
	}
	return fr, nil
}

// described demands a fragment for every package whose surface changed, and one
// with an ADR where something was taken away or became different.
func described(changes []change, fragments []fragment) error {
	var missing []error
	for _, c := range changes {
		named, withADR := false, false
		for _, f := range fragments {
			if slices.ContainsFunc(f.packages, func(p string) bool { return covers(p, c.pkg) }) {
				named = true
				withADR = withADR || f.adr != ""
			}
		}
		switch {
		case !named:
			missing = append(missing, fmt.Errorf("the exported API of %s changed: add a fragment to changes/ that names it under Packages", c.pkg))
		case len(c.removed) > 0 && !withADR:
			missing = append(missing, fmt.Errorf("the exported API of %s lost or changed declarations: name an ADR in its fragment in changes/\n%s", c.pkg, c))
		}
	}
	return errors.Join(missing...)
}

// covers reports whether the pattern of a fragment means the package.
func covers(pattern, pkg string) bool {
	if base, below := strings.CutSuffix(pattern, "/..."); below {
		return pkg == base || strings.HasPrefix(pkg, base+"/")
	}
	return pattern == pkg
}
