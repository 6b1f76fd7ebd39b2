package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/test/harness"
)

// printed are the lines of figures of a text that mqadmin 5.3.3 printed when it was
// recorded, as words.
func printed(t *testing.T, file string) [][]string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "mqadmin-5.3.3", file+".txt"))
	require.NoError(t, err)
	var rows [][]string
	for line := range strings.Lines(string(b)) {
		if words := strings.Fields(line); len(words) > 2 && line[0] != '#' {
			rows = append(rows, words)
		}
	}
	require.NotEmpty(t, rows)
	return rows
}

// checkTexts holds three of the texts against the fields that Java printed in them: those
// whose exchanges are not all in the recording, or that say in which order they came.
func (w *twin) checkTexts(t *testing.T) {
	t.Helper()
	for _, row := range printed(t, "06-topicStatus")[:4] { // broker, queue, first, end, time
		var id int32
		_, err := fmt.Sscan(row[1], &id)
		require.NoError(t, err)
		first, end, err := w.c.Range("golden_plain", id)
		require.NoError(t, err)
		got := []string{"broker-a", fmt.Sprint(id), fmt.Sprint(first), fmt.Sprint(end)}
		require.Equal(t, row[:4], got)
	}

	var found [][]string // unique key, queue, offset
	h := command.QueryMessageRequest{Topic: []byte("golden_plain"), Key: []byte("key-1"), MaxNum: 64, EndTimestamp: 1 << 60}
	a, err := w.c.Call(command.ReqQueryMessage, h.Append, nil)
	require.NoError(t, err)
	require.NoError(t, a.Err())
	for body := a.Body; len(body) > 0; {
		var v message.View
		require.NoError(t, message.Parse(body, &v))
		key, _ := message.Property(v.Properties, message.PropUniqueKey)
		found = append(found, []string{string(key), fmt.Sprint(v.QueueID), fmt.Sprint(v.QueueOffset)})
		body = body[v.Size:]
	}
	require.Equal(t, printed(t, "16-queryMsgByKey"), found)

	const group = "golden_group"
	rows := printed(t, "12-consumerProgress") // topic, broker, queue, end, progress, lag, in flight, time
	var queues []queue
	for _, row := range rows {
		var q queue
		var progress, flying int64
		if row[1] != "broker-a" {
			continue // a sum
		}
		_, err := fmt.Sscan(row[0], &q.Topic)
		require.NoError(t, err)
		_, err = fmt.Sscan(strings.Join([]string{row[1], row[2], row[4], row[6]}, " "), &q.BrokerName, &q.QueueID, &progress, &flying)
		require.NoError(t, err)
		queues = append(queues, q)
		w.commit(group, q, progress)
		if flying > 0 {
			_, _, err := w.c.Pull(harness.Pull{Topic: q.Topic, Queue: q.QueueID, Group: group, Offset: progress, Max: int32(flying)}, func(*message.View) error { return nil })
			require.NoError(t, err)
		}
	}
	require.Len(t, queues, 5)
	ask := command.ConsumeStatsRequest{ConsumerGroup: group}
	a, err = w.c.Call(command.ReqGetConsumeStats, ask.Append, nil)
	require.NoError(t, err)
	require.NoError(t, a.Err())
	got := values(t, command.ReqGetConsumeStats, &a.Header, a.Body)
	var lag, flying int64
	for i, q := range queues {
		of := func(field string) (n int64) {
			path := fmt.Sprintf(`/offsetTable/{"brokerName":"broker-a","queueId":%d,"topic":%q}/%s`, q.QueueID, q.Topic, field)
			_, err := fmt.Sscan(got[path], &n)
			require.NoError(t, err, "%s in %v", path, got)
			return n
		}
		end, progress, pulled := of("brokerOffset"), of("consumerOffset"), of("pullOffset")
		lag, flying = lag+end-progress, flying+pulled-progress
		require.Equal(t, rows[i][3:7], strings.Fields(fmt.Sprint(end, progress, end-progress, pulled-progress)), "%v", q)
	}
	sums := rows[len(queues):]
	require.Equal(t, []string{"Consume", "Diff", "Total:", fmt.Sprint(lag)}, sums[len(sums)-2])
	require.Equal(t, []string{"Consume", "Inflight", "Total:", fmt.Sprint(flying)}, sums[len(sums)-1])
}
