package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
)

// The files put together of kept rows are byte by byte what encoding the tables
// gives, whatever changed in between.
func TestTableText(t *testing.T) {
	c := &Catalog{s: newState()}
	f := files{c: c, texts: map[string]map[any][]byte{}}
	check := func() {
		t.Helper()
		v := c.s.versions()
		topics := command.TopicConfigSerializeWrapper{DataVersion: v[0], TopicConfigTable: map[string]command.TopicConfig{}}
		for _, x := range c.s.sortedTopics() {
			if !x.Internal {
				topics.TopicConfigTable[x.Config.TopicName] = x.Config
			}
		}
		groups := command.SubscriptionGroupWrapper{DataVersion: v[1], SubscriptionGroupTable: map[string]command.SubscriptionGroupConfig{}}
		for _, g := range c.s.sortedGroups() {
			groups.SubscriptionGroupTable[g.GroupName] = *g
		}
		for name, whole := range map[string]any{topicsFile: topics, groupsFile: groups} {
			b, err := command.EncodeBody(whole)
			require.NoError(t, err)
			var want bytes.Buffer
			require.NoError(t, json.Indent(&want, b, "", "\t"))
			got, err := f.content(name)
			require.NoError(t, err)
			require.Equal(t, want.String(), string(got))
		}
	}
	check()
	put := func(name string, queues int32) {
		c.s.putTopic(command.TopicConfig{TopicName: name, ReadQueueNums: queues, WriteQueueNums: queues, Perm: 6})
		c.s.putGroup(command.DefaultSubscriptionGroup("G-" + name))
		c.s.bump(true, true, int64(queues))
	}
	put("one", 1)
	check()
	for i := range 20 {
		put(fmt.Sprint("<T&", i%12, ">"), int32(i))
		check()
	}
	c.s.removeTopic("one")
	c.s.removeGroup("G-one", true)
	check()
	require.Len(t, f.texts[topicsFile], 12, "rows that are gone are not kept")
}
