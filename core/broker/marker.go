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

// claim refuses a directory that another store filled, and marks a new one. The
// metadata files in it go with the log: under another store's log they would be
// taken for those of a foreign broker, and topics and offsets of two logs mixed.
func claim(fsys vfs.FS, dir, store string, log *slog.Logger) error {
	var owner, damaged string
	whole := 0
	for _, name := range []string{markerName, markerCopy} {
		path := filepath.Join(dir, name)
		b, err := vfs.ReadFile(fsys, path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("which store %s belongs to: %w", dir, err)
		}
		if m := marked.FindSubmatch(b); m != nil {
			whole++
			if owner == "" {
				owner = string(m[1])
			}
		} else if err == nil {
			damaged = path
		}
	}
	if owner == "" {
		// RocketMQ's directories, and those of older versions, have no marker.
		_, err := fsys.Stat(filepath.Join(dir, "commitlog"))
		switch {
		case err == nil:
			owner = "commitlog"
		case damaged != "":
			return fmt.Errorf("%s is damaged, and nothing else says which store %s belongs to: write the name of its store into it, as one line", damaged, dir)
		}
	}
	if owner != "" && owner != store {
		return fmt.Errorf("%w: %s was filled by store %s, configured is %s; use another directory (--data, storePathRootDir) or storage=%s", ErrOtherStore, dir, owner, store, owner)
	}
	if damaged != "" {
		log.Warn("the file that says which store this is, is damaged and written again", "file", damaged, "store", store)
	}
	if whole == 2 {
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
