// Package allocatetest is the conformance suite of the allocation contract. It
// uses the standard library only.
package allocatetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sort"
	"strings"
	"testing"

	"github.com/hardpointmq/hardpoint/core/allocate"
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
}

// Run runs the suite as subtests of TestConformance.
func Run(t *testing.T, h Harness) {
	t.Run(h.Factory.Name()+"/"+h.Form+"/Allocator", func(t *testing.T) {
		a, err := h.Factory.Build(t.Context(), allocate.Params{}, h.Config)
		if err != nil {
			t.Fatalf("Build: %v", err)
		}
		t.Run("describe", func(t *testing.T) {
			d, err := h.Factory.Describe(t.Context(), h.Config)
			if err != nil {
				t.Fatal(err)
			}
			if d.Name != h.Factory.Name() || d.Contract != allocate.Contract || d.Version == "" {
				t.Fatalf("Describe gives name %q, contract %q, version %q", d.Name, d.Contract, d.Version)
			}
		})
		t.Run("refuses bad requests", func(t *testing.T) { refuses(t, a) })
		t.Run("properties", func(t *testing.T) { properties(t, a, h.Lacks) })
		t.Run("settles", func(t *testing.T) { settles(t, a) })
		if h.Promises.FewMoves {
			t.Run("few moves", func(t *testing.T) { fewMoves(t, a) })
		}
		if h.Promises.Weights || h.Promises.Zones {
			t.Run("weights and zones", func(t *testing.T) { weighed(t, a, h.Promises) })
		}
	})
}

// Make builds a request of n queues over brokers of four queues and m members.
func Make(n, m int) *allocate.Request {
	r := &allocate.Request{Group: "g", Generation: 1}
	for i := range n {
		r.Queues = append(r.Queues, allocate.Queue{Topic: "t", Broker: fmt.Sprintf("broker-%c", 'a'+i/4%26), ID: int32(i % 4)})
	}
	for i := range m {
		r.Members = append(r.Members, allocate.Member{ClientID: fmt.Sprintf("10.0.0.%03d@1", i)})
	}
	return r
}

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

func refuses(t *testing.T, a allocate.Allocator) {
	dup := Make(4, 2)
	dup.Members[1].ClientID = dup.Members[0].ClientID
	owned := Make(4, 2)
	owned.Members[0].Owned = []int{4}
	for name, r := range map[string]*allocate.Request{"no members": Make(4, 0), "a member twice": dup, "an owned queue that is not there": owned} {
		if _, err := a.Allocate(context.Background(), r); !errors.Is(err, allocate.ErrRequest) {
			t.Errorf("%s: error %v, want ErrRequest", name, err)
		}
	}
}

func properties(t *testing.T, a allocate.Allocator, lacks Lacks) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		n, m := rnd.IntN(70), 1+rnd.IntN(20)
		r := Make(n, m)
		for q := range n {
			if rnd.IntN(2) == 0 {
				i := rnd.IntN(m)
				r.Members[i].Owned = append(r.Members[i].Owned, q)
			}
		}
		before := fmt.Sprintf("%+v", *r)
		got, err := a.Allocate(context.Background(), r)
		if err != nil {
			t.Fatalf("%d queues, %d members: %v", n, m, err)
		}
		if after := fmt.Sprintf("%+v", *r); after != before {
			t.Fatalf("the request was changed:\n%s\n%s", before, after)
		}
		if len(got.Owner) != n {
			t.Fatalf("%d owners for %d queues", len(got.Owner), n)
		}
		if len(got.Why) != 0 && len(got.Why) != n {
			t.Fatalf("%d reasons for %d queues", len(got.Why), n)
		}
		count := make([]int, m)
		for q, o := range got.Owner {
			if o < -1 || o >= m {
				t.Fatalf("queue %d has owner %d of %d", q, o, m)
			}
			if o == -1 {
				if !lacks.Complete {
					t.Fatalf("queue %d of %d has no owner", q, n)
				}
				continue
			}
			count[o]++
		}
		sort.Ints(count)
		if !lacks.Balance && count[m-1]-count[0] > 1 {
			t.Fatalf("%d queues, %d members: shares from %d to %d", n, m, count[0], count[m-1])
		}
		again, err := a.Allocate(context.Background(), r)
		if err != nil || !reflect.DeepEqual(got.Owner, again.Owner) {
			t.Fatalf("the same request gave another assignment: %v, %v, %v", got.Owner, again.Owner, err)
		}
	}
}

// Benchmark allocates 1,000 queues to 100 members.
func Benchmark(b *testing.B, h Harness) {
	a, err := h.Factory.Build(b.Context(), allocate.Params{}, h.Config)
	if err != nil {
		b.Fatal(err)
	}
	r := Make(1000, 100)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Allocate(b.Context(), r); err != nil {
			b.Fatal(err)
		}
	}
}
