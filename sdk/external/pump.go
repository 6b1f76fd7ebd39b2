package external

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

const (
	lineSize  = 8 << 10 // bytes kept of a line
	lineQueue = 256     // lines that may wait for the logger
	lastLines = 12      // lines kept for errors
	lastSize  = 500     // characters of each
	faultSize = 8       // lines kept from the one on that says why a Go program dies: its place is among the first

	noiseLines = 3 // lines kept of what does not belong on standard output

	// What a process prints is logged up to logRate bytes a second, after logBurst at
	// once: a log that fills the disk takes the broker's stores with it. logExtra is
	// what a log adds to a line, the warning included that lines before it were dropped.
	logRate, logBurst, logExtra = 256 << 10, 4 << 20, 300
)

// pump brings what a process prints into the host's log. It always reads on: a
// logger that is slow, or a process that prints without end, costs lines, which are
// counted, never the process's time.
type pump struct {
	name    string
	clock   plugin.Clock
	log     atomic.Pointer[slog.Logger]
	logs    chan struct{} // closed when there is a logger; lines wait for it
	lines   chan printed
	dropped atomic.Uint64
	quit    chan struct{}
	done    chan struct{}

	mu      sync.Mutex
	seen    int // lines
	tail    []string
	noisy   []string  // the first lines on standard output, which is not the plugin's
	fault   []string  // the newest line that says why a Go program dies, and those behind it
	faultAt int       // lines seen before it
	room    float64   // bytes that may be logged at once
	told    time.Time // when that was so
}

type printed struct{ stream, text string }

func newPump(name string, log *slog.Logger, clock plugin.Clock) *pump {
	p := &pump{
		name: name, clock: clock, room: logBurst, told: clock.Now(), lines: make(chan printed, lineQueue),
		logs: make(chan struct{}), quit: make(chan struct{}), done: make(chan struct{}),
	}
	p.use(log)
	go p.run()
	return p
}

// use sets the logger unless there is one.
func (p *pump) use(log *slog.Logger) {
	if log != nil && p.log.CompareAndSwap(nil, log) {
		close(p.logs)
	}
}

// stop logs what waits and ends the pump; lines that come later are dropped.
func (p *pump) stop() {
	close(p.quit)
	<-p.done
}

func (p *pump) run() {
	defer close(p.done)
	select {
	case <-p.logs:
	case <-p.quit:
	}
	for {
		select {
		case l := <-p.lines:
			p.tell(l)
		case <-p.quit:
			for {
				select {
				case l := <-p.lines:
					p.tell(l)
				default:
					p.tellDropped()
					return
				}
			}
		}
	}
}

// line takes one line; it never blocks.
func (p *pump) line(stream, text string) {
	text = strings.TrimRight(text, "\r\n")
	if strings.TrimSpace(text) == "" {
		return
	}
	p.mu.Lock()
	if len(p.tail) == lastLines {
		p.tail = p.tail[1:]
	}
	kept := fmt.Sprintf("%.*s", lastSize, text)
	p.tail = append(p.tail, kept)
	if stream == "stdout" && len(p.noisy) < noiseLines {
		p.noisy = append(p.noisy, fmt.Sprintf("%.80s", text))
	}
	if isFault(text) {
		p.fault, p.faultAt = nil, p.seen
	}
	if p.faultAt+len(p.fault) == p.seen && len(p.fault) < faultSize && (isFault(text) || p.fault != nil) {
		p.fault = append(p.fault, kept)
	}
	p.seen++
	fits := p.fits(len(text) + logExtra)
	p.mu.Unlock()
	if !fits {
		p.dropped.Add(1)
		return
	}
	select {
	case p.lines <- printed{stream, text}:
	default:
		p.dropped.Add(1)
	}
}

// fits takes the room that a line of n bytes needs. mu is held.
func (p *pump) fits(n int) bool {
	now := p.clock.Now()
	if d := now.Sub(p.told); d > 0 {
		p.room = min(p.room+d.Seconds()*logRate, logBurst)
	}
	p.told = now
	if p.room < float64(n) {
		return false
	}
	p.room -= float64(n)
	return true
}

// isFault tells a line that says why a Go program dies; long stacks follow it.
func isFault(line string) bool {
	return strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:")
}

// last gives the last lines. When they are of a long stack they give way to the
// lines that say why, and where.
func (p *pump) last() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := p.tail
	if first := p.seen - len(p.tail); len(p.fault) > 0 && p.faultAt < first {
		rest := lines[max(len(lines)-lastLines+faultSize, p.faultAt+len(p.fault)-first):]
		lines = append(slices.Clone(p.fault), "…")
		lines = append(lines, rest...)
	}
	return strings.Join(lines, "\n")
}

// noise gives the first lines on standard output.
func (p *pump) noise() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.noisy)
}

// read takes lines from r until it ends. pick, when not nil, keeps a line for
// itself by returning true.
func (p *pump) read(stream string, r io.Reader, pick func(string) bool) {
	in := bufio.NewReaderSize(r, lineSize)
	for {
		b, err := in.ReadSlice('\n')
		text := string(b)
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of a line that is too long
			_, err = in.ReadSlice('\n')
		}
		if len(text) > 0 && (pick == nil || !pick(strings.TrimRight(text, "\r\n"))) {
			p.line(stream, text)
		}
		if err != nil {
			return
		}
	}
}

// writer is for output that comes in pieces.
func (p *pump) writer(stream string) io.Writer { return &pieces{p: p, stream: stream} }

type pieces struct {
	p      *pump
	stream string
	mu     sync.Mutex
	rest   []byte
}

// Write implements io.Writer.
func (w *pieces) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest = append(w.rest, b...)
	for {
		i := slices.Index(w.rest, '\n')
		if i < 0 {
			if len(w.rest) < lineSize {
				return len(b), nil
			}
			i = len(w.rest) - 1
		}
		w.p.line(w.stream, string(w.rest[:min(i, lineSize)]))
		w.rest = w.rest[i+1:]
	}
}

// tell logs a line: a JSON line of a logger with its own level and values, all
// else as it is.
func (p *pump) tell(l printed) {
	log := p.log.Load()
	if log == nil {
		return
	}
	p.tellDropped()
	text, level, attrs := relabel(l.text)
	attrs = append(attrs, slog.String("plugin", p.name), slog.String("stream", l.stream))
	log.LogAttrs(context.Background(), level, text, attrs...) //nolint:sloglint // the message is the plugin's
}

// tellDropped says how many lines are missing before what is logged next.
func (p *pump) tellDropped() {
	if log := p.log.Load(); log != nil {
		if n := p.dropped.Swap(0); n > 0 {
			log.Warn("a plugin printed faster than the log took it; lines were dropped", "plugin", p.name, "lines", n)
		}
	}
}

// relabel reads a line of a JSON logger with @message and @level. Lines that
// only look like one are text.
func relabel(line string) (string, slog.Level, []slog.Attr) {
	plain := slog.LevelInfo
	if isFault(line) {
		plain = slog.LevelError
	}
	if !strings.HasPrefix(line, "{") {
		return line, plain, nil
	}
	var m map[string]any
	if json.Unmarshal([]byte(line), &m) != nil {
		return line, plain, nil
	}
	text, ok := m["@message"].(string)
	if !ok {
		return line, plain, nil
	}
	level := slog.LevelInfo
	if s, _ := m["@level"].(string); level.UnmarshalText([]byte(s)) != nil {
		level = slog.LevelInfo
		if s == "trace" {
			level = slog.LevelDebug
		}
	}
	var attrs []slog.Attr
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if k != "@message" && k != "@level" && k != "@timestamp" {
			attrs = append(attrs, slog.Any(k, m[k]))
		}
	}
	return text, level, attrs
}
