package commitlog

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/internal/hosttest"
)

// TestStartOnFullDisk fills a small file system to the last byte while a store is
// closed or killed: it starts, serves everything, refuses writes, and takes them
// as soon as there is space.
func TestStartOnFullDisk(t *testing.T) {
	for _, mode := range []storage.PublishMode{storage.Immediate, storage.Explicit} {
		for _, clean := range []bool{true, false} {
			name := mode.String() + "/killed"
			if clean {
				name = mode.String() + "/closed"
			}
			t.Run(name, func(t *testing.T) {
				root := hosttest.Tmpfs(t, "size=4m")
				r := newRigIn(t, vfs.OS{}, filepath.Join(root, "store"), mode, nil)
				for i := range 300 {
					require.NoError(t, r.send(queueN(i%5), i*7%600))
				}
				r.stop()
				if !clean { // the files of a killed process are all there
					require.NoError(t, os.WriteFile(r.s.path.abort, []byte("1"), 0o600))
				}
				ballast := fill(t, root)
				for range 3 {
					r.start()
					r.verify()
					var err error
					for range rigSegment >> 10 { // what is reserved may be used
						if err = r.send(queueN(0), 1<<10); err != nil {
							break
						}
					}
					require.ErrorIs(t, err, storage.ErrFull)
					r.verify()
					r.stop()
				}
				r.start()
				require.NoError(t, os.Remove(ballast))
				for i := range 300 {
					require.NoError(t, r.send(queueN(i%7), i*7%600))
				}
				r.verify()
				_, err := os.Stat(r.s.path.abort)
				require.NoError(t, err, "a crash from here on is noticed")
				require.Empty(t, r.failed)
				r.stop()
				r.start()
				r.verify()
			})
		}
	}
}

// fill writes a file until nothing fits any more.
func fill(t *testing.T, dir string) string {
	t.Helper()
	name := filepath.Join(dir, "ballast")
	f, err := os.Create(name)
	require.NoError(t, err)
	b := make([]byte, 64<<10)
	for len(b) > 0 {
		if _, err := f.Write(b); errors.Is(err, syscall.ENOSPC) {
			b = b[:len(b)/2]
		} else {
			require.NoError(t, err)
		}
	}
	require.NoError(t, f.Close())
	return name
}
