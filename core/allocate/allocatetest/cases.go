package allocatetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/hardpointmq/hardpoint/core/allocate"
)

// random returns a source and logs its seed.
func random(t tb) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func must(t tb, a allocate.Allocator, r *allocate.Request) allocate.Assignment {
	t.Helper()
	got, err := a.Allocate(context.Background(), r)
	if err != nil {
		t.Fatalf("%d queues, %d members: %v", len(r.Queues), len(r.Members), err)
	}
	if err := got.Check(r); err != nil {
		t.Fatalf("%d queues, %d members: %v", len(r.Queues), len(r.Members), err)
	}
	return got
}

// own makes an assignment what the members of r have.
func own(r *allocate.Request, a allocate.Assignment) {
	for i := range r.Members {
		r.Members[i].Owned = nil
	}
	for q, o := range a.Owner {
		if o >= 0 {
			r.Members[o].Owned = append(r.Members[o].Owned, q)
		}
	}
}

// colour gives queues, by broker, and members zones, and members weights.
func colour(r *allocate.Request, rnd *rand.Rand) {
	zones := []string{"", "z1", "z2", "z3"}
	of := map[string]string{}
	for i := range r.Queues {
		q := &r.Queues[i]
		if _, ok := of[q.Broker]; !ok {
			of[q.Broker] = zones[rnd.IntN(len(zones))]
		}
		q.Zone = of[q.Broker]
	}
	for i := range r.Members {
		r.Members[i].Zone = zones[rnd.IntN(len(zones))]
		r.Members[i].Weight = uint32(rnd.IntN(5))
	}
}

// anyRequest makes a request of any size, in which members have some of the queues.
func anyRequest(rnd *rand.Rand) *allocate.Request {
	r := Make(rnd.IntN(70), 1+rnd.IntN(20))
	r.Generation = rnd.Uint64()
	if rnd.IntN(2) == 0 {
		colour(r, rnd)
	}
	for q := range r.Queues {
		if rnd.IntN(2) == 0 {
			m := &r.Members[rnd.IntN(len(r.Members))]
			m.Owned = append(m.Owned, q)
		}
	}
	return r
}

func refuses(t tb, a allocate.Allocator, _ Harness) {
	dup := Make(4, 2)
	dup.Members[1].ClientID = dup.Members[0].ClientID
	owned := Make(4, 2)
	owned.Members[0].Owned = []int{4}
	negative := Make(4, 2)
	negative.Members[1].Owned = []int{-1}
	for _, c := range []struct {
		what string
		r    *allocate.Request
	}{
		{"no members", Make(4, 0)},
		{"neither queues nor members", Make(0, 0)},
		{"a member twice", dup},
		{"an owned queue that is not there", owned},
		{"an owned queue of negative index", negative},
	} {
		if _, err := a.Allocate(context.Background(), c.r); !errors.Is(err, allocate.ErrRequest) {
			t.Errorf("%s: error %v, want ErrRequest; call Request.Check first", c.what, err)
		}
	}
}

func properties(t tb, a allocate.Allocator, h Harness) {
	rnd := random(t)
	for range 300 {
		r := anyRequest(rnd)
		n, m := len(r.Queues), len(r.Members)
		before := fmt.Sprintf("%+v", *r)
		got := must(t, a, r)
		if after := fmt.Sprintf("%+v", *r); after != before {
			t.Fatalf("the request was changed:\n%s\n%s", before, after)
		}
		count := make([]int, m)
		weighed := false
		for q, o := range got.Owner {
			if o >= 0 {
				count[o]++
			} else if !h.Lacks.Complete {
				t.Fatalf("queue %d of %d has no owner; Lacks.Complete says that this is meant", q, n)
			}
		}
		for i := range r.Members {
			weighed = weighed || r.Members[i].Zone != "" || r.Members[i].Weight > 1
		}
		slices.Sort(count)
		if !h.Lacks.Balance && !weighed && count[m-1]-count[0] > 1 {
			t.Fatalf("%d queues, %d members: shares from %d to %d; Lacks.Balance says that this is meant", n, m, count[0], count[m-1])
		}
		same(t, a, r, got)
	}
}

// same asks again.
func same(t tb, a allocate.Allocator, r *allocate.Request, want allocate.Assignment) {
	t.Helper()
	again, err := a.Allocate(context.Background(), r)
	if err != nil || !slices.Equal(want.Owner, again.Owner) {
		t.Errorf("the same request gave another assignment: %v, %v, %v", want.Owner, again.Owner, err)
	}
}

// settles: who has what it was given keeps it as long as nothing changes.
func settles(t tb, a allocate.Allocator, _ Harness) {
	rnd := random(t)
	for range 100 {
		r := Make(rnd.IntN(70), 1+rnd.IntN(20))
		colour(r, rnd)
		got := must(t, a, r)
		own(r, got)
		r.Generation++
		if again := must(t, a, r); !slices.Equal(got.Owner, again.Owner) {
			t.Fatalf("nothing changed, but the assignment did:\n%s\n%s", Format(r, got), Format(r, again))
		}
	}
}

// manyAtOnce: calls beside each other have nothing to do with each other.
func manyAtOnce(t tb, a allocate.Allocator, _ Harness) {
	rnd := random(t)
	var wg sync.WaitGroup
	defer wg.Wait() // must may end the test
	for i := range 8 {
		r := anyRequest(rnd)
		r.Group = fmt.Sprintf("g%d", i)
		want := must(t, a, r)
		wg.Go(func() {
			for range 20 {
				same(t, a, r, want)
			}
		})
	}
}

// contextEnds: an allocator need not look at its context, but when it does it
// says so.
func contextEnds(t tb, a allocate.Allocator, _ Harness) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := a.Allocate(ctx, Make(8, 2)); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that is over the error is %v, want none or context.Canceled", err)
	}
}
