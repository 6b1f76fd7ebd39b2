// Command conformancematrix runs the conformance suites and prints which plugin
// passed which facet in which form.
//
// It understands tests that are named
//
//	TestConformance/<plugin>/<form>/<facet>/...
//
// where form says how the plugin is reached (in_process, decorated, wire,
// process) and facet is the part of the contract under test (store, raw_log,
// key_index, retention, ...). A facet that the harness names as lacking reports
// it by a subtest that is skipped; it shows as "-". Below the table stand the
// seeds of the random runs: HARDPOINT_TEST_SEED=N repeats one.
//
//	conformancematrix [-race] [packages]
//
// Without packages it takes every one that has a test TestConformance. The exit
// status is 1 if a test failed or if no test bore such a name.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	race := flag.Bool("race", false, "run under the race detector")
	flag.Parse()
	packages := flag.Args()
	var err error
	if len(packages) == 0 {
		packages, err = suites(".")
	}
	if err == nil {
		err = run(packages, *race, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformancematrix:", err)
		os.Exit(1)
	}
}

// suites finds the packages below root that run a conformance suite; asking the
// go command for all packages would build every test of the repository.
func suites(root string) ([]string, error) {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			// Another module, or no source at all.
			if _, err := os.Stat(filepath.Join(path, "go.mod")); path != root && err == nil || d.Name() == ".git" || d.Name() == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if bytes.Contains(src, []byte("\nfunc TestConformance(")) {
			dirs = append(dirs, "./"+filepath.ToSlash(filepath.Dir(path)))
		}
		return nil
	})
	if err == nil && len(dirs) == 0 {
		err = errors.New("no package has a test TestConformance")
	}
	slices.Sort(dirs)
	return slices.Compact(dirs), err
}

func run(packages []string, race bool, out io.Writer) error {
	args := []string{"test", "-json", "-p", "2", "-timeout", "10m", "-run", "^TestConformance$"}
	if race {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, packages...)...)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	m, readErr := read(pipe)
	waitErr := cmd.Wait()
	if readErr != nil {
		return readErr
	}
	m.print(out)
	switch {
	case len(m.failed) > 0:
		return fmt.Errorf("%d failed:\n%s", len(m.failed), strings.Join(m.failed, "\n"))
	case waitErr != nil:
		return fmt.Errorf("go test: %w", waitErr)
	case len(m.rows) == 0:
		return errors.New("no test is named TestConformance/<plugin>/<form>/<facet>")
	}
	return nil
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output, ImportPath string
}

// cell counts the tests of one facet. Only tests without subtests count, so that
// a group does not count beside its members.
type cell struct{ passed, failed, skipped int }

func (c cell) String() string {
	switch {
	case c.failed > 0:
		return fmt.Sprintf("FAIL %d/%d", c.failed, c.failed+c.passed)
	case c.passed > 0:
		return fmt.Sprintf("ok %d", c.passed)
	case c.skipped > 0:
		return "-"
	}
	return ""
}

type matrix struct {
	rows   map[string]map[string]*cell // "plugin\tform": facet: cell
	failed []string                    // package and name of each failed test, with its output
	seeds  map[string][]string         // "plugin\tform": those of its random runs
}

// seed is how a random run tells its own (storagetest).
var seed = regexp.MustCompile(`HARDPOINT_TEST_SEED=(\d+)`)

func read(r io.Reader) (*matrix, error) {
	m := &matrix{rows: map[string]map[string]*cell{}, seeds: map[string][]string{}}
	results := map[string]string{} // "package test": action
	outputs := map[string]*strings.Builder{}
	var order []string
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<24)
	for sc.Scan() {
		var e event
		if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("go test -json wrote %q: %w", sc.Text(), err)
		}
		key := e.Package + " " + e.Test
		switch e.Action {
		case "output", "build-output":
			if e.Action == "build-output" {
				key = e.ImportPath + " "
			}
			if outputs[key] == nil {
				outputs[key] = &strings.Builder{}
			}
			outputs[key].WriteString(e.Output)
			if found := seed.FindStringSubmatch(e.Output); found != nil {
				if parts := strings.Split(e.Test, "/"); len(parts) > 2 {
					row := parts[1] + "\t" + parts[2]
					m.seeds[row] = append(m.seeds[row], found[1])
				}
			}
		case "build-fail":
			m.failed = append(m.failed, e.ImportPath+" does not build\n"+output(outputs, e.ImportPath+" "))
		case "pass", "fail", "skip":
			if e.Test != "" {
				results[key] = e.Action
				order = append(order, key)
			}
			if e.Action == "fail" {
				m.failed = append(m.failed, strings.TrimSpace(key)+"\n"+output(outputs, key))
			}
			delete(outputs, key)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, err
	}
	groups := map[string]bool{}
	for _, key := range order {
		for i := strings.LastIndexByte(key, '/'); i > 0; i = strings.LastIndexByte(key[:i], '/') {
			groups[key[:i]] = true
		}
	}
	slices.Sort(order)
	for _, key := range order {
		_, test, _ := strings.Cut(key, " ")
		parts := strings.Split(test, "/")
		if groups[key] || len(parts) < 4 || parts[0] != "TestConformance" {
			continue
		}
		c := m.cell(parts[1]+"\t"+parts[2], parts[3])
		switch results[key] {
		case "pass":
			c.passed++
		case "fail":
			c.failed++
		case "skip":
			c.skipped++
		}
	}
	return m, nil
}

func output(outputs map[string]*strings.Builder, key string) string {
	if b := outputs[key]; b != nil {
		return b.String()
	}
	return ""
}

func (m *matrix) cell(row, facet string) *cell {
	if m.rows[row] == nil {
		m.rows[row] = map[string]*cell{}
	}
	if m.rows[row][facet] == nil {
		m.rows[row][facet] = &cell{}
	}
	return m.rows[row][facet]
}

func (m *matrix) print(out io.Writer) {
	if len(m.rows) == 0 {
		return
	}
	columns := map[string]bool{}
	for _, row := range m.rows {
		for facet := range row {
			columns[facet] = true
		}
	}
	facets := slices.Sorted(maps.Keys(columns))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "plugin\tform\t"+strings.Join(facets, "\t"))
	for _, name := range slices.Sorted(maps.Keys(m.rows)) {
		line := []string{name}
		for _, facet := range facets {
			text := ""
			if c := m.rows[name][facet]; c != nil {
				text = c.String()
			}
			line = append(line, text)
		}
		fmt.Fprintln(w, strings.Join(line, "\t"))
	}
	if len(m.seeds) > 0 {
		fmt.Fprintln(w, "\nseeds of the random runs, for HARDPOINT_TEST_SEED")
		for _, row := range slices.Sorted(maps.Keys(m.seeds)) {
			fmt.Fprintln(w, row+"\t"+strings.Join(m.seeds[row], " "))
		}
	}
	_ = w.Flush() // a terminal that is gone reads no table
}
