package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/plugins/storage/commitlog/indexfile"
)

// keyCheck compares the key index with the log: both are in the same order, so
// that one walk along each does.
type keyCheck struct {
	x    *examiner
	size indexfile.Sizes
	// known is false when nothing tells the sizes: there are empty files only.
	known bool
	// names are the files that can be read; at is that under way.
	names []string
	at    int
	file  vfs.File
	r     *indexfile.Reader
	cur   indexfile.Entry
	have  bool
	over  bool

	hashes []int32 // of the entries of one record
	last   message.Position
	here   fileFaults

	missing          int64 // keys of the log that are in no file
	missFrom, missTo message.Position
	missAfter        int64 // of them, those behind the last entry
	entries          int64
	lastEntry        message.Position
}

// fileFaults are what is wrong with the entries of one file.
type fileFaults struct{ unchained, unordered, wrong badKeys }

type badKeys struct {
	n     int64
	first indexfile.Entry
}

func (b *badKeys) add(e indexfile.Entry) {
	if b.n == 0 {
		b.first = e
	}
	b.n++
}

const (
	keysMeans  = "queries by key do not find all messages, or others"
	keysRepair = "the files of the key index are put into the backup and made again from the log"
)

// listKeys finds the files of the key index.
func (x *examiner) listKeys() error {
	names, err := x.ix.dirsOf(x.path.index)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	k := &keyCheck{x: x, size: indexfile.Sizes{Slots: x.Config.MaxHashSlotNum, Entries: x.Config.MaxIndexNum}}
	sizes := map[int64]int64{}
	names = slices.DeleteFunc(names, func(name string) bool {
		_, err := strconv.ParseUint(name, 10, 63)
		return err != nil || len(name) != 17
	})
	for _, name := range names {
		info, err := x.FS.Stat(filepath.Join(x.path.index, name))
		if err != nil {
			return err
		}
		sizes[info.Size]++
		x.report.Index = append(x.report.Index, IndexReport{File: name, Size: info.Size})
	}
	if len(names) == 0 {
		x.keys = k
		return nil
	}
	if err := k.findSizes(sizes); err != nil {
		return err
	}
	if k.known {
		x.report.IndexSlots, x.report.IndexEntries = k.size.Slots, k.size.Entries
	}
	for i := range x.report.Index {
		if err := k.header(&x.report.Index[i]); err != nil {
			return err
		}
	}
	x.keys = k
	return nil
}

// findSizes takes the configured sizes, RocketMQ's, or finds them in a file.
func (k *keyCheck) findSizes(sizes map[int64]int64) error {
	std := NewDefaultConfig()
	for _, z := range []indexfile.Sizes{k.size, {Slots: std.MaxHashSlotNum, Entries: std.MaxIndexNum}} {
		if sizes[z.FileSize()] > 0 {
			k.size, k.known = z, true
			return nil
		}
	}
	for _, f := range k.x.report.Index {
		h, err := k.x.FS.OpenFile(filepath.Join(k.x.path.index, f.File), openRead, 0)
		if err != nil {
			return err
		}
		z, ok, err := indexfile.FindSizes(h, f.Size)
		_ = h.Close() // was only read
		if err != nil {
			return err
		}
		if ok {
			k.size, k.known = z, true
			return nil
		}
	}
	return nil
}

func (k *keyCheck) path(name string) string { return filepath.Join(k.x.path.index, name) }

// header looks at the size and the header of a file.
func (k *keyCheck) header(f *IndexReport) error {
	x := k.x
	bad := func(off int64, what string) {
		if !x.Live {
			x.report.Add(Finding{Level: Damage, part: ofIndex, File: x.rel(k.path(f.File)), Offset: off, What: what, Means: keysMeans, Repair: keysRepair})
		}
	}
	size := k.size
	if !k.known { // as many as it may have
		size = indexfile.Sizes{Slots: indexfile.MaxSlots, Entries: math.MaxInt32}
	} else if want := size.FileSize(); f.Size != want {
		bad(min(f.Size, want), fmt.Sprintf("the file has %d bytes, one of %d slots and %d entries has %d", f.Size, k.size.Slots, k.size.Entries, want))
		return nil
	}
	h, err := x.FS.OpenFile(k.path(f.File), openRead, 0)
	if err != nil {
		return err
	}
	defer h.Close()
	r, err := indexfile.NewReader(h, size)
	if errors.Is(err, indexfile.ErrHeader) {
		bad(0, err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	if !k.known {
		if r.H.Count > 1 {
			bad(0, fmt.Sprintf("it has %d entries, and cannot be one of %d bytes", r.H.Count-1, f.Size))
		}
		return nil
	}
	f.Entries, f.From, f.To, f.BeginTime, f.EndTime = r.H.Count-1, r.H.BeginAt, r.H.EndAt, r.H.BeginTime, r.H.EndTime
	k.names = append(k.names, f.File)
	return nil
}

// next reads the next entry of the files.
func (k *keyCheck) next() error {
	for {
		if k.r == nil {
			if k.at >= len(k.names) {
				k.have, k.over = false, true
				return nil
			}
			f, err := k.x.FS.OpenFile(k.path(k.names[k.at]), openRead, 0)
			if err != nil {
				return err
			}
			k.file, k.here = f, fileFaults{}
			if k.r, err = indexfile.NewReader(f, k.size); err != nil {
				return errors.Join(err, k.endFile())
			}
		}
		e, ok, err := k.r.Next()
		if err != nil {
			return errors.Join(err, k.endFile())
		}
		if !ok {
			if err := k.endFile(); err != nil {
				return err
			}
			k.at++
			continue
		}
		k.entries++
		switch {
		case e.Hash < 0 || e.At < 0:
			k.here.wrong.add(e)
			continue
		case e.At < k.last:
			k.here.unordered.add(e)
			continue
		case !e.Chained:
			k.here.unchained.add(e)
		}
		k.last, k.cur, k.have, k.lastEntry = e.At, e, true, e.At
		return nil
	}
}

// endFile tells what was wrong with the entries of a file.
func (k *keyCheck) endFile() error {
	r, name := k.r, ""
	if k.at < len(k.names) {
		name = k.x.rel(k.path(k.names[k.at]))
	}
	defer func() {
		_ = k.file.Close() // was only read
		k.r = nil
	}()
	if r == nil {
		return nil
	}
	tell := func(off int64, what string) {
		k.x.report.Add(Finding{Level: Damage, part: ofIndex, File: name, Offset: off, What: what, Means: keysMeans, Repair: keysRepair})
	}
	if b := k.here.wrong; b.n > 0 {
		tell(k.size.EntryAt(b.first.N), fmt.Sprintf("%s; the first is entry %d, hash %d, position %d", counted(b.n, "entry is of no key of the record that it names", "entries are of no key of the records that they name"), b.first.N, b.first.Hash, b.first.At))
	}
	if b := k.here.unordered; b.n > 0 {
		tell(k.size.EntryAt(b.first.N), fmt.Sprintf("%s not in the order of the log; the first is entry %d, position %d", counted(b.n, "entry is", "entries are"), b.first.N, b.first.At))
	}
	if b := k.here.unchained; b.n > 0 {
		tell(k.size.EntryAt(b.first.N), fmt.Sprintf("%s not chained to the one before in the slot; the first is entry %d", counted(b.n, "entry is", "entries are"), b.first.N))
	}
	wrong, first, err := r.Slots()
	if err == nil && wrong > 0 && k.here.unchained.n+k.here.unordered.n == 0 {
		tell(k.size.SlotAt(first), fmt.Sprintf("%s not name the newest entry; the first is slot %d", counted(int64(wrong), "slot does", "slots do"), first))
	}
	return err
}

// expect takes the keys of the next record of the log.
func (k *keyCheck) expect(pos message.Position, keys []message.Key) error {
	if !k.have && !k.over {
		if err := k.next(); err != nil {
			return err
		}
	}
	for k.have && k.cur.At < pos {
		k.stray()
		if err := k.next(); err != nil {
			return err
		}
	}
	k.hashes = k.hashes[:0]
	for k.have && k.cur.At == pos {
		if !slices.ContainsFunc(keys, func(key message.Key) bool { return key.Hash == k.cur.Hash }) {
			k.here.wrong.add(k.cur)
		}
		k.hashes = append(k.hashes, k.cur.Hash)
		if err := k.next(); err != nil {
			return err
		}
	}
	for i := range keys {
		if slices.Contains(k.hashes, keys[i].Hash) {
			continue
		}
		if k.missing == 0 {
			k.missFrom = pos
		}
		k.missing, k.missTo = k.missing+1, pos
		if k.over {
			k.missAfter++
		}
	}
	return nil
}

// stray judges the entry under way, at whose position the log has no record.
func (k *keyCheck) stray() {
	if at := k.cur.At; at >= k.x.report.First && !k.x.damage.covers(at) {
		k.here.wrong.add(k.cur)
	}
}

// settle reads what is left when the log is over.
func (k *keyCheck) settle() error {
	x := k.x
	if !x.Deep || x.Live {
		return nil
	}
	for !k.over {
		if k.have {
			k.stray()
		}
		if err := k.next(); err != nil {
			return err
		}
	}
	if k.missing == 0 {
		return nil
	}
	f := Finding{Level: Damage, part: ofIndex, File: "index", What: fmt.Sprintf("%s of records from position %d to %d in no file", counted(k.missing, "key is", "keys are"), k.missFrom, k.missTo), Means: keysMeans, Repair: keysRepair}
	switch used := x.id != nil && x.fields.indexUsed; {
	case len(x.report.Index) == 0 && !used:
		f.Level, f.What, f.Means, f.Repair = Note, "there are no files of the key index", "nothing if it is switched off (messageIndexEnable); else the next start makes them", ""
	case k.missFrom >= x.published:
		return nil // as told of the queues
	case k.missAfter == k.missing && !x.report.Closed:
		f.Level, f.Means, f.Repair = Note, "the broker ended before it had written them; the next start does", ""
	}
	x.report.Add(f)
	return nil
}
