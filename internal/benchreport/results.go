package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// result is one line of a results file: what one round of one load at one server gave.
type result map[string]any

// at returns the number at a path of names with dots between; false: there is none.
func (r result) at(path string) (float64, bool) {
	var v any = map[string]any(r)
	for name := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return 0, false
		}
		v = m[name]
	}
	n, ok := v.(float64)
	return n, ok
}

func (r result) text(name string) string {
	s, _ := r[name].(string)
	return s
}

// key is what rounds are of.
type key struct{ part, load, name string }

// results is everything that was measured.
type results struct {
	machines []result
	failed   []result
	seconds  float64
	keys     []key // in the order in which they came first
	rounds   map[key][]result
}

func newResults() *results { return &results{rounds: map[key][]result{}} }

func (r *results) readFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := r.read(f); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// errResults: a line that is no result.
var errResults = errors.New("no result of test/bench/run")

func (r *results) read(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		var one result
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return fmt.Errorf("line %d: %w: %w", n, errResults, err)
		}
		switch one.text("part") {
		case "":
			return fmt.Errorf("line %d: %w: it names no part", n, errResults)
		case "machine":
			r.machines = append(r.machines, one)
		case "failed":
			r.failed = append(r.failed, one)
		case "end":
			s, _ := one.at("seconds")
			r.seconds += s
		default:
			k := key{one.text("part"), one.text("load"), one.text("name")}
			if r.rounds[k] == nil {
				r.keys = append(r.keys, k)
			}
			derive(one)
			r.rounds[k] = append(r.rounds[k], one)
		}
	}
	return lines.Err()
}

// derive adds numbers that follow from others.
func derive(r result) {
	ratio := func(name, over, under string, least float64) {
		a, ok := r.at(over)
		b, too := r.at(under)
		if ok && too {
			if b = max(b, least); b > 0 {
				r[name] = a / b
			}
		}
	}
	ratio("perCPU", "messages", "server.cpuSeconds", 0.01)
	ratio("perPull", "messages", "requests", 1)
	ratio("ofDisk", "messagesPerSecond", "diskMessagesPerSecond", 0)
}

// numbers are those of a path over the rounds.
func (r *results) numbers(k key, path string) []float64 {
	var out []float64
	for _, one := range r.rounds[k] {
		if v, ok := one.at(path); ok {
			out = append(out, v)
		}
	}
	return out
}

// median is false when no round has the number.
func (r *results) median(k key, path string) (float64, bool) { return median(r.numbers(k, path)) }

func median(v []float64) (float64, bool) {
	if len(v) == 0 {
		return 0, false
	}
	v = slices.Sorted(slices.Values(v))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2, true
	}
	return v[len(v)/2], true
}

// ratio is the medians of two servers divided, and the lowest and highest of the rounds in which
// both were measured.
type ratio struct {
	value, lowest, highest float64
	ok                     bool
}

func (r *results) ratio(k, other key, path string) ratio {
	a, ok := r.median(k, path)
	b, too := r.median(other, path)
	if !ok || !too || b == 0 {
		return ratio{}
	}
	out := ratio{value: a / b, lowest: a / b, highest: a / b, ok: true}
	in := map[float64]float64{}
	for _, one := range r.rounds[other] {
		round, _ := one.at("round")
		if v, ok := one.at(path); ok && v != 0 {
			in[round] = v
		}
	}
	var each []float64
	for _, one := range r.rounds[k] {
		round, _ := one.at("round")
		if v, ok := one.at(path); ok && in[round] != 0 {
			each = append(each, v/in[round])
		}
	}
	if len(each) > 0 {
		out.lowest, out.highest = slices.Min(each), slices.Max(each)
	}
	return out
}

// beside is a server under the same load, in the same mode of flushing.
func (k key) beside(name string) key {
	if strings.HasSuffix(k.name, "-sync") {
		name += "-sync"
	}
	return key{k.part, k.load, name}
}

// troubles are the loads at which a server refused something or lost it.
func (r *results) troubles() []string {
	var out []string
	for _, k := range r.keys {
		for _, one := range r.rounds[k] {
			errs, _ := one["errors"].([]any)
			missing, _ := one.at("missing")
			if len(errs) > 0 || missing > 0 {
				round, _ := one.at("round")
				out = append(out, fmt.Sprintf("%s, %s, %s, round %.0f: errors %v, missing %.0f", k.part, k.load, k.name, round, errs, missing))
			}
		}
	}
	return out
}

// machineTable tells where and how it was measured.
func (r *results) machineTable() table {
	t := table{Caption: "Where and how", Head: []string{"What", "Value"}}
	add := func(what, value string) {
		if strings.TrimSpace(value) != "" {
			t.Rows = append(t.Rows, []string{what, value})
		}
	}
	for _, m := range r.machines {
		n := func(name string) float64 { v, _ := m.at(name); return v }
		add("Began", m.text("began"))
		add("Code", m.text("commit"))
		add("Processors", fmt.Sprintf("%.0f (%s)", n("cpus"), m.text("cpu")))
		add("Memory", fmt.Sprintf("%.1f GiB", n("memoryKiB")/(1<<20)))
		add("Disk", fmt.Sprintf("%s; %.0f of %.0f GiB free", m.text("disk"), n("diskFreeBytes")/(1<<30), n("diskBytes")/(1<<30)))
		add("System", strings.TrimSpace(m.text("system")+" "+m.text("kernel")))
		add("Go", m.text("go"))
		add("Java", m.text("java"))
		add("Apache RocketMQ", m.text("apache"))
		add("NATS server", m.text("nats"))
		flags, _ := m["flags"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(flags)) {
			add(name, fmt.Sprint(flags[name]))
		}
	}
	if r.seconds > 0 {
		add("Took", fmt.Sprintf("%.0f min", r.seconds/60))
	}
	return t
}
