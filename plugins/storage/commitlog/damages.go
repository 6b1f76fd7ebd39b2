package commitlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

const (
	damagedFile = "hardpoint.damaged"
	// damageHead is how many bytes of a damaged range tell whether it is still there.
	damageHead = 4096
)

// knownDamage is the content of hardpoint.damaged: what starts have found in the middle
// of the log. A later start does not look at it again, and who reads records by position
// does not look at their CRC.
type knownDamage struct {
	Damaged []damagedRange `json:"damaged"`
}

type damagedRange struct {
	From message.Position `json:"from"`
	To   message.Position `json:"to"`
	// Head is the CRC-32 (IEEE) of the first damageHead bytes.
	Head   uint32 `json:"head"`
	Reason string `json:"reason"`
}

func parseDamage(b []byte) (knownDamage, error) {
	var k knownDamage
	err := json.Unmarshal(b, &k)
	for i := range k.Damaged {
		if x := &k.Damaged[i]; x.From < 0 || x.To <= x.From {
			return k, fmt.Errorf("a range from %d to %d", x.From, x.To)
		}
	}
	return k, err
}

// loadDamage takes the damage that earlier starts found and that is still as it was: a
// file may have been restored, or another broker may have written over it.
func (s *Store) loadDamage(r *recovery) error {
	if s.mend.on { // looks for itself
		return nil
	}
	b, err := vfs.ReadFile(s.fs, s.path.damaged)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	s.damage.saved = b
	known, err := parseDamage(b)
	if err != nil {
		s.p.Logger.Warn("what an earlier start found to be damaged in the log cannot be read; hardpoint store verify looks for it", "file", s.path.damaged, "error", err)
		r.flushed = -1
		return nil
	}
	rd := newLogReader(r.list)
	defer rd.close()
	rd.window = damageHead
	for _, x := range known.Damaged {
		seg := r.list.at(x.From)
		if seg == nil || r.list.at(x.To-1) == nil {
			continue
		}
		good, _, err := isRecord(rd, x.From)
		if err != nil {
			return err
		}
		head, err := damageSum(rd, seg, x.From, x.To)
		if err != nil {
			return err
		}
		if good || head != x.Head {
			s.p.Logger.Info("a range of the log was damaged and is not as it was any more; it is read", "from", x.From, "to", x.To, "file", seg.path)
			continue
		}
		s.damage.add(storage.Damage{From: x.From, To: x.To, File: seg.path, Reason: x.Reason}, true)
	}
	if r.damages = len(s.damage.report()); r.damages > 0 {
		s.p.Logger.Warn("the log has damage that an earlier start found; reads pass over it", "ranges", r.damages, "file", s.path.damaged)
	}
	return nil
}

// damageSum is the CRC of a range's head.
func damageSum(rd *logReader, seg *segment, from, to message.Position) (uint32, error) {
	b, err := rd.bytes(seg, int64(from)-seg.base, int(min(int64(to-from), damageHead)))
	return crc32.ChecksumIEEE(b), err
}

// saveDamage remembers the damage in the middle of the log, which ends at tail and whose
// files are list.
func (s *Store) saveDamage(list segments, tail message.Position) error {
	if len(s.damage.report()) >= maxDamage { // the list is not all
		s.damage.unsaved.Store(true)
	}
	var known knownDamage
	rd := newLogReader(list)
	defer rd.close()
	rd.window = damageHead
	for _, x := range s.damage.skipped() {
		seg := list.at(x.From)
		if seg == nil || x.From >= tail {
			continue
		}
		head, err := damageSum(rd, seg, x.From, x.To)
		if err != nil {
			return err
		}
		known.Damaged = append(known.Damaged, damagedRange{x.From, x.To, head, x.Reason})
	}
	var b []byte
	if len(known.Damaged) > 0 {
		var err error
		if b, err = json.Marshal(known); err != nil {
			return err
		}
		b = append(b, '\n')
	}
	switch {
	case bytes.Equal(b, s.damage.saved) && (b == nil) == (s.damage.saved == nil):
		return nil
	case b == nil:
		if err := errors.Join(s.fs.Remove(s.path.damaged), s.fs.SyncDir(s.path.root)); err != nil {
			return err
		}
	default:
		if err := vfs.WriteFileAtomic(s.fs, s.path.damaged, b); err != nil {
			return err
		}
	}
	s.damage.saved = b
	return nil
}
