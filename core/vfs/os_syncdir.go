//go:build !windows

package vfs

import "os"

// SyncDir implements [FS].
func (OS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if closeErr := d.Close(); err == nil {
		err = closeErr
	}
	return withSentinel(err)
}
