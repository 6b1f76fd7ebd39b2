package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/internal/apachetest"
	"github.com/hardpointmq/hardpoint/plugins/storage/commitlog"
)

// apacheStores unpacks the stores that Apache's brokers wrote into one directory.
func apacheStores(t *testing.T) string {
	dir := t.TempDir()
	for _, name := range []string{"4.9.7-clean", "4.9.7-killed", "5.3.3-clean", "5.3.3-killed"} {
		apachetest.Unpack(t, filepath.Join("..", "..", "plugins", "storage", "commitlog", "testdata", "apache", name+".tar.gz"), filepath.Join(dir, name))
	}
	return dir
}

// storeCmds are commands of scripts that copy, damage and compare directories.
var storeCmds = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	// copydir FROM TO
	"copydir": func(ts *testscript.TestScript, _ bool, args []string) {
		ts.Check(os.CopyFS(ts.MkAbs(args[1]), os.DirFS(ts.MkAbs(args[0]))))
	},
	// flip FILE BYTE: one bit
	"flip": func(ts *testscript.TestScript, _ bool, args []string) {
		change(ts, args[0], func(b []byte) []byte { b[number(ts, args[1])] ^= 0x40; return b })
	},
	// zero FILE BYTE COUNT
	"zero": func(ts *testscript.TestScript, _ bool, args []string) {
		from := number(ts, args[1])
		change(ts, args[0], func(b []byte) []byte { clear(b[from : from+number(ts, args[2])]); return b })
	},
	// shorten FILE SIZE
	"shorten": func(ts *testscript.TestScript, _ bool, args []string) {
		change(ts, args[0], func(b []byte) []byte { return b[:number(ts, args[1])] })
	},
	// samedir A B: every file has the same bytes
	"samedir": func(ts *testscript.TestScript, neg bool, args []string) {
		a, b := tree(ts, args[0]), tree(ts, args[1])
		same := len(a) == len(b)
		for name := range a {
			if !bytes.Equal(a[name], b[name]) {
				same = false
				ts.Logf("%s differs", name)
			}
		}
		if same == neg {
			ts.Fatalf("%s and %s: same is %v", args[0], args[1], same)
		}
	},
}

func number(ts *testscript.TestScript, s string) int {
	n, err := strconv.Atoi(s)
	ts.Check(err)
	return n
}

func change(ts *testscript.TestScript, name string, do func([]byte) []byte) {
	b, err := os.ReadFile(ts.MkAbs(name))
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(name), do(b), 0o644))
}

func tree(ts *testscript.TestScript, dir string) map[string][]byte {
	m := map[string][]byte{}
	ts.Check(fs.WalkDir(os.DirFS(ts.MkAbs(dir)), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		m[path], err = os.ReadFile(filepath.Join(ts.MkAbs(dir), filepath.FromSlash(path)))
		return err
	}))
	return m
}

// TestStoreKinds: what is none of ours to read is refused by its name.
func TestStoreKinds(t *testing.T) {
	for name, files := range map[string][]string{
		"a DLedger log (dledger-n0)":             {"commitlog/x", "dledger-n0/data/x"},
		"RocksDB ConsumeQueues":                  {"commitlog/x", "consumequeue/CURRENT"},
		"compacted topics":                       {"commitlog/x", "compaction/compactionLog/T/0/x"},
		"BatchConsumeQueues":                     {"commitlog/x", "batchconsumequeue/T/0/x"},
		"ConsumeQueueExt":                        {"commitlog/x", "consumequeue_ext/T/0/x"},
		"a tiered store":                         {"commitlog/x", "config/tieredStoreMetadata.json"},
		"multi-dispatch queues":                  {"commitlog/x", "consumequeue/%LMQ%a/0/x"},
		"is no store":                            {"config/topics.json"},
		"perhaps DIR/store is meant":             {"store/commitlog/x"},
		`was filled by store "mystore"`:          {"hardpoint.store=mystore"},
		"a tiered store (tieredstore)":           {"commitlog/x", "tieredstore/x"},
		"is a store pebble: the database mends ": {"hardpoint.store=pebble"},
	} {
		dir := t.TempDir()
		for _, f := range files {
			f, content, _ := strings.Cut(f, "=")
			path := filepath.Join(dir, filepath.FromSlash(f))
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte(content+"\n"), 0o644))
		}
		var out, errs bytes.Buffer
		code := run(t.Context(), []string{"store", "repair", dir}, strings.NewReader(""), &out, &errs)
		require.Equal(t, exitFailure, code, name)
		require.Contains(t, filepath.ToSlash(strings.ReplaceAll(errs.String(), dir, "DIR")), name)
	}
}

// TestSealKeeps: the broker that seals a store deletes nothing, however old it is or full
// the disk, and makes no topics with names of its own.
func TestSealKeeps(t *testing.T) {
	l, err := config.Load(config.Options{Mode: config.Broker, Env: []string{
		"HARDPOINT_BROKER_NAME=b", "HARDPOINT_BROKER_CLUSTER_NAME=c", "HARDPOINT_FILE_RESERVED_TIME=1",
	}})
	require.NoError(t, err)
	for kind, found := range map[string]*commitlog.Report{"commitlog": {SegmentSize: 1 << 20}, "pebble": nil} {
		r := &storeRun{kind: kind, dir: t.TempDir(), cfg: &l.Config}
		r.exam.Config = commitlog.NewDefaultConfig()
		got, err := r.sealing(t.TempDir(), found)
		require.NoError(t, err)
		keeps := &got.Config.Retention
		require.False(t, keeps.CleanForcibly)
		require.Greater(t, keeps.FileReservedTime, 9*365*24*time.Hour)
		require.Equal(t, "b", got.Config.Broker.Name)
		require.Equal(t, "c", got.Config.Broker.ClusterName)
	}
}
