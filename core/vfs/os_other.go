//go:build !linux && !darwin && !windows

package vfs

import (
	"errors"
	"fmt"
	"io/fs"
)

// Systems below are not release targets: what package os offers works, the rest says that it does not.

// Usage implements [FS].
func (OS) Usage(dir string) (Usage, error) {
	return Usage{}, &fs.PathError{Op: "statfs", Path: dir, Err: errors.ErrUnsupported}
}

// Lock implements [FS].
func (OS) Lock(name string) (File, error) {
	return nil, &fs.PathError{Op: "lock", Path: name, Err: errors.ErrUnsupported}
}

func allocatedBytes(fs.FileInfo) int64 { return -1 }

func (f *osFile) SyncData() error { return f.Sync() }

func (f *osFile) reserve(off, size int64) error { return f.reserveByWriting(off, size) }

func (f *osFile) zeroRange(off, size int64) error { return f.writeZeros(off, size) }

func (f *osFile) mapRange(_, _ int64, _ bool) (Mapping, error) {
	return nil, fmt.Errorf("%w on this system", ErrMapUnsupported)
}
