//go:build !linux

package bench

import (
	"context"
	"time"
)

type sleeper struct{ t *time.Timer }

func newSleeper() sleeper { return sleeper{time.NewTimer(time.Hour)} }

func (s sleeper) sleep(ctx context.Context, d time.Duration) {
	s.t.Reset(d)
	select {
	case <-s.t.C:
	case <-ctx.Done():
	}
}

func (s sleeper) stop() { s.t.Stop() }
