package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/cobra"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/allocate/allocatebench"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage/storagebench"
	"github.com/hardpointmq/hardpoint/core/wiring"
	"github.com/hardpointmq/hardpoint/internal/suggest"
	"github.com/hardpointmq/hardpoint/plugins/standard"
	"github.com/hardpointmq/hardpoint/sdk/external"
	"github.com/hardpointmq/hardpoint/sdk/wire"
)

// measured is a line of `plugin bench`: one work in one form.
type measured struct {
	Kind       string  `json:"kind"`
	Name       string  `json:"name"`
	Form       string  `json:"form"`
	Work       string  `json:"work"`
	Calls      int64   `json:"calls"`
	CallsPer   float64 `json:"callsPerSecond"`
	RecordsPer float64 `json:"recordsPerSecond,omitempty"`
	BytesPer   float64 `json:"bytesPerSecond,omitempty"`
	P50        float64 `json:"p50Ms"`
	P99        float64 `json:"p99Ms"`
	Max        float64 `json:"maxMs"`
}

// pluginBench is one run of the command.
type pluginBench struct {
	kind, file, dir string
	forms           []string
	duration        time.Duration
	queues, members int

	cfg *config.Config
}

func (p *program) pluginBench() *cobra.Command {
	var out output
	b := &pluginBench{cfg: &config.Config{}}
	form := choice{"both", []string{"in-process", "process", "both"}}
	kind := choice{"", benched}
	c := &cobra.Command{
		Use: "bench NAME", Short: "Measure a plugin by itself, in the process and as a process",
		Long: `Measures a plugin by itself, without a broker: a store appends, reads and syncs, an allocator allocates. The work is that of the
benchmarks in the conformance suites. Both forms stand side by side, so that the difference is the border's cost. A plugin
that --config names a program for has one form, the process.

Times are those of one call. Measure on a machine that does nothing else.`,
		Args: exactly("NAME"), ValidArgsFunction: completeNames(benched...),
		PreRunE: func(*cobra.Command, []string) error {
			b.kind = kind.word
			switch form.word {
			case "both":
				b.forms = []string{formInProcess, formProcess}
			case "in-process":
				b.forms = []string{formInProcess}
			case "process":
				b.forms = []string{formProcess}
			}
			switch {
			case b.duration <= 0:
				return fmt.Errorf("--duration is %v, it must be more than nothing", b.duration)
			case b.queues < 1 || b.members < 1:
				return fmt.Errorf("--queues is %d and --members %d, at least 1 of each is needed", b.queues, b.members)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			rows, err := b.run(ctx, args[0])
			if err != nil {
				return err
			}
			if out.json() {
				return p.printJSON(rows)
			}
			return p.printMeasured(rows)
		},
	}
	f := c.Flags()
	kind.register(c, "kind", "", "kind of the plugin, needed when both have one of the name")
	form.register(c, "form", "", "how it runs")
	f.StringVar(&b.file, "config", "", "configuration `file` with the plugin's fields, or its program")
	f.StringVar(&b.dir, "dir", "", "`folder` below which stores keep their files for the time, the system's temporary one by default")
	b.duration = time.Second
	f.Var(durationFlag{&b.duration}, "duration", "measured time for each work")
	f.IntVar(&b.queues, "queues", allocatebench.Queues, "queues that an allocator shares out")
	f.IntVar(&b.members, "members", allocatebench.Members, "members among which it does")
	out.register(c)
	return c
}

func (p *program) printMeasured(rows []measured) error {
	g := newPage(p.stdout)
	g.row("PLUGIN", "FORM", "WORK", "CALLS/S", "RECORDS/S", "MB/S", "P50 µs", "P99 µs", "MAX µs")
	number := func(v float64, unit float64) string {
		if v == 0 {
			return "-"
		}
		return fmt.Sprintf("%.0f", v/unit)
	}
	for _, r := range rows {
		g.line("%s\t%s\t%s\t%.0f\t%s\t%s\t%.1f\t%.1f\t%.1f", r.Name, strings.ReplaceAll(r.Form, "_", " "), r.Work,
			r.CallsPer, number(r.RecordsPer, 1), number(r.BytesPer, 1e6), r.P50*1e3, r.P99*1e3, r.Max*1e3)
	}
	return g.end()
}

// run finds the plugin and measures it in each form.
func (b *pluginBench) run(ctx context.Context, name string) ([]measured, error) {
	all, err := standard.Plugins()
	if err != nil {
		return nil, err
	}
	if b.file != "" {
		l, err := config.Load(config.Options{File: b.file, Secrets: os.Environ(), NoStore: true})
		if err != nil {
			return nil, err
		}
		b.cfg = &l.Config
	}
	programs := withPrograms(all, b.cfg, supervision(b.cfg), nil)
	k, err := b.kindOf(programs, name)
	if err != nil {
		return nil, err
	}
	raw, err := b.cfg.PluginRaw(k.name, name)
	if err != nil {
		return nil, err
	}
	var rows []measured
	for _, form := range b.forms {
		p := all
		_, isProgram := b.cfg.Programs[k.name+"."+name]
		switch {
		case form == formProcess && isProgram:
			p = programs
		case form == formProcess:
			if p, err = asProcess(k, all, name); err != nil {
				return nil, err
			}
		case isProgram && len(b.forms) > 1:
			continue
		case isProgram:
			return nil, misusef("%s plugin %s is a program: it has the form process only", k.name, name)
		}
		of := measured{Kind: k.name, Name: name, Form: form}
		more, err := b.measure(ctx, p, of, raw)
		if err != nil {
			return nil, b.cfg.PluginError(k.name, name, err)
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// asProcess are the plugins of which one runs as a process of this program.
func asProcess(k pluginKind, all *wiring.Plugins, name string) (*wiring.Plugins, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return withProcesses(all, &config.Config{Processes: map[string]bool{k.name + "." + name: true}}, self, external.Options{}, nil), nil
}

// benched are the kinds that can be measured without a broker.
var benched = []string{wire.Storage, wire.Allocate}

// kindOf finds the kind that has a plugin of the name.
func (b *pluginBench) kindOf(p *wiring.Plugins, name string) (pluginKind, error) {
	var found []pluginKind
	var known []string
	for _, k := range pluginKinds() {
		if !slices.Contains(benched, k.name) || b.kind != "" && b.kind != k.name {
			continue
		}
		names := k.names(p)
		if slices.Contains(names, name) {
			found = append(found, k)
		}
		known = append(known, names...)
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return pluginKind{}, misusef("there is a store and an allocator called %s; choose with --kind", name)
	}
	return pluginKind{}, misusef("there is no store and no allocator called %q; `hardpoint plugin list` lists those that there are, and --config names a file with more%s", name, suggest.DidYouMean(name, slices.Values(known)))
}

func (b *pluginBench) measure(ctx context.Context, p *wiring.Plugins, of measured, raw plugin.Raw) ([]measured, error) {
	if of.Kind == wire.Allocate {
		row, err := b.measureAllocator(ctx, p, of, raw)
		return []measured{row}, err
	}
	var rows []measured
	for _, work := range storeWorks() {
		of.Work = work.name
		row, err := b.measureStore(ctx, p, of, raw, work)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (b *pluginBench) measureAllocator(ctx context.Context, p *wiring.Plugins, of measured, raw plugin.Raw) (row measured, err error) {
	f, err := p.Allocate.Lookup(of.Name)
	if err != nil {
		return of, err
	}
	a, err := f.Build(ctx, allocate.Params{Settings: plugin.Settings{Name: of.Name}.WithDefaults()}, raw)
	if err != nil {
		return of, err
	}
	defer func() { err = errors.Join(err, allocate.Close(a)) }()
	r := allocatebench.Request(b.queues, b.members)
	of.Work = fmt.Sprintf("allocate %d queues to %d members", b.queues, b.members)
	err = b.clock(ctx, &of, func() error {
		_, err := a.Allocate(ctx, r)
		return err
	}, nil)
	return of, err
}

// storeWork is a benchmark of stores.
type storeWork struct {
	name    string
	prepare func(ctx context.Context, l *storagebench.Load) error
	call    func(ctx context.Context, l *storagebench.Load) (records int, err error)
}

func storeWorks() []storeWork {
	fill := func(n, size int) func(context.Context, *storagebench.Load) error {
		return func(ctx context.Context, l *storagebench.Load) error {
			l.Fill(n, size)
			return l.Append(ctx)
		}
	}
	appends := func(n int) func(context.Context, *storagebench.Load) (int, error) {
		return func(ctx context.Context, l *storagebench.Load) (int, error) { return n, l.Append(ctx) }
	}
	return []storeWork{
		{"append 1 × 1024 B", fill(1, 1024), appends(1)},
		{"append 64 × 1024 B", fill(64, 1024), appends(64)},
		{"append 1024 × 128 B", fill(1024, 128), appends(1024)},
		{"read 32 × 1024 B", func(ctx context.Context, l *storagebench.Load) error { return l.PrepareReads(ctx, 1024) },
			func(ctx context.Context, l *storagebench.Load) (int, error) { return l.Read(ctx) }},
		{"append 64 × 1024 B, sync", fill(64, 1024), func(ctx context.Context, l *storagebench.Load) (int, error) {
			return 64, errors.Join(l.Append(ctx), l.Sync(ctx))
		}},
	}
}

func (b *pluginBench) measureStore(ctx context.Context, p *wiring.Plugins, of measured, raw plugin.Raw, work storeWork) (row measured, err error) {
	f, err := p.Storage.Lookup(of.Name)
	if err != nil {
		return of, err
	}
	dir, err := os.MkdirTemp(b.dir, "hardpoint-bench-")
	if err != nil {
		return of, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	l, err := storagebench.Open(ctx, f, raw, dir)
	if err != nil {
		return of, err
	}
	defer func() { err = errors.Join(err, l.Close(context.WithoutCancel(ctx))) }()
	if err := work.prepare(ctx, l); err != nil {
		return of, err
	}
	records := int64(0)
	err = b.clock(ctx, &of, func() error {
		n, err := work.call(ctx, l)
		records += int64(n)
		return err
	}, func() error {
		if l.Full() {
			return l.Empty(ctx)
		}
		return nil
	})
	of.RecordsPer = of.CallsPer * float64(records) / float64(max(of.Calls, 1))
	of.BytesPer = of.RecordsPer * float64(l.RecordBytes())
	return of, err
}

// longest is the longest call that is told apart.
const longest = time.Minute

// clock calls again and again for the duration. Between is not measured.
func (b *pluginBench) clock(ctx context.Context, of *measured, call, between func() error) error {
	h := hdrhistogram.New(1, longest.Nanoseconds(), 3)
	busy := time.Duration(0)
	for busy < b.duration {
		began := time.Now()
		if err := call(); err != nil {
			return err
		}
		took := time.Since(began)
		busy += took
		_ = h.RecordValue(min(max(took, 1), longest).Nanoseconds())
		if between != nil {
			if err := between(); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	ms := func(ns int64) float64 { return float64(ns) / 1e6 }
	of.Calls = h.TotalCount()
	of.CallsPer = float64(of.Calls) / busy.Seconds()
	of.P50, of.P99, of.Max = ms(h.ValueAtQuantile(50)), ms(h.ValueAtQuantile(99)), ms(h.Max())
	return nil
}
