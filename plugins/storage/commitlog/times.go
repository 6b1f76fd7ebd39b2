package commitlog

// recordTimes follows the store times of records, in the order of the log. No CRC
// covers them: one flipped bit is a time that no record behind it reaches, by which
// all of them would be older than what precedes them.
type recordTimes struct {
	// settled is the latest time that was not refuted, of the records before the last
	// two: a time is refuted when both of the records behind it are earlier.
	settled int64
	// before and last are the times of the last two.
	before, last int64
}

func (t *recordTimes) add(ms int64) {
	t.settled = max(t.settled, min(t.before, max(t.last, ms)))
	t.before, t.last = t.last, ms
}

// latest is the time that no record of the same log can be earlier than which
// follows, in ms; 0 when there is none yet.
func (t *recordTimes) latest() int64 { return max(t.settled, t.before, t.last) }
