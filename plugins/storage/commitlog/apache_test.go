package commitlog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/internal/apachetest"
)

// The stores in testdata/apache were written by Apache's brokers with these
// sizes; see the README there.
const apacheSegment = 1 << 20

var apacheVersions = []string{"4.9.7", "5.3.3"}

// unpackApache extracts a store into a directory of the test.
func unpackApache(t testing.TB, name string) string {
	t.Helper()
	dir := t.TempDir()
	apachetest.Unpack(t, filepath.Join("testdata", "apache", name+".tar.gz"), dir)
	return dir
}

func readGzip(t testing.TB, name string) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "apache", name))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	b, err := io.ReadAll(z)
	require.NoError(t, err)
	return b
}

// sent is one entry of a manifest: what Apache's broker answered to a send.
type sent struct {
	Kind, Topic, Keys, Tags string
	Properties              map[string]string
	Queue                   int32
	Offset                  int64
	UniqueID, OffsetID      string
	BodySHA256              string
	BodyBytes               int
}

func manifest(t testing.TB, version string) []sent {
	t.Helper()
	var m []sent
	require.NoError(t, json.Unmarshal(readGzip(t, version+"-manifest.json.gz"), &m))
	require.NotEmpty(t, m)
	return m
}

// open starts a store in dir and ends it with the test.
func open(t testing.TB, dir string, mode storage.PublishMode, segment int64, change func(*Config)) *Store {
	t.Helper()
	return openOn(t, vfs.OS{}, storage.Params{Settings: plugin.Settings{Dir: dir}, Segment: segment, Publish: mode, Index: message.IndexRules{DelayLevels: message.DefaultDelayLevels()}}, change)
}

func openOn(t testing.TB, fsys vfs.FS, p storage.Params, change func(*Config)) *Store {
	t.Helper()
	s := build(t, fsys, p, change)
	require.NoError(t, s.Start(t.Context()))
	t.Cleanup(func() { _ = s.Shutdown(background(t)) })
	return s
}

func build(t testing.TB, fsys vfs.FS, p storage.Params, change func(*Config)) *Store {
	t.Helper()
	c := NewDefaultConfig()
	c.MappedFileSizeConsumeQueue, c.MaxHashSlotNum, c.MaxIndexNum = 4000, 500, 1000
	if change != nil {
		change(&c)
	}
	s, err := New(fsys, p, c)
	require.NoError(t, err)
	return s
}

// readQueue reads a whole queue in steps: units, and records by offset.
func readQueue(t testing.TB, s *Store, q message.Queue) ([]message.Unit, [][]byte) {
	t.Helper()
	var units []message.Unit
	var recs [][]byte
	var c storage.Chunk
	defer c.Release()
	var a storage.OffsetAnswers
	require.NoError(t, s.Offsets(t.Context(), []storage.OffsetQuery{{Queue: q}}, &a))
	for next := a.Answers[0].Min; ; next = c.Next {
		require.NoError(t, s.Read(t.Context(), storage.ReadRequest{Queue: q, Offset: next, Hot: storage.Limit{Count: 32}, Cold: storage.Limit{Count: 8}}, &c))
		if c.Status != storage.Found {
			return units, recs
		}
		units = append(units, c.Units...)
		all := bytes.Join(c.Frags, nil)
		for _, u := range c.Units {
			recs = append(recs, all[:u.Size])
			all = all[u.Size:]
		}
		require.Empty(t, all)
	}
}

// checkBody compares a record's body with what the client was given to send.
func checkBody(t testing.TB, m *sent, v *message.View) {
	t.Helper()
	body := v.Body
	if v.SysFlag&message.SysCompressed != 0 {
		z, err := zlib.NewReader(bytes.NewReader(body))
		require.NoError(t, err)
		body, err = io.ReadAll(z)
		require.NoError(t, err)
	}
	sum := sha256.Sum256(body)
	require.Equal(t, m.BodySHA256, hex.EncodeToString(sum[:]), "body of %s", m.UniqueID)
	require.Len(t, body, m.BodyBytes)
}

// checkRecordOf compares record i of a send with its manifest: where it lies, and
// what it carries.
func checkRecordOf(t testing.TB, e *sent, i int, v *message.View) {
	t.Helper()
	property := func(name string) string {
		p, _ := message.Property(v.Properties, name)
		return string(p)
	}
	queue := message.Queue{Topic: string(v.Topic), ID: v.QueueID}
	want := message.Queue{Topic: e.Topic, ID: e.Queue}
	level, delayed := strings.CutPrefix(e.Kind, "delayed, level ")
	batch := strings.HasPrefix(e.Kind, "batch")
	switch {
	case delayed:
		n, err := strconv.Atoi(level)
		require.NoError(t, err)
		require.Equal(t, message.Queue{Topic: message.ScheduleTopic, ID: int32(n - 1)}, queue)
		require.Equal(t, level, property("DELAY"))
		require.Equal(t, want, message.Queue{Topic: property("REAL_TOPIC"), ID: atoi(t, property("REAL_QID"))})
	case strings.HasPrefix(e.Kind, "transaction"):
		require.Equal(t, message.Queue{Topic: "RMQ_SYS_TRANS_HALF_TOPIC"}, queue)
		require.Equal(t, "true", property("TRAN_MSG"))
		require.Equal(t, want, message.Queue{Topic: property("REAL_TOPIC"), ID: atoi(t, property("REAL_QID"))})
		require.Equal(t, e.Offset, v.QueueOffset)
	default:
		require.Equal(t, want, queue)
		require.Equal(t, e.Offset+int64(i), v.QueueOffset)
	}
	if !batch {
		checkBody(t, e, v)
		require.Equal(t, e.UniqueID, property(message.PropUniqueKey))
	}
	if !batch || i == 0 { // of a batch, the manifest has the tag and the keys of its first message
		require.Equal(t, e.Tags, property(message.PropTags), e.Kind)
		require.Equal(t, e.Keys, property(message.PropKeys), e.Kind)
		for name, want := range e.Properties {
			require.Equal(t, want, property(name), "property %s of %s", name, e.UniqueID)
		}
	}
}

func atoi(t testing.TB, s string) int32 {
	t.Helper()
	n, err := strconv.Atoi(s)
	require.NoError(t, err)
	return int32(n)
}

// checkManifest finds every entry by queue and offset, by position and by each of
// its keys.
func checkManifest(t *testing.T, s *Store, m []sent) {
	queues := map[message.Queue]map[int64][]byte{}
	var c storage.Chunk
	defer c.Release()
	var at []message.Position
	want, found := 0, 0
	kinds := map[string]int{}
	for k := range m {
		e := &m[k]
		ids := strings.Split(e.OffsetID, ",")
		want += len(ids)
		for i, id := range ids {
			_, pos, err := message.ParseOffsetID(id)
			require.NoError(t, err)
			// By position.
			require.NoError(t, s.Get(t.Context(), []message.Position{pos, pos + 1}, &c))
			require.NotZero(t, c.Units[0].Size, "record at %d", pos)
			require.Zero(t, c.Units[1].Size)
			var v message.View
			require.NoError(t, message.Parse(bytes.Join(c.Frags, nil), &v))
			require.NoError(t, v.CheckBody())
			checkRecordOf(t, e, i, &v)
			// By its keys, in the record's own topic.
			uniq, _ := message.Property(v.Properties, message.PropUniqueKey)
			keys, _ := message.Property(v.Properties, message.PropKeys)
			for _, key := range append(strings.Fields(string(keys)), string(uniq)) {
				if key == "" || strings.HasPrefix(key, "group-") && k%16 != 0 { // a batch without unique keys; keys that 357 messages share
					continue
				}
				at, err = s.Find(t.Context(), storage.KeyQuery{Topic: string(v.Topic), Key: key, From: 0, To: 1 << 60, Max: 1 << 20}, at)
				require.NoError(t, err)
				require.Contains(t, at, pos, "key %s", key)
			}
			// By queue and offset.
			q := message.Queue{Topic: string(v.Topic), ID: v.QueueID}
			if queues[q] == nil {
				queues[q] = byOffset(t, s, q)
			}
			require.Equal(t, v.Raw, queues[q][v.QueueOffset], "queue %s offset %d", q, v.QueueOffset)
			found++
		}
		kinds[e.Kind]++
	}
	require.Equal(t, want, found)
	require.Equal(t, 2531, found, "2,521 messages and a batch of ten")
	for kind, n := range map[string]int{
		"delayed, level 1": 4, "delayed, level 18": 4, "transaction, commit": 3, "transaction, rollback": 3, "transaction, open": 3,
	} {
		require.Equal(t, n, kinds[kind], kind)
	}
	// What became of them: the committed and those whose time had come are in
	// their own topics, no other is.
	delivered := func(topic string) (n int) {
		var a storage.OffsetAnswers
		require.NoError(t, s.Offsets(t.Context(), nil, &a))
		for _, q := range a.Answers {
			if q.Queue.Topic == topic {
				n += len(byOffset(t, s, q.Queue))
			}
		}
		return n
	}
	require.Equal(t, 3, delivered("golden_tx"))
	require.Equal(t, 4, delivered("golden_delay"))
	require.Contains(t, []int{9, 12}, delivered("RMQ_SYS_TRANS_HALF_TOPIC"), "5.3.3 had asked for the three open ones and put them back")
}

// byOffset reads the records of a queue.
func byOffset(t testing.TB, s *Store, q message.Queue) map[int64][]byte {
	t.Helper()
	m := map[int64][]byte{}
	units, recs := readQueue(t, s, q)
	for k, u := range units {
		m[u.Offset] = recs[k]
	}
	return m
}

func TestApacheStore(t *testing.T) {
	for _, version := range apacheVersions {
		m := manifest(t, version)
		for _, how := range []string{"clean", "killed"} {
			for _, mode := range []storage.PublishMode{storage.Immediate, storage.Explicit} {
				t.Run(version+"/"+how+"/"+mode.String(), func(t *testing.T) {
					dir := unpackApache(t, version+"-"+how)
					s := open(t, dir, mode, apacheSegment, nil)
					st := s.State()
					require.Equal(t, st.Tail, st.Published)
					require.Empty(t, st.Damaged)
					checkManifest(t, s, m)
					if how == "killed" {
						checkAcked(t, s, version)
					}
					require.NoError(t, s.Shutdown(background(t)))
					// The second time it is a store of ours.
					again := open(t, dir, mode, apacheSegment, nil)
					require.Equal(t, st.LogID, again.State().LogID)
					require.Equal(t, st.Tail, again.State().Published)
					checkManifest(t, again, m)
				})
			}
		}
	}
}

// checkAcked looks for the keys of all sends that were acknowledged before the
// broker was killed.
func checkAcked(t *testing.T, s *Store, version string) {
	n := 0
	have := map[string]bool{}
	for id := range int32(4) {
		_, recs := readQueue(t, s, message.Queue{Topic: "golden_plain", ID: id})
		for _, rec := range recs {
			var v message.View
			require.NoError(t, message.Parse(rec, &v))
			if k, ok := message.Property(v.Properties, message.PropKeys); ok {
				have[string(k)] = true
			}
		}
	}
	var at []message.Position
	for sc := bufio.NewScanner(bytes.NewReader(readGzip(t, version+"-killed-acked.txt.gz"))); sc.Scan(); n++ {
		key := strings.TrimSpace(sc.Text())
		require.True(t, have[key], "acknowledged key %s", key)
		var err error
		at, err = s.Find(t.Context(), storage.KeyQuery{Topic: "golden_plain", Key: key, From: 0, To: 1 << 60, Max: 64}, at)
		require.NoError(t, err)
		require.NotEmpty(t, at, "key %s", key)
	}
	require.Greater(t, n, 1000)
}

// queueFiles reads all ConsumeQueue files below dir.
func queueFiles(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	root := filepath.Join(dir, "consumequeue")
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(root, path)
		files[rel] = b
		return err
	}))
	return files
}

// TestApacheQueuesRebuilt removes what Apache's broker derived from the log and
// compares what is derived again byte by byte.
func TestApacheQueuesRebuilt(t *testing.T) {
	for _, version := range apacheVersions {
		for _, how := range []string{"clean", "killed"} {
			t.Run(version+"/"+how, func(t *testing.T) {
				dir := unpackApache(t, version+"-"+how)
				want := queueFiles(t, dir)
				require.NoError(t, os.RemoveAll(filepath.Join(dir, "consumequeue")))
				require.NoError(t, os.RemoveAll(filepath.Join(dir, "index")))
				s := open(t, dir, storage.Immediate, apacheSegment, nil)
				checkManifest(t, s, manifest(t, version))
				require.NoError(t, s.Shutdown(background(t)))
				got := queueFiles(t, dir)
				schedule := 0
				for name, b := range want {
					end := len(bytes.TrimRight(b, "\x00"))
					end = (end + unitSize - 1) / unitSize * unitSize
					require.Contains(t, got, name)
					if how == "clean" {
						require.Equal(t, b, got[name], name)
					} else { // the broker died before it had written all of them
						require.Equal(t, b[:end], got[name][:end], name)
					}
					if strings.HasPrefix(name, message.ScheduleTopic) {
						for off := 0; off < end; off += unitSize {
							require.Greater(t, int64(binary.BigEndian.Uint64(b[off+12:])), int64(1_600_000_000_000), "a due time in %s", name)
							schedule++
						}
					}
				}
				require.GreaterOrEqual(t, schedule, 8)
			})
		}
	}
}
