//go:build !unix && !windows

package vfs

func isNoSpace(error) bool { return false }
