// Package rarely keeps what strangers can cause at will from filling the log.
package rarely

import (
	"sync/atomic"
	"time"
)

// Line is a line of the log that comes at most once a second. The zero value is
// ready. Safe for concurrent use.
type Line struct {
	n      atomic.Int64
	saidAt atomic.Int64 // Unix seconds
}

// Due counts an event and returns how many there were since the last line when
// it is time for another one, else 0.
func (l *Line) Due(now time.Time) int64 {
	l.n.Add(1)
	sec, last := now.Unix(), l.saidAt.Load()
	if sec == last || !l.saidAt.CompareAndSwap(last, sec) {
		return 0
	}
	return l.n.Swap(0)
}
