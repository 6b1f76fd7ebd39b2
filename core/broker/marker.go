package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/hardpointmq/hardpoint/core/vfs"
)

// markerName is the file that says which store a directory belongs to.
const markerName = "hardpoint.store"

// ErrOtherStore: the directory belongs to another storage plugin. Test with
// errors.Is.
var ErrOtherStore = errors.New("the directory belongs to another store")

// claim refuses a directory that another store filled, and marks a new one. The
// metadata files in it go with the log: under another store's log they would be
// taken for those of a foreign broker, and topics and offsets of two logs mixed.
func claim(fsys vfs.FS, dir, store string) error {
	path := filepath.Join(dir, markerName)
	b, err := vfs.ReadFile(fsys, path)
	owner := strings.TrimSpace(string(b))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// RocketMQ's directories, and those of older versions, have no marker.
		if _, err := fsys.Stat(filepath.Join(dir, "commitlog")); err == nil {
			owner = "commitlog"
		}
	case err != nil:
		return fmt.Errorf("which store %s belongs to: %w", dir, err)
	}
	if owner != "" && owner != store {
		return fmt.Errorf("%w: %s was filled by store %s, configured is %s; use another directory (--data, storePathRootDir) or storage=%s", ErrOtherStore, dir, owner, store, owner)
	}
	if err == nil {
		return nil
	}
	if err := vfs.EnsureDir(fsys, dir); err != nil {
		return err
	}
	return vfs.WriteFileAtomic(fsys, path, []byte(store+"\n"))
}
