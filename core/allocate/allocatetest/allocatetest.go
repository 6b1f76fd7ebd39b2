// Package allocatetest is the conformance suite of the allocation contract. It
// uses the standard library only.
package allocatetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/allocate/allocatebench"
	"github.com/hardpointmq/hardpoint/core/plugin"
)

// Harness tells the suite what to test.
type Harness struct {
	Factory allocate.Factory
	Config  plugin.Raw
	// Form is "in_process", "decorated", "wire" or "process".
	Form string
	// Lacks are opt-outs; the zero value tests everything that all allocators do.
	Lacks Lacks
	// Promises are opt-ins: what only some allocators do.
	Promises Promises
}

// Lacks names what an allocator does not promise.
type Lacks struct {
	// Balance: members may differ by more than one queue.
	Balance bool
	// Complete: queues may stay without an owner.
	Complete bool
}

// Promises names what an allocator does beyond what all do.
type Promises struct {
	// FewMoves: of the queues that members have, no fewer can move when shares may
	// differ by one queue. Needs balance.
	FewMoves bool
	// Weights: every member is less than one queue away from its exact share by
	// weight; with Zones, in each zone.
	Weights bool
	// Zones: a queue whose zone has members goes to one of them.
	Zones bool
	// OnlyNeeded: when a member joins or leaves, queues move only to the one that
	// joined or from the one that left.
	OnlyNeeded bool
}

// tb is what cases need of a *testing.T; the suite is tested with another one.
type tb interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

type testCase struct {
	name string
	// promised, when not nil, says whether the allocator promises what is tested.
	promised func(Promises) bool
	run      func(t tb, a allocate.Allocator, h Harness)
}

var cases = []testCase{
	{"refuses bad requests", nil, refuses},
	{"properties", nil, properties},
	{"settles", nil, settles},
	{"many at once", nil, manyAtOnce},
	{"context", nil, contextEnds},
	{"few moves", func(p Promises) bool { return p.FewMoves }, fewMoves},
	{"only needed", func(p Promises) bool { return p.OnlyNeeded }, onlyNeeded},
	{"weights and zones", func(p Promises) bool { return p.Weights || p.Zones }, weighed},
}

// Run runs the suite as subtests of TestConformance, and closes the allocator.
func Run(t *testing.T, h Harness) {
	t.Run(h.Factory.Name()+"/"+h.Form+"/Allocator", func(t *testing.T) {
		a, err := h.Factory.Build(t.Context(), allocate.Params{}, h.Config)
		if err != nil {
			t.Fatalf("Build: %v", err)
		}
		defer func() {
			if err := allocate.Close(a); err != nil {
				t.Errorf("Close: %v", err)
			}
		}()
		t.Run("describe", func(t *testing.T) {
			d, err := h.Factory.Describe(t.Context(), h.Config)
			if err != nil {
				t.Fatal(err)
			}
			if d.Name != h.Factory.Name() || d.Contract != allocate.Contract || d.Version == "" {
				t.Fatalf("Describe gives name %q, contract %q, version %q", d.Name, d.Contract, d.Version)
			}
		})
		for _, c := range cases {
			if c.promised == nil || c.promised(h.Promises) {
				t.Run(c.name, func(t *testing.T) { c.run(t, a, h) })
			}
		}
	})
}

// Make builds a request of n queues over brokers of four queues and m members.
func Make(n, m int) *allocate.Request { return allocatebench.Request(n, m) }

// Format writes an assignment for people: a line a member with its queues, of
// which "broker-a" 3 is a3.
func Format(r *allocate.Request, a allocate.Assignment) string {
	var b strings.Builder
	for m := range r.Members {
		fmt.Fprintf(&b, "%d:", m)
		for q, o := range a.Owner {
			if o == m {
				fmt.Fprintf(&b, " %s%d", strings.TrimPrefix(r.Queues[q].Broker, "broker-"), r.Queues[q].ID)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Benchmark allocates 1,000 queues to 100 members. Beside the mean it reports the
// median and the 99th percentile of a call.
func Benchmark(b *testing.B, h Harness) {
	a, err := h.Factory.Build(b.Context(), allocate.Params{}, h.Config)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = allocate.Close(a) }()
	r := Make(allocatebench.Queues, allocatebench.Members)
	took := make([]time.Duration, 0, 1<<20) // what comes later is not counted
	b.ReportAllocs()
	for b.Loop() {
		began := time.Now()
		if _, err := a.Allocate(b.Context(), r); err != nil {
			b.Fatal(err)
		}
		if d := time.Since(began); len(took) < cap(took) {
			took = append(took, d)
		}
	}
	slices.Sort(took)
	for name, i := range map[string]int{"p50-ns": len(took) / 2, "p99-ns": len(took) * 99 / 100} {
		b.ReportMetric(float64(took[i].Nanoseconds()), name)
	}
}
