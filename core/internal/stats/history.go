package stats

import (
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
)

// sample is a sum as it was at a moment.
type sample struct{ sum, times int64 }

// history is samples of one counter, the newest last. All counters are sampled at the
// same moments, those of moments.
type history struct {
	minute [minutes]sample
	hour   [hours]sample
	day    [days]sample
}

// moments is when samples were taken, in ms since epoch; 0: before the start.
type moments struct {
	minute [minutes]int64
	hour   [hours]int64
	day    [days]int64
	// nextHour and nextDay are when these samples are due.
	nextHour, nextDay time.Time
	date              time.Time // of the morning that was noted last
}

// start makes now the first moment of all three.
func (m *moments) start(now time.Time) {
	ms := now.UnixMilli()
	m.minute[minutes-1], m.hour[hours-1], m.day[days-1] = ms, ms, ms
	m.nextHour, m.nextDay, m.date = now.Add(hourStep), now.Add(dayStep), day(now)
}

func day(t time.Time) time.Time {
	y, m, d := t.Date()
	return time.Date(y, m, d, 0, 0, 0, 0, t.Location())
}

func shift[T any](ring []T, v T) {
	copy(ring, ring[1:])
	ring[len(ring)-1] = v
}

// sample notes all sums; it is due every ten seconds.
func (s *Stats) sample(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ms, m := now.UnixMilli(), &s.at
	shift(m.minute[:], ms)
	hour, daily := !now.Before(m.nextHour), !now.Before(m.nextDay)
	if hour {
		shift(m.hour[:], ms)
		m.nextHour = now.Add(hourStep)
	}
	if daily {
		shift(m.day[:], ms)
		m.nextDay = now.Add(dayStep)
	}
	for c := range s.counters {
		v := sample{c.sum.Load(), c.times.Load()}
		shift(c.history.minute[:], v)
		if hour {
			shift(c.history.hour[:], v)
		}
		if daily {
			shift(c.history.day[:], v)
		}
	}
	if d := day(now); d.After(m.date) {
		m.date = d
		s.mornings = [2]Mornings{
			{s.mornings[0].Today, s.put.sum.Load()},
			{s.mornings[1].Today, s.get.sum.Load()},
		}
	}
}

// counters calls yield for each counter; the caller holds mu.
func (s *Stats) counters(yield func(*counter) bool) {
	for _, c := range []*counter{&s.put, &s.size, &s.get, &s.found, &s.missed} {
		if !yield(c) {
			return
		}
	}
	for _, t := range s.topics {
		if !yield(&t.nums) || !yield(&t.size) {
			return
		}
	}
	for _, g := range s.gots {
		if !yield(&g.nums) || !yield(&g.size) || !yield(&g.back) {
			return
		}
	}
}

// between is what was counted between the oldest and the newest of some samples
// (StatsItem.computeStatsData).
func between(ring []sample, at []int64) command.StatsSnapshot {
	for i, ms := range at {
		if ms == 0 {
			continue
		}
		first, last := ring[i], ring[len(ring)-1]
		out := command.StatsSnapshot{Sum: last.sum - first.sum}
		if span := at[len(at)-1] - ms; span > 0 {
			out.Tps = command.Double(float64(out.Sum) * 1000 / float64(span))
		}
		if n := last.times - first.times; n > 0 {
			out.Avgpt = command.Double(float64(out.Sum) / float64(n))
		}
		return out
	}
	return command.StatsSnapshot{}
}

// Mornings are sums at midnight.
type Mornings struct{ Yesterday, Today int64 }

// Runtime is what GET_BROKER_RUNTIME_INFO tells of what was counted.
type Runtime struct {
	Boot time.Time
	// Messages and Bytes that were stored since the start, Gets that were handed out.
	Messages, Bytes, Gets    int64
	PutMornings, GetMornings Mornings
	// A second, over the last 10, 60 and 600 seconds: messages stored, messages handed
	// out, pulls, pulls that got messages, pulls that got none.
	Put, Transferred, Total, Found, Missed [3]float64
}

// Runtime returns the counts as of the last sample, and the sums as of now.
func (s *Stats) Runtime() Runtime {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := Runtime{
		Boot: s.boot, Messages: s.put.sum.Load(), Bytes: s.size.sum.Load(), Gets: s.get.sum.Load(),
		PutMornings: s.mornings[0], GetMornings: s.mornings[1],
		Put: s.rates(&s.put), Transferred: s.rates(&s.get), Found: s.rates(&s.found), Missed: s.rates(&s.missed),
	}
	for i := range out.Total {
		out.Total[i] = out.Found[i] + out.Missed[i]
	}
	return out
}

// rates are those of a counter; the caller holds mu.
func (s *Stats) rates(c *counter) [3]float64 {
	h := &c.history
	return [3]float64{
		float64(between(h.minute[minutes-2:], s.at.minute[minutes-2:]).Tps),
		float64(between(h.minute[:], s.at.minute[:]).Tps),
		float64(between(h.hour[hours-2:], s.at.hour[hours-2:]).Tps),
	}
}

// Rates formats three rates as RocketMQ does.
func Rates(r [3]float64) string {
	var b []byte
	for i, x := range r {
		if i > 0 {
			b = append(b, ' ')
		}
		b = command.Double(x).Append(b)
	}
	return string(b)
}
