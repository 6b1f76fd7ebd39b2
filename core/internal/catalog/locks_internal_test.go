package catalog

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A queue given up and given away at once is the next owner's, in whichever order
// the two records reach the log.
func TestUnlockBehindTheNextLock(t *testing.T) {
	record := func(l lockEntry) []byte {
		w := &writer{}
		w.lock(&l)
		return w.buf
	}
	key := lockEntry{group: "G", topic: "T", queue: 1}
	own := func(owner string, expiry int64) lockEntry {
		l := key
		l.owner, l.expiry = owner, expiry
		return l
	}
	s := newPrivate()
	apply := func(l lockEntry) {
		t.Helper()
		require.NoError(t, entries(record(l), s.applyEntry))
	}
	apply(own("a", 99))
	apply(own("b", 150))
	apply(own("a", 0))
	require.NotNil(t, s.locks.m[key.key()])
	require.Equal(t, "b", s.locks.m[key.key()].owner)
	apply(own("b", 0))
	require.Empty(t, s.locks.m)
	apply(own("b", 150))
	apply(own("", 0)) // as logs have it from before
	require.Empty(t, s.locks.m)
}
