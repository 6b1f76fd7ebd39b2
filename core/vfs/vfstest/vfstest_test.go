package vfstest_test

import (
	"testing"

	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
	"github.com/hardpointmq/hardpoint/core/vfs/vfstest"
)

func newCrash(t *testing.T) (vfs.FS, string) {
	t.Helper()
	c := memfs.New(1)
	if err := vfs.EnsureDir(c, "/data"); err != nil {
		t.Fatal(err)
	}
	return c, "/data"
}

func TestSuite(t *testing.T) {
	for name, newFS := range map[string]func(*testing.T) (vfs.FS, string){
		"FaultsOverCrash": func(t *testing.T) (vfs.FS, string) {
			c, dir := newCrash(t)
			return vfstest.NewFaults(c), dir
		},
		"FaultsOverOS": func(t *testing.T) (vfs.FS, string) {
			return vfstest.NewFaults(vfs.OS{}), t.TempDir()
		},
		"FullDiskOverOS": func(t *testing.T) (vfs.FS, string) { // a limit that is far away changes nothing
			f := vfstest.NewFaults(vfs.OS{})
			f.SetFree(1 << 30)
			return f, t.TempDir()
		},
	} {
		t.Run(name, func(t *testing.T) { vfstest.Run(t, vfstest.Harness{New: newFS}) })
	}
}
