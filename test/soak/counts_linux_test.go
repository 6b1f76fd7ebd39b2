package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestCounts: files of a log count when they are opened twice or have been deleted.
func TestCounts(t *testing.T) {
	dir, pid := t.TempDir(), os.Getpid()
	path := filepath.Join(dir, "00000000000000000000")
	if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	files, maps := openFiles(pid, dir), mappings(pid, dir)
	want := func(what string, moreFiles, moreMaps int) {
		t.Helper()
		if f, m := openFiles(pid, dir)-files, mappings(pid, dir)-maps; f != moreFiles || m != moreMaps {
			t.Fatalf("%s: %d files and %d mappings more, want %d and %d", what, f, m, moreFiles, moreMaps)
		}
	}
	for i := range 2 {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		m, err := syscall.Mmap(int(f.Fd()), 0, 4096, syscall.PROT_READ, syscall.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = syscall.Munmap(m) }()
		want(fmt.Sprintf("opened and mapped %d more", i), i, i)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	want("deleted", 2, 2)
}
