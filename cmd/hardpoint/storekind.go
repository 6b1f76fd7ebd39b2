package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hardpointmq/hardpoint/core/broker"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

// storeKind tells which store a directory belongs to, as a broker does: commitlog or
// pebble. Others are refused by name, as are those ways of RocketMQ's to keep messages
// that the files of the log do not show.
func storeKind(dir string) (broker.Marker, error) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return broker.Marker{}, fmt.Errorf("%s does not exist; name the store's directory: storePathRootDir, or the folder store in the data directory", dir)
	case err != nil:
		return broker.Marker{}, err
	case !info.IsDir():
		return broker.Marker{}, fmt.Errorf("%s is a file; name the store's directory", dir)
	}
	if name, err := foreignStore(dir); name != "" || err != nil {
		if err != nil {
			return broker.Marker{}, err
		}
		return broker.Marker{}, fmt.Errorf("%s holds %s, which this command does not read; it reads RocketMQ's file store (storeType=default) and the stores commitlog and pebble", dir, name)
	}
	m, err := broker.ReadMarker(vfs.OS{}, dir)
	if err != nil {
		names, _ := os.ReadDir(dir)
		isManifest := func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), "MANIFEST-") }
		if i := slices.IndexFunc(names, isManifest); i >= 0 {
			err = fmt.Errorf("%w; there is a file %s, as in stores pebble", err, names[i].Name())
		}
		return broker.Marker{}, err
	}
	switch m.Store {
	case "commitlog", "pebble":
		return m, nil
	case "":
	default:
		return m, fmt.Errorf("%s was filled by store %s (hardpoint.store), which this command does not read; it reads commitlog and pebble. If that is not so, the file is damaged: write the name of its store into it, as one line, and remove hardpoint.store.bak",
			dir, clip(m.Store))
	}
	hint := ""
	if _, err := os.Stat(filepath.Join(dir, "store", "commitlog")); err == nil {
		hint = "; perhaps " + filepath.Join(dir, "store") + " is meant"
	}
	return broker.Marker{}, fmt.Errorf("%s is no store: there is neither a folder commitlog nor a file hardpoint.store in it%s", dir, hint)
}

// clip is the beginning of a text that may be long.
func clip(s string) string {
	if len(s) > 40 {
		s = s[:40] + "…"
	}
	return fmt.Sprintf("%q", s)
}

// foreignStore names what else a RocketMQ broker keeps messages in, when the
// directory has some of it.
func foreignStore(dir string) (string, error) {
	has := func(parts ...string) (bool, error) {
		names, err := os.ReadDir(filepath.Join(append([]string{dir}, parts...)...))
		if errors.Is(err, fs.ErrNotExist) || err != nil && isFile(filepath.Join(append([]string{dir}, parts...)...)) {
			return false, nil
		}
		return len(names) > 0, err
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, n := range names {
		switch name := n.Name(); {
		case n.IsDir() && strings.HasPrefix(name, "dledger-"):
			return "a DLedger log (" + name + ")", nil
		case n.IsDir() && strings.HasPrefix(strings.ToLower(name), "tieredstore"):
			return "a tiered store (" + name + ")", nil
		}
	}
	for _, k := range []struct{ dir, name string }{
		{"compaction/compactionLog", "compacted topics (compaction)"},
		{"batchconsumequeue", "BatchConsumeQueues (batchconsumequeue)"},
		{"consumequeue_ext", "ConsumeQueueExt (consumequeue_ext)"},
	} {
		ok, err := has(strings.Split(k.dir, "/")...)
		if err != nil {
			return "", err
		}
		if ok {
			return k.name, nil
		}
	}
	if isFile(filepath.Join(dir, "config", "tieredStoreMetadata.json")) {
		return "a tiered store (config/tieredStoreMetadata.json)", nil
	}
	queues, err := os.ReadDir(filepath.Join(dir, "consumequeue"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if isFile(filepath.Join(dir, "consumequeue", "CURRENT")) {
		return "RocksDB ConsumeQueues (storeType=defaultRocksDB)", nil
	}
	if slices.ContainsFunc(queues, func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), "%LMQ%") }) {
		return "multi-dispatch queues (%LMQ%)", nil
	}
	return "", nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
