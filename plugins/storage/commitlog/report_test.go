package commitlog

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestManyFindings: what does not fit into the list still counts for what it is. A store
// of many queues whose broker was killed has a note for each, and is not damaged by that.
func TestManyFindings(t *testing.T) {
	const more = 500
	var r Report
	add := func(n int, f Finding) {
		for range n {
			r.Add(f)
		}
	}
	add(maxDamage+more, Finding{Level: Note, part: ofQueue})
	require.Equal(t, more, r.LeftOut)
	require.Zero(t, r.Damaged())
	require.Zero(t, r.Mendable())
	require.False(t, r.damaged(ofQueue))

	add(maxDamage, Finding{Level: Damage, part: ofQueue})
	require.Len(t, r.Findings, 2*maxDamage, "notes hide no damage")
	add(more, Finding{Level: Damage, part: ofLog, kept: true})
	add(1, Finding{Level: Damage, part: ofIndex})
	require.Equal(t, maxDamage+more+1, r.Damaged())
	require.Equal(t, maxDamage+1, r.Mendable())
	require.True(t, r.damaged(ofIndex), "repair makes it again, whatever else there is")
	require.False(t, r.damaged(ofCheckpoint))
	require.Empty(t, r.Lost())
	add(1, Finding{Level: Damage, part: ofLog, lost: true})
	require.Len(t, r.Lost(), 1, "repair must not go on without asking")
	require.Equal(t, 2*more+1, r.LeftOut)
}
