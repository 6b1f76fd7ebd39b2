package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The part of CycloneDX 1.5 that says what a binary is made of.
type (
	bill struct {
		BOMFormat   string      `json:"bomFormat"`
		SpecVersion string      `json:"specVersion"`
		Version     int         `json:"version"`
		Metadata    billOf      `json:"metadata"`
		Components  []component `json:"components"`
	}
	billOf struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	}
	component struct {
		Type    string `json:"type"`
		Name    string `json:"name"`
		Version string `json:"version"`
		PURL    string `json:"purl"`
	}
)

func goComponent(kind, path, version string) component {
	return component{kind, path, version, "pkg:golang/" + path + "@" + version}
}

// materials reads from a binary what it is made of: its bill of materials, and the
// licences of all of it, which have to come with the binary.
func (r *release) materials(binary string) (sbom, licences []byte, err error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, nil, err
	}
	b := bill{
		BOMFormat: "CycloneDX", SpecVersion: "1.5", Version: 1,
		Metadata:   billOf{r.epoch.Format("2006-01-02T15:04:05Z"), goComponent("application", info.Main.Path, "v"+r.version)},
		Components: []component{goComponent("library", "std", strings.TrimPrefix(info.GoVersion, "go"))},
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "The program contains parts of others. Their licences:\n")
	paths := make([]string, 0, len(info.Deps))
	for _, m := range info.Deps {
		paths = append(paths, m.Path)
	}
	dirs, err := moduleDirs(paths)
	if err != nil {
		return nil, nil, err
	}
	if err := licencesIn(&text, info.GoVersion, dirs[0]); err != nil {
		return nil, nil, err
	}
	for i, m := range info.Deps {
		b.Components = append(b.Components, goComponent("library", m.Path, m.Version))
		if err := licencesIn(&text, m.Path+" "+m.Version, dirs[i+1]); err != nil {
			return nil, nil, err
		}
	}
	sbom, err = json.MarshalIndent(b, "", "  ")
	return append(sbom, '\n'), text.Bytes(), err
}

// moduleDirs are the folder of Go, and those of modules that this one needs.
func moduleDirs(paths []string) ([]string, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	list, err := exec.Command("go", append([]string{"list", "-m", "-f", "{{.Dir}}"}, paths...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m of the modules in the binary: %w", err)
	}
	dirs := strings.Split(strings.TrimSpace(string(root)+string(list)), "\n")
	if len(dirs) != len(paths)+1 {
		return nil, fmt.Errorf("go list -m tells %d folders for %d modules", len(dirs)-1, len(paths))
	}
	return dirs, nil
}

var licenceFile = regexp.MustCompile(`(?i)^((un)?licen[cs]e|copying|notice|copyright|patents)([-.].*)?$`)

// licencesIn appends the files of a module that say how it may be used.
func licencesIn(text *bytes.Buffer, what, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("licence of %s: %w", what, err)
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return e.IsDir() || !licenceFile.MatchString(e.Name()) })
	if len(entries) == 0 {
		return errors.New("no licence of " + what + " in " + dir + ": a release has to bring it")
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(text, "\n%s\n%s, %s\n\n%s\n", strings.Repeat("=", 80), what, e.Name(), strings.TrimSpace(string(b)))
	}
	return nil
}
