package main

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// pageData is what page.html shows.
type pageData struct {
	Title    string
	Met      int
	Missed   int
	Other    int // not measured
	Targets  []outcome
	Wrong    []string
	Legend   []legend
	Sections []pageSection
	Machine  table
}

type legend struct {
	Class template.CSS
	Name  string
}

type pageSection struct {
	ID, Title, Text string
	Charts          []template.HTML
	Table           table
}

// Head and the like of an outcome for the page.
func (o outcome) Work() string     { return o.work }
func (o outcome) What() string     { return o.what }
func (o outcome) Wanted() string   { return o.wanted }
func (o outcome) Measured() string { return o.measured }
func (o outcome) Verdict() string  { return o.verdict }
func (o outcome) Class() string    { return strings.ReplaceAll(o.verdict, " ", "-") }

// writePage writes one HTML file: no script, nothing from elsewhere.
func writePage(out io.Writer, r *results) error {
	d := pageData{Title: "Hardpoint beside others", Wrong: r.wrong(), Machine: r.machineTable()}
	for _, o := range r.outcomes() {
		switch o.verdict {
		case met:
			d.Met++
		case missed:
			d.Missed++
		default:
			d.Other++
		}
		d.Targets = append(d.Targets, o)
	}
	for i, s := range r.shown() {
		p := pageSection{ID: fmt.Sprintf("s%d", i), Title: s.title, Text: s.text, Table: s.table(r)}
		for n := range s.plots {
			if c := s.plots[n].chart(r, &s, fmt.Sprintf("%s-%d", p.ID, n)); c != "" {
				p.Charts = append(p.Charts, c)
			}
		}
		d.Sections = append(d.Sections, p)
	}
	return pageTemplate.Execute(out, d)
}

// Sizes of a chart in its own units; the page scales it.
const (
	chartWidth = 760
	nameWidth  = 170
	barWidth   = 400
	barHeight  = 18
	barStep    = 24
	loadStep   = 26
)

// chart draws a bar for each load and server: the median, and a line from the lowest to the
// highest round. Bars of one load share a scale. Empty: nothing has this number.
func (p *plot) chart(r *results, s *section, id string) template.HTML {
	type bar struct {
		name           string
		median, lo, hi float64
	}
	var loads []string
	bars := map[string][]bar{}
	for _, k := range s.keys(r) {
		v := r.numbers(k, p.path)
		m, ok := median(v)
		if !ok {
			continue
		}
		lo, hi := bounds(v)
		if bars[k.load] == nil {
			loads = append(loads, k.load)
		}
		bars[k.load] = append(bars[k.load], bar{k.name, m * p.scale, lo * p.scale, hi * p.scale})
	}
	if len(loads) == 0 {
		return ""
	}
	var body, said strings.Builder
	y := 0
	esc := template.HTMLEscapeString
	for _, load := range loads {
		most := 0.0
		for _, b := range bars[load] {
			most = max(most, b.hi)
		}
		if most == 0 {
			most = 1
		}
		y += loadStep
		fmt.Fprintf(&body, `<text class="load" x="0" y="%d">%s</text>`, y-8, esc(load))
		for _, b := range bars[load] {
			at := func(v float64) float64 { return nameWidth + v/most*barWidth }
			middle := float64(y) + barHeight/2
			fmt.Fprintf(&body, `<text x="%d" y="%d" text-anchor="end">%s</text>`, nameWidth-8, y+barHeight-5, esc(b.name))
			fmt.Fprintf(&body, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="2"/>`, class(b.name), nameWidth, y, max(at(b.median)-nameWidth, 1), barHeight)
			fmt.Fprintf(&body, `<path class="spread" d="M%.1f %.1fH%.1fM%.1f %.1fv8M%.1f %.1fv8"/>`, at(b.lo), middle, at(b.hi), at(b.lo), middle-4, at(b.hi), middle-4)
			fmt.Fprintf(&body, `<text x="%.1f" y="%d">%s %s</text>`, at(max(b.hi, b.median))+8, y+barHeight-5, number(b.median), esc(p.unit))
			fmt.Fprintf(&said, "%s, %s: %s %s, from %s to %s. ", load, b.name, number(b.median), p.unit, number(b.lo), number(b.hi))
			y += barStep
		}
		y += 6
	}
	return template.HTML(fmt.Sprintf( // every text in it is escaped above
		`<figure><figcaption>%s</figcaption><svg viewBox="0 0 %d %d" role="img" aria-labelledby="%s-t %s-d"><title id="%s-t">%s: %s</title><desc id="%s-d">%s</desc>%s</svg></figure>`,
		esc(p.title), chartWidth, y, id, id, id, esc(s.title), esc(p.title), id, esc(said.String()), body.String()))
}

// class is the colour of a server: ours, Apache's and the others are told apart in every chart.
func class(name string) string {
	switch name = strings.TrimSuffix(name, "-sync"); {
	case name == "apache":
		return "c-apache"
	case name == "floor":
		return "c-floor"
	case name == "jetstream":
		return "c-jetstream"
	case strings.HasSuffix(name, "-process") || strings.HasSuffix(name, ", process"):
		return "c-process"
	case name == "commitlog" || name == "hardpoint":
		return "c-ours"
	}
	return "c-other"
}
