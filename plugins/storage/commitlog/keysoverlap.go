package commitlog

import (
	"slices"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/plugins/storage/commitlog/indexfile"
)

// dropOverlaps lets no file begin before the one in front of it ends. An Apache broker
// that recovered may have made keys again that were there already: it goes on in the last
// file that it finds, whose header may be older than the last keys in front of it. The
// keys that are there twice go from the one in front, and the files behind stay as they
// are: there may be many. It says false when keys have to be made again from where the
// files end.
func (k *keyIndex) dropOverlaps() (apart bool, err error) {
	apart = true
	changed := false
	front := -1 // the last one so far with keys
	for i := 0; i < len(k.files) && apart && err == nil; i++ {
		f := k.files[i]
		if f.H.Count <= 1 {
			continue
		}
		if front < 0 || f.H.BeginAt >= k.files[front].H.EndAt {
			front = i
			continue
		}
		changed = true
		end, last := k.files[front].H.EndAt, !slices.ContainsFunc(k.files[i+1:], hasKeys)
		if f.H.EndAt < end || f.H.EndAt == end && last {
			// The one in front has all that it has, of the last record perhaps not all.
			k.s.p.Logger.Warn("a file of the key index has nothing that the one in front of it has not; it is removed", "file", f.Path)
			err = k.remove(f)
			k.files = slices.Delete(k.files, i, i+1)
			i--
			apart = !last
			continue
		}
		front, apart, err = k.cutFront(i, front)
		i = front
	}
	if err != nil || !changed {
		return apart, err
	}
	return apart, k.noteLast()
}

func hasKeys(f *indexfile.File) bool { return f.H.Count > 1 }

// cutFront cuts the files in front of the one at i back to where that one begins, and
// says where it is then. The one in front is cut behind the first record of the other,
// of which each may have a key that the other has not. When that record is not there, one
// of the two lacks keys: both go, and all behind them, and joined is false.
func (k *keyIndex) cutFront(i, front int) (at int, joined bool, err error) {
	f := k.files[i]
	begin := f.H.BeginAt
	k.s.p.Logger.Warn("a file of the key index has keys that the one in front of it has, too; they are removed from the one in front",
		"file", f.Path, "front", k.files[front].Path, "position", begin)
	// Before a crash: what is cut and not flushed cannot be relied on.
	known := k.mark.Load()
	if err := k.lowerMark(begin); err != nil {
		return i, false, err
	}
	for front >= 0 {
		a := k.files[front]
		keep, err := a.Cut(begin + 1)
		if err == nil {
			err = a.Flush()
		}
		if err != nil {
			k.s.p.Logger.Warn("a file of the key index cannot be cut", "file", a.Path, "error", err)
			break
		}
		if keep {
			joined = a.H.EndAt == begin
			break
		}
		if err := k.remove(a); err != nil {
			return i, false, err
		}
		k.files = slices.Delete(k.files, front, front+1)
		for i, front = i-1, front-1; front >= 0 && !hasKeys(k.files[front]); {
			front--
		}
	}
	if joined || front < 0 { // what is in front of all files nobody needs to have
		if k.mark.Load() == known {
			return i, true, nil
		}
		k.mark.Store(known)
		return i, true, k.s.cp.setIndexAt(known)
	}
	k.s.p.Logger.Warn("a file of the key index does not go on where the one in front of it ends; both and those after them are made again from the log",
		"file", f.Path, "front", k.files[front].Path)
	for _, f := range k.files[front:] {
		if err := k.remove(f); err != nil {
			return i, false, err
		}
	}
	k.files = k.files[:front]
	return front, false, nil
}

// lowerMark makes what the checkpoint says of the keys hold when those at or above pos
// are gone.
func (k *keyIndex) lowerMark(pos message.Position) error {
	if k.mark.Load() <= int64(pos) {
		return nil
	}
	k.mark.Store(int64(pos))
	if err := k.s.cp.setIndexAt(int64(pos)); err != nil {
		return err
	}
	return k.s.cp.sync()
}
