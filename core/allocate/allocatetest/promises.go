package allocatetest

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/hardpointmq/hardpoint/core/allocate"
)

// fewMoves lets members and queues come and go.
func fewMoves(t tb, a allocate.Allocator, _ Harness) {
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
			joinOrLeave(r, all.Members, rnd)
		}
	}
}

// joinOrLeave changes the members of r by one of all, which may be in it already;
// it returns who joined or left, "" for nobody.
func joinOrLeave(r *allocate.Request, all []allocate.Member, rnd *rand.Rand) string {
	n := rnd.IntN(len(r.Members))
	if rnd.IntN(2) == 0 && len(r.Members) > 1 {
		who := r.Members[n].ClientID
		r.Members = slices.Delete(r.Members, n, n+1)
		return who
	}
	m := all[rnd.IntN(len(all))]
	at, there := slices.BinarySearchFunc(r.Members, m.ClientID, func(x allocate.Member, id string) int { return strings.Compare(x.ClientID, id) })
	if there {
		return ""
	}
	r.Members = slices.Insert(r.Members, at, m)
	return m.ClientID
}

// onlyNeeded lets members join and leave, one at a time.
func onlyNeeded(t tb, a allocate.Allocator, _ Harness) {
	rnd := random(t)
	for range 50 {
		all := Make(rnd.IntN(70), 25)
		r := &allocate.Request{Group: all.Group, Queues: all.Queues, Members: slices.Clone(all.Members[:1+rnd.IntN(20)])}
		var had []string // owner of each queue
		who := ""
		for range 10 {
			r.Generation++
			got := must(t, a, r)
			has := make([]string, len(got.Owner))
			for q, o := range got.Owner {
				if o >= 0 {
					has[q] = r.Members[o].ClientID
				}
			}
			for q := range had {
				if had[q] != has[q] && had[q] != who && has[q] != who {
					t.Fatalf("%q joined or left, and queue %d of %d moved from %q to %q:\n%s", who, q, len(has), had[q], has[q], Format(r, got))
				}
			}
			own(r, got)
			had, who = has, joinOrLeave(r, all.Members, rnd)
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
func weighed(t tb, a allocate.Allocator, h Harness) {
	p := h.Promises
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
