package catalog

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
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

// A lock from before the clock was set back, also by days, ends a life after that was
// seen, whether the table is looked at for another client or once a second; an owner
// that renews it keeps it.
func TestLocksWhenTheClockIsSetBack(t *testing.T) {
	const before, now = 1_000_000_000, 1_000_000
	queues := []command.MessageQueue{{Topic: "T", QueueID: 1}}
	never := func(progress) bool { return false }
	for name, look := range map[string]func(t *lockTable, now int64){
		"another asks": func(t *lockTable, now int64) {
			_, given, _ := t.lock("G", "b", queues, now, &writer{})
			t.settle(given, 0, true)
		},
		"each second": func(t *lockTable, now int64) { t.takeDirty(&writer{}, never, now) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newPrivate()
			w := &writer{}
			w.lock(&lockEntry{group: "G", topic: "T", queue: 1, owner: "a", expiry: before + lockLife})
			require.NoError(t, entries(w.buf, s.applyEntry)) // as after a restart
			table := &s.locks
			owner := func() string {
				for _, l := range table.m {
					return l.owner
				}
				return ""
			}
			look(table, now)
			require.Equal(t, "a", owner(), "its owner may still consume")
			look(table, now+lockLife-1)
			require.Equal(t, "a", owner())
			look(table, now+lockLife)
			require.NotEqual(t, "a", owner())

			table.lock("G", "c", queues, before, &writer{})
			look(table, now+lockLife)
			ok, _, _ := table.lock("G", "c", queues, now+lockLife*3/2, &writer{})
			require.Equal(t, queues, ok)
			look(table, now+lockLife*2)
			require.Equal(t, "c", owner(), "it was renewed")
		})
	}
}
