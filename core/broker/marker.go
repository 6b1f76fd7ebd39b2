package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"regexp"

	"github.com/hardpointmq/hardpoint/core/vfs"
)

// markerName is the file that says which store a directory belongs to, markerCopy
// a second one beside it.
const (
	markerName = "hardpoint.store"
	markerCopy = markerName + ".bak"
)

// marked is a whole marker: one name, one line.
var marked = regexp.MustCompile(`^([a-z][a-z0-9_]*)\n$`)

// ErrOtherStore: the directory belongs to another storage plugin. Test with
// errors.Is.
var ErrOtherStore = errors.New("the directory belongs to another store")

// Marker is what a store's directory says about whose it is.
type Marker struct {
	// Store is the name of the storage plugin that filled the directory; empty where
	// it is new.
	Store string
	// Damaged are the names of the marker's files that do not say it, though they are
	// there. The next start writes them again.
	Damaged []string
	// Differ: the files in Damaged are whole, and name different stores.
	Differ bool

	whole int // files that say it
}

// ReadMarker tells which store a directory belongs to and changes nothing. It is an
// error when the marker is damaged and nothing else says it. The Marker beside an error
// is not to be used.
func ReadMarker(fsys vfs.FS, dir string) (Marker, error) {
	var m Marker
	var there []string
	for _, name := range []string{markerName, markerCopy} {
		b, err := vfs.ReadFile(fsys, filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return m, fmt.Errorf("which store %s belongs to: %w", dir, err)
		}
		there = append(there, name)
		switch is := marked.FindSubmatch(b); {
		case is == nil:
			m.Damaged = append(m.Damaged, name)
		case m.whole == 0 || m.Store == string(is[1]):
			m.Store = string(is[1])
			m.whole++
		default: // they were written with one content: which one is damaged cannot be told
			m.Store, m.Damaged, m.Differ, m.whole = "", there, true, 0
		}
	}
	if m.whole > 0 {
		return m, nil
	}
	// RocketMQ's directories, and those of older versions, have no marker.
	_, err := fsys.Stat(filepath.Join(dir, "commitlog"))
	switch {
	case err == nil:
		m.Store = "commitlog"
	case !errors.Is(err, fs.ErrNotExist):
		return m, fmt.Errorf("which store %s belongs to: %w", dir, err)
	case m.Differ:
		return m, fmt.Errorf("%s and %s name different stores, and nothing else says which store %s belongs to: write the name of its store into %s, as one line, and remove %s",
			filepath.Join(dir, markerName), markerCopy, dir, markerName, markerCopy)
	case len(m.Damaged) > 0:
		return m, fmt.Errorf("%s is damaged, and nothing else says which store %s belongs to: write the name of its store into %s, as one line, and remove %s",
			filepath.Join(dir, m.Damaged[0]), dir, markerName, markerCopy)
	}
	return m, nil
}

// claim refuses a directory that another store filled, and marks a new one. The
// metadata files in it go with the log: under another store's log they would be
// taken for those of a foreign broker, and topics and offsets of two logs mixed.
func claim(fsys vfs.FS, dir, store string, log *slog.Logger) error {
	m, err := ReadMarker(fsys, dir)
	if err != nil {
		return err
	}
	if m.Store != "" && m.Store != store {
		return fmt.Errorf("%w: %s was filled by store %s, configured is %s; use another directory (--data, storePathRootDir) or storage=%s", ErrOtherStore, dir, m.Store, store, m.Store)
	}
	for _, name := range m.Damaged {
		log.Warn("the file that says which store this is, is damaged and written again", "file", filepath.Join(dir, name), "store", store)
	}
	if m.whole == 2 {
		return nil
	}
	if err := vfs.EnsureDir(fsys, dir); err != nil {
		return err
	}
	for _, name := range []string{markerCopy, markerName} {
		if err := vfs.WriteFileAtomic(fsys, filepath.Join(dir, name), []byte(store+"\n")); err != nil {
			return err
		}
	}
	return nil
}
