package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// tempSuffix marks the temporary file of [WriteFileAtomic]. A crash may leave one behind; the next write of the same
// name takes it over, so they do not pile up.
const tempSuffix = ".tmp"

// WriteFileAtomic replaces the content of name so that a crash at any moment leaves either the old or the new content,
// and returns after the new one is durable. On an error the old file is untouched and the temporary file is removed
// (unless the last step, syncing the directory, failed: then the new content is in place but perhaps not durable).
// There must be one writer per name at a time.
//
// Decision: this is written here although google/renameio exists. That library works on the real file system only, so
// code using it cannot run on the crash-simulating one, where exactly this protocol has to be proved; it also does not
// sync the directory, without which the rename itself may be lost. The price is these forty lines. The temporary name
// is fixed (name + ".tmp"), not random, because the writers are single and left-overs must not accumulate.
func WriteFileAtomic(fsys FS, name string, data []byte) (err error) {
	temp := name + tempSuffix
	f, err := fsys.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	renamed := false
	defer func() {
		if err == nil {
			return
		}
		err = fmt.Errorf("write %s: %w", name, err)
		if renamed {
			return
		}
		if rmErr := fsys.Remove(temp); rmErr != nil && !errors.Is(rmErr, fs.ErrNotExist) {
			err = fmt.Errorf("%w (and the temporary file stays: %w)", err, rmErr)
		}
	}()
	if len(data) > 0 {
		_, err = f.WriteAt(data, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	// Closed before the rename: Windows cannot rename an open file.
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	if err = fsys.Rename(temp, name); err != nil {
		if info, statErr := fsys.Stat(name); statErr == nil && info.IsDir {
			err = fmt.Errorf("it is a directory, where a file belongs; move it away: %w", err)
		}
		return err
	}
	renamed = true
	return fsys.SyncDir(filepath.Dir(name))
}

// ReadFile returns the content of name.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	data := make([]byte, size)
	n, err := f.ReadAt(data, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return data[:n], nil
}

// EnsureDir creates dir and its missing parents and makes them durable: the directory above each created one is
// synced. Existing directories are not synced.
func EnsureDir(fsys FS, dir string) error {
	dir = filepath.Clean(dir)
	var parents []string // of the missing directories, deepest first
	for d := dir; ; {
		info, err := fsys.Stat(d)
		if err == nil {
			if !info.IsDir {
				return &fs.PathError{Op: "mkdir", Path: d, Err: errors.New("exists and is not a directory")}
			}
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		parent := filepath.Dir(d)
		if parent == d {
			return err
		}
		parents = append(parents, parent)
		d = parent
	}
	if len(parents) == 0 {
		return nil
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	for i := len(parents) - 1; i >= 0; i-- {
		if err := fsys.SyncDir(parents[i]); err != nil {
			return err
		}
	}
	return nil
}
