package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRead(t *testing.T) {
	for name, tc := range map[string]struct {
		events []event
		table  string
		failed int
	}{
		"passed, lacking and failed": {
			events: []event{
				{Action: "pass", Package: "p", Test: "TestConformance/pebble/in_process/store/append"},
				{Action: "pass", Package: "p", Test: "TestConformance/pebble/in_process/store/read"},
				{Action: "pass", Package: "p", Test: "TestConformance/pebble/in_process/store"},
				{Action: "skip", Package: "p", Test: "TestConformance/pebble/in_process/retention/lacks"},
				{Action: "pass", Package: "p", Test: "TestConformance/pebble/in_process/retention"},
				{Action: "pass", Package: "p", Test: "TestConformance/pebble/in_process"},
				{Action: "pass", Package: "p", Test: "TestConformance/pebble"},
				{Action: "pass", Package: "q", Test: "TestConformance/pebble/process/store/append"},
				{Action: "fail", Package: "q", Test: "TestConformance/pebble/process/store/read"},
				{Action: "pass", Package: "q", Test: "TestOther/a/b/c/d"},
			},
			table: `
plugin  form        retention  store
pebble  in_process  -          ok 2
pebble  process                FAIL 1/2
`,
			failed: 1,
		},
		"a facet without subtests": {
			events: []event{{Action: "pass", Package: "p", Test: "TestConformance/memory/in_process/key_index"}},
			table: `
plugin  form        key_index
memory  in_process  ok 1
`,
		},
		"random runs": {
			events: []event{
				{Action: "output", Package: "p", Test: "TestConformance/memory/wire/model/immediate/0", Output: "    meta.go:9: repeat with HARDPOINT_TEST_SEED=77\n"},
				{Action: "pass", Package: "p", Test: "TestConformance/memory/wire/model/immediate/0"},
				{Action: "output", Package: "p", Test: "TestConformance/memory/wire/model/immediate/1", Output: "    meta.go:9: repeat with HARDPOINT_TEST_SEED=78\n"},
				{Action: "pass", Package: "p", Test: "TestConformance/memory/wire/model/immediate/1"},
			},
			table: `
plugin  form  model
memory  wire  ok 2

seeds of the random runs, for HARDPOINT_TEST_SEED
memory  wire  77 78
`,
		},
		"does not build": {
			events: []event{
				{Action: "build-output", ImportPath: "p", Output: "undefined: x"},
				{Action: "build-fail", ImportPath: "p"},
			},
			table:  "\n",
			failed: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var in strings.Builder
			enc := json.NewEncoder(&in)
			for _, e := range tc.events {
				require.NoError(t, enc.Encode(e))
			}
			m, err := read(strings.NewReader(in.String()))
			require.NoError(t, err)
			require.Len(t, m.failed, tc.failed)
			var out strings.Builder
			m.print(&out)
			require.Equal(t, strings.TrimPrefix(tc.table, "\n"), out.String())
		})
	}
}

func TestReadRefusesWhatIsNoEvent(t *testing.T) {
	_, err := read(strings.NewReader("panic: x\n"))
	require.ErrorContains(t, err, "panic: x")
}

func TestSuites(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"plugins/a/a_test.go":          "package a\n\nfunc TestConformance(t *testing.T) {}\n",
		"plugins/b/b_test.go":          "package b\n\nfunc TestOther(t *testing.T) {}\n",
		"plugins/a/testdata/x_test.go": "package x\n\nfunc TestConformance(t *testing.T) {}\n",
		"test/go.mod":                  "module test\n",
		"test/c_test.go":               "package c\n\nfunc TestConformance(t *testing.T) {}\n",
	} {
		path := filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	t.Chdir(root)
	dirs, err := suites(".")
	require.NoError(t, err)
	require.Equal(t, []string{"./plugins/a"}, dirs)

	require.NoError(t, os.RemoveAll("plugins/a"))
	_, err = suites(".")
	require.ErrorContains(t, err, "no package")
}
