package commitlog

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// log walks along the whole log, with the reader and the rules of recovery.
func (x *examiner) log(ctx context.Context) error {
	if len(x.files) > 0 {
		x.report.First = message.Position(x.files[0].base)
		x.report.Tail = x.report.First
	}
	for at := 0; at < len(x.files); {
		if at > 0 {
			x.missing(x.files[at-1].base+x.Segment, x.files[at].base)
		}
		var run segments
		from := at
		for ; at < len(x.files) && (at == from || x.files[at].base == x.files[at-1].base+x.Segment); at++ {
			seg := newSegment(x.FS, x.path.log, x.files[at].base, x.Segment)
			seg.readOnly = true
			run = append(run, seg)
		}
		if err := x.run(ctx, run, from, at == len(x.files)); err != nil {
			return err
		}
	}
	if x.Progress != nil {
		x.Progress(x.total, x.total)
	}
	return x.flushRuns()
}

// missing notes that segments are not there between others.
func (x *examiner) missing(from, to int64) {
	x.damage.add(storage.Damage{From: message.Position(from), To: message.Position(to)}, true)
	what := "the segment is missing"
	if n := (to - from) / x.Segment; n > 1 {
		what = fmt.Sprintf("%d segments are missing, up to %s", n, fileName(to-x.Segment))
	}
	x.report.Add(Finding{Level: Damage, part: ofLog, File: x.rel(filepath.Join(x.path.log, fileName(from))), Bytes: to - from, What: what,
		Means:  "its records are lost unless it is restored from a backup or another replica, and no broker starts on this directory",
		Repair: "a segment of zeros takes its place, so that those before and behind it are read on", lost: true})
}

// run walks along segments that follow each other; at is the place of the first
// in the list, last tells that the log ends with them.
func (x *examiner) run(ctx context.Context, list segments, at int, last bool) error {
	rd := newLogReader(list)
	defer rd.close()
	defer func() {
		for _, seg := range list {
			seg.close()
		}
	}()
	var (
		v     message.View
		units []message.Unit
		keys  []message.Key
	)
	for pos := message.Position(list[0].base); ; {
		seg := list.at(pos)
		if seg == nil {
			x.report.Tail = pos
			return nil
		}
		place := int((int64(pos) - list[0].base) / x.Segment)
		if place > 0 && list[place-1].opened.Load() {
			list[place-1].close() // not more open files than are read
		}
		sr := &x.report.Segments[x.files[at+place].report]
		done := int64(at+place)*x.Segment + int64(pos) - seg.base
		if done-x.told >= progressStep {
			x.told = done
			if x.Progress != nil {
				x.Progress(done, x.total)
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		err := rd.good(pos, &v, true)
		if err == nil {
			err = x.belongs(&v)
		}
		switch {
		case err == nil:
			units, keys = x.deriver.Derive(&v, nil, units[:0], keys[:0])
			if err := x.record(&v, units, keys); err != nil {
				return err
			}
			sr.Records++
			if sr.FirstTime == 0 {
				sr.FirstTime = v.StoreTime
			}
			sr.LastTime = v.StoreTime
			pos += message.Position(v.Size)
			sr.To, x.report.Tail = pos, pos
			continue
		case errors.Is(err, message.ErrBlank):
			pos = message.Position(seg.base + seg.size)
			sr.To, x.report.Tail = pos, pos
			continue
		case !isRecordFault(err) && !errors.Is(err, errStale):
			return err
		}
		next, more, err := x.fault(rd, list, pos, err, last)
		if err != nil || !more {
			return err
		}
		for i := range list { // a range may lie in several
			sr := &x.report.Segments[x.files[at+i].report]
			from, to := max(pos, message.Position(list[i].base)), min(next, message.Position(list[i].base+list[i].size))
			if from < to {
				sr.Damaged += int64(to - from)
				sr.To = to
			}
		}
		pos = next
		x.report.Tail = pos
	}
}

// belongs tells records of the log from bytes that look like some, as recovery
// does.
func (x *examiner) belongs(v *message.View) error {
	if err := recordFault(v); err != nil {
		return err
	}
	q := x.queues[message.Queue{Topic: string(v.Topic), ID: v.QueueID}]
	if tx := v.SysFlag & message.SysTxMask; q == nil || tx == message.SysTxPrepared || tx == message.SysTxRollback {
		return nil
	}
	if v.StoreTime < x.lastTime && v.QueueOffset < q.next {
		return errStale
	}
	if q.next > 0 && tooFar(v, q.next, q.lastAt) {
		return errOffset
	}
	return nil
}

// record takes a good one.
func (x *examiner) record(v *message.View, units []message.Unit, keys []message.Key) error {
	x.report.Records++
	x.report.Bytes += int64(v.Size)
	x.lastTime = max(x.lastTime, v.StoreTime)
	x.times.add(v.StoreTime)
	for i := range units {
		if u := &units[i]; !x.dropped.covers(u.Queue, u.At) {
			if err := x.expect(u); err != nil {
				return err
			}
		}
	}
	if x.keys != nil && x.Deep {
		return x.keys.expect(v.Position, keys)
	}
	return nil
}

// fault decides what a bad place is; more is false when the segments end there.
func (x *examiner) fault(rd *logReader, list segments, pos message.Position, fault error, last bool) (next message.Position, more bool, err error) {
	seg := list.at(pos)
	head, err := rd.bytes(seg, int64(pos)-seg.base, message.BlankSize)
	if err != nil {
		return 0, false, err
	}
	unused := strings.Trim(string(head), "\x00") == ""
	next, more, used, _, err := rd.findGood(pos+1, func(v *message.View) bool {
		return v.StoreTime >= x.times.latest() && x.belongs(v) == nil
	})
	if err != nil {
		return 0, false, err
	}
	d := Finding{Level: Damage, part: ofLog, File: x.rel(seg.path), Offset: int64(pos) - seg.base}
	if !more && !last {
		// Behind it segments are missing: up to there it is damage in the middle.
		end := list.last()
		next, more = message.Position(end.base+end.size), true
	}
	if more {
		x.damage.add(storage.Damage{From: pos, To: next, File: seg.path, Reason: fault.Error()}, true)
		d.Bytes = int64(next - pos)
		d.What = fmt.Sprintf("damaged in the middle of the log, %s: %s", upTo(seg, pos, next), fault)
		d.Means = "the records in it are lost unless they are restored from a backup or another replica; readers pass over them, those behind are read"
		d.Repair, d.kept = "the bytes stay as they are", true
		x.report.Add(d)
		return next, true, nil
	}
	if unused && used <= pos+1 || x.Live {
		return 0, false, nil
	}
	used = max(used, pos+1)
	d.Bytes = int64(used - pos)
	d.What = fmt.Sprintf("torn end of the log, %s: %s", upTo(seg, pos, used), fault)
	d.Means = "what was written there is lost; the next start cuts it off"
	d.Repair = "the bytes are put into the backup and cut off"
	x.tornAt = pos
	x.torn = &d // how bad it is depends on the queues
	return 0, false, nil
}

// upTo tells where a range ends.
func upTo(seg *segment, pos, to message.Position) string {
	if end := message.Position(seg.base + seg.size); to > end {
		return fmt.Sprintf("positions %d to %d, beyond this segment", pos, to)
	}
	return fmt.Sprintf("%d bytes from position %d on", to-pos, pos)
}
