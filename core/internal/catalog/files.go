package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

// The RocketMQ-shaped files are written for Apache's broker and its tools; this
// broker reads them only when somebody else wrote them. To tell, hardpoint.files
// names for each file the checksums of what is, and of what may be, there: it is
// replaced before a file is, so a crash in between leaves one of the two.
const (
	topicsFile  = "topics.json"
	groupsFile  = "subscriptionGroup.json"
	offsetsFile = "consumerOffset.json"
	modesFile   = "messageRequestMode.json"
	ledgerName  = "hardpoint.files"

	// A snapshot is due after this time, or this many bytes of catalog records: a
	// start reads no more than that of the log.
	snapshotInterval = 60 * time.Second
	snapshotBytes    = 64 << 20

	// settleWait bounds how long the answer about a topic waits for the files: a
	// disk that hangs must not keep from clients what the log has.
	settleWait = time.Second
)

var fileNames = [...]string{topicsFile, groupsFile, offsetsFile, modesFile}

// ErrFiles: metadata files that cannot be used, while there is nothing else to
// go by. Test with errors.Is.
var ErrFiles = errors.New("unreadable metadata files")

// files writes and adopts the files.
type files struct {
	c *Catalog

	mu           sync.Mutex
	dirty        map[string]bool
	known        map[string][]uint32 // by file: checksums of our own contents
	offsetsSeen  int                 // offsetTable.changed when its file was written
	modesSeen    int                 // changes of modes when their file was
	forbidSeen   int                 // changes of what is forbidden when the file of groups was
	lastOffsets  time.Time
	lastSnapshot time.Time
	changed      bool // since the last snapshot
	took         bool // a file of somebody else, in adopt
	mend         bool // the ledger or its copy is damaged

	// Apache's broker writes topics.json before it answers, and one that takes
	// over after a kill goes by that file: answers about topics wait for it. Many
	// changes share one write.
	wanted, settled uint64        // changes of topics: made here, and of them tried to write
	moved           chan struct{} // closed and replaced when settled moves
	hidden          []*topic      // until the next write of topics.json
	over            bool          // nobody writes any more
	kick            chan struct{} // something is to be written at once

	// texts is what the rows of a file look like there, by what they are made of.
	// Only write uses it.
	texts map[string]map[any][]byte
}

// ledger is the content of hardpoint.files.
type ledger struct {
	LogID string              `json:"logId"`
	Files map[string][]uint32 `json:"files"`
}

// mark says that tables changed.
func (f *files) mark(topics, groups bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.markLocked(topics, groups)
}

func (f *files) markLocked(topics, groups bool) {
	f.dirty[topicsFile] = f.dirty[topicsFile] || topics
	f.dirty[groupsFile] = f.dirty[groupsFile] || groups
	f.changed = true
}

// changedHere is mark of a change that somebody waits for: it is written at
// once. The topics in hidden are found by look-ups after that.
func (f *files) changedHere(topics, groups bool, hidden []*topic) {
	f.mu.Lock()
	f.markLocked(topics, groups)
	if topics {
		f.wanted++
	}
	f.hidden = append(f.hidden, hidden...)
	f.mu.Unlock()
	f.wake()
}

// wake has what is due written at once.
func (f *files) wake() {
	select {
	case f.kick <- struct{}{}:
	default: // one is waiting; it covers this, too
	}
}

// settle waits until topics.json holds all changes that were made before, and
// then shows ts. It waits for one try only and not longer than settleWait: the log
// has the change.
func (f *files) settle(ctx context.Context, ts ...*topic) {
	defer func() {
		for _, t := range ts {
			t.hidden.Store(false)
		}
	}()
	f.mu.Lock()
	wanted := f.wanted
	f.mu.Unlock()
	timer := f.c.k.Clock.NewTimer(settleWait)
	defer timer.Stop()
	for {
		f.mu.Lock()
		done, moved := f.over || f.settled >= wanted, f.moved
		f.mu.Unlock()
		if done {
			return
		}
		select {
		case <-moved:
		case <-timer.C():
			f.c.k.Log.Warn("writing the metadata files takes too long; a topic is answered for before topics.json holds it, the log does", "dir", f.c.dir)
			return
		case <-ctx.Done():
			return
		}
	}
}

// tried ends the waiting for all changes up to a number.
func (f *files) tried(upTo uint64, hidden []*topic) {
	for _, t := range hidden {
		t.hidden.Store(false)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settled = upTo
	close(f.moved)
	f.moved = make(chan struct{})
}

// close ends the waiting for good.
func (f *files) close() {
	f.mu.Lock()
	f.over = true
	upTo, hidden := f.wanted, f.hidden
	f.mu.Unlock()
	f.tried(upTo, hidden)
}

// adopt takes over what somebody else wrote into the files; true when the
// tables changed. It fails rather than lose metadata in silence.
func (f *files) adopt() (bool, error) {
	c := f.c
	fresh := c.next == 0 && len(*c.s.topics.Load()) == 0 // no record, no snapshot
	if !f.readLedger() && !fresh {
		// Which files are ours cannot be told. The log is complete, files may be
		// some seconds old, so the log wins.
		c.k.Log.Warn("the metadata files are not looked at and will be written again from the log, since the list of their checksums is damaged", "dir", c.dir)
		for _, name := range fileNames {
			if b, err := vfs.ReadFile(c.fs, filepath.Join(c.dir, name)); err == nil {
				f.mu.Lock()
				f.known[name] = []uint32{crc32.Checksum(b, castagnoli)} // so that a half-mended list tells nothing wrong
				f.mu.Unlock()
			}
			f.markFile(name)
		}
		return false, nil
	}
	f.took = false
	changed := false
	for _, name := range fileNames {
		took, err := f.adoptOne(name, fresh)
		if err != nil {
			return false, err
		}
		changed = changed || took
	}
	if fresh {
		made, err := f.fromQueues()
		if err != nil {
			return false, err
		}
		changed = changed || made
	}
	return changed, nil
}

// readLedger fills known; false when there is a ledger, and neither it nor its
// previous copy can be used.
func (f *files) readLedger() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known = map[string][]uint32{}
	there, used := false, false
	missing := 0
	for _, name := range []string{ledgerName, ledgerName + backup} {
		path := filepath.Join(f.c.dir, name)
		b, err := vfs.ReadFile(f.c.fs, path)
		if errors.Is(err, fs.ErrNotExist) {
			missing++
			continue
		}
		var l ledger
		if err == nil {
			err = json.Unmarshal(b, &l)
		}
		if err != nil {
			there, f.mend = true, true
			f.c.k.Log.Warn("a list of checksums of the metadata files cannot be used", "file", path, "error", err)
			continue
		}
		if id := f.c.k.Store.State().LogID; l.LogID != id {
			f.c.k.Log.Warn("a list of checksums of the metadata files is of another log", "file", path, "its_log", l.LogID, "this_log", id)
			continue
		}
		if !used {
			maps.Copy(f.known, l.Files)
			used = true
		}
	}
	f.mend = f.mend || missing == 1
	return used || !there
}

// writeLedger replaces the ledger and keeps the previous one; sums are the
// contents that name may have from now on.
func (f *files) writeLedger(name string, sums []uint32) error {
	f.mu.Lock()
	f.known[name] = sums
	f.mu.Unlock()
	return f.saveLedger()
}

func (f *files) saveLedger() error {
	id := f.c.k.Store.State().LogID
	f.mu.Lock()
	l, err := json.Marshal(ledger{LogID: id, Files: f.known})
	f.mu.Unlock()
	if err != nil {
		return err
	}
	path := filepath.Join(f.c.dir, ledgerName)
	// Both copies hold what may be there, so that either may be lost.
	if err := vfs.WriteFileAtomic(f.c.fs, path, l); err != nil {
		return err
	}
	return vfs.WriteFileAtomic(f.c.fs, path+backup, l)
}

// adopted notes that the files taken over are in the log now, so that they are
// not taken over again after changes made since.
func (f *files) adopted() {
	if !f.took {
		return
	}
	for _, name := range fileNames {
		b, err := vfs.ReadFile(f.c.fs, filepath.Join(f.c.dir, name))
		if err == nil && !f.isOurs(name, b) {
			err = f.writeLedger(name, []uint32{crc32.Checksum(b, castagnoli)})
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			f.c.k.Log.Warn("noting that a metadata file was taken over; until that succeeds it will be at the next start, too", "file", name, "error", err)
		}
	}
}

// mendLedger writes the ledger again whose copy was good.
func (f *files) mendLedger() error {
	if err := vfs.EnsureDir(f.c.fs, f.c.dir); err != nil {
		return err
	}
	if err := f.saveLedger(); err != nil {
		return err
	}
	f.mu.Lock()
	f.mend = false
	f.mu.Unlock()
	return nil
}

// snapshotDue makes the next write write a snapshot.
func (f *files) snapshotDue() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changed, f.lastSnapshot = true, time.Unix(0, 0)
}

func (f *files) adoptOne(name string, fresh bool) (bool, error) {
	c := f.c
	path := filepath.Join(c.dir, name)
	main, err := vfs.ReadFile(c.fs, path)
	mainThere := err == nil
	if err == nil && f.isOurs(name, main) {
		return false, nil
	}
	if err == nil {
		err = f.parse(name, main)
	}
	if err == nil {
		c.k.Log.Info("taking metadata from a file that another broker wrote", "file", path)
		if name == modesFile {
			f.warnOfPop(path)
		}
		f.took = true
		return true, nil
	}
	if !fresh {
		// The log has everything; the file is written again.
		if mainThere {
			c.k.Log.Warn("a metadata file is damaged and will be written again from the log", "file", path, "error", err)
		}
		f.markFile(name)
		return false, nil
	}
	old, berr := vfs.ReadFile(c.fs, path+backup)
	if berr == nil {
		if berr = f.parse(name, old); berr == nil {
			c.k.Log.Warn("a metadata file cannot be used; taking its previous copy", "file", path, "copy", path+backup, "error", err)
			return true, nil
		}
	}
	if !mainThere && errors.Is(berr, fs.ErrNotExist) {
		return false, nil // there never was one
	}
	return false, fmt.Errorf("%w: %s: %w; its previous copy %s%s: %w. Restore one of them, or remove both to start without them", ErrFiles, path, err, path, backup, berr)
}

func (f *files) markFile(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dirty[name] = true
	if name == offsetsFile {
		f.offsetsSeen = -1
	}
}

func (f *files) isOurs(name string, b []byte) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	sum := crc32.Checksum(b, castagnoli)
	for _, k := range f.known[name] {
		if k == sum {
			return true
		}
	}
	return false
}

// parse replaces a table by the content of a file, or changes nothing.
func (f *files) parse(name string, b []byte) error {
	if len(bytes.TrimSpace(bytes.Trim(b, "\x00"))) == 0 {
		return fmt.Errorf("%d bytes without content", len(b))
	}
	s := f.c.s
	switch name {
	case topicsFile:
		var w command.TopicConfigSerializeWrapper
		if err := command.DecodeBody(b, &w); err != nil {
			return err
		}
		if w.TopicConfigTable == nil {
			return errors.New("no topicConfigTable")
		}
		for _, t := range s.sortedTopics() {
			if _, ok := w.TopicConfigTable[t.Config.TopicName]; !ok && !t.Internal {
				s.removeTopic(t.Config.TopicName)
			}
		}
		for key, t := range w.TopicConfigTable {
			t.TopicName = key
			t.ReadQueueNums, t.WriteQueueNums = f.bounded("topic", key, t.ReadQueueNums), f.bounded("topic", key, t.WriteQueueNums)
			s.putTopic(t)
		}
		v := s.versions()
		s.setVersions([3]command.DataVersion{w.DataVersion, v[1], v[2]})
	case groupsFile:
		var w command.SubscriptionGroupWrapper
		if err := command.DecodeBody(b, &w); err != nil {
			return err
		}
		if w.SubscriptionGroupTable == nil {
			return errors.New("no subscriptionGroupTable")
		}
		for _, g := range s.sortedGroups() {
			if _, ok := w.SubscriptionGroupTable[g.GroupName]; !ok {
				s.removeGroup(g.GroupName, false)
			}
		}
		for key, g := range w.SubscriptionGroupTable {
			g.GroupName = key
			g.RetryQueueNums = f.bounded("group", key, g.RetryQueueNums)
			s.putGroup(g)
		}
		s.values.forbid(w.ForbiddenTable)
		v := s.versions()
		s.setVersions([3]command.DataVersion{v[0], w.DataVersion, v[2]})
	case offsetsFile:
		var w command.ConsumerOffsetSerializeWrapper
		if err := command.DecodeBody(b, &w); err != nil {
			return err
		}
		if w.OffsetTable == nil {
			return errors.New("no offsetTable")
		}
		s.offsets.reset()
		for key, n := range w.OffsetTable {
			topic, group, ok := strings.Cut(key, "@")
			if !ok {
				continue
			}
			for id, v := range n {
				s.offsets.set(group, message.Queue{Topic: topic, ID: id}, v, false)
			}
		}
		v := s.versions()
		s.setVersions([3]command.DataVersion{v[0], v[1], w.DataVersion})
	case modesFile:
		return f.parseModes(b)
	}
	return nil
}

// maxQueues bounds what files say of the number of queues: RocketMQ bounds it nowhere, and
// much goes along all queues of a topic.
const maxQueues = 1 << 16

// bounded is a number of queues that can be.
func (f *files) bounded(kind, name string, n int32) int32 {
	can := min(max(n, 0), maxQueues)
	if can != n {
		f.c.k.Log.Warn("a number of queues in the metadata files cannot be; the nearest that can is used", "kind", kind, "name", name, "given", n, "used", can)
	}
	return can
}

// fromQueues makes topics of queues that nothing else knows: a store whose
// metadata is lost keeps its messages reachable.
func (f *files) fromQueues() (bool, error) {
	c := f.c
	var a storage.OffsetAnswers
	if err := c.k.Store.Offsets(context.Background(), nil, &a); err != nil {
		return false, err
	}
	queues := map[string]int32{}
	for i := range a.Answers {
		q := a.Answers[i].Queue
		if c.Named(q.Topic) == nil && !message.IsInternal(q.Topic) && !message.IsSystem(q.Topic) {
			queues[q.Topic] = max(queues[q.Topic], min(q.ID, maxQueues)+1)
		}
	}
	for topic, n := range queues {
		n = f.bounded("topic", topic, n)
		c.k.Log.Warn("a topic has messages but no configuration; making one", "topic", topic, "queues", n)
		c.s.putTopic(command.TopicConfig{TopicName: topic, ReadQueueNums: n, WriteQueueNums: n, Perm: command.PermRead | command.PermWrite, TopicFilterType: "SINGLE_TAG"})
	}
	return len(queues) > 0, nil
}

// write replaces the files whose tables changed, and the snapshot when it is
// due; final writes everything that changed.
func (f *files) write(final bool) error {
	c := f.c
	if !c.isLoaded() {
		return nil
	}
	now := c.k.Clock.Now()
	f.mu.Lock()
	if f.lastSnapshot.IsZero() {
		f.lastSnapshot = now
	}
	// What changes from here on makes them dirty again.
	todo := f.dirty
	f.dirty = map[string]bool{}
	upTo, hidden := f.wanted, f.hidden
	f.hidden = nil
	c.s.offsets.mu.RLock()
	seen := c.s.offsets.changed
	c.s.offsets.mu.RUnlock()
	if seen != f.offsetsSeen {
		f.changed = true
		if final || now.Sub(f.lastOffsets) >= c.k.Config().FileInterval {
			todo[offsetsFile] = true
		}
	}
	modes, forbidden := c.s.values.changes()
	todo[modesFile] = todo[modesFile] || modes != f.modesSeen
	todo[groupsFile] = todo[groupsFile] || forbidden != f.forbidSeen
	mend := f.mend
	snap := f.changed && (final || now.Sub(f.lastSnapshot) >= snapshotInterval)
	f.mu.Unlock()

	var errs []error
	if mend {
		if err := f.mendLedger(); err != nil {
			errs = append(errs, err)
		}
	}
	for _, name := range fileNames {
		if todo[name] {
			err := f.writeOne(name)
			f.mu.Lock()
			switch {
			case err != nil:
				errs = append(errs, err)
				f.dirty[name] = true
			case name == offsetsFile:
				f.offsetsSeen, f.lastOffsets = seen, now
			case name == groupsFile:
				f.forbidSeen = forbidden
			case name == modesFile:
				f.modesSeen = modes
			}
			f.mu.Unlock()
		}
		if name == topicsFile {
			f.tried(upTo, hidden)
		}
	}
	if snap {
		f.mu.Lock()
		f.changed, f.lastSnapshot = false, now
		f.mu.Unlock()
		c.unsaved.Store(0)
		if err := c.writeSnapshot(); err != nil {
			f.mu.Lock()
			f.changed = true
			f.mu.Unlock()
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (f *files) writeOne(name string) error {
	c := f.c
	b, err := f.content(name)
	if err != nil {
		return err
	}
	if err := vfs.EnsureDir(c.fs, c.dir); err != nil {
		return err
	}
	path := filepath.Join(c.dir, name)
	old, err := vfs.ReadFile(c.fs, path)
	there := err == nil
	ours := there && f.isOurs(name, old)
	if ours && bytes.Equal(old, b) || errors.Is(err, fs.ErrNotExist) && name == modesFile && len(kernel.RequestModes(c).Modes) == 0 {
		return nil // RocketMQ has no file of modes before one was set
	}
	sums := []uint32{crc32.Checksum(b, castagnoli)}
	if ours {
		sums = append(sums, crc32.Checksum(old, castagnoli))
	}
	if err := f.writeLedger(name, sums); err != nil {
		return err
	}
	if ours || there && json.Valid(old) { // a damaged file must not replace a good copy
		if err := vfs.WriteFileAtomic(c.fs, path+backup, old); err != nil {
			return err
		}
	}
	return vfs.WriteFileAtomic(c.fs, path, b)
}

// content is what a file should hold, indented as RocketMQ persists it.
func (f *files) content(name string) ([]byte, error) {
	s := f.c.s
	v := s.versions()
	switch name {
	case topicsFile:
		var rows []row
		for _, t := range s.sortedTopics() {
			if !t.Internal {
				rows = append(rows, row{t.Config.TopicName, t, &t.Config})
			}
		}
		return f.table(name, command.TopicConfigSerializeWrapper{DataVersion: v[0]}, rows)
	case groupsFile:
		var rows []row
		for _, g := range s.sortedGroups() {
			rows = append(rows, row{g.GroupName, g, g})
		}
		return f.table(name, command.SubscriptionGroupWrapper{DataVersion: v[1], ForbiddenTable: kernel.ForbiddenTable(f.c)}, rows)
	case modesFile:
		return indented(kernel.RequestModes(f.c), "")
	default:
		return indented(command.ConsumerOffsetSerializeWrapper{DataVersion: v[2], OffsetTable: s.offsets.all()}, "")
	}
}

// row is one of a table: its name, the immutable thing that it is made of, which
// tells whether it changed, and what is encoded.
type row struct {
	name string
	of   any
	body any
}

// table makes the content of a file whose last member is a table, given without
// rows in head. The texts of rows are kept: of thousands one changed, and
// somebody waits for it.
func (f *files) table(name string, head any, rows []row) ([]byte, error) {
	const none = "{}\n}"
	out, err := indented(head, "")
	if err != nil || len(rows) == 0 {
		return out, err
	}
	out = bytes.TrimSuffix(out, []byte(none))
	kept := make(map[any][]byte, len(rows))
	size := len(out) + len(none)
	for _, r := range rows {
		text := f.texts[name][r.of]
		if text == nil {
			if text, err = rowText(&r); err != nil {
				return nil, err
			}
		}
		kept[r.of] = text
		size += len(text) + 1
	}
	f.texts[name] = kept
	out = append(slices.Grow(out, size-len(out)), '{')
	for i, r := range rows {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, kept[r.of]...)
	}
	return append(out, "\n\t}\n}"...), nil
}

// rowText is a member of a table with the line break before it.
func rowText(r *row) ([]byte, error) {
	key, err := command.EncodeBody(r.name)
	if err != nil {
		return nil, err
	}
	body, err := indented(r.body, "\t\t")
	if err != nil {
		return nil, err
	}
	return slices.Concat([]byte("\n\t\t"), key, []byte(": "), body), nil
}

func indented(body any, prefix string) ([]byte, error) {
	b, err := command.EncodeBody(body)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, b, prefix, "\t"); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
