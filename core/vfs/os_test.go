package vfs_test

import (
	"testing"

	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/vfstest"
)

func TestOS(t *testing.T) {
	vfstest.Run(t, vfstest.Harness{New: func(t *testing.T) (vfs.FS, string) { return vfs.OS{}, t.TempDir() }})
}
