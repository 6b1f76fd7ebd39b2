package commitlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

// Repairing says how far [Repair] goes.
type Repairing struct {
	// DryRun: only look.
	DryRun bool
	// WithoutLost goes on without what could only be brought back from elsewhere,
	// missing segments above all. Else such a store is left as it is.
	WithoutLost bool
	// Now is the time that the name of the backup has.
	Now time.Time
}

// Repaired is what came of a repair.
type Repaired struct {
	// Before is the directory as it was found, After as it is left; After is nil when
	// nothing was changed.
	Before *Report `json:"before"`
	After  *Report `json:"after,omitempty"`
	// Backup is the folder in the store's directory with everything that was removed
	// or made again, empty when there was none.
	Backup string `json:"backup,omitempty"`
	// Done are the steps, for people.
	Done []string `json:"done"`
}

// ErrLost: the store lacks what can be brought back only from elsewhere. Test with
// errors.Is.
var ErrLost = errors.New("parts of the store are missing")

// backupPrefix begins the name of a backup's folder; the time follows.
const backupPrefix = "repair-"

// BackupName is the name of the folder for what a repair at that time removes.
func BackupName(now time.Time) string { return backupPrefix + now.UTC().Format("20060102T150405.000") }

// repair is one under way.
type repair struct {
	*examiner
	Repairing
	Repaired
	dir  string // of the backup, once there is one
	lock vfs.File
}

// Repair makes queues and keys again from the log where they are damaged, cuts a
// torn end of the log off and mends the small files; damage in the middle of the
// log stays. A store without other damage is not touched. Nobody else may have the store
// open: [vfs.ErrLocked]; a DryRun does without the lock where it cannot be taken. It may
// be ended at any moment, and begun again then.
//
// Everything that is removed or made again is copied before, durably.
func Repair(ctx context.Context, e Examination, how Repairing) (*Repaired, error) {
	e.Deep, e.Live = true, false
	r := &repair{Repairing: how, Repaired: Repaired{Done: []string{}}}
	lock := Lock
	if how.DryRun {
		lock = LockToRead
	}
	var err error
	if r.lock, err = lock(e.FS, e.Dir); err != nil {
		return nil, err
	}
	defer func() {
		if r.lock != nil {
			_ = r.lock.Close() // the end of the process frees it, too
		}
	}()
	if r.examiner, err = examine(ctx, e); err != nil {
		return nil, fmt.Errorf("examine %s: %w", e.Dir, err)
	}
	r.Before = &r.report
	if r.report.Mendable() == 0 || how.DryRun {
		return &r.Repaired, nil
	}
	if lost := r.report.Lost(); len(lost) > 0 && !how.WithoutLost {
		return &r.Repaired, fmt.Errorf("%w: %s: %s", ErrLost, lost[0].File, lost[0].What)
	}
	if err := r.do(ctx); err != nil {
		return &r.Repaired, fmt.Errorf("repair %s: %w", e.Dir, err)
	}
	return &r.Repaired, nil
}

// Lock takes the lock of a store's directory without waiting; [vfs.ErrLocked] when
// somebody has the store open. Close of what it returns frees it.
func Lock(fsys vfs.FS, dir string) (vfs.File, error) {
	name := newPaths(dir, "").lock
	f, err := fsys.Lock(name)
	if errors.Is(err, vfs.ErrLocked) {
		return nil, &openError{name, err}
	}
	return f, err
}

// openError says that a broker has the store open, in place of the words of the file
// system, of which it takes who that is.
type openError struct {
	lock string
	err  error
}

func (e *openError) Error() string {
	_, by, _ := strings.Cut(e.err.Error(), vfs.ErrLocked.Error())
	return fmt.Sprintf("a broker has the store open (%s is locked%s): stop it first", e.lock, by)
}

func (e *openError) Unwrap() error { return e.err }

// LockToRead is Lock for who only reads, [vfs.ErrLocked] included: where there is no lock
// it makes none, and who may not write there, or finds none, does without: then it
// returns nil.
func LockToRead(fsys vfs.FS, dir string) (vfs.File, error) {
	name := newPaths(dir, "").lock
	switch info, err := fsys.Stat(name); {
	case errors.Is(err, fs.ErrNotExist), mayNotWrite(err):
		return nil, nil
	case err != nil:
		return nil, err
	case info.IsDir:
		return nil, fmt.Errorf("%s is a directory, where the store's lock belongs; move it away", name)
	}
	f, err := Lock(fsys, dir)
	if mayNotWrite(err) {
		return nil, nil
	}
	return f, err
}

// mayNotWrite tells that a file could not be opened for writing by who may read it,
// for its rights or because its file system is read-only.
func mayNotWrite(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
}

func (r *repair) did(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.Done = append(r.Done, text)
	r.Log.Info(text) //nolint:sloglint // a step, told to a person
}

func (r *repair) do(ctx context.Context) error {
	for _, step := range []func() error{r.begin, r.smallFiles, r.queueFiles, r.keyFiles, r.segments, r.tail} {
		if err := step(); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if err := r.again(ctx); err != nil {
		return err
	}
	e := r.Examination
	after, err := examine(ctx, e)
	if err != nil {
		return err
	}
	r.After = &after.report
	return nil
}

// begin makes the backup's folder, and leaves in it what was found.
func (r *repair) begin() error {
	name := BackupName(r.Now)
	for n := 2; ; n++ {
		r.dir, r.Backup = filepath.Join(r.path.root, name), name
		if _, err := r.FS.Stat(r.dir); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return err
		}
		name = fmt.Sprintf("%s-%d", BackupName(r.Now), n)
	}
	if err := vfs.EnsureDir(r.FS, r.dir); err != nil {
		return err
	}
	b, err := json.MarshalIndent(&r.report, "", "  ")
	if err != nil {
		return err
	}
	return vfs.WriteFileAtomic(r.FS, filepath.Join(r.dir, "found.json"), append(b, '\n'))
}

// smallFiles puts a checkpoint away that cannot be trusted, and a truncation that
// cannot be finished. Of pairs of which one is good the start makes the other.
func (r *repair) smallFiles() error {
	if r.report.damaged(ofCheckpoint) && r.report.Checkpoint.Present {
		if err := r.put(r.path.checkpoint, "checkpoint"); err != nil {
			return err
		}
		r.did("the checkpoint is made again")
	}
	if r.twoIdentities {
		for _, name := range []string{identityFile, identityFile + copySuffix} {
			if err := r.copyBytes(filepath.Join(r.path.root, name), 0, 1<<20, name); err != nil {
				return err
			}
		}
		if err := writeIdentity(r.FS, r.path.identity, r.id); err != nil {
			return err
		}
		r.did("%s and its copy are made the same", identityFile)
	}
	for i := range r.report.Findings {
		if f := &r.report.Findings[i]; f.File == cutFile && f.Level == Damage {
			if err := r.put(r.path.cut, cutFile); err != nil {
				return err
			}
			r.did("%s is put away", cutFile)
		}
	}
	return nil
}

// put moves a file into the backup, which may be on another disk than the log
// (storePathCommitLog): then it is copied first.
func (r *repair) put(path string, rel ...string) error {
	to := filepath.Join(append([]string{r.dir}, rel...)...)
	if err := vfs.EnsureDir(r.FS, filepath.Dir(to)); err != nil {
		return err
	}
	if err := r.FS.Rename(path, to); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return err
		}
		// Systems have different errors for it, and a copy tells what else is wrong.
		if copied := r.copyBytes(path, 0, math.MaxInt64, rel...); copied != nil {
			return errors.Join(err, copied)
		}
		if err := r.FS.Remove(path); err != nil {
			return err
		}
	}
	return errors.Join(r.FS.SyncDir(filepath.Dir(to)), r.FS.SyncDir(filepath.Dir(path)))
}

// copyBytes copies [from, from+n) of a file into the backup, or what there is of it;
// holes stay holes.
func (r *repair) copyBytes(path string, from, n int64, rel ...string) (err error) {
	to := filepath.Join(append([]string{r.dir}, rel...)...)
	if err := vfs.EnsureDir(r.FS, filepath.Dir(to)); err != nil {
		return err
	}
	in, err := r.FS.OpenFile(path, openRead, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	size, err := in.Size()
	if err != nil {
		return err
	}
	n = min(n, max(size-from, 0))
	out, err := r.FS.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			err = out.Sync()
		}
		err = errors.Join(err, out.Close())
		if err == nil {
			err = r.FS.SyncDir(filepath.Dir(to))
		}
	}()
	if err := out.Truncate(n); err != nil {
		return err
	}
	w := getBuffer(readWindow)
	defer w.free()
	for off := int64(0); off < n; {
		b := w.b[:min(readWindow, n-off)]
		if _, err := in.ReadAt(b, from+off); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if used := trimZeros(b); len(used) > 0 {
			if _, err := out.WriteAt(used, off); err != nil {
				return err
			}
		}
		off += int64(len(b))
	}
	return nil
}

// queueFiles copies the files of damaged queues, and removes those with a name that
// cannot be. Of a queue whose first files are lost all go: no record is entered
// before the first file that is there.
func (r *repair) queueFiles() error {
	var list []*examinedQueue
	for _, e := range r.queues {
		if e.bad {
			list = append(list, e)
		}
	}
	size := r.ix.fileSize
	err := inParallel(len(list), func(i int) error {
		e := list[i]
		id := strconv.Itoa(int(e.key.ID))
		dir := filepath.Join(r.ix.dir, e.key.Topic, id)
		for i, f := range e.names {
			name := fileName(f.base)
			if err := r.copyBytes(filepath.Join(dir, name), 0, f.size, "consumequeue", e.key.Topic, id, name); err != nil {
				return err
			}
			if e.headless() || f.base%size != 0 || i > 0 && (f.base-e.names[i-1].base)/size > maxFileGap {
				if err := errors.Join(r.FS.Remove(filepath.Join(dir, name)), r.FS.SyncDir(dir)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err == nil && len(list) > 0 {
		r.did("%s made again from the log", counted(int64(len(list)), "queue is", "queues are"))
	}
	return err
}

// keyFiles moves the files of a damaged key index away.
func (r *repair) keyFiles() error {
	if !r.report.damaged(ofIndex) {
		return nil
	}
	names, err := r.ix.dirsOf(r.path.index)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range slices.Backward(names) { // those before the last one are whole without it
		if err := r.put(filepath.Join(r.path.index, name), "index", name); err != nil {
			return err
		}
	}
	r.did("the key index is made again from the log")
	return nil
}

// segments gives each file of the log its size, and those that are missing a
// segment of zeros.
func (r *repair) segments() error {
	names, err := r.FS.List(r.path.log)
	if err != nil {
		return err
	}
	for _, name := range names {
		base, ok := parseFileName(name)
		if ok && base%r.Segment != 0 {
			if err := r.put(filepath.Join(r.path.log, name), "commitlog", name); err != nil {
				return err
			}
			r.did("%s is put away", r.rel(filepath.Join(r.path.log, name)))
		}
	}
	for i, f := range r.files {
		path := filepath.Join(r.path.log, fileName(f.base))
		if i > 0 {
			for base := r.files[i-1].base + r.Segment; base < f.base; base += r.Segment {
				if err := r.zeroSegment(base); err != nil {
					return err
				}
			}
		}
		switch {
		case f.size < r.Segment:
			if err := extendFile(r.FS, path, r.Segment); err != nil {
				return err
			}
			r.did("%s is extended with %d zeros", r.rel(path), r.Segment-f.size)
		case f.size > r.Segment:
			rest := fmt.Sprintf("%s@%d", fileName(f.base), r.Segment)
			if err := r.copyBytes(path, r.Segment, f.size-r.Segment, "commitlog", rest); err != nil {
				return err
			}
			h, err := r.FS.OpenFile(path, openRW, 0)
			if err != nil {
				return err
			}
			if err := errors.Join(h.Truncate(r.Segment), h.Sync(), h.Close()); err != nil {
				return err
			}
			r.did("%s is cut to %d bytes", r.rel(path), r.Segment)
		}
	}
	return nil
}

// zeroSegment takes the place of a segment that is missing; it has no space on the
// disk.
func (r *repair) zeroSegment(base int64) error {
	path := filepath.Join(r.path.log, fileName(base))
	h, err := r.FS.OpenFile(path+againSuffix, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if err := errors.Join(h.Truncate(r.Segment), h.Sync(), h.Close()); err != nil {
		return err
	}
	if err := errors.Join(r.FS.Rename(path+againSuffix, path), r.FS.SyncDir(r.path.log)); err != nil {
		return err
	}
	r.did("%s is a segment of zeros now", r.rel(path))
	return nil
}

// tail copies what will be cut off the end of the log.
func (r *repair) tail() error {
	if r.torn == nil || r.torn.Level != Damage {
		return nil
	}
	from := int64(r.tornAt)
	for _, f := range r.files {
		at, to := max(from, f.base)-f.base, min(from+r.torn.Bytes, f.base+r.Segment)-f.base
		if at >= to {
			continue
		}
		name := fileName(f.base)
		if err := r.copyBytes(filepath.Join(r.path.log, name), at, to-at, "commitlog", fmt.Sprintf("%s@%d", name, at)); err != nil {
			return err
		}
	}
	r.did("the log is cut at position %d: %d bytes from %d on are no records", r.report.Tail, r.torn.Bytes, from)
	return nil
}

// again opens the store without belief in what is derived, and closes it in order.
func (r *repair) again(ctx context.Context) error {
	mode := storage.Immediate
	if r.published < r.report.Tail && !r.report.damaged(ofCheckpoint) && r.report.Closed {
		mode = storage.Explicit // what is not published stays so
	}
	s, err := r.store(mode)
	if err != nil {
		return err
	}
	s.mend = mending{on: true, short: r.WithoutLost}
	return r.openAndClose(ctx, s, nil)
}

// store is one on the directory as it was found.
func (x *examiner) store(mode storage.PublishMode) (*Store, error) {
	c := x.Config
	if x.report.QueueFileSize > 0 {
		c.MappedFileSizeConsumeQueue = x.report.QueueFileSize
	}
	if x.report.IndexSlots > 0 {
		c.MaxHashSlotNum, c.MaxIndexNum = x.report.IndexSlots, x.report.IndexEntries
	}
	if len(x.report.Index) == 0 && !x.fields.indexUsed {
		c.MessageIndexEnable = false // it was never there
	}
	segment := x.Segment
	if segment == 0 {
		return nil, errors.New("there are no segments")
	}
	return New(x.FS, storage.Params{Settings: plugin.Settings{Name: pluginName, Dir: x.Dir, Logger: x.Log}, Segment: segment, Publish: mode, Index: x.Rules}, c)
}

// openAndClose starts the store with the lock that is held, and ends it in order.
func (r *repair) openAndClose(ctx context.Context, s *Store, do func(*Store) error) error {
	s.lock, r.lock = r.lock, nil
	if err := s.Start(ctx); err != nil {
		return err
	}
	var err error
	if do != nil {
		err = do(s)
	}
	return errors.Join(err, s.Shutdown(context.WithoutCancel(ctx)))
}

// Sealing says how [Seal] seals.
type Sealing struct {
	// ToPublished cuts the log to what is published: what a replicator wrote and had
	// not decided yet is removed.
	ToPublished bool
	// WithDamage seals a log with damage in the middle.
	WithDamage bool
	// DryRun only looks whether there is something to do.
	DryRun bool
}

// Sealed is what came of it.
type Sealed struct {
	// Before is the directory as it was found.
	Before *Report `json:"before"`
	// Changed is false when there was nothing to do; with DryRun nothing is.
	Changed bool `json:"changed"`
	// Tail is the end of the log, and Cut how many bytes were cut to get there.
	Tail message.Position `json:"tail"`
	Cut  int64            `json:"cut"`
}

// ErrDamaged: the store has damage that Seal does not deal with. Test with errors.Is.
var ErrDamaged = errors.New("the store is damaged")

// Seal leaves a store as a broker does that ends in order: everything that is derived
// is there, everything is flushed, there is no file abort and nothing that only a
// start of this store would finish. Another broker can open it without recovery.
// Damage is refused with [ErrDamaged]; a sealed store is not touched. Nobody else may
// have the store open: [vfs.ErrLocked].
func Seal(ctx context.Context, e Examination, how Sealing) (*Sealed, error) {
	e.Deep, e.Live = false, false
	lock, err := Lock(e.FS, e.Dir)
	if err != nil {
		return nil, err
	}
	r := &repair{lock: lock}
	defer func() {
		if r.lock != nil {
			_ = r.lock.Close() // the end of the process frees it, too
		}
	}()
	if r.examiner, err = examine(ctx, e); err != nil {
		return nil, fmt.Errorf("examine %s: %w", e.Dir, err)
	}
	out := &Sealed{Before: &r.report, Tail: r.report.Tail}
	for i := range r.report.Findings {
		f := &r.report.Findings[i]
		if f.Level == Damage && (!how.WithDamage || f.lost || r.damage.skip.Load() == nil) {
			return out, fmt.Errorf("%w: %s", ErrDamaged, f)
		}
	}
	published := message.Position(r.fields.confirm)
	cut := how.ToPublished && r.id != nil && published < r.report.Tail
	if r.report.Closed && !cut && !r.cutting && r.report.Checkpoint.Present {
		return out, nil
	}
	if r.Segment == 0 { // there is no log
		return out, nil
	}
	if how.DryRun {
		out.Changed = true
		return out, nil
	}
	mode := storage.Immediate
	if cut {
		mode = storage.Explicit
	}
	s, err := r.store(mode)
	if err != nil {
		return out, err
	}
	err = r.openAndClose(ctx, s, func(s *Store) error {
		st := s.State()
		out.Tail = st.Tail
		if cut && st.Published < st.Tail {
			out.Tail = st.Published
			if err := s.Truncate(ctx, st.Published); err != nil {
				return err
			}
		}
		out.Cut = int64(r.report.Tail - out.Tail)
		return s.Sync(ctx, out.Tail)
	})
	if err != nil {
		return out, fmt.Errorf("seal %s: %w", e.Dir, err)
	}
	out.Changed = true
	return out, nil
}
