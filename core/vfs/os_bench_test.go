package vfs_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/vfs"
)

func BenchmarkOS(b *testing.B) {
	const size = 16 << 20
	f, err := vfs.OS{}.OpenFile(filepath.Join(b.TempDir(), "f"), os.O_RDWR|os.O_CREATE, 0o644)
	require.NoError(b, err)
	defer f.Close()
	require.NoError(b, f.Reserve(0, size))
	m, err := f.Map(0, size, true)
	require.NoError(b, err)
	defer m.Close()
	p := make([]byte, 4096)
	for name, step := range map[string]func(off int64) error{
		"WriteAt4K":   func(off int64) error { _, err := f.WriteAt(p, off); return err },
		"ReadAt4K":    func(off int64) error { _, err := f.ReadAt(p, off); return err },
		"MapWrite4K":  func(off int64) error { copy(m.Bytes()[off:], p); return nil },
		"Resident4K":  func(off int64) error { _, err := m.Resident(off, 4096); return err },
		"Resident16M": func(int64) error { _, err := m.Resident(0, size); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var off int64
			for b.Loop() {
				if err := step(off); err != nil {
					b.Fatal(err)
				}
				off = (off + 4096) % size
			}
		})
	}
}
