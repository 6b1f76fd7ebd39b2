package commitlog

import (
	"math/bits"
	"sync"

	"github.com/hardpointmq/hardpoint/core/storage"
)

// lease is what a Chunk holds: segments that must stay mapped, and buffers.
type lease struct {
	pool *sync.Pool
	segs []*segment
	bufs []*buffer
	// units is where a read copies index units to.
	units [readUnits * unitSize]byte
}

// Release implements [storage.Lease].
func (l *lease) Release() {
	for i, s := range l.segs {
		s.release()
		l.segs[i] = nil
	}
	for i, b := range l.bufs {
		b.free()
		l.bufs[i] = nil
	}
	l.segs, l.bufs = l.segs[:0], l.bufs[:0]
	l.pool.Put(l)
}

// leaseOf returns the chunk's lease, making one if it has none.
func (s *Store) leaseOf(c *storage.Chunk) *lease {
	if l, ok := c.Lease.(*lease); ok {
		return l
	}
	l := s.leases.Get().(*lease)
	c.Lease = l
	return l
}

// hold makes the lease keep seg, which has been acquired for it.
func (l *lease) hold(seg *segment) { l.segs = append(l.segs, seg) }

// room returns a buffer with at least n free bytes.
func (l *lease) room(n int) *buffer {
	if k := len(l.bufs); k > 0 {
		if b := l.bufs[k-1]; cap(b.b)-len(b.b) >= n {
			return b
		}
	}
	b := getBuffer(n)
	l.bufs = append(l.bufs, b)
	return b
}

// buffer is pooled memory, in classes of powers of two.
type buffer struct {
	b     []byte
	class int
}

const (
	minClass = 16 // 64 KiB: what a cold read brings at most, usually
	maxClass = 31
)

var buffers [maxClass + 1]sync.Pool

func getBuffer(n int) *buffer {
	class := max(bits.Len(uint(max(n, 1)-1)), minClass)
	if class > maxClass {
		return &buffer{b: make([]byte, 0, n), class: -1}
	}
	if b, ok := buffers[class].Get().(*buffer); ok {
		return b
	}
	return &buffer{b: make([]byte, 0, 1<<class), class: class}
}

func (b *buffer) free() {
	if b.class < 0 {
		return
	}
	b.b = b.b[:0]
	buffers[b.class].Put(b)
}
