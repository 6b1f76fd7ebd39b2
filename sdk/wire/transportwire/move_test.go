package transportwire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUntried: a peer that moved is forgotten by its old link a moment later. Until then
// it must not be moved again, from where it is not any more.
func TestUntried(t *testing.T) {
	old, l := &link{peers: map[uint64]*peer{}}, &link{peers: map[uint64]*peer{}}
	p := &peer{home: &seat{l: old, num: 1}}
	old.peers[1] = p
	require.Equal(t, []*peer{p}, old.untried())
	require.Empty(t, old.untried(), "tried")

	p.home, p.tried = &seat{l: l, num: 1}, false // as moved does
	l.peers[1] = p
	require.Empty(t, old.untried(), "it has moved")
	require.Equal(t, []*peer{p}, l.untried(), "the next replacement moves it")
}
