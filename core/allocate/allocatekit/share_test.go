package allocatekit_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/allocate/allocatekit"
)

func TestShares(t *testing.T) {
	for _, tc := range []struct {
		n       int
		weights []uint32
		has     []int
		want    []int
	}{
		{5, nil, nil, nil},
		{0, []uint32{1, 2}, nil, []int{0, 0}},
		{7, []uint32{1, 1, 1}, nil, []int{3, 2, 2}},
		{7, []uint32{1, 1, 1}, []int{0, 2, 3}, []int{2, 2, 3}},
		{4, []uint32{3, 0}, nil, []int{3, 1}},
		{3, []uint32{5, 3, 2}, nil, []int{1, 1, 1}},
		{10, []uint32{math.MaxUint32, math.MaxUint32}, nil, []int{5, 5}},
		{math.MaxInt32, []uint32{math.MaxUint32, 1}, nil, []int{math.MaxInt32, 0}},
	} {
		require.Equal(t, tc.want, allocatekit.Shares(tc.n, tc.weights, tc.has), "%+v", tc)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		w := make([]uint32, 1+rnd.IntN(10))
		sum := 0.0
		for i := range w {
			w[i] = 1 + uint32(rnd.IntN(100))
			sum += float64(w[i])
		}
		n, total := rnd.IntN(100), 0
		for i, s := range allocatekit.Shares(n, w, nil) {
			total += s
			require.Less(t, math.Abs(float64(s)-float64(n)*float64(w[i])/sum), 1.0)
		}
		require.Equal(t, n, total)
	}
}

// TestShare: queues that are claimed twice or belong to nobody, and no members.
func TestShare(t *testing.T) {
	r := &allocate.Request{Queues: make([]allocate.Queue, 4), Members: []allocate.Member{
		{ClientID: "a", Owned: []int{0, 1}}, {ClientID: "b", Owned: []int{1, 3}},
	}}
	a := allocate.Assignment{Owner: make([]int, 4), Why: make([]string, 4)}
	allocatekit.Share(r, []int{0, 1, 2}, []int{0, 1}, false, &a)
	require.Equal(t, []int{0, 0, 1, 0}, a.Owner, "queue 1 is the first one's, queue 3 is not shared here")
	require.Equal(t, []string{allocatekit.Kept, allocatekit.Kept, allocatekit.Free, ""}, a.Why)
	allocatekit.Share(r, []int{3}, nil, false, &a)
	require.Equal(t, -1, a.Owner[3])
	require.Equal(t, allocatekit.Unowned, a.Why[3])
}
