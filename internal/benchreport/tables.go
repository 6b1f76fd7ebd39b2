package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// table is text, made once for Markdown and HTML.
type table struct {
	Caption string
	Head    []string
	Rows    [][]string
}

// column is one of a section's table.
type column struct {
	head string
	cell func(r *results, k key) string
}

// plot is one of a section's charts.
type plot struct {
	title, path, unit string
	scale             float64 // of the number to the unit
}

// section is a part as it is shown.
type section struct {
	part    string
	suffix  string // of loads; empty: all
	title   string
	text    string
	columns []column
	plots   []plot
}

func (s *section) keys(r *results) []key {
	var out []key
	for _, k := range r.keys {
		if k.part == s.part && strings.HasSuffix(k.load, s.suffix) {
			out = append(out, k)
		}
	}
	// Servers of one load stand together, whatever the order of measuring was.
	order := map[string]int{}
	for _, k := range out {
		if _, ok := order[k.load]; !ok {
			order[k.load] = len(order)
		}
	}
	slices.SortStableFunc(out, func(a, b key) int { return order[a.load] - order[b.load] })
	return out
}

func (s *section) table(r *results) table {
	t := table{Caption: s.title, Head: []string{"Load", "Server"}}
	for _, c := range s.columns {
		t.Head = append(t.Head, c.head)
	}
	for _, k := range s.keys(r) {
		row := []string{k.load, k.name}
		for _, c := range s.columns {
			row = append(row, c.cell(r, k))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// number writes with three digits or commas, whichever a person reads easier.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1000:
		return commas(v)
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}

func commas(v float64) string {
	s := strconv.FormatFloat(v, 'f', 0, 64)
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// share writes what is to be small as 1/n.
func share(v float64) string {
	if v > 0 && v < 1 {
		return "1/" + strconv.FormatFloat(1/v, 'f', 1, 64)
	}
	return number(v)
}

func bounds(v []float64) (lowest, highest float64) { return slices.Min(v), slices.Max(v) }

// spread is a median with its bounds.
func spread(head, path string, scale float64, unit string) column {
	return column{head, func(r *results, k key) string {
		v := r.numbers(k, path)
		m, ok := median(v)
		if !ok {
			return ""
		}
		lo, hi := bounds(v)
		return strings.TrimSpace(fmt.Sprintf("%s [%s–%s] %s", number(m*scale), number(lo*scale), number(hi*scale), unit))
	}}
}

// middle is a median alone.
func middle(head, path string, scale float64, unit string) column {
	return column{head, func(r *results, k key) string {
		m, ok := r.median(k, path)
		if !ok {
			return ""
		}
		return strings.TrimSpace(number(m*scale) + " " + unit)
	}}
}

// of is the ratio to another server, turned as 1/n where little is good.
func of(head, other, path string, turned bool) column {
	return column{head, func(r *results, k key) string {
		v := r.ratio(k, k.beside(other), path)
		switch {
		case !v.ok:
			return ""
		case turned:
			return share(v.value)
		}
		return number(v.value)
	}}
}

// inProcess is the server whose store, transport and replicator are in process.
func inProcess(name string) string {
	name = strings.TrimSuffix(strings.TrimSuffix(name, "-sync"), "-process")
	if name == "transport" || name == "replication" {
		return "commitlog"
	}
	return name
}

// border compares a server whose plugin is a process with the same in process.
func border(head, path string) column {
	return column{head, func(r *results, k key) string {
		if v := r.ratio(k, k.beside(inProcess(k.name)), path); v.ok {
			return number(v.value)
		}
		return ""
	}}
}

var (
	perSecond  = spread("msg/s", rate, 1, "")
	ofApache   = of("of Apache's", "apache", rate, false)
	cpuEach    = middle("CPU a message", cpu, 1, "µs")
	cpuApache  = of("of Apache's", "apache", cpu, true)
	p99Column  = middle("p99", p99, 1, "ms")
	plugged    = []column{perSecond, border("of in process", rate), middle("CPU a message, host + plugin", cpu, 1, "µs"), border("of in process", cpu), p99Column}
	throughput = plot{"Messages a second", rate, "msg/s", 1}
	cost       = plot{"CPU of the server for one message", cpu, "µs", 1}
)

var sections = []section{
	{
		part: "send", title: "Send, ASYNC_FLUSH", text: "Closed loops at the client port. A load is connections × requests in flight on each.",
		columns: []column{perSecond, of("of the floor", "floor", rate, false), ofApache, cpuEach, cpuApache, p99Column}, plots: []plot{throughput, cost},
	},
	{part: "sync", title: "Send, SYNC_FLUSH", columns: []column{perSecond, ofApache, cpuEach, cpuApache, p99Column}, plots: []plot{throughput, cost}},
	{
		part: "pull", title: "Pull of a backlog that is in memory",
		columns: []column{perSecond, spread("messages per CPU second", "perCPU", 1, ""), of("of Apache's", "apache", "perCPU", false), cpuEach, middle("p99 of a pull", p99, 1, "ms")},
		plots:   []plot{throughput, {"Messages per second of the server's CPU", "perCPU", "messages", 1}},
	},
	{
		part: "cold", title: "Pull of a backlog that is on the disk only",
		columns: []column{
			perSecond, spread("messages per CPU second", "perCPU", 1, ""), of("of Apache's", "apache", "perCPU", false), cpuEach, middle("a pull", "perPull", 1, ""),
			middle("p99 of a pull", p99, 1, "ms"), spread("MiB/s of the disk, in order", "diskMiBPerSecond", 1, ""), spread("of the disk", "ofDisk", 1, ""),
		},
		plots: []plot{throughput},
	},
	{
		part: "latency", title: "Latency at 5,000 messages a second", text: "Open loop, 32 connections, 1 KiB: latency counts from when a message was due.",
		columns: []column{
			spread("p50", "latency.p50Ms", 1, "ms"), spread("p99", p99, 1, "ms"), of("of the floor", "floor", p99, false), of("of Apache's", "apache", p99, true),
			spread("p99.9", p999, 1, "ms"), of("of the floor", "floor", p999, false), of("of Apache's", "apache", p999, true), cpuEach,
		},
		plots: []plot{{"p99", p99, "ms", 1}, {"p99.9", p999, "ms", 1}},
	},
	{
		part: "memory", title: "Memory", text: "Resident memory of the server's processes, mapped files not counted.",
		columns: []column{spread("resident", held, 1.0/(1<<20), "MiB"), of("of Apache's", "apache", held, true)}, plots: []plot{{"Resident", held, "MiB", 1.0 / (1 << 20)}},
	},
	{
		part: "start", title: "Start", text: "From the start of the process to the first acknowledged message.",
		columns: []column{spread("time", "ms", 1, "ms"), of("of Apache's", "apache", "ms", true)}, plots: []plot{{"Time to the first acknowledgement", "ms", "ms", 1}},
	},
	{
		part: "restart", title: "Restart after kill -9 under load", text: "From the start of the process to the first acknowledged message.",
		columns: []column{spread("time", "ms", 1, "ms"), of("of Apache's", "apache", "ms", true)}, plots: []plot{{"Time to the first acknowledgement", "ms", "ms", 1}},
	},
	{
		part: "topics", suffix: "created", title: "Many topics: creation", text: "The 10,000 in lists of 500, each list after the one before.",
		columns: []column{
			spread("topics/s", "create.messagesPerSecond", 1, ""), of("of Apache's", "apache", "create.messagesPerSecond", false),
			middle("CPU a topic", "create.server.cpuMicrosPerMessage", 1, "µs"), spread("known to the name server after", "registeredSeconds", 1000, "ms"),
		},
		plots: []plot{{"Topics created a second", "create.messagesPerSecond", "topics/s", 1}},
	},
	{
		part: "topics", suffix: "one by one", title: "Many topics: creation one by one", text: "Sixteen connections, one topic a request.",
		columns: []column{
			spread("topics/s", "create.messagesPerSecond", 1, ""), of("of Apache's", "apache", "create.messagesPerSecond", false), middle("p99 of a creation", "create.latency.p99Ms", 1, "ms"),
			middle("CPU a topic", "create.server.cpuMicrosPerMessage", 1, "µs"), spread("known to the name server after", "registeredSeconds", 1000, "ms"),
		},
		plots: []plot{{"Topics created a second", "create.messagesPerSecond", "topics/s", 1}},
	},
	{
		part: "topics", suffix: "at rest", title: "Many topics: while nothing happens", text: "For twelve seconds, a registration of all topics (here every ten seconds) among them.",
		columns: []column{
			spread("resident", held, 1.0/(1<<20), "MiB"), of("of Apache's", "apache", held, true), spread("CPU", "cpuPercent", 1, "% of one"),
			middle("a registration", "registrationBytes", 1.0/1024, "KiB"), middle("answered after", "registrationMs", 1, "ms"),
		},
		plots: []plot{{"Resident", held, "MiB", 1.0 / (1 << 20)}, {"CPU, of one processor", "cpuPercent", "%", 1}},
	},
	{
		part: "topics", suffix: "restarted", title: "Many topics: restart", text: "After an orderly stop, to the first acknowledged message.",
		columns: []column{spread("time", "ms", 1, "ms"), of("of Apache's", "apache", "ms", true)}, plots: []plot{{"Time to the first acknowledgement", "ms", "ms", 1}},
	},
	{
		part: "topics", suffix: "first sends", title: "Many topics: the first messages of every queue", text: "Four messages of 1 KiB to each queue, round after round.",
		columns: []column{
			spread("msg/s", "fill.messagesPerSecond", 1, ""), of("of Apache's", "apache", "fill.messagesPerSecond", false), middle("p99", "fill.latency.p99Ms", 1, "ms"),
			middle("CPU a message", "fill.server.cpuMicrosPerMessage", 1, "µs"),
		},
		plots: []plot{{"Messages a second", "fill.messagesPerSecond", "msg/s", 1}},
	},
	{
		part: "topics", suffix: "first pulls", title: "Many topics: the first pull of every queue after a restart",
		columns: []column{
			spread("pulls took", "read.seconds", 1000, "ms"), of("of Apache's", "apache", "read.seconds", true), middle("p99 of a pull", "read.latency.p99Ms", 1, "ms"),
			middle("CPU a message", "read.server.cpuMicrosPerMessage", 1, "µs"),
		},
		plots: []plot{{"Time for all queues", "read.seconds", "ms", 1000}},
	},
	{
		part: "jetstream", title: "Beside NATS JetStream: a different protocol",
		text: "File storage, one replica, the client of NATS. It is another protocol with other promises: without -sync JetStream syncs its files every two minutes (its default), " +
			"Hardpoint every 500 ms; with it both do before each acknowledgement. Loads at Hardpoint come from the generator of raw frames, those at JetStream from its own client, " +
			"which takes processor time of the same machine.",
		columns: []column{perSecond, of("of JetStream's", "jetstream", rate, false), cpuEach, of("of JetStream's", "jetstream", cpu, true), p99Column}, plots: []plot{throughput, cost},
	},
	{
		part: "append", title: "Store in process", text: "Without network, in turns with plain writes of the same bytes.",
		columns: []column{
			spread("records/s", "recordsPerSecond", 1, ""), middle("of plain writes", "ofPlainWrites", 1, ""), middle("CPU a record", "cpuNanosPerRecord", 0.001, "µs"),
			middle("allocations a record", "allocations", 1, ""),
		},
		plots: []plot{{"Records a second", "recordsPerSecond", "records/s", 1}},
	},
	{part: "plugins", title: "Plugins as processes: sends, ASYNC_FLUSH", columns: plugged, plots: []plot{throughput}},
	{part: "plugins-sync", title: "Plugins as processes: sends, SYNC_FLUSH", columns: plugged, plots: []plot{throughput}},
	{part: "plugins-pull", title: "Plugins as processes: pulls from memory", columns: plugged, plots: []plot{throughput}},
	{
		part: "allocators", title: "Allocators",
		columns: []column{spread("calls/s", "callsPerSecond", 1, ""), spread("p50", "p50Ms", 1, "ms"), spread("p99", "p99Ms", 1, "ms")},
		plots:   []plot{{"Calls a second", "callsPerSecond", "calls/s", 1}},
	},
}

// shown are the sections of which something was measured.
func (r *results) shown() []section {
	var out []section
	for _, s := range sections {
		if len(s.keys(r)) > 0 {
			out = append(out, s)
		}
	}
	return out
}

func writeMarkdown(out io.Writer, r *results) error {
	var b strings.Builder
	cell := strings.NewReplacer("|", `\|`, "\n", " ")
	write := func(t table) {
		row := func(cells []string) {
			b.WriteByte('|')
			for _, c := range cells {
				b.WriteString(" " + cell.Replace(c) + " |")
			}
			b.WriteByte('\n')
		}
		row(t.Head)
		b.WriteString(strings.Repeat("|---", len(t.Head)) + "|\n")
		for _, cells := range t.Rows {
			row(cells)
		}
	}
	fmt.Fprintf(&b, "### %s\n\n", r.targetTable().Caption)
	write(r.targetTable())
	for _, s := range r.shown() {
		fmt.Fprintf(&b, "\n### %s\n\n", s.title)
		if s.text != "" {
			fmt.Fprintf(&b, "%s\n\n", s.text)
		}
		write(s.table(r))
	}
	if bad := r.wrong(); len(bad) > 0 {
		b.WriteString("\n### What went wrong\n\n")
		for _, s := range bad {
			fmt.Fprintf(&b, "- %s\n", cell.Replace(s))
		}
	}
	fmt.Fprintf(&b, "\n### %s\n\n", r.machineTable().Caption)
	write(r.machineTable())
	_, err := io.WriteString(out, b.String())
	return err
}

// wrong names parts that failed, and what servers refused or lost.
func (r *results) wrong() []string {
	var out []string
	for _, f := range r.failed {
		round, _ := f.at("round")
		said := strings.Fields(f.text("said"))
		if len(said) > 60 {
			said = said[len(said)-60:]
		}
		out = append(out, fmt.Sprintf("%s failed in round %.0f: %s", f.text("load"), round, strings.Join(said, " ")))
	}
	return append(out, r.troubles()...)
}
