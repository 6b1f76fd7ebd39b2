package bench

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is what a run measured. Its JSON names are stable.
type Result struct {
	Command     string   `json:"command"`
	Brokers     []string `json:"brokers"`
	Topic       string   `json:"topic"`
	Loop        string   `json:"loop"` // closed, open
	Connections int      `json:"connections"`
	Depth       int      `json:"depth"`
	Size        int      `json:"size"`
	Header      string   `json:"header"`
	Rate        float64  `json:"rate,omitempty"` // asked for, messages per second
	Interrupted bool     `json:"interrupted,omitempty"`

	Seconds      float64 `json:"seconds"`
	Messages     int64   `json:"messages"`
	Requests     int64   `json:"requests"`
	Bytes        int64   `json:"bytes"` // of bodies
	PerSecond    float64 `json:"messagesPerSecond"`
	MiBPerSecond float64 `json:"mebibytesPerSecond"`

	// Latency is of requests, end to end of messages.
	Latency Latency `json:"latency"`
	// SendLatency is, end to end, of the sends.
	SendLatency *Latency `json:"sendLatency,omitempty"`

	Errors    []ErrorCount `json:"errors,omitempty"`
	Server    *Process     `json:"server,omitempty"`
	Generator *Process     `json:"generator,omitempty"`
	Verified  *Verified    `json:"verified,omitempty"`
	Missing   int64        `json:"missing,omitempty"` // end to end: sent and not received in time
}

// Refused is the error of a run of which nothing was answered with success.
func (res *Result) Refused() error {
	if res.Messages > 0 || len(res.Errors) == 0 {
		return nil
	}
	n := int64(0)
	for i := range res.Errors {
		n += res.Errors[i].Count
	}
	e := &res.Errors[0]
	return fmt.Errorf("nothing was measured, all %d requests were refused; %s (%d): %s", n, e.Name, e.Code, e.First)
}

// Latency is a distribution in milliseconds.
type Latency struct {
	Count  int64   `json:"count"`
	Min    float64 `json:"minMs"`
	Mean   float64 `json:"meanMs"`
	P50    float64 `json:"p50Ms"`
	P90    float64 `json:"p90Ms"`
	P99    float64 `json:"p99Ms"`
	P999   float64 `json:"p999Ms"`
	P9999  float64 `json:"p9999Ms"`
	Max    float64 `json:"maxMs"`
	StdDev float64 `json:"stdDevMs"`
}

// ErrorCount counts answers with one code.
type ErrorCount struct {
	Code  int32  `json:"code"`
	Name  string `json:"name"`
	Count int64  `json:"count"`
	First string `json:"first"` // remark of the first
}

// Process is what a process used in the measured time.
type Process struct {
	PIDs             []int   `json:"pids,omitempty"`
	CPUSeconds       float64 `json:"cpuSeconds"`
	CPUMicrosPerMsg  float64 `json:"cpuMicrosPerMessage"`
	ResidentBytes    int64   `json:"residentBytes,omitempty"`
	AnonymousBytes   int64   `json:"residentAnonymousBytes,omitempty"`
	MappedFileBytes  int64   `json:"residentFileBytes,omitempty"`
	PeakResidentByte int64   `json:"peakResidentBytes,omitempty"`
}

// Verified is what --verify found.
type Verified struct {
	Queues   int   `json:"queues"`
	Messages int64 `json:"messages"`
	Bytes    int64 `json:"bytes"`
}

// latencyOf reads a histogram of nanoseconds.
func latencyOf(h *hdrhistogram.Histogram) Latency {
	if h.TotalCount() == 0 {
		return Latency{}
	}
	ms := func(ns int64) float64 { return round(float64(ns)/1e6, 1e4) }
	return Latency{
		Count: h.TotalCount(), Min: ms(h.Min()), Mean: round(h.Mean()/1e6, 1e4), StdDev: round(h.StdDev()/1e6, 1e4),
		P50: ms(h.ValueAtQuantile(50)), P90: ms(h.ValueAtQuantile(90)), P99: ms(h.ValueAtQuantile(99)),
		P999: ms(h.ValueAtQuantile(99.9)), P9999: ms(h.ValueAtQuantile(99.99)), Max: ms(h.Max()),
	}
}

func round(v, unit float64) float64 { return math.Round(v*unit) / unit }

func newHistogram(o *Options) *hdrhistogram.Histogram {
	// 1 µs to an hour beyond the longest wait, three digits.
	return hdrhistogram.New(1000, int64(2*o.Timeout+time.Hour), 3)
}

// result sums up a run whose connections are all done.
func (r *run) result(command string, t *target) *Result {
	o := r.o
	res := &Result{
		Command: command, Brokers: t.brokers, Topic: o.Topic, Loop: "closed", Connections: o.Connections, Depth: o.Depth, Size: o.Size,
		Header: o.Header.String(), Rate: o.Rate, Interrupted: r.interrupted,
	}
	if o.Rate > 0 {
		res.Loop = "open"
	}
	all := newHistogram(o)
	last := int64(0)
	for _, c := range r.conns {
		all.Merge(c.hist)
		res.Messages += c.messages
		res.Requests += c.requests
		res.Bytes += c.bytes
		last = max(last, c.last)
	}
	res.Latency = latencyOf(all)
	to := r.to.Load()
	if to == math.MaxInt64 || o.Count > 0 || last > to {
		to = last
	}
	if to > r.from {
		res.Seconds = round(float64(to-r.from)/1e9, 1e6)
		res.PerSecond = round(float64(res.Messages)/res.Seconds, 10)
		res.MiBPerSecond = round(float64(res.Bytes)/res.Seconds/(1<<20), 100)
	}
	for _, e := range r.errors {
		res.Errors = append(res.Errors, *e)
	}
	slices.SortFunc(res.Errors, func(a, b ErrorCount) int { return cmp.Compare(a.Code, b.Code) })
	res.Server = processOf(o.PIDs, r.atFrom, r.atTo, res.Messages)
	res.Generator = processOf(nil, r.ownFrom, r.ownTo, res.Messages)
	return res
}

func processOf(pids []int, from, to usage, messages int64) *Process {
	if !from.ok || !to.ok {
		return nil
	}
	p := &Process{PIDs: pids, CPUSeconds: round(to.cpu-from.cpu, 100), ResidentBytes: to.rss, AnonymousBytes: to.anon, MappedFileBytes: to.file, PeakResidentByte: to.peak}
	if messages > 0 {
		p.CPUMicrosPerMsg = round((to.cpu-from.cpu)*1e6/float64(messages), 100)
	}
	return p
}

// Print writes the result for a person.
func (res *Result) Print(w io.Writer) {
	p := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	p("%s %s: %d connections x %d, %d B, %s headers, %s loop", res.Command, res.Topic, res.Connections, res.Depth, res.Size, res.Header, res.Loop)
	if res.Interrupted {
		p("interrupted: what was measured until then")
	}
	p("  %.0f messages/s, %.1f MiB/s (%d messages, %d requests in %.2f s)", res.PerSecond, res.MiBPerSecond, res.Messages, res.Requests, res.Seconds)
	line := func(name string, l Latency) {
		p("  %s ms: p50 %.3f  p90 %.3f  p99 %.3f  p99.9 %.3f  p99.99 %.3f  max %.3f  mean %.3f", name, l.P50, l.P90, l.P99, l.P999, l.P9999, l.Max, l.Mean)
	}
	if res.SendLatency != nil {
		line("end to end", res.Latency)
		line("send", *res.SendLatency)
	} else {
		line("latency", res.Latency)
	}
	process := func(name string, s *Process) {
		if s != nil {
			p("  %s: %.2f us CPU/message (%.2f s), resident %.1f MiB (anonymous %.1f, mapped files %.1f, peak %.1f)", name,
				s.CPUMicrosPerMsg, s.CPUSeconds, mib(s.ResidentBytes), mib(s.AnonymousBytes), mib(s.MappedFileBytes), mib(s.PeakResidentByte))
		}
	}
	process("server", res.Server)
	process("generator", res.Generator)
	if v := res.Verified; v != nil {
		p("  verified: %d queues, %d messages, offsets dense, bodies match their checksums", v.Queues, v.Messages)
	}
	if res.Missing > 0 {
		p("  missing: %d messages were sent and not received in time", res.Missing)
	}
	for _, e := range res.Errors {
		p("  error %s (%d): %d times, first: %s", e.Name, e.Code, e.Count, e.First)
	}
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }
