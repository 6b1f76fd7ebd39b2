package storagetest

import (
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// Forms in which a store is reached.
const (
	InProcess = "in_process"
	Decorated = "decorated"
	Wire      = "wire"
	Process   = "process"
)

// Harness says what is under test.
type Harness struct {
	Factory storage.Factory
	// Config is the plugin's configuration; empty: its defaults.
	Config plugin.Raw
	// Form is how the store is reached; empty: in_process.
	Form string
	// Lacks says what the store does not offer.
	Lacks Lacks
	// Segment is the segment size that most cases use; 0: 16 KiB. At least 4096.
	Segment int64
	// Dir gives a fresh directory to a test; nil: its TempDir. It is called
	// once per directory, not per opening.
	Dir func(testing.TB) string
	// Crash, when not nil, simulates power loss for the store that runs in
	// dir: the next store built for dir finds at most what was written, and at
	// least what was synced. The old one is shut down afterwards, its errors
	// are ignored.
	Crash func(tb testing.TB, dir string)
}

// Lacks names what a store does not offer; the zero value runs every test.
type Lacks struct {
	RawLog, Retention, KeyIndex bool
	// ProcessDeath: a returned Append does not survive kill -9.
	ProcessDeath bool
	// Reopen: what was written is gone after Shutdown.
	Reopen bool
}

func (h Harness) segment() int64 {
	if h.Segment == 0 {
		return 16 << 10
	}
	return h.Segment
}

func (h Harness) dir(tb testing.TB) string {
	if h.Dir != nil {
		return h.Dir(tb)
	}
	return tb.TempDir()
}

type testCase struct {
	name string
	run  func(*testing.T, Harness)
}

// Run runs the whole suite for each harness. Call it once, from a test named
// TestConformance; harnesses of one store in several forms stand side by side.
func Run(t *testing.T, harnesses ...Harness) {
	for len(harnesses) > 0 {
		name := harnesses[0].Factory.Name()
		n := 1
		for n < len(harnesses) && harnesses[n].Factory.Name() == name {
			n++
		}
		same := harnesses[:n]
		harnesses = harnesses[n:]
		t.Run(name, func(t *testing.T) {
			for _, h := range same {
				if h.Form == "" {
					h.Form = InProcess
				}
				t.Run(h.Form, func(t *testing.T) { runForm(t, h) })
			}
		})
	}
}

func runForm(t *testing.T, h Harness) {
	facet(t, h, "store", false, slices.Concat(lifecycleCases, appendCases, readCases, offsetCases))
	facet(t, h, "raw_log", h.Lacks.RawLog, slices.Concat(rawLogCases, besideCases))
	facet(t, h, "key_index", h.Lacks.KeyIndex, keyIndexCases)
	facet(t, h, "retention", h.Lacks.Retention, retentionCases)
	facet(t, h, "model", false, modelCases)
}

func facet(t *testing.T, h Harness, name string, lacks bool, cases []testCase) {
	t.Run(name, func(t *testing.T) {
		if lacks {
			t.Skip("the harness says that the store lacks it")
		}
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) { c.run(t, h) })
		}
	})
}

// needsReopen skips a case for stores that keep nothing.
func needsReopen(t *testing.T, h Harness) {
	t.Helper()
	if h.Lacks.Reopen {
		t.Skip("the harness says that the store keeps nothing after Shutdown")
	}
}

func needsRawLog(t *testing.T, h Harness) {
	t.Helper()
	if h.Lacks.RawLog {
		t.Skip("the harness says that the store lacks RawLog")
	}
}

// rounds is how often random runs repeat. Behind an adapter once will do for a
// start: the store itself is tested where it is near.
func (h Harness) rounds(t *testing.T) int {
	t.Helper()
	def := int64(3)
	if h.Form != InProcess {
		def = 1
	}
	return int(envInt(t, "HARDPOINT_TEST_ROUNDS", def))
}

// envInt reads a number from the environment.
func envInt(t *testing.T, name string, def int64) int64 {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return def
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q is no number", name, s)
	}
	return n
}
