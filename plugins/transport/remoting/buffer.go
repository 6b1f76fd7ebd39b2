package remoting

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/command"
)

const (
	// smallBuffer holds the beginning of a frame while a peer is waited for. It
	// is below every budget: the number of connections bounds it.
	smallBuffer = 4 << 10
	// baseBuffer is what a read takes at once; larger ones are for larger frames.
	baseBuffer = 64 << 10
	// classes of buffers, each twice as large: 64 KiB to 16 MiB.
	classes = 9
	// keepFrames is the largest frame list kept with a pooled buffer.
	keepFrames = 1024
)

// buffer is a piece of memory with the list of frames that were cut out of it.
// Backlogs use the same buffers: from and to are the bytes still to be written.
type buffer struct {
	b        []byte
	frames   []command.Frame
	from, to int
	class    int // -1: small
	counted  int64
}

// pools keeps buffers for reuse.
type pools struct {
	small sync.Pool
	class [classes]sync.Pool
}

// get returns a buffer of at least n bytes whose size is counted in b, or nil
// when b is used up. Small ones are counted nowhere.
func (p *pools) get(n int, b *budget) *buffer {
	if n <= smallBuffer {
		buf, _ := p.small.Get().(*buffer)
		if buf == nil {
			buf = &buffer{b: make([]byte, smallBuffer), class: -1}
		}
		return buf
	}
	class, size := 0, baseBuffer
	if n > baseBuffer {
		class = bits.Len(uint(n-1)) - bits.Len(uint(baseBuffer-1))
		size = baseBuffer << class
	}
	if !b.take(int64(size)) {
		return nil
	}
	var buf *buffer
	if class < classes {
		buf, _ = p.class[class].Get().(*buffer)
	}
	if buf == nil {
		buf = &buffer{b: make([]byte, size), class: class}
	}
	buf.counted = int64(size)
	return buf
}

// put gives a buffer back.
func (p *pools) put(buf *buffer, b *budget) {
	if buf.counted > 0 {
		b.give(buf.counted)
		buf.counted = 0
	}
	buf.from, buf.to = 0, 0
	if cap(buf.frames) > keepFrames {
		buf.frames = nil
	}
	switch {
	case buf.class < 0:
		p.small.Put(buf)
	case buf.class < classes:
		p.class[buf.class].Put(buf)
	}
}

// budget is an amount of bytes that many share.
type budget struct {
	limit int64
	used  atomic.Int64
}

func (b *budget) take(n int64) bool {
	if b.used.Add(n) > b.limit {
		b.used.Add(-n)
		return false
	}
	return true
}

func (b *budget) give(n int64) { b.used.Add(-n) }

// inbox is the read side of a peer: the bytes that are no whole frame yet. Only
// the reader touches it.
type inbox struct {
	pools *pools
	read  *budget
	buf   *buffer
	have  int // bytes in buf
	want  int // size of the frame that begins in buf, 0 when unknown
	hot   int // reads until a waiting stream reader gives up its buffer
}

// space returns where the next bytes go: at most the rest of the frame that has
// begun and a base buffer more, so that a large buffer does not bring a large
// number of frames. nil: the budget does not allow the buffer to grow.
func (in *inbox) space() []byte {
	switch buf := in.buf; {
	case buf == nil:
		if in.buf = in.pools.get(baseBuffer, in.read); in.buf == nil {
			in.buf = in.pools.get(smallBuffer, in.read)
		}
	case buf.class < 0: // it held a beginning while the peer was waited for
		if !in.resize(baseBuffer) && in.have == len(buf.b) {
			return nil
		}
	case in.have == len(buf.b):
		if !in.resize(min(in.want, 4*in.have)) {
			return nil
		}
	}
	end := min(len(in.buf.b), max(in.want, in.have)+baseBuffer)
	return in.buf.b[in.have:end]
}

// resize exchanges the buffer for one of at least n bytes.
func (in *inbox) resize(n int) bool {
	next := in.pools.get(n, in.read)
	if next != nil {
		in.move(next)
	}
	return next != nil
}

func (in *inbox) move(next *buffer) {
	copy(next.b, in.buf.b[:in.have])
	in.pools.put(in.buf, in.read)
	in.buf = next
}

// rest keeps what follows the first used bytes.
func (in *inbox) rest(used, want int) {
	if used > 0 {
		copy(in.buf.b, in.buf.b[used:in.have])
		in.have -= used
	}
	in.want = want
}

// park is called when there is nothing to read: it keeps no more memory than
// the bytes of a begun frame need.
func (in *inbox) park() {
	if in.buf == nil {
		return
	}
	size := len(in.buf.b)
	switch {
	case in.have == 0:
		in.release()
	case in.have <= smallBuffer && size > smallBuffer:
		in.move(in.pools.get(smallBuffer, in.read))
	case size > max(baseBuffer, 8*in.have): // a larger frame was here before
		in.resize(2 * in.have)
	}
}

func (in *inbox) release() {
	if in.buf != nil {
		in.pools.put(in.buf, in.read)
		in.buf = nil
	}
	in.have, in.want = 0, 0
}
