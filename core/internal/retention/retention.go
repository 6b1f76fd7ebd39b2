package retention

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

// Params say which disks matter.
type Params struct {
	// Usage asks for the state of the disk of a directory, as vfs.FS does.
	Usage func(dir string) (vfs.Usage, error)
	// Dirs are the directories of the store; none: it is not on a disk.
	Dirs []string

	_ struct{}
}

// Retention is the behaviour. One goroutine does all of its work.
type Retention struct {
	k     *kernel.Kernel
	p     Params
	facet storage.Retention // nil: not offered
	seen  atomic.Pointer[seen]
	// floored is the store without the facet; nil: it has it.
	floored *floored
	raising sync.Mutex // floors are read, moved and remembered by one at a time

	// What follows is of the goroutine, and of start before it.
	disk     disk
	blind    string // why the disk is not seen
	full     full
	forecast forecast
	late     late
	hours    float64
	holders  []*holder
	readers  readers
	fault    string // why segments are not to be had, said once

	// demand is how often everything that is old enough is still to be looked for:
	// a tool asked for it.
	demand  atomic.Int32
	kick    chan struct{}
	base    context.Context // of the work
	cancel  context.CancelFunc
	over    sync.WaitGroup
	drops   []func() // of gauges
	expired struct{ segments, bytes plugin.Counter }
}

// seen is what metrics show.
type seen struct {
	ratio, hours, refused float64
	oldest                int64 // store time, ms; 0: there is no message
}

// New makes the behaviour and registers it. The kernel has its store.
func New(k *kernel.Kernel, p Params) *Retention {
	r := &Retention{k: k, p: p, facet: k.Store.Capabilities().Retention, kick: make(chan struct{}, 1), hours: math.Inf(1)}
	if r.floored, _ = k.Store.(*floored); r.floored != nil {
		k.Bury = r.bury
	}
	r.base, r.cancel = context.WithCancel(context.Background())
	r.expired.segments = k.Meter.Counter("retention_expired_segments_total", "Segments of the log that were deleted.")
	r.expired.bytes = k.Meter.Counter("retention_expired_bytes_total", "Bytes of the segments that were deleted.")
	r.seen.Store(&seen{hours: math.Inf(1)})
	k.Hooks.OnStart(r.start)
	k.Hooks.OnStop(r.stop)
	k.Handle(command.ReqDeleteExpiredCommitLog, r.deleteExpired)
	k.Handle(command.ReqCleanExpiredConsumeQueue, func(q *kernel.Request) { q.OK() }) // package comment, Queues
	return r
}

// Oldest is when the oldest message in the log was stored, as of the last look, in ms
// since epoch; 0: there is none, or the store does not tell.
func (r *Retention) Oldest() int64 { return r.seen.Load().oldest }

// tries is how often what a tool asked for is tried when somebody stands in the
// way: RocketMQ's manualDeleteFileSeveralTimes.
const tries = 20

// deleteExpired answers at once, as RocketMQ does.
func (r *Retention) deleteExpired(q *kernel.Request) {
	r.k.Log.Info("a tool asks to delete what is older than fileReservedTime", "peer", q.Conn.Peer.Remote())
	r.demand.Store(tries)
	select {
	case r.kick <- struct{}{}:
	default:
	}
	q.OK()
}

func (r *Retention) start(context.Context) error {
	for _, h := range r.k.Hooks.Holders() {
		r.holders = append(r.holders, &holder{Holder: h})
	}
	gauge := func(name, help string, read func(s *seen) float64) {
		r.drops = append(r.drops, r.k.Meter.Gauge(name, help, func() float64 { return read(r.seen.Load()) }))
	}
	gauge("retention_oldest_message_age_seconds", "Age of the oldest message in the log, by store time.", func(s *seen) float64 {
		if s.oldest == 0 {
			return 0
		}
		return max(0, r.k.Clock.Now().Sub(time.UnixMilli(s.oldest)).Seconds())
	})
	if len(r.p.Dirs) > 0 {
		gauge("retention_disk_used_ratio", "Used part of the store's disk, as df shows it.", func(s *seen) float64 { return s.ratio })
		gauge("retention_disk_full_hours", "Hours until the disk is full at the rate of the last hour; +Inf while it does not fill.", func(s *seen) float64 { return s.hours })
		gauge("retention_sends_refused", "1 while messages are refused because the disk is full.", func(s *seen) float64 { return s.refused })
	}
	for _, h := range r.holders {
		r.drops = append(r.drops, r.k.Meter.Gauge("retention_held_segments", "Segments that could go but for who still needs them.",
			func() float64 { return float64(h.held.Load()) }, plugin.Label{Name: "holder", Value: h.Name}))
	}
	if r.floored != nil {
		kept := r.kept()
		r.floored.floors.Store(&kept)
	}
	r.look() // whoever starts on a full disk takes no message
	r.show(nil)
	r.over.Go(r.loop)
	return nil
}

func (r *Retention) stop(ctx context.Context) error {
	r.cancel()
	over := make(chan struct{})
	go func() { r.over.Wait(); close(over) }()
	select {
	case <-over:
	case <-ctx.Done():
		return fmt.Errorf("waiting for the deletion of segments: %w", ctx.Err())
	}
	for _, drop := range r.drops {
		drop()
	}
	r.drops = nil
	return nil
}

const (
	// least is the shortest time between two runs.
	least = 10 * time.Millisecond
	// recheck is how often the disk is looked at while messages are refused: who makes
	// room waits for it.
	recheck = time.Second
)

func (r *Retention) loop() {
	next := r.k.Clock.Now().Add(max(r.k.Config().Every, least))
	t := r.k.Clock.NewTimer(r.until(next))
	defer t.Stop()
	for {
		due := true
		select {
		case <-t.C():
			left := next.Sub(r.k.Clock.Now())
			due = left <= 0 || left > r.k.Config().Every // the clock was set back
		case <-r.kick:
		case <-r.base.Done():
			return
		}
		if due {
			r.run(r.base)
			next = r.k.Clock.Now().Add(max(r.k.Config().Every, least))
		} else {
			r.look()
			r.show(nil)
		}
		t.Reset(r.until(next))
	}
}

// until is how long to wait for the next run, or for a look at the disk before it. It
// is bounded, because clocks are set back.
func (r *Retention) until(next time.Time) time.Duration {
	d := max(min(next.Sub(r.k.Clock.Now()), r.k.Config().Every), least)
	if r.full.on {
		d = min(d, recheck)
	}
	return d
}

// run looks once at everything and deletes what is due.
func (r *Retention) run(ctx context.Context) {
	demand := r.demand.Load()
	all := demand > 0
	for {
		r.look()
		if r.facet == nil {
			r.show(nil)
			if r.floored != nil {
				if err := r.raise(ctx, all); err != nil {
					r.failed(ctx, err)
					return
				}
				r.fault = ""
				r.demand.CompareAndSwap(demand, 0)
			}
			return
		}
		segs, err := r.facet.Segments(ctx)
		if err != nil {
			r.failed(ctx, fmt.Errorf("listing the segments: %w", err))
			return
		}
		r.fault = ""
		r.show(segs)
		p := r.plan(segs, all)
		if p.n == 0 {
			r.nothing()
			r.demand.CompareAndSwap(demand, 0)
			return
		}
		more, err := r.expire(ctx, segs, p)
		if err != nil {
			r.failed(ctx, err)
			return
		}
		if !all {
			return
		}
		if !more {
			r.demand.CompareAndSwap(demand, demand-1)
			return
		}
	}
}

// failed says why nothing goes, once for each fault. A store that is away comes back.
func (r *Retention) failed(ctx context.Context, err error) {
	if ctx.Err() != nil || errors.Is(err, plugin.ErrUnavailable) || err.Error() == r.fault {
		return
	}
	r.fault = err.Error()
	r.k.Log.Error("old segments of the log cannot be deleted", "error", err)
}

// show makes what was seen the metrics'; no segments: they were not looked at.
func (r *Retention) show(segs []storage.Segment) {
	s := &seen{ratio: float64(r.disk.percent) / 100, hours: r.hours, oldest: r.seen.Load().oldest}
	if all := r.disk.used + r.disk.room; all > 0 {
		s.ratio = float64(r.disk.used) / float64(all)
	}
	if r.full.on {
		s.refused = 1
	}
	if len(segs) > 0 {
		s.oldest = 0
		for i := range segs {
			if s.oldest = segs[i].FirstStoreTime; s.oldest != 0 {
				break
			}
		}
	}
	r.seen.Store(s)
}

// plan is what goes next.
type plan struct {
	// n is how many segments go, from the first on.
	n int
	// forced: whatever their age.
	forced bool
	why    string
}

// plan finds the segments that are due, the newest one never. all: a tool asks for
// those that are old enough.
func (r *Retention) plan(segs []storage.Segment, all bool) (p plan) {
	rules, now := &r.k.Config().RetentionRules, r.k.Clock.Now()
	published := r.k.Store.State().Published
	most := min(len(segs)-1, rules.Batch)
	for most > 0 && segs[most].At > published {
		most--
	}
	old := 0
	for old < most && time.UnixMilli(segs[old].LastStoreTime).Add(rules.Reserved).Compare(now) <= 0 {
		old++
	}
	switch {
	case r.tooFull(rules):
		return plan{n: max(most, 0), forced: true, why: fmt.Sprintf("the disk is used by %d %%, above diskSpaceCleanForciblyRatio", r.disk.percent)}
	case r.disk.percent > rules.MaxUsed:
		return plan{n: old, why: fmt.Sprintf("the disk is used by %d %%, above diskMaxUsedSpaceRatio", r.disk.percent)}
	case all:
		return plan{n: old, why: "a tool asked for it"}
	case rules.Hours.Has(now.Local().Hour()):
		return plan{n: old, why: "fileReservedTime and deleteWhen"}
	}
	return plan{}
}

// nothing forgets who stood in the way.
func (r *Retention) nothing() {
	r.readers = readers{}
	for _, h := range r.holders {
		h.free()
	}
}

// expireWait bounds how long a store may wait, in the turn of the log, for readers
// that came after it was looked for them.
const expireWait = time.Second

// expire drops planned segments, one at a time, as far as nobody stands in the way;
// more tells that there may be others.
func (r *Retention) expire(ctx context.Context, segs []storage.Segment, p plan) (more bool, err error) {
	allowed := r.ask(ctx, segs, p)
	first, bytes, n := segs[0].At, int64(0), 0
	for n < allowed {
		if n > 0 {
			if !r.pause(ctx) {
				break
			}
			r.look()
			if p.forced && !r.tooFull(&r.k.Config().RetentionRules) {
				break
			}
			// Readers come and go meanwhile.
			now, serr := r.facet.Segments(ctx)
			if serr != nil {
				err = serr
				break
			}
			if len(now) > 0 && now[0].At == segs[n].At {
				segs[n].Leases = now[0].Leases
			}
		}
		if r.readers.hold(r, &segs[n]) {
			break
		}
		to := segs[n+1].At
		one, cancel := context.WithTimeout(ctx, expireWait)
		err = r.facet.Expire(one, to)
		cancel()
		if r.k.Store.State().First >= to { // whatever it said: a call may be given up and go on
			err = nil
		}
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = nil
			r.readers.came(r, &segs[n])
			break
		}
		if err != nil {
			break
		}
		r.readers = readers{}
		if p.forced {
			used := r.disk.used
			r.look()
			r.late.note(used, r.disk.used, segs[n].Bytes, r.k.Clock.Now())
		}
		r.expired.segments.Add(1)
		r.expired.bytes.Add(uint64(max(segs[n].Bytes, 0)))
		bytes += segs[n].Bytes
		n++
	}
	if n > 0 {
		r.k.Log.Info("deleted old segments of the log", "segments", n, "bytes", bytes, "from", first, "first", segs[n].At,
			"newest_deleted", time.UnixMilli(segs[n-1].LastStoreTime).UTC().Format(time.RFC3339), "because", p.why, "used_percent", r.disk.percent)
		r.show(segs[n:])
	}
	return n == p.n, err
}

// pause waits between two segments; false when the work ends.
func (r *Retention) pause(ctx context.Context) bool {
	t := r.k.Clock.NewTimer(r.k.Config().Pause)
	defer t.Stop()
	select {
	case <-t.C():
		return true
	case <-ctx.Done():
		return false
	}
}

// readers are those that hold the oldest segment that is due.
type readers struct {
	at    message.Position
	since time.Time
	said  bool
}

// hold tells whether readers hold a segment, and says so when that takes long.
func (h *readers) hold(r *Retention, seg *storage.Segment) bool {
	if seg.Leases == 0 {
		return false
	}
	h.came(r, seg)
	return true
}

func (h *readers) came(r *Retention, seg *storage.Segment) {
	now := r.k.Clock.Now()
	if h.since.IsZero() || h.at != seg.At {
		*h = readers{at: seg.At, since: now}
	}
	if d := now.Sub(h.since); !h.said && d >= r.k.Config().ReaderWait {
		h.said = true
		r.k.Log.Warn("readers keep an old segment of the log from being deleted; it is tried again and again", "segment", seg.At,
			"readers", seg.Leases, "for", d.Round(time.Second))
	}
}
