package e2e

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/internal/apachetest"
	"github.com/hardpointmq/hardpoint/test/harness"
)

// apacheStores are stores that Apache's brokers wrote; the README there says how.
const apacheStores = "../../plugins/storage/commitlog/testdata/apache"

// TestApacheStores serves stores of Apache's brokers, stopped and killed ones: a
// client finds every message of their manifests, groups go on where they were, and
// new messages follow the old ones, also after a restart.
func TestApacheStores(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"4.9.7-clean", "4.9.7-killed", "5.3.3-clean", "5.3.3-killed"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			version, how, _ := strings.Cut(name, "-")
			data := t.TempDir()
			apachetest.Unpack(t, filepath.Join(apacheStores, name+".tar.gz"), filepath.Join(data, "store"))
			progress := apacheProgress(t, filepath.Join(data, "store", "config", "consumerOffset.json"))
			n := harness.New(t, harness.Options{Data: data, Race: true, Set: []string{
				"mappedFileSizeCommitLog=1048576", "mappedFileSizeConsumeQueue=4000", "maxHashSlotNum=500", "maxIndexNum=1000", "maxMessageSize=524288",
			}})
			var acked []string
			if how == "killed" {
				acked = strings.Fields(string(readStored(t, version+"-killed-acked.txt.gz")))
				require.Greater(t, len(acked), 1000)
			}
			ends := servesApache(t, n, version, acked, progress)

			// Offsets go on; nothing is given twice.
			c, err := harness.Dial(n.Addr)
			require.NoError(t, err)
			defer c.Close()
			for q, end := range ends {
				r, err := c.Send(&harness.Send{Topic: "golden_plain", Queue: q, Props: "KEYS\x01new" + strconv.Itoa(int(q)) + "\x02", Body: []byte("new")})
				require.NoError(t, err)
				require.Equal(t, end, r.QueueOffset)
			}
			n.Kill()
			n.Start()
			for q, end := range servesApache(t, n, version, acked, progress) {
				require.Equal(t, ends[q]+1, end)
			}

			// The official client is given what was committed, and due, and no more.
			for topic, want := range map[string]int{"golden_tx": 3, "golden_delay": 4, "golden_batch": 10} {
				awaitRoute(t, n.Namesrv, topic)
				seen := newCollector()
				newPushConsumer(t, n.Namesrv, "new-"+topic, topic, "*", func(m *primitive.MessageExt) consumer.ConsumeResult {
					seen.add(m.OffsetMsgId, m.Queue.QueueId)
					return consumer.ConsumeSuccess
				})
				harness.Until(t, 60*time.Second, "all of "+topic, func() bool { return seen.size() >= want })
				require.Equal(t, want, seen.size(), topic)
			}
		})
	}
}

// servesApache asks a broker for everything that a manifest names and returns the
// ends of the queues of golden_plain.
func servesApache(t *testing.T, n *harness.Node, version string, acked []string, progress map[string]map[int32]int64) map[int32]int64 {
	t.Helper()
	c, err := harness.Dial(n.Addr)
	require.NoError(t, err)
	defer c.Close()

	keys, ends := map[string]bool{}, map[int32]int64{}
	for q := range int32(4) {
		ends[q], err = c.ReadQueue("golden_plain", q, 0, func(v *message.View) error {
			k, _ := message.Property(v.Properties, message.PropKeys)
			keys[string(k)] = true
			return nil
		})
		require.NoError(t, err)
	}
	for _, k := range acked {
		require.True(t, keys[k], "key %s was acknowledged before the kill", k)
	}

	var manifest []struct {
		Kind, Topic, Keys, UniqueID, OffsetID string
		Queue                                 int32
		Offset                                int64
	}
	require.NoError(t, json.Unmarshal(readStored(t, version+"-manifest.json.gz"), &manifest))
	for i, e := range manifest {
		for k, id := range strings.Split(e.OffsetID, ",") {
			_, at, err := message.ParseOffsetID(id)
			require.NoError(t, err)
			h := command.ViewMessageRequest{Offset: int64(at)}
			a, err := c.Call(command.ReqViewMessageByID, h.Append, nil)
			require.NoError(t, err)
			require.NoError(t, a.Err(), "%s at %d", e.Kind, at)
			var v message.View
			require.NoError(t, message.Parse(a.Body, &v))
			require.NoError(t, v.CheckBody())
			unique, _ := message.Property(v.Properties, message.PropUniqueKey)
			require.Equal(t, e.UniqueID, string(unique))
			if string(v.Topic) == e.Topic {
				require.Equal(t, e.Queue, v.QueueID)
				require.Equal(t, e.Offset+int64(k), v.QueueOffset)
			} else { // waiting, or half
				real, _ := message.Property(v.Properties, "REAL_TOPIC")
				require.Equal(t, e.Topic, string(real))
			}
		}
		if e.Topic != "golden_plain" || e.UniqueID == "" || i%10 != 0 && i < 2500 {
			continue
		}
		q := command.QueryMessageRequest{Topic: []byte(e.Topic), Key: []byte(e.UniqueID), MaxNum: 4, EndTimestamp: time.Now().UnixMilli() + 3_600_000, UniqueKey: true}
		a, err := c.Call(command.ReqQueryMessage, q.Append, nil)
		require.NoError(t, err)
		require.NoError(t, a.Err(), "unique key %s", e.UniqueID)
		var v message.View
		require.NoError(t, message.Parse(a.Body, &v))
		require.Equal(t, e.Offset, v.QueueOffset)
	}

	require.NotEmpty(t, progress)
	for at, queues := range progress {
		topic, group, _ := strings.Cut(at, "@")
		if group != "golden_group" {
			continue // the broker's own
		}
		require.Len(t, queues, 4)
		for q, want := range queues {
			require.Equal(t, want, committed(t, n, group, topic, int(q)), "%s, queue %d", at, q)
		}
	}
	return ends
}

// apacheProgress reads the offsets of all groups.
func apacheProgress(t *testing.T, file string) map[string]map[int32]int64 {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	var table struct {
		OffsetTable map[string]map[int32]int64 `json:"offsetTable"`
	}
	require.NoError(t, command.DecodeBody(b, &table)) // numbers without quotes are keys there
	return table.OffsetTable
}

func readStored(t *testing.T, name string) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join(apacheStores, name))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	b, err := io.ReadAll(z)
	require.NoError(t, err)
	return b
}
