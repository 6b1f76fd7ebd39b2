package main

import (
	"encoding/json"
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
