package broker

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
)

// TestFit: whoever needs what is not there is refused, by name.
func TestFit(t *testing.T) {
	store := func(facets ...string) said {
		return said{"storage", plugin.Description{Name: "acme", Facets: facets}}
	}
	rep := func(publish string, needs ...string) said {
		return said{"replication", plugin.Description{Name: "raft", Publish: publish, Needs: needs}}
	}
	for _, c := range []struct {
		chosen []said
		want   string
	}{
		{[]said{store(), rep("immediate")}, ""},
		{[]said{store("KeyIndex", "RawLog", "Retention"), rep("explicit", "storage.RawLog", "storage.KeyIndex")}, ""},
		{[]said{store(), rep("", "storage.RawLog")}, "replication raft needs the storage facet RawLog, storage acme offers none"},
		{[]said{store("KeyIndex", "Retention"), rep("", "storage.RawLog")}, "replication raft needs the storage facet RawLog, storage acme offers KeyIndex, Retention"},
		{[]said{store("RawLog"), rep("", "storage.RawLog", "storage.Retention", "storage.KeyIndex")},
			"replication raft needs the storage facet Retention, storage acme offers RawLog; choose another one of the two\n" +
				"replication raft needs the storage facet KeyIndex, storage acme offers RawLog; choose another one of the two"},
		{[]said{store(), rep("explicit")}, "replication raft needs the storage facet RawLog, storage acme offers none"},
		{[]said{store(), rep(""), {"transport", plugin.Description{Name: "quic", Needs: []string{"storage.ZeroCopy"}}}}, "transport quic needs the storage facet ZeroCopy"},
		{[]said{store(), rep("", "queue.Lid")}, `replication raft says that it needs "queue.Lid", which this broker does not know`},
		{[]said{store("RawLog"), rep("", "RawLog")}, `replication raft says that it needs "RawLog", which this broker does not know`},
	} {
		err := fit(c.chosen...)
		if c.want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.want)
		}
	}
}

func TestAgree(t *testing.T) {
	require.NoError(t, agree(plugin.Description{Name: "acme"}, storagetest.Nop{}.Capabilities()))
	require.EqualError(t, agree(plugin.Description{Name: "acme", Facets: []string{storage.FacetRawLog}}, storagetest.Nop{}.Capabilities()),
		"storage acme describes itself with the facets RawLog, but offers none; this is a fault of the plugin")
}

func TestHolds(t *testing.T) {
	require.NoError(t, holds(plugin.Description{}, 1<<20))
	require.NoError(t, holds(plugin.Description{LargestRecord: 1 << 20}, 1<<20))
	require.EqualError(t, holds(plugin.Description{Name: "acme", LargestRecord: 1000}, 4096),
		"storage acme takes records of at most 1000 bytes, maxMessageSize is 4096; make that smaller, or choose another store")
}
