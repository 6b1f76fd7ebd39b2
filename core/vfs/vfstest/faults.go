package vfstest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/vfs"
)

// ErrInjected is the error of a [Rule] that names none.
var ErrInjected = errors.New("vfstest: injected fault")

// Op names an operation of [vfs.FS], [vfs.File] or [vfs.Mapping] for rules, counters and hooks of [Faults].
type Op int

// Operations. Those of a file or mapping are matched by the name that the file was opened with.
const (
	OpOpen Op = iota
	OpRemove
	OpRemoveAll
	OpRename // matched by the old and by the new name
	OpMkdir
	OpList
	OpStat
	OpSyncDir
	OpUsage
	OpLock
	OpRead
	OpWrite
	OpClose
	OpSize
	OpTruncate
	OpReserve
	OpSync
	OpSyncData
	OpZero
	OpMap
	OpMapSync // Mapping.Sync
	OpAdvise
	OpResident
	OpMemLock // Mapping.Lock and Unlock
	OpUnmap
	opCount
)

var opNames = [opCount]string{
	"open", "remove", "removeall", "rename", "mkdir", "list", "stat", "syncdir", "usage", "lock", "read", "write", "close",
	"size", "truncate", "reserve", "sync", "syncdata", "zero", "map", "mapsync", "advise", "resident", "memlock", "unmap",
}

func (op Op) String() string {
	if op < 0 || op >= opCount {
		return fmt.Sprintf("Op(%d)", int(op))
	}
	return opNames[op]
}

// Call is one operation about to happen.
type Call struct {
	Op      Op
	Name    string // of the file or directory
	NewName string // OpRename: the new name
	Off, N  int64  // range or size in bytes, where the operation has one
}

// Rule makes matching operations fail.
type Rule struct {
	Op   Op
	Path string // pattern of path.Match with '/' as separator; one leading "*/" matches any directories; "" matches all
	Nth  int    // first matching call that fails, from 1; 0 is 1
	For  int    // how many calls fail from there; 0 means that the fault stays for good
	Err  error  // nil is ErrInjected

	// Short is for OpWrite: how many bytes are really written before Err.
	Short int

	// After lets the operation happen and fails then: the answer is lost, not the deed.
	After bool
}

// Faults wraps a file system and makes operations fail by rules. The rules, the hook and the limit may be changed at
// any time, also while operations run. It is safe for concurrent use.
type Faults struct {
	inner vfs.FS
	mu    sync.Mutex // guards rules and space
	rules []*activeRule
	space *space // nil: no limit
	count [opCount]atomic.Int64
	hook  atomic.Pointer[func(Call) error]
	wait  atomic.Pointer[func(op Op, n int64)]
}

var _ vfs.FS = (*Faults)(nil)

type activeRule struct {
	Rule
	seen int // matching calls so far
}

// NewFaults wraps inner without any fault.
func NewFaults(inner vfs.FS) *Faults { return &Faults{inner: inner} }

// Fail makes the nth operation of that kind on a name that matches the pattern fail with err, once. See [Rule].
func (f *Faults) Fail(op Op, pattern string, nth int, err error) {
	f.Add(Rule{Op: op, Path: pattern, Nth: nth, For: 1, Err: err})
}

// Add adds a rule. When several match, the oldest one that is due decides; all count the call.
func (f *Faults) Add(r Rule) {
	if r.Err == nil {
		r.Err = ErrInjected
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, &activeRule{Rule: r})
}

// Clear removes all rules; hook, throttle and limit stay.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
}

// Count returns how many operations of that kind were asked for, failed ones included.
func (f *Faults) Count(op Op) int64 { return f.count[op].Load() }

// SetHook sets a function that is called before every operation, without any lock held: it may block, to simulate a
// hanging disk, and operations of other goroutines go on. An error that it returns is the answer of the operation.
// nil removes it.
func (f *Faults) SetHook(hook func(Call) error) {
	if hook == nil {
		f.hook.Store(nil)
		return
	}
	f.hook.Store(&hook)
}

// SetThrottle sets a function that is called before every read, write, zeroing and mapping sync with the number of
// bytes, without any lock held. It returns when the transfer may start, by whatever clock the test uses. nil removes it.
func (f *Faults) SetThrottle(wait func(op Op, n int64)) {
	if wait == nil {
		f.wait.Store(nil)
		return
	}
	f.wait.Store(&wait)
}

// before counts the call, runs the hook and finds the rule that is due.
func (f *Faults) before(c Call) (*Rule, error) {
	f.count[c.Op].Add(1)
	if hook := f.hook.Load(); hook != nil {
		if err := (*hook)(c); err != nil {
			return nil, pathError(c.Op.String(), c.Name, err)
		}
	}
	switch c.Op {
	case OpRead, OpWrite, OpZero, OpMapSync:
		if wait := f.wait.Load(); wait != nil {
			(*wait)(c.Op, c.N)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var due *Rule
	for _, r := range f.rules {
		if !r.matches(c) {
			continue
		}
		r.seen++
		first := max(r.Nth, 1)
		if due == nil && r.seen >= first && (r.For == 0 || r.seen < first+r.For) {
			due = &r.Rule
		}
	}
	return due, nil
}

func (r *Rule) matches(c Call) bool {
	return r.Op == c.Op && (matchPath(r.Path, c.Name) || c.Op == OpRename && matchPath(r.Path, c.NewName))
}

// do runs an operation under the rules.
func (f *Faults) do(c Call, run func() error) error {
	rule, err := f.before(c)
	if err != nil {
		return err
	}
	if rule == nil {
		return run()
	}
	if rule.After {
		if err := run(); err != nil {
			return err
		}
	}
	return pathError(c.Op.String(), c.Name, rule.Err)
}

// matchPath reports whether the pattern matches the name; a leading "*/" stands for any number of directories.
func matchPath(pattern, name string) bool {
	if pattern == "" {
		return true
	}
	name = filepath.ToSlash(name)
	rest, anyDir := strings.CutPrefix(pattern, "*/")
	for {
		if ok, err := path.Match(rest, name); err != nil {
			panic(fmt.Sprintf("vfstest: bad pattern %q: %v", pattern, err)) // a mistake in the test
		} else if ok {
			return true
		}
		_, after, more := strings.Cut(name, "/")
		if !anyDir || !more {
			return false
		}
		name = after
	}
}

// OpenFile implements [vfs.FS].
func (f *Faults) OpenFile(name string, flag int, perm fs.FileMode) (file vfs.File, err error) {
	err = f.do(Call{Op: OpOpen, Name: name}, func() error {
		f.spaceEnter(name)
		if file, err = f.inner.OpenFile(name, flag, perm); err != nil {
			return err
		}
		if flag&os.O_TRUNC != 0 {
			f.spaceTruncated(name, 0, 0)
		}
		file = &faultFile{File: file, fs: f}
		return nil
	})
	return closeOn(err, file)
}

// Lock implements [vfs.FS].
func (f *Faults) Lock(name string) (file vfs.File, err error) {
	err = f.do(Call{Op: OpLock, Name: name}, func() error {
		f.spaceEnter(name)
		if file, err = f.inner.Lock(name); err != nil {
			return err
		}
		file = &faultFile{File: file, fs: f}
		return nil
	})
	return closeOn(err, file)
}

// closeOn gives a file back that was opened although the operation is to fail.
func closeOn(err error, file vfs.File) (vfs.File, error) {
	if err == nil {
		return file, nil
	}
	if file != nil {
		_ = file.Close() // the injected error is what the caller must see
	}
	return nil, err
}

// Remove implements [vfs.FS].
func (f *Faults) Remove(name string) error {
	return f.do(Call{Op: OpRemove, Name: name}, func() error {
		f.spaceEnter(name)
		err := f.inner.Remove(name)
		if err == nil {
			f.spaceRemoved(name)
		}
		return err
	})
}

// RemoveAll implements [vfs.FS].
func (f *Faults) RemoveAll(name string) error {
	return f.do(Call{Op: OpRemoveAll, Name: name}, func() error {
		f.spaceEnter(name)
		err := f.inner.RemoveAll(name)
		if err == nil {
			f.spaceRemoved(name)
		}
		return err
	})
}

// Rename implements [vfs.FS].
func (f *Faults) Rename(oldName, newName string) error {
	return f.do(Call{Op: OpRename, Name: oldName, NewName: newName}, func() error {
		f.spaceEnter(oldName)
		f.spaceEnter(newName)
		err := f.inner.Rename(oldName, newName)
		if err == nil {
			f.spaceRenamed(oldName, newName)
		}
		return err
	})
}

// MkdirAll implements [vfs.FS].
func (f *Faults) MkdirAll(dir string) error {
	return f.do(Call{Op: OpMkdir, Name: dir}, func() error { return f.inner.MkdirAll(dir) })
}

// List implements [vfs.FS].
func (f *Faults) List(dir string) (names []string, err error) {
	err = f.do(Call{Op: OpList, Name: dir}, func() error {
		names, err = f.inner.List(dir)
		return err
	})
	if err != nil {
		return nil, err
	}
	return names, nil
}

// Stat implements [vfs.FS].
func (f *Faults) Stat(name string) (info vfs.Info, err error) {
	err = f.do(Call{Op: OpStat, Name: name}, func() error {
		info, err = f.inner.Stat(name)
		return err
	})
	if err != nil {
		return vfs.Info{}, err
	}
	return info, nil
}

// SyncDir implements [vfs.FS].
func (f *Faults) SyncDir(dir string) error {
	return f.do(Call{Op: OpSyncDir, Name: dir}, func() error { return f.inner.SyncDir(dir) })
}

// Usage implements [vfs.FS]. With a limit set, free and available are what is left of it.
func (f *Faults) Usage(dir string) (u vfs.Usage, err error) {
	err = f.do(Call{Op: OpUsage, Name: dir}, func() error {
		u, err = f.inner.Usage(dir)
		return err
	})
	if err != nil {
		return vfs.Usage{}, err
	}
	f.spaceUsage(&u)
	return u, nil
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}
