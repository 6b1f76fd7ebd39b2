package main

import (
	"fmt"
	"strings"
)

// target is one condition of what Hardpoint may cost beside others (docs/performance.md).
type target struct {
	work, what string
	part, load string // load: its beginning
	name       string
	other      string // ratio to this server; empty: the number itself
	path       string
	least      float64 // it must be at least this
	most       float64 // or at most this, when least is 0
}

const (
	rate = "messagesPerSecond"
	cpu  = "server.cpuMicrosPerMessage"
	p99  = "latency.p99Ms"
	p999 = "latency.p999Ms"
	held = "bytes"
)

// targets are all but those of replication and plugins.
var targets = func() []target {
	var out []target
	send := func(work, load string, apache, cpuOf, floor float64) {
		out = append(out,
			target{work: work, what: "throughput, of Apache's", part: "send", load: load, name: "commitlog", other: "apache", path: rate, least: apache},
			target{work: work, what: "CPU a message, of Apache's", part: "send", load: load, name: "commitlog", other: "apache", path: cpu, most: 1 / cpuOf},
			target{work: work, what: "throughput, of the floor", part: "send", load: load, name: "commitlog", other: "floor", path: rate, least: floor})
	}
	send("send 1 KiB, 64 × 1", "64 x 1, 1024 B", 4, 6, 0.9)
	send("send 1 KiB, 1 × 64", "1 x 64, 1024 B", 6, 12, 0.9)
	send("send 1 KiB, 4 × 64", "4 x 64, 1024 B", 6, 10, 1)
	send("send 128 B, 4 × 64", "4 x 64, 128 B", 8, 15, 0.9)
	for _, l := range []struct {
		load  string
		least float64
	}{{"1 x 64", 5}, {"64 x 1", 3}} {
		out = append(out, target{work: "send 1 KiB, SYNC_FLUSH, " + strings.ReplaceAll(l.load, "x", "×"), what: "throughput, of Apache's", part: "sync", load: l.load,
			name: "commitlog-sync", other: "apache-sync", path: rate, least: l.least})
	}
	for _, l := range []struct {
		load  string
		least float64
	}{{"1 a pull, 4", 4}, {"1 a pull, 16", 4}, {"32 a pull, 4", 2}, {"32 a pull, 16", 2}} {
		out = append(out, target{work: "pull from memory, " + l.load + " readers", what: "messages per CPU second, of Apache's", part: "pull", load: l.load,
			name: "commitlog", other: "apache", path: "perCPU", least: l.least})
	}
	return append(out,
		target{work: "pull from the disk, 32 a pull", what: "messages per CPU second, of Apache's", part: "cold", name: "commitlog", other: "apache", path: "perCPU", least: 2},
		target{work: "pull from the disk, 32 a pull", what: "of the files read in order", part: "cold", name: "commitlog", path: "ofDisk", least: 0.8},
		target{work: "end to end, 5,000 msg/s", what: "p99, of Apache's", part: "latency", load: "end to end", name: "commitlog", other: "apache", path: p99, most: 1.0 / 6},
		target{work: "end to end, 5,000 msg/s", what: "p99.9, of Apache's", part: "latency", load: "end to end", name: "commitlog", other: "apache", path: p999, most: 1.0 / 6},
		target{work: "send, 5,000 msg/s", what: "p99, of the floor", part: "latency", load: "send", name: "commitlog", other: "floor", path: p99, most: 1.3},
		target{work: "send, 5,000 msg/s", what: "p99.9, of the floor", part: "latency", load: "send", name: "commitlog", other: "floor", path: p999, most: 1.3},
		target{work: "memory, idle", what: "of Apache's", part: "memory", load: "idle", name: "hardpoint", other: "apache", path: held, most: 1.0 / 15},
		target{work: "memory, under load", what: "of Apache's", part: "memory", load: "under load", name: "commitlog", other: "apache", path: held, most: 1.0 / 12},
		target{work: "start to the first acknowledgement", what: "of Apache's", part: "start", name: "commitlog", other: "apache", path: "ms", most: 1.0 / 20},
		target{work: "restart after kill -9", what: "of Apache's", part: "restart", name: "commitlog", other: "apache", path: "ms", most: 1.0 / 5},
		target{work: "append in process, 1 KiB, batches of 64", what: "records/s", part: "append", load: "1024 B, batch of 64", name: "commitlog", path: "recordsPerSecond", least: 2e6},
		target{work: "append in process, 128 B, batches of 64", what: "records/s", part: "append", load: "128 B, batch of 64", name: "commitlog", path: "recordsPerSecond", least: 5e6},
		target{work: "append in process, 128 B, batches of 1024", what: "records/s", part: "append", load: "128 B, batch of 1024", name: "commitlog", path: "recordsPerSecond", least: 5e6},
		target{work: "append in process, 1 KiB", what: "allocations a record", part: "append", load: "allocations, 1024 B, batch of 64", name: "commitlog", path: "allocations", most: 0},
		target{work: "append in process, sustained", what: "of plain writes", part: "append", load: "sustained", name: "commitlog", path: "ofPlainWrites", least: 0.9},
	)
}()

// outcome is what became of a target.
type outcome struct {
	target
	measured, wanted, verdict string
}

// Verdicts.
const (
	met         = "met"
	missed      = "missed"
	notMeasured = "not measured"
)

func (r *results) outcomes() []outcome {
	var out []outcome
	for _, t := range targets {
		o := outcome{target: t, verdict: notMeasured, wanted: "≥ " + number(t.least)}
		if t.least == 0 {
			o.wanted = "≤ " + share(t.most)
		}
		for _, k := range r.keys {
			if k.part != t.part || k.name != t.name || !strings.HasPrefix(k.load, t.load) {
				continue
			}
			v := ratio{}
			if t.other != "" {
				v = r.ratio(k, key{k.part, k.load, t.other}, t.path)
			} else {
				v.value, v.ok = r.median(k, t.path)
				if all := r.numbers(k, t.path); v.ok {
					v.lowest, v.highest = bounds(all)
				}
			}
			if !v.ok {
				continue
			}
			write := number
			if t.least == 0 {
				write = share
			}
			o.measured = fmt.Sprintf("%s [%s–%s]", write(v.value), write(v.lowest), write(v.highest))
			o.verdict = missed
			if t.least > 0 && v.value >= t.least || t.least == 0 && v.value <= t.most {
				o.verdict = met
			}
		}
		out = append(out, o)
	}
	return out
}

// targetTable is the summary: each target with what was measured.
func (r *results) targetTable() table {
	t := table{Caption: "Targets", Head: []string{"Work", "Measure", "Target", "Median of the rounds [lowest–highest]", "Verdict"}}
	for _, o := range r.outcomes() {
		t.Rows = append(t.Rows, []string{o.work, o.what, o.wanted, o.measured, o.verdict})
	}
	return t
}
