package commitlog

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

// The stores in testdata/apache were written by Apache's brokers with these
// sizes; see the README there.
const apacheSegment = 1 << 20

var apacheVersions = []string{"4.9.7", "5.3.3"}

// unpackApache extracts a store into a directory of the test.
func unpackApache(t testing.TB, name string) string {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "apache", name+".tar.gz"))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	dir := t.TempDir()
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		require.NoError(t, err)
		_, rest, ok := strings.Cut(h.Name, "/")
		if !ok || h.Typeflag == tar.TypeDir || strings.HasPrefix(rest, "timer") { // timers are none of ours, and large
			continue
		}
		path := filepath.Join(dir, filepath.FromSlash(rest))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		w, err := os.Create(path)
		require.NoError(t, err)
		_, err = io.Copy(w, r)
		require.NoError(t, errors.Join(err, w.Close()))
	}
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

// bodyOf undoes the compression that a client may have done.
func checkBody(t testing.TB, m sent, v *message.View) {
	t.Helper()
	if v.SysFlag&message.SysCompressed != 0 {
		return // the manifest describes what the client was given
	}
	sum := sha256.Sum256(v.Body)
	require.Equal(t, m.BodySHA256, hex.EncodeToString(sum[:]), "body of %s", m.UniqueID)
	require.Len(t, v.Body, m.BodyBytes)
}

// checkManifest finds every entry by queue and offset, by position and by key.
func checkManifest(t *testing.T, s *Store, m []sent) {
	queues := map[message.Queue]map[int64][]byte{}
	var c storage.Chunk
	defer c.Release()
	var at []message.Position
	found := 0
	for _, e := range m {
		if e.Offset < 0 || e.OffsetID == "" {
			continue
		}
		ids, uniques := strings.Split(e.OffsetID, ","), strings.Split(e.UniqueID, ",")
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
			uniq, _ := message.Property(v.Properties, message.PropUniqueKey)
			if len(ids) == len(uniques) {
				require.Equal(t, uniques[i], string(uniq))
			}
			if len(ids) == 1 {
				checkBody(t, e, &v)
			}
			// By key, as far as the record's own topic goes.
			key := string(uniq)
			if key == "" { // a batch made without them
				key = e.Keys
			}
			at, err = s.Find(t.Context(), storage.KeyQuery{Topic: string(v.Topic), Key: key, From: 0, To: 1 << 60, Max: 64}, at)
			require.NoError(t, err)
			if len(ids) == 1 || len(uniq) > 0 { // KEYS are of the batch's first message
				require.Contains(t, at, pos, "key %s", key)
			}
			// By queue and offset.
			q := message.Queue{Topic: string(v.Topic), ID: v.QueueID}
			if queues[q] == nil {
				queues[q] = map[int64][]byte{}
				units, recs := readQueue(t, s, q)
				for k, u := range units {
					queues[q][u.Offset] = recs[k]
				}
			}
			if e.Kind == "plain" || e.Kind == "batch" {
				require.Equal(t, e.Topic, q.Topic)
				require.Equal(t, e.Queue, q.ID)
				require.Equal(t, e.Offset+int64(i), v.QueueOffset)
			}
			if v.SysFlag&message.SysTxMask == 0 || v.SysFlag&message.SysTxMask == message.SysTxCommit {
				require.Equal(t, v.Raw, queues[q][v.QueueOffset], "queue %s offset %d", q, v.QueueOffset)
			}
			found++
		}
	}
	require.Greater(t, found, 2500)
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
		if n%16 == 0 {
			var err error
			at, err = s.Find(t.Context(), storage.KeyQuery{Topic: "golden_plain", Key: key, From: 0, To: 1 << 60, Max: 64}, at)
			require.NoError(t, err)
			require.NotEmpty(t, at, "key %s", key)
		}
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
