package commitlog

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/vfstest"
)

// examination is a deep one of a directory, with nothing known beside it.
func examination(fsys vfs.FS, dir string) Examination {
	return Examination{FS: fsys, Dir: dir, Config: NewDefaultConfig(), Rules: message.IndexRules{DelayLevels: message.DefaultDelayLevels()}, Deep: true}
}

// findings are those of a report, one a line.
func findings(r *Report) string {
	var b strings.Builder
	for i := range r.Findings {
		b.WriteString(r.Findings[i].String() + "\n")
	}
	return b.String()
}

// treeOf is the content of every file below dir but for backups of repairs.
func treeOf(t testing.TB, dir string) map[string]string {
	t.Helper()
	m := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if d.IsDir() {
			if strings.HasPrefix(rel, backupPrefix) {
				return fs.SkipDir
			}
			m[rel] = "a directory"
			return nil
		}
		b, err := os.ReadFile(path)
		sum := sha256.Sum256(b)
		m[rel] = hex.EncodeToString(sum[:])
		return err
	}))
	return m
}

// TestExamineApache: nothing is wrong with the stores of Apache's brokers; looking
// at them, repairing them and, where they were closed, sealing them changes nothing.
func TestExamineApache(t *testing.T) {
	for _, version := range apacheVersions {
		for _, how := range []string{"clean", "killed"} {
			t.Run(version+"/"+how, func(t *testing.T) {
				t.Parallel() // most of it waits for the disk
				dir := unpackApache(t, version+"-"+how)
				before := treeOf(t, dir)
				r, err := Examine(t.Context(), examination(vfs.OS{}, dir))
				require.NoError(t, err)
				require.Zero(t, r.Damaged(), findings(r))
				require.Equal(t, how == "clean", r.Closed)
				require.Equal(t, []int64{apacheSegment, 4000, 500, 1000}, []int64{r.SegmentSize, r.QueueFileSize, int64(r.IndexSlots), int64(r.IndexEntries)})
				units := int64(0)
				for _, q := range r.Queues {
					units += q.Max - q.Min
				}
				require.Greater(t, units, int64(2500))
				require.GreaterOrEqual(t, r.Records, units)
				out, err := Repair(t.Context(), examination(vfs.OS{}, dir), Repairing{Now: time.Now()})
				require.NoError(t, err)
				require.Nil(t, out.After)
				require.Equal(t, before, treeOf(t, dir))
				sealed, err := Seal(t.Context(), examination(vfs.OS{}, dir), Sealing{})
				require.NoError(t, err)
				require.Equal(t, how == "killed", sealed.Changed)
				require.NoFileExists(t, filepath.Join(dir, "abort"))
				if how == "clean" {
					require.Equal(t, before, treeOf(t, dir))
				}
				r, err = Examine(t.Context(), examination(vfs.OS{}, dir))
				require.NoError(t, err)
				require.Empty(t, r.Findings, findings(r))
				require.True(t, r.Closed)
				s := open(t, dir, storage.Immediate, apacheSegment, nil)
				checkManifest(t, s, manifest(t, version))
				if how == "killed" {
					checkAcked(t, s, version)
				}
			})
		}
	}
}

// changeFile changes the bytes of a file in place.
func changeFile(t testing.TB, change func(b []byte) []byte, path ...string) {
	t.Helper()
	name := filepath.Join(path...)
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(name, change(b), 0o644))
}

func flipped(at int) func([]byte) []byte {
	return func(b []byte) []byte { b[at] ^= 0x40; return b }
}

func zeroed(from, n int) func([]byte) []byte {
	return func(b []byte) []byte { clear(b[from : from+n]); return b }
}

func cutTo(n int) func([]byte) []byte { return func(b []byte) []byte { return b[:n] } }

// firstIndex is the first file of the key index.
func firstIndex(t testing.TB, dir string) string {
	t.Helper()
	names, err := vfs.OS{}.List(filepath.Join(dir, "index"))
	require.NoError(t, err)
	return filepath.Join(dir, "index", names[0])
}

// damages are what is done to the store of a broker 4.9.7 that was closed in order,
// and what is to be said of it. kept is how much damage is there after the repair;
// lost tells that it needs WithoutLost, and whole that no message is lost.
var damages = map[string]struct {
	do    func(t testing.TB, dir string)
	says  []string
	kept  int
	lost  bool
	whole bool
	stays bool   // there is nothing to repair
	store string // 4.9.7-clean
}{
	"segment of another log": {
		do: func(t testing.TB, dir string) {
			require.NoError(t, os.Rename(filepath.Join(dir, "commitlog", fileName(apacheSegment)), filepath.Join(dir, "commitlog", fileName(3*apacheSegment))))
		},
		says: []string{"damage: commitlog/00000000000003145728 at byte 0: torn end of the log, 632265 bytes from position 3145728 on: record states another position than its own"},
		lost: true,
	},
	"bit flip in the middle": {
		do:   func(t testing.TB, dir string) { changeFile(t, flipped(300_150), dir, "commitlog", fileName(0)) },
		says: []string{"damage: commitlog/00000000000000000000 at byte 299604: damaged in the middle of the log, 789 bytes from position 299604 on: record's body does not match its CRC", "readers pass over them"},
		kept: 1, stays: true,
	},
	"bit flips in a store time and in the middle": {
		do: func(t testing.TB, dir string) {
			changeFile(t, flipped(56), dir, "commitlog", fileName(0))
			changeFile(t, flipped(300_150), dir, "commitlog", fileName(0))
		},
		says: []string{"damage: commitlog/00000000000000000000 at byte 299604: damaged in the middle of the log, 789 bytes from position 299604 on: record's body does not match its CRC"},
		kept: 1, stays: true,
	},
	"torn tail": {
		do: func(t testing.TB, dir string) {
			changeFile(t, zeroed(1680841-1048576-100, 100), dir, "commitlog", fileName(apacheSegment))
		},
		says: []string{"damage: commitlog/00000000000001048576 at byte 631300: torn end of the log, 865 bytes from position 1679876 on: ", "the next start cuts it off", "1 entry names a record that the log does not have"},
	},
	"missing segment": {
		do: func(t testing.TB, dir string) {
			for _, n := range []int64{1, 2} {
				require.NoError(t, os.Remove(filepath.Join(dir, "commitlog", fileName(n*apacheSegment))))
			}
		},
		store: "4.9.7-killed",
		says:  []string{"damage: commitlog/00000000000001048576 at byte 0: 2 segments are missing, up to 00000000000002097152"},
		lost:  true, kept: 1,
	},
	"missing last segment": {
		do: func(t testing.TB, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "commitlog", fileName(apacheSegment))))
		},
		says: []string{"damage: commitlog/00000000000001048576 at byte 0: the last segments are missing: ConsumeQueue "},
		lost: true,
	},
	"missing queue file": {
		do: func(t testing.TB, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "consumequeue", "golden_plain", "1", fileName(4000))))
		},
		says:  []string{"damage: consumequeue/golden_plain/1/00000000000000004000 at byte 0: the file is missing between others of the queue"},
		whole: true,
	},
	"emptied end of a queue": {
		do: func(t testing.TB, dir string) {
			changeFile(t, cutTo(0), dir, "consumequeue", "golden_plain", "1", fileName(12000))
		},
		says:  []string{"note: consumequeue/golden_plain/1/00000000000000012000 at byte 0: the file is empty", "damage: consumequeue/golden_plain/1/00000000000000012000 at byte 0: the queue ends at offset 600, the log has records up to "},
		whole: true,
	},
	"missing first queue file": {
		do: func(t testing.TB, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "consumequeue", "golden_plain", "1", fileName(0))))
		},
		says:  []string{"damage: consumequeue/golden_plain/1/00000000000000000000 at byte 0: 200 entries are missing, from offset 0 on"},
		whole: true,
	},
	"emptied queue": {
		do: func(t testing.TB, dir string) {
			changeFile(t, cutTo(0), dir, "consumequeue", "golden_batch", "1", fileName(0))
		},
		says:  []string{"damage: consumequeue/golden_batch/1/00000000000000000000 at byte 0: the queue has no entries, and the log has 10 records of it"},
		whole: true,
	},
	"missing queue": {
		do: func(t testing.TB, dir string) {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "consumequeue", "golden_batch")))
		},
		says:  []string{"damage: consumequeue/golden_batch/1/00000000000000000000 at byte 0: the queue has no files, and the log has 10 records of it"},
		whole: true,
	},
	"swapped queue directories": {
		do: func(t testing.TB, dir string) {
			q := func(id string) string { return filepath.Join(dir, "consumequeue", "golden_plain", id) }
			require.NoError(t, os.Rename(q("1"), q("x")))
			require.NoError(t, os.Rename(q("2"), q("1")))
			require.NoError(t, os.Rename(q("x"), q("2")))
		},
		says:  []string{"damage: consumequeue/golden_plain/1/00000000000000000000 at byte 0: ", "damage: consumequeue/golden_plain/2/00000000000000000000 at byte 0: ", "entries are not those of the log; the first, of offset 0, names position "},
		whole: true,
	},
	"flipped queue entry": {
		do: func(t testing.TB, dir string) {
			changeFile(t, flipped(20*7+19), dir, "consumequeue", "golden_plain", "0", fileName(0))
		},
		says:  []string{"damage: consumequeue/golden_plain/0/00000000000000000000 at byte 140: 1 entry is not that of the log; the first, of offset 7, has tags code "},
		whole: true,
	},
	"zeros in a queue": {
		do: func(t testing.TB, dir string) {
			changeFile(t, zeroed(400, 40), dir, "consumequeue", "golden_plain", "0", fileName(0))
		},
		says:  []string{"damage: consumequeue/golden_plain/0/00000000000000000000 at byte 400: 2 entries are missing, from offset 20 on"},
		whole: true,
	},
	"short queue file": {
		do: func(t testing.TB, dir string) {
			changeFile(t, cutTo(1000), dir, "consumequeue", "golden_plain", "0", fileName(0))
		},
		says:  []string{"damage: consumequeue/golden_plain/0/00000000000000000000 at byte 1000: the file has 1000 bytes, those of this store have 4000"},
		whole: true,
	},
	"zeroed last segment": {
		do: func(t testing.TB, dir string) {
			changeFile(t, zeroed(0, apacheSegment), dir, "commitlog", fileName(apacheSegment))
		},
		says: []string{"that the log does not have; the first, of offset ", "these records are lost", "damage: checkpoint at byte 0: it says that records are flushed up to the time 1795976827936, the last record has 1795976817302"},
	},
	"truncated index": {
		do:    func(t testing.TB, dir string) { changeFile(t, cutTo(10_000), firstIndex(t, dir)) },
		says:  []string{"damage: index/20261129182655979 at byte 10000: the file has 10000 bytes, one of 500 slots and 1000 entries has 22040", "in no file"},
		whole: true,
	},
	"flipped index entry": {
		do:    func(t testing.TB, dir string) { changeFile(t, flipped(40+2000+20*17+3), firstIndex(t, dir)) },
		says:  []string{"damage: index/20261129182655979 at byte 2380: ", "1 key is of records from position "},
		whole: true,
	},
	"flipped slot": {
		do: func(t testing.TB, dir string) {
			changeFile(t, func(b []byte) []byte {
				for at := 40; at < 2040; at += 4 {
					if v := binary.BigEndian.Uint32(b[at:]); v > 1 {
						binary.BigEndian.PutUint32(b[at:], v-1)
						return b
					}
				}
				return nil
			}, firstIndex(t, dir))
		},
		says:  []string{"1 slot does not name the newest entry; the first is slot "},
		whole: true,
	},
	"wrong checkpoint": {
		do: func(t testing.TB, dir string) {
			changeFile(t, func(b []byte) []byte { binary.BigEndian.PutUint64(b[8:], 1<<60); return b }, dir, "checkpoint")
		},
		says:  []string{"damage: checkpoint at byte 8: it says that ConsumeQueues are flushed up to the time 1152921504606846976, the last record has 1795976827936"},
		whole: true,
	},
	"odd checkpoint": {
		do:    func(t testing.TB, dir string) { changeFile(t, flipped(100), dir, "checkpoint") },
		says:  []string{"damage: checkpoint at byte 40: there are bytes where no broker writes any"},
		whole: true,
	},
	"missing checkpoint": {
		do:    func(t testing.TB, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, "checkpoint"))) },
		says:  []string{"damage: checkpoint at byte 0: it is missing"},
		whole: true,
	},
	"short segment": {
		do:   func(t testing.TB, dir string) { changeFile(t, cutTo(500_000), dir, "commitlog", fileName(0)) },
		says: []string{"damage: commitlog/00000000000000000000 at byte 500000: the file has 500000 bytes, segments of this log have 1048576"},
		lost: true, kept: 1,
	},
	"long segment": {
		do: func(t testing.TB, dir string) {
			changeFile(t, func(b []byte) []byte { return append(b, "more"...) }, dir, "commitlog", fileName(0))
		},
		says:  []string{"damage: commitlog/00000000000000000000 at byte 1048576: the file has 1048580 bytes, segments of this log have 1048576"},
		whole: true,
	},
}

// TestDamages looks for each kind of damage, repairs it, and looks again.
func TestDamages(t *testing.T) {
	for name, d := range damages {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel() // most of it waits for the disk
			if d.store == "" {
				d.store = "4.9.7-clean"
			}
			dir := unpackApache(t, d.store)
			d.do(t, dir)
			before := treeOf(t, dir)
			e := examination(vfs.OS{}, dir)
			e.Segment = apacheSegment
			dry, err := Repair(t.Context(), e, Repairing{DryRun: true})
			require.NoError(t, err)
			require.Equal(t, before, treeOf(t, dir))
			for _, says := range d.says {
				require.Contains(t, findings(dry.Before), says)
			}
			require.Positive(t, dry.Before.Damaged())
			require.Equal(t, d.lost, len(dry.Before.Lost()) > 0, findings(dry.Before))
			if d.lost {
				_, err := Repair(t.Context(), e, Repairing{Now: time.Now()})
				require.ErrorIs(t, err, ErrLost)
				require.Equal(t, before, treeOf(t, dir))
			}
			out, err := Repair(t.Context(), e, Repairing{Now: time.Now(), WithoutLost: true})
			require.NoError(t, err)
			if after := out.After; d.stays {
				require.Nil(t, after)
				require.Equal(t, before, treeOf(t, dir))
				out.After = out.Before
			} else {
				require.NotNil(t, after)
				require.FileExists(t, filepath.Join(dir, out.Backup, "found.json"))
				require.True(t, after.Closed)
			}
			require.Equal(t, d.kept, out.After.Damaged(), findings(out.After))
			if d.kept == 0 {
				again := treeOf(t, dir)
				none, err := Repair(t.Context(), e, Repairing{Now: time.Now()})
				require.NoError(t, err)
				require.Empty(t, none.Done)
				require.Equal(t, again, treeOf(t, dir))
			}
			s := open(t, dir, storage.Immediate, apacheSegment, nil)
			if d.whole {
				checkManifest(t, s, manifest(t, "4.9.7"))
			} else {
				require.Greater(t, out.After.Records, int64(1500))
			}
		})
	}
}

// TestRepairKeepsWhatItCuts: what is cut off or made again is in the backup.
func TestRepairKeepsWhatItCuts(t *testing.T) {
	dir := unpackApache(t, "4.9.7-clean")
	damages["torn tail"].do(t, dir)
	damages["swapped queue directories"].do(t, dir)
	damages["truncated index"].do(t, dir)
	log, err := os.ReadFile(filepath.Join(dir, "commitlog", fileName(apacheSegment)))
	require.NoError(t, err)
	before := treeOf(t, dir)
	out, err := Repair(t.Context(), examination(vfs.OS{}, dir), Repairing{Now: time.Now()})
	require.NoError(t, err)
	require.Zero(t, out.After.Damaged(), findings(out.After))
	b, err := os.ReadFile(filepath.Join(dir, out.Backup, "commitlog", fileName(apacheSegment)+"@631300"))
	require.NoError(t, err)
	require.NotEmpty(t, b)
	require.Equal(t, log[631300:631300+len(b)], b)
	require.Empty(t, bytes.Trim(log[631300+len(b):], "\x00"))
	backup := treeOf(t, filepath.Join(dir, out.Backup))
	for _, name := range []string{"consumequeue/golden_plain/1/" + fileName(0), "consumequeue/golden_plain/2/" + fileName(4000), "index/20261129182655979", "index/20261129182657139"} {
		name = filepath.FromSlash(name)
		require.NotEmpty(t, before[name])
		require.Equal(t, before[name], backup[name], name)
	}
}

// TestExamineUnreadable: what cannot be read is an error, and not taken for what is
// not there: a repair would make it anew.
func TestExamineUnreadable(t *testing.T) {
	f := vfstest.NewFaults(newDisk(1))
	r := newRig(t, f, storage.Immediate, nil)
	require.NoError(t, r.send(message.Queue{Topic: "T"}, 100))
	r.stop()
	for _, what := range []string{cutFile, "consumequeue", "index"} {
		t.Run(what, func(t *testing.T) {
			defer f.Clear()
			for _, op := range []vfstest.Op{vfstest.OpOpen, vfstest.OpStat, vfstest.OpList} {
				f.Add(vfstest.Rule{Op: op, Path: "*/" + what})
			}
			_, err := Examine(t.Context(), examination(f, r.dir))
			require.ErrorIs(t, err, vfstest.ErrInjected)
			_, err = Seal(t.Context(), examination(f, r.dir), Sealing{})
			require.ErrorIs(t, err, vfstest.ErrInjected)
		})
	}
	report, err := Examine(t.Context(), examination(f, r.dir))
	require.NoError(t, err)
	require.Empty(t, report.Findings, findings(report))
}
