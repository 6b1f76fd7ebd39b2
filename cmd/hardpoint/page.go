package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// output is the flag --output of a command that prints data.
type output struct{ choice }

func (o *output) register(c *cobra.Command) {
	o.word, o.words = "text", []string{"text", "json"}
	o.choice.register(c, "output", "o", "form of the output")
}

func (o *output) json() bool { return o.word == "json" }

// printJSON writes v indented.
func (p *program) printJSON(v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := p.stdout.Write(plainJSON(b.Bytes()))
	return err
}

// plainJSON escapes what a terminal would not show as it is and JSON has no need to
// escape, such as the controls of C1 and marks that turn the direction of writing. It is
// the same JSON.
func plainJSON(b []byte) []byte {
	odd := func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }
	if !bytes.ContainsFunc(b, odd) {
		return b
	}
	out := make([]byte, 0, len(b)+64)
	for _, r := range string(b) {
		switch {
		case !odd(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

// show prints what a command found: v as JSON, or what text writes of it.
func (p *program) show(o *output, v any, text func(*page)) error {
	if o.json() {
		return p.printJSON(v)
	}
	g := newPage(p.stdout)
	text(g)
	return g.end()
}

// showPart is show for a command whose others may have failed: err is why, and what the
// command ends with when the rest is shown. A table in which nothing is left is not.
func (p *program) showPart(o *output, v any, text func(*page), err error) error {
	if err != nil && !o.json() {
		g := newPage(io.Discard)
		if text(g); !g.full {
			return err
		}
	}
	if shown := p.show(o, v, text); shown != nil {
		return shown
	}
	return err
}

// page gathers what a command prints, in columns where there are tabs.
type page struct {
	b *bufio.Writer
	w *tabwriter.Writer

	titled bool // the table has its titles
	full   bool // there is more than titles
}

func newPage(w io.Writer) *page {
	b := bufio.NewWriter(w)
	return &page{b: b, w: tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)}
}

// line is one, or as many as format has: texts in it, which may be of others, begin none.
func (p *page) line(format string, args ...any) {
	args = slices.Clone(args)
	for i, a := range args {
		switch v := a.(type) {
		case string:
			args[i] = inLine.Replace(v)
		case error:
			args[i] = inLine.Replace(v.Error())
		case fmt.Stringer:
			args[i] = inLine.Replace(v.String())
		}
	}
	fmt.Fprint(p.w, harmless(fmt.Sprintf(format, args...))+"\n")
	p.full = true
}

var inLine = strings.NewReplacer("\n", `\n`, "\t", `\t`)

// shellWord is a name in a command that is proposed, as one word of a shell: a topic may
// be called a|b, and clients choose names.
func shellWord(name string) string {
	if name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_-%.:", r)
	}) {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

// proposal is a command that somebody is to give, as in "topic delete", with names and
// flags behind them. A name that looks like a flag comes last, after what says that it
// is none.
func proposal(command string, names []string, flags ...string) string {
	words := make([]string, len(names))
	odd := false
	for i, name := range names {
		words[i] = shellWord(name)
		odd = odd || strings.HasPrefix(name, "-")
	}
	if odd {
		words = append(append(slices.Clone(flags), "--"), words...)
	} else {
		words = append(words, flags...)
	}
	return "hardpoint " + command + " " + strings.Join(words, " ")
}

// row is a line of a table, with the titles of its columns or their values; see cell.
func (p *page) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		texts[i] = cell(c)
	}
	fmt.Fprint(p.w, strings.Join(texts, "\t")+"\n")
	p.full = p.full || p.titled
	p.titled = true
}

// part ends the columns, and begins others after an empty line.
func (p *page) part() {
	p.titled = false
	_ = p.w.Flush() // Flush of what is below tells
	fmt.Fprintln(p.b)
}

func (p *page) end() error {
	if err := p.w.Flush(); err != nil {
		return err
	}
	return p.b.Flush()
}

// cell is a value in a table: names of others safe for a terminal, what is missing as
// a dash, times and durations with their units.
func cell(v any) string {
	switch v := v.(type) {
	case string:
		return orDash(v)
	case time.Duration:
		return durationText(v)
	case bool:
		if v {
			return "yes"
		}
		return "no"
	}
	return orDash(fmt.Sprint(v))
}

// orDash is a name of others in a table. What a terminal would not show as it is, is
// quoted.
func orDash(s string) string {
	switch {
	case s == "":
		return "-"
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return strconv.Quote(s)
	}
	return s
}

// instant is a time in ms since epoch; 0: unknown. In JSON it is RFC 3339 in UTC, or
// null.
type instant int64

func (t instant) String() string { return timeText(int64(t)) }

// MarshalJSON writes the time.
func (t instant) MarshalJSON() ([]byte, error) {
	if t <= 0 {
		return []byte("null"), nil
	}
	return json.Marshal(t.String())
}

// sizeText is a number of bytes for a person.
func sizeText(n int64) string {
	const units = "KMGT"
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n)/(1<<10), 0
	for ; f >= 1<<10 && unit < len(units)-1; unit++ {
		f /= 1 << 10
	}
	return fmt.Sprintf("%.1f %ciB", f, units[unit])
}

// timeText is a time of a record for a person.
func timeText(ms int64) string {
	if ms <= 0 {
		return "-"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// durationText is a span of time for a person: two units at most.
func durationText(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0:
		return "-" + durationText(-d)
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return twoUnits(d.Round(time.Second), time.Minute, "m", time.Second, "s")
	case d < 2*day:
		return twoUnits(d.Round(time.Minute), time.Hour, "h", time.Minute, "m")
	}
	return twoUnits(d.Round(time.Hour), day, "d", time.Hour, "h")
}

func twoUnits(d, large time.Duration, l string, small time.Duration, s string) string {
	text := fmt.Sprintf("%d%s", d/large, l)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf("%d%s", rest, s)
	}
	return text
}
