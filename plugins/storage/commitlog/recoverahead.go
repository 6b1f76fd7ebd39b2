package commitlog

import (
	"encoding/binary"

	"github.com/hardpointmq/hardpoint/core/message"
)

// A scan of the log is halves of about the same length: reading records and checking
// them, and making units and keys of them. A goroutine of its own does the first.

// aheadBlocks is how many blocks of records may wait for the one who makes units of
// them.
const aheadBlocks = 4

// checkedBlock is a window of the log whose records in [from, to) were found good. What
// begins at to is none when last is set.
type checkedBlock struct {
	rd       *logReader
	from, to message.Position
	last     bool
	err      error // a failure to read what is at to
}

// aheadReader reads records in order and checks them in a goroutine that is ahead. One
// goroutine at a time may use it. It ends with close.
type aheadReader struct {
	list   segments
	crc    bool
	next   message.Position // behind the record that good gave last
	cur    *checkedBlock    // nil until the first call
	blocks chan *checkedBlock
	quit   chan struct{}
}

func newAheadReader(list segments, crc bool) *aheadReader {
	return &aheadReader{list: list, crc: crc}
}

// close ends the goroutine.
func (a *aheadReader) close() {
	if a.quit != nil {
		close(a.quit)
		for b := range a.blocks { // until it has ended
			b.rd.close()
		}
		a.quit = nil
	}
	if a.cur != nil {
		a.cur.rd.close()
		a.cur = nil
	}
}

// good is that of a logReader. Where pos is not what follows the record before, the
// goroutine begins anew.
func (a *aheadReader) good(pos message.Position, v *message.View) (err error) {
	if a.cur == nil || pos != a.next {
		a.begin(pos)
	}
	for a.cur == nil || pos == a.cur.to && !a.cur.last {
		b := <-a.blocks
		if a.cur != nil {
			a.cur.rd.close()
		}
		a.cur = b
	}
	switch b := a.cur; {
	case pos < b.to:
		err = b.rd.record(pos, v)
	case b.err != nil:
		err = b.err
	default:
		err = b.rd.good(pos, v, a.crc)
	}
	if err == nil {
		a.next = pos + message.Position(v.Size)
	}
	return err
}

// reader is what read the record that good gave last; it may read others.
func (a *aheadReader) reader() *logReader { return a.cur.rd }

func (a *aheadReader) begin(pos message.Position) {
	a.close()
	blocks, quit := make(chan *checkedBlock, aheadBlocks), make(chan struct{})
	a.next, a.blocks, a.quit = pos, blocks, quit
	go func() {
		defer close(blocks)
		for last := false; !last; {
			b := a.check(pos)
			last, pos = b.last, b.to
			select {
			case blocks <- b:
			case <-quit:
				b.rd.close()
				return
			}
		}
	}()
}

// check reads a window at pos and the records in it.
func (a *aheadReader) check(pos message.Position) *checkedBlock {
	b := &checkedBlock{rd: newLogReader(a.list), from: pos, to: pos}
	var v message.View
	for {
		if err := b.rd.good(b.to, &v, a.crc); err != nil {
			if b.last = true; !isRecordFault(err) {
				b.err = err
			}
			return b
		}
		b.to += message.Position(v.Size)
		if !b.rd.holds(b.to) {
			return b
		}
	}
}

// holds tells whether the record that begins at pos, if any does, is in the window.
func (r *logReader) holds(pos message.Position) bool {
	if r.seg == nil || int64(pos) < r.seg.base+r.off {
		return false
	}
	at := int64(pos) - r.seg.base - r.off
	rest := int64(len(r.buf.b)) - at
	if rest < message.BlankSize {
		return false
	}
	head := r.buf.b[at:]
	if m := binary.BigEndian.Uint32(head[4:]); m == message.MagicV1 || m == message.MagicV2 {
		return int64(message.Size(head)) <= rest
	}
	return true
}
