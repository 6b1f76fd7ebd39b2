package wire

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/vfs"
)

// The run directory of a host is <temporary directory>/hardpoint-XXXXXX; while it
// is made, its name begins with .hardpoint-. Both have mode 0700. The lock in it is
// held as long as the host uses it. Its name tells a run directory from all else
// whose name begins like that, above all from somebody's data: a store has a lock, too.
const (
	runPrefix  = "hardpoint-"
	newPrefix  = ".hardpoint-"
	runLock    = "run.lock"
	abandoned  = time.Hour // age of one that is still being made
	socketPath = 103       // bytes, the least that systems allow for the path of a socket
	socketName = 40        // bytes of it below the temporary directory
)

// runDirs is the run directory of this process. It exists while somebody has a
// directory in it.
type runDirs struct {
	mu    sync.Mutex
	users int
	last  int
	path  string
	lock  vfs.File
}

var ofThisProcess runDirs

// SocketDir makes a directory, with mode 0700, for sockets to a plugin process;
// remove removes it, and may be called twice. It is below the run directory of this
// process, one at a time under the temporary directory, which is gone with the last
// of them. What a host that was killed left behind is removed when another host
// makes its own: a lock tells that it is dead. Safe for concurrent use.
func SocketDir() (dir string, remove func(), err error) {
	return ofThisProcess.make()
}

func (r *runDirs) make() (string, func(), error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users == 0 {
		if err := r.open(os.TempDir()); err != nil {
			return "", nil, fmt.Errorf("make the run directory for sockets to plugin processes: %w", err)
		}
	}
	r.last++
	dir := filepath.Join(r.path, strconv.Itoa(r.last))
	if err := os.Mkdir(dir, 0o700); err != nil {
		if r.users == 0 {
			r.close()
		}
		return "", nil, fmt.Errorf("make a directory for sockets to a plugin process: %w", err)
	}
	r.users++
	return dir, sync.OnceFunc(func() {
		_ = os.RemoveAll(dir)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.users--; r.users == 0 {
			r.close()
		}
	}), nil
}

// open makes the run directory. It gets its name when its lock is held, so that
// nobody takes it for one of a dead host.
func (r *runDirs) open(tmp string) error {
	if len(tmp) > socketPath-socketName {
		return fmt.Errorf("the path of the temporary directory %s has %d bytes, and that of a socket in it would have more than the %d that every system allows; set TMPDIR to a shorter one, at most %d bytes",
			tmp, len(tmp), socketPath, socketPath-socketName)
	}
	if strings.Contains(tmp, "|") { // it separates the parts of the handshake
		return fmt.Errorf("the path of the temporary directory %s has a |, which cannot be told to a host; set TMPDIR to another one", tmp)
	}
	clean(tmp)
	id := strings.ToLower(rand.Text()[:6])
	fresh := filepath.Join(tmp, newPrefix+id)
	path := filepath.Join(tmp, runPrefix+id)
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return err
	}
	lock, err := vfs.OS{}.Lock(filepath.Join(fresh, runLock))
	if err == nil {
		if err = os.Rename(fresh, path); err != nil {
			_ = lock.Close()
		}
	}
	if err != nil {
		_ = os.RemoveAll(fresh)
		return err
	}
	r.path, r.lock, r.last = path, lock, 0
	return nil
}

func (r *runDirs) close() {
	_ = os.RemoveAll(r.path)
	_ = r.lock.Close()
	_ = os.RemoveAll(r.path) // where an open file cannot be removed
	r.path, r.lock = "", nil
}

// clean removes the run directories of hosts that are dead. Those of other users
// cannot be locked, and what holds anything that no host puts there is left alone.
func clean(tmp string) {
	entries, err := os.ReadDir(tmp)
	if err != nil {
		return
	}
	for _, e := range entries {
		path := filepath.Join(tmp, e.Name())
		switch {
		case !e.IsDir():
		case strings.HasPrefix(e.Name(), newPrefix):
			if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > abandoned && onlyOfHost(path, false) {
				_ = os.RemoveAll(path)
			}
		case strings.HasPrefix(e.Name(), runPrefix):
			name := filepath.Join(path, runLock)
			if _, err := os.Lstat(name); err != nil || !onlyOfHost(path, true) {
				continue
			}
			lock, err := vfs.OS{}.Lock(name)
			if err != nil {
				continue
			}
			_ = os.RemoveAll(path)
			_ = lock.Close()
		}
	}
}

// onlyOfHost tells whether a directory holds nothing but what a host puts into its
// run directory: the lock and, with numbered, the directories of SocketDir.
func onlyOfHost(path string, numbered bool) bool {
	entries, err := os.ReadDir(path)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if e.Name() == runLock && e.Type().IsRegular() {
			continue
		}
		if n, err := strconv.Atoi(e.Name()); !numbered || err != nil || n <= 0 || !e.IsDir() {
			return false
		}
	}
	return true
}
