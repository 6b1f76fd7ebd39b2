package allocatetest

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/hardpointmq/hardpoint/core/allocate"
)

// random returns a source and logs its seed.
func random(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func must(t *testing.T, a allocate.Allocator, r *allocate.Request) allocate.Assignment {
	t.Helper()
	got, err := a.Allocate(context.Background(), r)
	if err != nil {
		t.Fatalf("%d queues, %d members: %v", len(r.Queues), len(r.Members), err)
	}
	if len(got.Owner) != len(r.Queues) {
		t.Fatalf("%d owners for %d queues", len(got.Owner), len(r.Queues))
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

// settles: who has what it was given keeps it as long as nothing changes.
func settles(t *testing.T, a allocate.Allocator) {
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

// fewMoves lets members and queues come and go.
func fewMoves(t *testing.T, a allocate.Allocator) {
	rnd := random(t)
	for range 50 {
		all := Make(rnd.IntN(70), 25)
		r := &allocate.Request{Group: all.Group, Queues: all.Queues, Members: slices.Clone(all.Members[:1+rnd.IntN(20)])}
		for range 10 {
			r.Generation++
			got := must(t, a, r)
			if moved, least := moves(r, got), leastMoves(r); moved != least {
				t.Fatalf("%d queues moved to share %d among %d members, %d would do:\n%s", moved, len(r.Queues), len(r.Members), least, Format(r, got))
			}
			own(r, got)
			switch n := rnd.IntN(len(r.Members)); {
			case rnd.IntN(2) == 0 && len(r.Members) > 1:
				r.Members = slices.Delete(r.Members, n, n+1)
			default:
				m := all.Members[rnd.IntN(len(all.Members))]
				if !slices.ContainsFunc(r.Members, func(x allocate.Member) bool { return x.ClientID == m.ClientID }) {
					at, _ := slices.BinarySearchFunc(r.Members, m.ClientID, func(x allocate.Member, id string) int {
						if x.ClientID < id {
							return -1
						}
						return 1
					})
					r.Members = slices.Insert(r.Members, at, m)
				}
			}
		}
	}
}

// moves counts the queues that somebody has and another one gets.
func moves(r *allocate.Request, a allocate.Assignment) int {
	n := 0
	for i := range r.Members {
		for _, q := range r.Members[i].Owned {
			if a.Owner[q] != i {
				n++
			}
		}
	}
	return n
}

// leastMoves is how many must move until shares differ by one at most. No queue
// of r has two owners.
func leastMoves(r *allocate.Request) int {
	each, more := len(r.Queues)/len(r.Members), len(r.Queues)%len(r.Members)
	n := 0
	for _, m := range r.Members {
		over := len(m.Owned) - each
		if over > 0 && more > 0 {
			over--
			more--
		}
		n += max(over, 0)
	}
	return n
}

// weighed checks shares by weight, all of them or zone by zone.
func weighed(t *testing.T, a allocate.Allocator, p Promises) {
	rnd := random(t)
	for range 300 {
		r := Make(rnd.IntN(70), 1+rnd.IntN(20))
		colour(r, rnd)
		for i := range r.Members {
			if !p.Zones {
				r.Members[i].Zone = ""
			}
			if !p.Weights {
				r.Members[i].Weight = 1
			}
		}
		members := map[string][]int{}
		for i, m := range r.Members {
			members[m.Zone] = append(members[m.Zone], i)
		}
		got := must(t, a, r)
		counts := map[string][]int{} // zone; "" is the rest
		size := map[string]int{}
		for q, o := range got.Owner {
			z := r.Queues[q].Zone
			if !p.Zones || len(members[z]) == 0 {
				z = ""
			}
			if z != "" && (o < 0 || r.Members[o].Zone != z) {
				t.Fatalf("queue %d of zone %s has owner %d, of another zone", q, z, o)
			}
			if counts[z] == nil {
				counts[z] = make([]int, len(r.Members))
			}
			if o >= 0 {
				counts[z][o]++
			}
			size[z]++
		}
		if !p.Weights {
			continue
		}
		for z, count := range counts {
			sum := uint64(0)
			in := func(i int) bool { return z == "" || r.Members[i].Zone == z }
			for i, m := range r.Members {
				if in(i) {
					sum += uint64(max(m.Weight, 1))
				}
			}
			for i, m := range r.Members {
				if !in(i) {
					continue
				}
				// |count − size·weight/sum| < 1, in whole numbers
				exact, has := uint64(size[z])*uint64(max(m.Weight, 1)), uint64(count[i])*sum
				if max(exact, has)-min(exact, has) >= sum {
					t.Fatalf("zone %q: member %d of weight %d has %d of %d queues; the weights sum up to %s", z, i, m.Weight, count[i], size[z], strconv.FormatUint(sum, 10))
				}
			}
		}
	}
}
