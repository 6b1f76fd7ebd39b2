package broker

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
)

func TestDirectoryBelongsToOneStore(t *testing.T) {
	fsys := memfs.New(1)
	require.NoError(t, claim(fsys, "store", "pebble", slog.New(slog.DiscardHandler)))
	require.NoError(t, claim(fsys, "store", "pebble", slog.New(slog.DiscardHandler)))
	after := fsys.Crash(memfs.KeepNone)
	err := claim(after, "store", "commitlog", slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, ErrOtherStore)
	require.ErrorContains(t, err, "storage=pebble")
}

func TestDirectoryOfRocketMQIsCommitlogs(t *testing.T) {
	fsys := memfs.New(1)
	require.NoError(t, vfs.EnsureDir(fsys, filepath.Join("store", "commitlog")))
	require.ErrorIs(t, claim(fsys, "store", "memory", slog.New(slog.DiscardHandler)), ErrOtherStore)
	require.NoError(t, claim(fsys, "store", "commitlog", slog.New(slog.DiscardHandler)))
	b, err := vfs.ReadFile(fsys, filepath.Join("store", markerName))
	require.NoError(t, err)
	require.Equal(t, "commitlog\n", string(b))
}

// BC-36 for the marker: its copy serves, the log of RocketMQ says itself whose it
// is, and nobody guesses otherwise.
func TestDamagedMarker(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "half": "peb", "over-long": "pebble\npebble\n", "zeros": "\x00\x00\x00\x00\x00\x00\x00"} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			fsys := memfs.New(1)
			start := func(store string) error {
				log.Reset()
				return claim(fsys, "store", store, slog.New(slog.NewTextHandler(&log, nil)))
			}
			harm := func(name string) {
				require.NoError(t, vfs.WriteFileAtomic(fsys, filepath.Join("store", name), []byte(text)))
			}
			require.NoError(t, start("pebble"))
			for _, name := range []string{markerName, markerCopy} {
				harm(name)
				require.ErrorIs(t, start("commitlog"), ErrOtherStore)
				require.NoError(t, start("pebble"))
				require.Contains(t, log.String(), "damaged")
				require.NoError(t, start("pebble"))
				require.Empty(t, log.String(), "written again")
			}
			harm(markerName)
			harm(markerCopy)
			for _, store := range []string{"pebble", "commitlog"} {
				require.ErrorContains(t, start(store), "write the name of its store")
			}
			require.NoError(t, vfs.EnsureDir(fsys, filepath.Join("store", "commitlog")))
			require.ErrorIs(t, start("pebble"), ErrOtherStore)
			require.NoError(t, start("commitlog"))
			require.Contains(t, log.String(), "damaged")
		})
	}
}

// TestMarkersDiffer: of two files that say different things one is damaged, and which
// one cannot be told.
func TestMarkersDiffer(t *testing.T) {
	for _, names := range [][2]string{{"commitlog", "commitlpg"}, {"commitlpg", "commitlog"}, {"pebble", "commitlog"}} {
		fsys := memfs.New(1)
		for i, name := range []string{markerName, markerCopy} {
			require.NoError(t, vfs.EnsureDir(fsys, "store"))
			require.NoError(t, vfs.WriteFileAtomic(fsys, filepath.Join("store", name), []byte(names[i]+"\n")))
		}
		for _, store := range names {
			err := claim(fsys, "store", store, slog.New(slog.DiscardHandler))
			require.ErrorContains(t, err, "name different stores")
			require.ErrorContains(t, err, "write the name of its store into hardpoint.store")
		}
		require.NoError(t, vfs.EnsureDir(fsys, filepath.Join("store", "commitlog")))
		m, err := ReadMarker(fsys, "store")
		require.NoError(t, err)
		require.Equal(t, Marker{Store: "commitlog", Damaged: []string{markerName, markerCopy}, Differ: true}, m)
		require.NoError(t, claim(fsys, "store", "commitlog", slog.New(slog.DiscardHandler)))
		m, err = ReadMarker(fsys, "store")
		require.NoError(t, err)
		require.Equal(t, Marker{Store: "commitlog", whole: 2}, m)
	}
}

// noStat is a disk that does not say what there is.
type noStat struct{ vfs.FS }

func (noStat) Stat(string) (vfs.Info, error) { return vfs.Info{}, errNoStat }

var errNoStat = errors.New("input/output error")

// TestMarkerOfUnreadableDisk: a disk that does not answer is not taken for a new directory.
func TestMarkerOfUnreadableDisk(t *testing.T) {
	_, err := ReadMarker(noStat{memfs.New(1)}, "store")
	require.ErrorIs(t, err, errNoStat)
	require.ErrorContains(t, err, "which store store belongs to")
}
