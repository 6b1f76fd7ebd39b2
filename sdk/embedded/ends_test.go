package embedded_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/sdk/embedded"
)

// A queue whose messages have all expired and whose files are gone goes on with its
// numbers: the catalog in the log has them.
func TestNumbersOutliveQueues(t *testing.T) {
	dir := t.TempDir()
	var b *embedded.Broker
	start := func() {
		var err error
		b, err = embedded.New(t.Context(), embedded.WithDir(dir), embedded.WithoutNameServer(),
			embedded.With("mappedFileSizeCommitLog", "1048576"), embedded.With("maxMessageSize", "65536"), embedded.With("mappedFileSizeConsumeQueue", "4000"),
			embedded.With("diskSpaceWarningLevelRatio", "99"), embedded.With("cleanFileForciblyEnable", "false")) // of any machine
		require.NoError(t, err)
		t.Cleanup(func() { _ = b.Close(t.Context()) })
	}
	send := func(topic string) int64 {
		t.Helper()
		r, err := b.API().Send(t.Context(), &api.SendRequest{Topic: topic, Body: make([]byte, 32<<10)})
		require.NoError(t, err)
		return r.Offset
	}
	start()
	for _, name := range []string{"T", "other"} {
		require.NoError(t, b.API().PutTopic(t.Context(), api.Topic{Name: name, ReadQueues: 1, WriteQueues: 1}))
	}
	next := int64(0)
	for range 2 {
		for range 3 {
			require.Equal(t, next, send("T"))
			next++
		}
		for range 80 {
			send("other")
		}
		require.NoError(t, b.Close(t.Context()))
		segments, err := filepath.Glob(filepath.Join(dir, "*", "commitlog", "0*"))
		require.NoError(t, err)
		require.Greater(t, len(segments), 1)
		slices.Sort(segments)
		for _, old := range segments[:len(segments)-1] { // as retention does
			require.NoError(t, os.Remove(old))
		}
		queues, err := filepath.Glob(filepath.Join(dir, "*", "consumequeue"))
		require.NoError(t, err)
		require.Len(t, queues, 1)
		require.NoError(t, os.RemoveAll(queues[0]))
		start()
	}
	require.Equal(t, next, send("T"))
}
