package pebble

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	hpvfs "github.com/hardpointmq/hardpoint/core/vfs"
)

// spaceStep is how much may be written between two looks at a disk that has
// plenty of space.
const spaceStep = 16 << 20

// spaceEvery is how long a look at the disk holds. Others write to it, too: a store
// that writes little would not see them use up the reserve, and a write-ahead log that
// meets a full disk ends the store.
const spaceEvery = time.Second

// tellEvery is how often the log is told of a full disk at most: large messages may be
// refused while small ones are not.
const tellEvery = 10 * time.Second

// space keeps a reserve free.
type space struct {
	fs      vfs.FS
	clock   plugin.Clock
	log     *slog.Logger
	dir     string
	reserve int64

	mu     sync.Mutex
	left   int64     // that may be written before the next look
	looked time.Time // when the last look was
	full   bool      // the log was told so
	told   time.Time // when
}

// take asks for n bytes more; storage.ErrFull when they would touch the reserve.
func (s *space) take(n int64) error {
	if s.reserve == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	if since := now.Sub(s.looked); s.left >= n && since >= 0 && since < spaceEvery { // the clock may have been set back
		s.left -= n
		return nil
	}
	s.looked = now
	u, err := s.fs.GetDiskUsage(s.dir)
	if err != nil {
		s.left = spaceStep // a file system that cannot tell
		return nil
	}
	free := int64(min(u.AvailBytes, 1<<62)) - s.reserve
	if free < n {
		s.left = 0
		if since := now.Sub(s.told); !s.full && (since < 0 || since >= tellEvery) {
			s.full, s.told = true, now
			s.log.Warn("no space is left above the reserve: messages are refused until there is; free some, or lower reserveBytes",
				slog.String("dir", s.dir), slog.Uint64("free_bytes", u.AvailBytes), slog.Int64("reserve_bytes", s.reserve))
		}
		return fmt.Errorf("%w: %d bytes are free in %s, %d of them are reserved (reserveBytes)", storage.ErrFull, u.AvailBytes, s.dir, s.reserve)
	}
	if s.full {
		s.full = false
		s.log.Info("there is space again: messages are taken", slog.String("dir", s.dir), slog.Uint64("free_bytes", u.AvailBytes))
	}
	// Never more than half of what is there: flushes write everything again.
	s.left = min(spaceStep, free/2)
	return nil
}

func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, hpvfs.ErrNoSpace)
}
