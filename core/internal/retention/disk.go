package retention

import (
	"fmt"
	"math"
	"time"

	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

// slack is how many percent of the disk must come free before messages are taken
// again: what one of them takes must not change that.
const slack = 2

// disk is the fullest of the disks that matter, as of the last look.
type disk struct {
	// percent is as df shows it, rounded up; 0: not known.
	percent int
	// used and room are in bytes; both together are what percent is of.
	used, room uint64
	dir        string
}

func diskOf(dir string, u vfs.Usage) disk {
	return disk{percent: u.UsedPercent(), used: u.Used(), room: u.Available, dir: dir}
}

// look asks for the state of the disks and refuses messages, or takes them again.
func (r *Retention) look() {
	d, known := disk{}, false
	for _, dir := range r.p.Dirs {
		u, err := r.p.Usage(dir)
		if err != nil {
			if r.blind != err.Error() { // once for each fault
				r.blind = err.Error()
				r.k.Log.Warn("the use of the disk is not known, so a full one is not seen before it is full", "dir", dir, "error", err)
			}
			continue
		}
		if x := diskOf(dir, u); !known || x.percent > d.percent {
			d, known = x, true
		}
	}
	if !known {
		r.disk = disk{}
		return
	}
	r.disk = d
	cfg := r.k.Config()
	r.full.look(r, d, &cfg.RetentionRules)
	r.foresee(d, &cfg.RetentionRules)
}

// full is whether messages are refused.
type full struct{ on bool }

func (f *full) look(r *Retention, d disk, rules *kernel.RetentionRules) {
	switch {
	case !f.on && d.percent > rules.Warning:
		f.on = true
		r.k.RefuseSends(fmt.Sprintf("the disk of broker %s is full: %d %% of that of %s are used, above diskSpaceWarningLevelRatio, which is %d; messages are taken again at %d",
			r.k.Config().BrokerName, d.percent, d.dir, rules.Warning, rules.Warning-slack))
		r.k.Log.Error("the disk is full: messages are refused, reading goes on", "dir", d.dir, "used_percent", d.percent,
			"warning_level_percent", rules.Warning, "accepted_at_percent", rules.Warning-slack)
	case f.on && d.percent <= rules.Warning-slack:
		f.on = false
		r.k.RefuseSends("")
		r.k.Log.Info("there is space on the disk: messages are taken again", "dir", d.dir, "used_percent", d.percent)
	}
}

// tooFull: segments go whatever their age.
func (r *Retention) tooFull(rules *kernel.RetentionRules) bool {
	return rules.CleanForcibly && r.disk.percent > rules.Forcibly && !r.late.covers(r.disk, rules.Forcibly, r.k.Clock.Now())
}

// lateness is how long the space of what was deleted may take to come free: a
// store that compacts (pebble) gives it back later, and without patience would lose
// all of its log meanwhile.
const lateness = 2 * time.Minute

// late is what was deleted and still takes space.
type late struct {
	bytes uint64
	at    time.Time // of the last deletion
}

// note tells that so many bytes were deleted, and what was used before and after.
func (l *late) note(before, after uint64, bytes int64, now time.Time) {
	if now.Sub(l.at) >= lateness {
		l.bytes = 0
	}
	if bytes > 0 && after+uint64(bytes)/2 > before { // it did not come free at once
		l.bytes += uint64(bytes)
		l.at = now
	}
}

// covers tells whether d is below the level when all space has come free.
func (l *late) covers(d disk, level int, now time.Time) bool {
	return l.bytes > 0 && now.Sub(l.at) < lateness && d.used <= bytesAt(d, level)+l.bytes
}

// bytesAt is how many used bytes are a percentage of the disk.
func bytesAt(d disk, percent int) uint64 {
	return uint64(float64(d.used+d.room) * float64(percent) / 100)
}

const (
	// window is the time whose growth is taken to go on.
	window = time.Hour
	// settle is the time after which growth says something, sampleEvery the least
	// one between two samples.
	settle, sampleEvery = 10 * time.Minute, time.Minute
	// soon is when a disk that fills is said to do so, and sayAgain when that is
	// said once more.
	soon     = 24.0
	sayAgain = 6 * time.Hour
)

// sample is the use of the disk at a time.
type sample struct {
	at   time.Time
	used uint64
}

// forecast keeps samples of the last window.
type forecast struct {
	dir     string
	samples []sample
	said    time.Time
}

// hours until used bytes have grown to limit, at the rate of the window; +Inf when
// they do not grow or that is not known yet.
func (f *forecast) hours(used, limit uint64, now time.Time) float64 {
	if len(f.samples) < 2 {
		return math.Inf(1)
	}
	s := f.samples[0]
	took := now.Sub(s.at)
	if used <= s.used || took < settle {
		return math.Inf(1)
	}
	if used >= limit {
		return 0
	}
	return float64(limit-used) / (float64(used-s.used) / took.Hours())
}

// add takes a sample, unless there is a fresh one.
func (f *forecast) add(dir string, used uint64, now time.Time) {
	if dir != f.dir { // another disk is the fullest
		f.dir, f.samples = dir, nil
	}
	if n := len(f.samples); n > 0 {
		if last := f.samples[n-1].at; now.Before(last) { // the clock was set back
			f.samples = f.samples[:0]
		} else if now.Sub(last) < sampleEvery {
			return
		}
	}
	f.samples = append(f.samples, sample{now, used})
	for len(f.samples) > 2 && now.Sub(f.samples[1].at) >= window {
		f.samples = append(f.samples[:0], f.samples[1:]...)
	}
}

// foresee says when the disk will be full.
func (r *Retention) foresee(d disk, rules *kernel.RetentionRules) {
	now := r.k.Clock.Now()
	f := &r.forecast
	f.add(d.dir, d.used, now)
	level, what := rules.Warning, "messages are refused"
	if rules.CleanForcibly {
		level, what = rules.Forcibly, "messages are deleted before their time"
	}
	r.hours = f.hours(d.used, bytesAt(d, level), now)
	r.k.Foresee(r.hours)
	if r.hours >= soon || r.hours == 0 || !f.said.IsZero() && now.Sub(f.said) < sayAgain {
		return
	}
	f.said = now
	r.k.Log.Warn("the disk will be full soon at the rate of the last hour", "in_about", about(r.hours), "then", what,
		"dir", d.dir, "used_percent", d.percent, "full_percent", level)
}

// about is a number of hours as people say it.
func about(hours float64) string {
	if n := math.Round(hours); n > 1 {
		return fmt.Sprintf("%.0f hours", n)
	}
	return "an hour"
}
