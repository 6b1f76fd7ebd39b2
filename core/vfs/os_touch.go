//go:build linux || darwin || windows

package vfs

import (
	"os"
	"sync/atomic"
	"unsafe"
)

var pageSize = os.Getpagesize() // constant of the machine; 16 KiB on darwin/arm64

// touch maps every page of w, which starts at a page boundary, by using its first bytes. A write changes nothing and is
// atomic, so that it cannot undo what somebody else writes to the same word meanwhile.
func touch(w []byte, write bool) {
	for i := 0; i < len(w); i += pageSize { // the whole page is mapped, even when w ends in it
		word := (*uint32)(unsafe.Pointer(&w[i]))
		if write {
			atomic.AddUint32(word, 0)
		} else {
			atomic.LoadUint32(word)
		}
	}
}
