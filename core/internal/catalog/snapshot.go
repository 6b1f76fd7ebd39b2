package catalog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"

	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

// The snapshot file is
//
//	magic    8 bytes "HPCATLG1"
//	crc      4 bytes, CRC-32C of everything behind it, big-endian
//	log id   text
//	next     varint, offset in the catalog queue of the first record not in it
//	entries  until the end, those of the ends of queues behind the topics
//
// A file that does not check is passed over for the previous copy (.bak), then
// for the log; never for nothing.
const (
	snapshotName  = "hardpoint.snapshot"
	snapshotMagic = "HPCATLG1"
	backup        = ".bak"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type snapshot struct {
	logID   string
	next    int64
	entries []byte
}

func (s *snapshot) encode() []byte {
	b := str(nil, s.logID)
	b = binary.AppendVarint(b, s.next)
	b = append(b, s.entries...)
	out := append(make([]byte, 0, len(b)+12), snapshotMagic...)
	out = binary.BigEndian.AppendUint32(out, crc32.Checksum(b, castagnoli))
	return append(out, b...)
}

// ErrSnapshot: a snapshot file that does not check. Test with errors.Is.
var ErrSnapshot = errors.New("damaged catalog snapshot")

func decodeSnapshot(b []byte) (snapshot, error) {
	n := len(snapshotMagic)
	if len(b) < n+4 || string(b[:n]) != snapshotMagic {
		return snapshot{}, fmt.Errorf("%w: %d bytes without the magic word", ErrSnapshot, len(b))
	}
	if crc32.Checksum(b[n+4:], castagnoli) != binary.BigEndian.Uint32(b[n:]) {
		return snapshot{}, fmt.Errorf("%w: the checksum does not match", ErrSnapshot)
	}
	r := reader{b: b[n+4:]}
	s := snapshot{logID: r.str(), next: r.varint()}
	s.entries = r.b
	if r.err != nil {
		return snapshot{}, fmt.Errorf("%w: %w", ErrSnapshot, r.err)
	}
	return s, nil
}

// readSnapshot makes a state of the newest snapshot that checks and fits the
// log: of this log, and within what the catalog queue still has. Without one the
// state is empty. next is the offset in the catalog queue to go on at.
func (c *Catalog) readSnapshot(lo, hi int64) (st *state, next int64) {
	id := c.k.Store.State().LogID
	for _, name := range []string{snapshotName, snapshotName + backup} {
		path := filepath.Join(c.dir, name)
		b, err := vfs.ReadFile(c.fs, path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var s snapshot
		if err == nil {
			s, err = decodeSnapshot(b)
		}
		if err == nil && s.logID != id {
			err = fmt.Errorf("%w: it is of log %s, this is log %s", ErrSnapshot, s.logID, id)
		}
		if err == nil && (s.next < lo || s.next > hi) {
			err = fmt.Errorf("%w: it continues at offset %d, the log has %d to %d", ErrSnapshot, s.next, lo, hi)
		}
		st := newPrivate()
		if err == nil {
			err = entries(s.entries, st.applyEntry)
		}
		if err == nil {
			return st, s.next
		}
		c.k.Log.Warn("a catalog snapshot is passed over", "file", path, "error", err)
	}
	return newPrivate(), lo
}

// dropSnapshots removes snapshots that may hold what was cut off the log.
func (c *Catalog) dropSnapshots() error {
	removed := false
	for _, name := range []string{snapshotName, snapshotName + backup} {
		err := c.fs.Remove(filepath.Join(c.dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the log was cut, and a snapshot of the catalog cannot be removed: %w", err)
		}
		removed = removed || err == nil
	}
	if !removed {
		return nil
	}
	c.files.snapshotDue()
	return c.fs.SyncDir(c.dir)
}

// writeSnapshot replaces the snapshot and keeps the previous one.
func (c *Catalog) writeSnapshot() error {
	s, err := c.takeSnapshot()
	if err != nil || s == nil {
		return err
	}
	path := filepath.Join(c.dir, snapshotName)
	if err := vfs.EnsureDir(c.fs, c.dir); err != nil {
		return err
	}
	if old, err := vfs.ReadFile(c.fs, path); err == nil {
		if _, err := decodeSnapshot(old); err == nil {
			if err := vfs.WriteFileAtomic(c.fs, path+backup, old); err != nil {
				return err
			}
		}
	}
	return vfs.WriteFileAtomic(c.fs, path, s.encode())
}

// takeSnapshot is nil while there is nothing to take one of.
func (c *Catalog) takeSnapshot() (*snapshot, error) {
	c.office.Lock() // the tables must not be built anew meanwhile
	defer c.office.Unlock()
	if c.built != builtFully || c.cut.Load() {
		return nil, nil
	}
	// The offset first: whatever is below it is in the tables or in flight.
	var a storage.OffsetAnswers
	if err := c.k.Store.Offsets(context.Background(), []storage.OffsetQuery{{Queue: queue}}, &a); err != nil {
		return nil, err
	}
	s := &snapshot{logID: c.k.Store.State().LogID, next: c.next}
	if c.leading && len(a.Answers) == 1 {
		s.next = c.images.whole(a.Answers[0].Max)
	}
	w := &writer{}
	if err := c.dump(w); err != nil {
		return nil, err
	}
	c.s.ends.dump(w)
	s.entries = w.buf
	return s, nil
}
