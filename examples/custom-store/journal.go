package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storekit"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

var _ storekit.KV = (*journal)(nil)

// journal is a key-value backend: every Apply is one entry of a file, and the
// pairs that the entries come to are held in memory.
//
//	entry   length of what follows the CRC (4), CRC-32 of it (4), ops
//	op      length and bytes of Key, of Value, of Until
type journal struct {
	dir    string
	buffer int

	lock vfs.File
	file *os.File
	end  int64 // of the last whole entry

	mu     sync.RWMutex
	keys   []string // sorted
	values map[string][]byte
}

// Open implements storekit.KV.
func (j *journal) Open(context.Context) (err error) {
	if err := vfs.EnsureDir(vfs.OS{}, j.dir); err != nil {
		return err
	}
	lock, err := vfs.OS{}.Lock(filepath.Join(j.dir, "lock"))
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lock.Close())
		}
	}()
	file, err := os.OpenFile(filepath.Join(j.dir, "journal"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	if err := (vfs.OS{}).SyncDir(j.dir); err != nil {
		return err
	}
	if err := j.replay(file); err != nil {
		return err
	}
	// What lies behind the last whole entry was never acknowledged. It goes, so
	// that it is not taken for entries behind those that are written next.
	if err := file.Truncate(j.end); err != nil {
		return err
	}
	j.lock, j.file = lock, file
	return nil
}

// replay makes the map again, entry by entry, and finds the end.
func (j *journal) replay(file io.Reader) error {
	j.keys, j.values, j.end = nil, map[string][]byte{}, 0
	r := bufio.NewReaderSize(file, j.buffer)
	var head [8]byte
	for {
		_, err := io.ReadFull(r, head[:])
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
		// Read as it comes: a torn length must not ask for 4 GiB.
		size := binary.BigEndian.Uint32(head[:])
		entry, err := io.ReadAll(io.LimitReader(r, int64(size)))
		if err != nil {
			return err
		}
		if len(entry) < int(size) || crc32.ChecksumIEEE(entry) != binary.BigEndian.Uint32(head[4:]) {
			return nil
		}
		for len(entry) > 0 {
			var op storekit.Op
			op.Key, entry = cut(entry)
			op.Value, entry = cut(entry)
			op.Until, entry = cut(entry)
			j.change(op)
		}
		j.end += int64(len(head)) + int64(size)
	}
}

func cut(b []byte) (field, rest []byte) {
	n := 4 + binary.BigEndian.Uint32(b)
	return b[4:n], b[n:]
}

// change brings the map up to date; the caller holds mu or is alone.
func (j *journal) change(op storekit.Op) {
	at, found := slices.BinarySearch(j.keys, string(op.Key))
	if len(op.Until) > 0 {
		until, _ := slices.BinarySearch(j.keys, string(op.Until))
		if at >= until {
			return
		}
		for _, k := range j.keys[at:until] {
			delete(j.values, k)
		}
		j.keys = slices.Delete(j.keys, at, until)
		return
	}
	if !found {
		j.keys = slices.Insert(j.keys, at, string(op.Key))
	}
	j.values[string(op.Key)] = slices.Clone(op.Value)
}

// Apply implements storekit.KV.
func (j *journal) Apply(ops []storekit.Op, sync bool) error {
	entry := make([]byte, 8)
	for _, op := range ops {
		for _, field := range [][]byte{op.Key, op.Value, op.Until} {
			entry = binary.BigEndian.AppendUint32(entry, uint32(len(field)))
			entry = append(entry, field...)
		}
	}
	binary.BigEndian.PutUint32(entry, uint32(len(entry)-8))
	binary.BigEndian.PutUint32(entry[4:], crc32.ChecksumIEEE(entry[8:]))
	if _, err := j.file.WriteAt(entry, j.end); err != nil {
		if !errors.Is(err, syscall.ENOSPC) {
			return err
		}
		// ErrFull promises that nothing was done.
		if undo := j.file.Truncate(j.end); undo != nil {
			return errors.Join(err, undo)
		}
		return fmt.Errorf("%w: %w", storage.ErrFull, err)
	}
	if sync { // before anybody sees it
		if err := j.file.Sync(); err != nil {
			return err
		}
	}
	j.end += int64(len(entry))
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, op := range ops {
		j.change(op)
	}
	return nil
}

// Get implements storekit.KV.
func (j *journal) Get(key, dst []byte) ([]byte, bool, error) {
	j.mu.RLock()
	defer j.mu.RUnlock()
	v, found := j.values[string(key)]
	return append(dst, v...), found, nil
}

// Scan implements storekit.KV. It works on the keys of one moment, so that each
// is called without the lock.
func (j *journal) Scan(from, to []byte, reverse bool, each func(key, value []byte) bool) error {
	j.mu.RLock()
	first, _ := slices.BinarySearch(j.keys, string(from))
	end, _ := slices.BinarySearch(j.keys, string(to))
	keys := slices.Clone(j.keys[first:max(first, end)])
	j.mu.RUnlock()
	if reverse {
		slices.Reverse(keys)
	}
	for _, k := range keys {
		j.mu.RLock()
		v, found := j.values[k]
		j.mu.RUnlock()
		if found && !each([]byte(k), v) {
			return nil
		}
	}
	return nil
}

// Sync implements storekit.KV.
func (j *journal) Sync() error { return j.file.Sync() }

// Close implements storekit.KV.
func (j *journal) Close() error { return errors.Join(j.file.Close(), j.lock.Close()) }
