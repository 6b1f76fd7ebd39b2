package allocatekit

import (
	"math/bits"
	"slices"

	"github.com/hardpointmq/hardpoint/core/allocate"
)

// Shares says how many of n queues each member gets: less than one away from its
// exact share n·weight/sum, n in all. A weight of 0 counts as 1. The queues that
// are left after rounding down go to the largest fractions; where those are
// equal, to members that have more now than their share rounded down, then to the
// first. has is how many each member has now; nil: none. No members: no shares.
func Shares(n int, weights []uint32, has []int) []int {
	if len(weights) == 0 {
		return nil
	}
	sum := uint64(0)
	for _, w := range weights {
		sum += uint64(max(w, 1))
	}
	shares, rest := make([]int, len(weights)), make([]uint64, len(weights))
	left := n
	order := make([]int, len(weights))
	for i, w := range weights {
		hi, lo := bits.Mul64(uint64(n), uint64(max(w, 1)))
		q, r := bits.Div64(hi, lo, sum) // hi < sum: a weight is at most the sum
		shares[i], rest[i], order[i] = int(q), r, i
		left -= int(q)
	}
	keeps := func(i int) bool { return has != nil && has[i] > shares[i] }
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case rest[a] != rest[b]:
			if rest[a] > rest[b] {
				return -1
			}
			return 1
		case keeps(a) != keeps(b):
			if keeps(a) {
				return -1
			}
			return 1
		}
		return 0
	})
	for _, i := range order[:left] {
		shares[i]++
	}
	return shares
}

// Reasons why a queue is where it is, as [Share] writes them.
const (
	Kept    = "kept"
	Free    = "had no owner"
	Evened  = "moved: its owner had more than its share"
	Unowned = "no member may have it"
)

// Share gives the queues, indexes into r.Queues, to the members, indexes into
// r.Members, by their weights; weighted false: all the same. Each gets the number
// that [Shares] says, keeps as many of its own as fit, and what is left is dealt
// out one by one, so that a member's queues spread over brokers. A queue that two
// members claim counts as the first one's. No fewer moves are possible with equal
// weights and members within one queue of each other. It writes a.Owner and a.Why
// at the queues. No members: the queues get no owner.
func Share(r *allocate.Request, queues, members []int, weighted bool, a *allocate.Assignment) {
	if len(members) == 0 {
		for _, q := range queues {
			a.Owner[q], a.Why[q] = -1, Unowned
		}
		return
	}
	const other, free = -2, -1
	now := make([]int, len(r.Queues)) // place in members of who has it
	for q := range now {
		now[q] = other
	}
	for _, q := range queues {
		now[q] = free
	}
	has, weights := make([]int, len(members)), make([]uint32, len(members))
	for i, m := range members {
		weights[i] = 1
		if weighted {
			weights[i] = r.Members[m].Weight
		}
		for _, q := range r.Members[m].Owned {
			if now[q] == free {
				now[q] = i
				has[i]++
			}
		}
	}
	room := Shares(len(queues), weights, has)
	var deal []int
	for _, q := range queues {
		if i := now[q]; i != free && room[i] > 0 {
			room[i]--
			a.Owner[q], a.Why[q] = members[i], Kept
			continue
		}
		deal = append(deal, q)
	}
	next := 0
	for _, q := range deal {
		for room[next] == 0 { // there are as many places as queues
			next = (next + 1) % len(members)
		}
		room[next]--
		a.Owner[q], a.Why[q] = members[next], Free
		if now[q] != free {
			a.Why[q] = Evened
		}
		next = (next + 1) % len(members)
	}
}
