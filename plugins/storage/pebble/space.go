package pebble

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hardpointmq/hardpoint/core/storage"
	hpvfs "github.com/hardpointmq/hardpoint/core/vfs"
)

// spaceStep is how much may be written between two looks at a disk that has
// plenty of space.
const spaceStep = 16 << 20

// space keeps a reserve free.
type space struct {
	fs      vfs.FS
	dir     string
	reserve int64

	mu   sync.Mutex
	left int64 // that may be written before the next look
}

// take asks for n bytes more; storage.ErrFull when they would touch the reserve.
func (s *space) take(n int64) error {
	if s.reserve == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left >= n {
		s.left -= n
		return nil
	}
	u, err := s.fs.GetDiskUsage(s.dir)
	if err != nil {
		s.left = spaceStep // a file system that cannot tell
		return nil
	}
	free := int64(min(u.AvailBytes, 1<<62)) - s.reserve
	if free < n {
		s.left = 0
		return fmt.Errorf("%w: %d bytes are free in %s, %d of them are reserved (reserveBytes)", storage.ErrFull, u.AvailBytes, s.dir, s.reserve)
	}
	// Never more than half of what is there: flushes write everything again.
	s.left = min(spaceStep, free/2)
	return nil
}

func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, hpvfs.ErrNoSpace)
}
