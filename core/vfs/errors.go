package vfs

import (
	"errors"
	"fmt"
)

// Sentinels, next to those of package io/fs. Test with errors.Is.
var (
	// ErrNoSpace tells that the disk or the quota is full.
	ErrNoSpace = errors.New("vfs: no space left on the file system")

	// ErrLocked tells that somebody else holds the lock.
	ErrLocked = errors.New("vfs: file is locked")

	// ErrMapUnsupported tells that files cannot be mapped here.
	ErrMapUnsupported = errors.New("vfs: memory mapping is not supported")

	// ErrReserveUnsupported tells that reserving space does not protect later writes here.
	ErrReserveUnsupported = errors.New("vfs: reserving space is not supported")
)

// withSentinel adds the sentinel of the contract to an error of the operating system; both stay visible to errors.Is.
func withSentinel(err error) error {
	if err != nil && isNoSpace(err) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}
