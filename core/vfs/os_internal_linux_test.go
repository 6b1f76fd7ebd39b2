package vfs

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestFsType(t *testing.T) {
	for name, test := range map[string]struct {
		magic       int64
		copyOnWrite bool
	}{
		"ext4":     {0xef53, false},
		"xfs":      {0x58465342, false},
		"btrfs":    {0x9123683e, true},
		"zfs":      {0x2fc12fc1, true},
		"bcachefs": {0xca451a4e, true},
		"0x1234":   {0x1234, false},
	} {
		// Some systems sign-extend the 32 bits of the magic number.
		for _, magic := range []int64{test.magic, int64(int32(test.magic))} {
			got, copyOnWrite := fsType(&unix.Statfs_t{Type: magic})
			require.Equal(t, name, got)
			require.Equal(t, test.copyOnWrite, copyOnWrite, name)
		}
	}
}
