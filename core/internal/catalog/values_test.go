package catalog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
)

// TestValues: what a behaviour put is there after a kill and after a clean stop,
// and goes with its group or its topic.
func TestValues(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	key := func(kind, group, topic string) kernel.ValueKey {
		return kernel.ValueKey{Kind: kind, Group: group, Topic: topic}
	}
	for _, name := range []string{"T1", "T2"} {
		require.NoError(t, e.K.Topics.Put(t.Context(), command.TopicConfig{TopicName: name, ReadQueueNums: 1, WriteQueueNums: 1, Perm: 6}))
	}
	for _, name := range []string{"G1", "G2"} {
		require.NoError(t, e.K.Groups.Put(t.Context(), command.DefaultSubscriptionGroup(name)))
	}
	for _, k := range []kernel.ValueKey{key("a", "G1", "T1"), key("a", "G2", "T1"), key("a", "G2", "T2"), key("b", "G2", "T2"), key("b", "G1", "T2")} {
		require.NoError(t, e.K.Values.PutValue(t.Context(), k, []byte(k.Kind+k.Group+k.Topic)))
	}
	require.NoError(t, e.K.Values.PutValue(t.Context(), key("b", "G1", "T2"), nil))
	all := func(e *enginetest.Engine, kind string) []string {
		got := []string{}
		e.K.Values.OfKind(kind, func(k kernel.ValueKey, v []byte) bool {
			require.Equal(t, k.Kind+k.Group+k.Topic, string(v))
			got = append(got, string(v))
			return true
		})
		return got
	}
	for range 2 {
		require.ElementsMatch(t, []string{"aG1T1", "aG2T1", "aG2T2"}, all(e, "a"))
		require.Equal(t, []string{"bG2T2"}, all(e, "b"))
		require.Nil(t, e.K.Values.Value(key("b", "G1", "T2")))
		e = e.Again(e.Kill(memfs.KeepNone))
	}
	require.NoError(t, e.K.Groups.Remove(t.Context(), "G1", false))
	require.NoError(t, e.K.Topics.Remove(t.Context(), "T2"))
	e = e.Again(nil)
	require.Equal(t, []string{"aG2T1"}, all(e, "a"))
	require.Empty(t, all(e, "b"))
	n := 0
	e.K.Values.OfKind("a", func(kernel.ValueKey, []byte) bool { n++; return false })
	require.Equal(t, 1, n)
}
