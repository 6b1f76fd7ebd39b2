package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/allocate/allocatebench"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagebench"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
	"github.com/hardpointmq/hardpoint/sdk/external"
	"github.com/hardpointmq/hardpoint/sdk/wire"
)

// checkedProgram is what `plugin check` finds.
type checkedProgram struct {
	Program  string          `json:"program"`
	Good     bool            `json:"good"`
	Plugins  []checkedPlugin `json:"plugins"`
	Warnings []string        `json:"warnings,omitempty"`
	Problems []string        `json:"problems,omitempty"`
	// Untried is why nothing was found out, which is not the program's fault.
	Untried string `json:"untried,omitempty"`
}

// bad reports whether something is wrong with the program itself.
func (c *checkedProgram) bad() bool {
	return len(c.Problems) > 0 || slices.ContainsFunc(c.Plugins, func(i checkedPlugin) bool { return len(i.Problems) > 0 })
}

// checkedPlugin is one that a program serves.
type checkedPlugin struct {
	pluginInfo
	// Tried says in words what was done with it.
	Tried    string   `json:"tried,omitempty"`
	Problems []string `json:"problems,omitempty"`
	// Untried is why nothing is known of it, which is not its fault.
	Untried string `json:"untried,omitempty"`
}

// pluginCheck is one run of the command.
type pluginCheck struct {
	cmd     external.Command
	timeout time.Duration
	raw     string
}

func (p *program) pluginCheck() *cobra.Command {
	var out output
	k := &pluginCheck{}
	c := &cobra.Command{
		Use: "check [flags] FILE [ARGS…]", DisableFlagsInUseLine: true, Short: "Check a program that serves plugins",
		Long: `Starts a program as a broker would, lists what it serves, and tries each plugin for a moment with its default
configuration: a store keeps and reads a record in a temporary folder, an allocator shares out some queues, a transport
listens, a replication plugin takes office over a store in memory. What is wrong is said in words.

Flags come before FILE; what follows it is the program's. Exit code 1 when something is wrong, 4 when nothing is, but
the folder for temporary files (TMPDIR) has not the room to try everything.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || args[0] == "" {
				return errors.New("needs FILE, the program to check")
			}
			for _, kv := range k.cmd.Env {
				if name, _, ok := strings.Cut(kv, "="); !ok || name == "" {
					return fmt.Errorf("--env is %q; write NAME=VALUE", kv)
				}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			k.cmd.Path, k.cmd.Args = args[0], args[1:]
			found := k.run(ctx)
			if out.json() {
				if err := p.printJSON(found); err != nil {
					return err
				}
			} else if err := p.printChecked(found); err != nil {
				return err
			}
			switch {
			case found.Good:
				return nil
			case found.bad():
				return errReported
			}
			return errUnknown
		},
	}
	f := c.Flags()
	f.SetInterspersed(false)
	k.timeout = 30 * time.Second
	f.Var(limitFlag{durationFlag{&k.timeout}}, "timeout", "how long the start, and each plugin, may take")
	f.StringVar(&k.cmd.Checksum, "checksum", "", "SHA-256 that the program must have, in hexadecimal digits")
	f.StringArrayVar(&k.cmd.Env, "env", nil, "`NAME=VALUE` for the program's environment, once for each")
	f.StringVar(&k.raw, "config", "", "configuration of the plugins instead of their defaults, as a JSON `object`")
	out.register(c)
	return c
}

func (p *program) printChecked(c *checkedProgram) error {
	if len(c.Plugins) > 0 {
		g := newPage(p.stdout)
		g.row("KIND", "NAME", "VERSION", "CONTRACT", "FACETS", "RESULT")
		for _, i := range c.Plugins {
			result := "good: " + i.Tried
			switch {
			case len(i.Problems) > 0:
				result = "bad, see below"
			case i.Untried != "":
				result = "not tried, see below"
			}
			g.row(i.Kind, i.Name, i.Version, i.Contract, strings.Join(i.Facets, " "), result)
		}
		if err := g.end(); err != nil {
			return err
		}
	}
	for _, w := range c.Warnings {
		fmt.Fprintf(p.stdout, "warning: %s\n", w)
	}
	for _, s := range c.Problems {
		fmt.Fprintf(p.stdout, "problem: %s\n", s)
	}
	if c.Untried != "" {
		fmt.Fprintf(p.stdout, "not tried: %s\n", c.Untried)
	}
	for _, i := range c.Plugins {
		if i.Untried != "" {
			fmt.Fprintf(p.stdout, "not tried: %s %s: %s\n", i.Kind, i.Name, i.Untried)
		}
		for _, s := range i.Problems {
			fmt.Fprintf(p.stdout, "problem: %s %s: %s\n", i.Kind, i.Name, s)
		}
	}
	result := "could not be checked"
	switch {
	case c.Good:
		result = "is good"
	case c.bad():
		result = "is bad"
	}
	_, err := fmt.Fprintf(p.stdout, "%s %s\n", c.Program, result)
	return err
}

// options are those of a host that waits for nothing.
func (k *pluginCheck) options() external.Options {
	return external.Options{
		StartTimeout: k.timeout, Linger: -1, Health: min(time.Second, k.timeout), HealthLimit: min(5*time.Second, k.timeout),
		Backoff: external.Backoff{First: time.Nanosecond, Most: time.Nanosecond}, Breaker: external.Breaker{Deaths: -1},
	}
}

func (k *pluginCheck) run(ctx context.Context) *checkedProgram {
	found := &checkedProgram{Program: k.cmd.Path, Plugins: []checkedPlugin{}}
	serves, err := k.inspect(ctx)
	if found.Untried = k.noRoom(err); found.Untried != "" {
		return found
	}
	if err != nil {
		found.Problems = append(found.Problems, k.inWords(err))
		return found
	}
	if len(serves.Noise) > 0 {
		found.Warnings = append(found.Warnings, fmt.Sprintf("it prints on standard output, which belongs to the handshake; a broker logs that and goes on, but print on standard error instead: %q", serves.Noise))
	}
	if len(serves.Plugins) == 0 {
		found.Problems = append(found.Problems, "it serves no plugin at all")
	}
	found.Good = len(found.Problems) == 0
	seen := map[external.Served]bool{}
	for _, s := range serves.Plugins {
		one := k.try(ctx, s)
		if seen[s] {
			one.Problems = append(one.Problems, "it is listed twice")
		}
		seen[s] = true
		found.Good = found.Good && len(one.Problems) == 0 && one.Untried == ""
		found.Plugins = append(found.Plugins, one)
	}
	return found
}

func (k *pluginCheck) inspect(ctx context.Context) (*external.Inspection, error) {
	ctx, cancel := context.WithTimeout(ctx, k.timeout+time.Second) // the start's own limit says more
	defer cancel()
	return external.Inspect(ctx, k.cmd, k.options())
}

// inWords is an error without what everybody knows here.
func (k *pluginCheck) inWords(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("it does not answer within %v: %v", k.timeout, err)
	}
	return strings.TrimPrefix(err.Error(), plugin.ErrUnavailable.Error()+": ")
}

// try describes a plugin and does something with it.
func (k *pluginCheck) try(ctx context.Context, s external.Served) checkedPlugin {
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	one := checkedPlugin{pluginInfo: pluginInfo{Kind: s.Kind, Name: s.Name, Facets: []string{}}}
	if !config.IsPluginName(s.Name) {
		one.Problems = append(one.Problems, badName(s.Name))
	}
	var err error
	switch s.Kind {
	case wire.Storage:
		err = smoke(ctx, k, &one, external.Storage, k.store)
	case wire.Allocate:
		err = smoke(ctx, k, &one, external.Allocate, k.allocator)
	case wire.Transport:
		err = smoke(ctx, k, &one, external.Transport, k.transport)
	case wire.Replication:
		err = smoke(ctx, k, &one, external.Replication, k.replicator)
	default:
		err = fmt.Errorf("this host knows no plugins of kind %q; known are allocate, replication, storage and transport", s.Kind)
	}
	if one.Untried = k.noRoom(err); err != nil && one.Untried == "" {
		one.Problems = append(one.Problems, k.inWords(err))
	}
	return one
}

const (
	// hostRoom is what this program and the plugin's need to talk to each other, and
	// storeRoom what a store may take: the segment of a broker, and some more.
	hostRoom  = 1 << 20
	storeRoom = 1<<30 + 64<<20
)

// noRoom says in words that an error came of a full temporary folder; empty when it did
// not. It looks at the folder itself, because a plugin's words for that are its own.
func (k *pluginCheck) noRoom(err error) string {
	if err == nil {
		return ""
	}
	need, text := int64(hostRoom), strings.ToLower(err.Error())
	if errors.Is(err, storage.ErrFull) || strings.Contains(text, "no space left") || strings.Contains(text, "quota exceeded") {
		need = storeRoom
	}
	dir := os.TempDir()
	if !isFull(dir, need) {
		return ""
	}
	return fmt.Sprintf("the folder for temporary files, %s, has less than the %d MiB that this takes; make room there, or set TMPDIR to another folder: %s", dir, need>>20, k.inWords(err))
}

// isFull reports whether a folder has no room for so many bytes.
func isFull(dir string, bytes int64) bool {
	var disk vfs.OS
	name := filepath.Join(dir, "check-"+rand.Text())
	f, err := disk.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		if err = f.Reserve(0, bytes); errors.Is(err, vfs.ErrReserveUnsupported) {
			u, uErr := disk.Usage(dir)
			if err = uErr; err == nil && u.Available < uint64(bytes) {
				err = vfs.ErrNoSpace
			}
		}
		_ = f.Close()
		_ = disk.Remove(name)
	}
	return errors.Is(err, vfs.ErrNoSpace)
}

// smoke describes a plugin and lets do something with its factory; what was done is
// its first result.
func smoke[P, T any](
	ctx context.Context, k *pluginCheck, one *checkedPlugin,
	factory func(string, external.Command, external.Options) plugin.Factory[P, T],
	do func(context.Context, plugin.Factory[P, T], plugin.Description) (string, error),
) error {
	f := factory(one.Name, k.cmd, k.options())
	d, err := f.Describe(ctx, plugin.Raw(k.raw))
	if errors.Is(err, plugin.ErrConfig) && k.raw == "" {
		return fmt.Errorf("it does not work with its defaults; give it a configuration with --config: %w", err)
	}
	if err != nil {
		return err
	}
	one.Version, one.Contract, one.Needs = d.Version, d.Contract, d.Needs
	if len(d.Facets) > 0 {
		one.Facets = d.Facets
	}
	tried, err := do(ctx, f, d)
	if err != nil {
		return err
	}
	one.Tried = tried
	return nil
}

// ended ends something that was tried, which has its own time for that even when that
// of ctx is over. What takes longer is left: this program ends soon, and the plugin
// with it.
func (k *pluginCheck) ended(ctx context.Context, end func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.timeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- end(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// inDir gives the work a folder of its own.
func inDir(work func(dir string) error) (err error) {
	dir, err := os.MkdirTemp("", "check-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return work(dir)
}

func (k *pluginCheck) store(ctx context.Context, f storage.Factory, _ plugin.Description) (string, error) {
	return "kept and read a record", inDir(func(dir string) (err error) {
		l, err := storagebench.Open(ctx, f, plugin.Raw(k.raw), filepath.Join(dir, "store"))
		if err != nil {
			return fmt.Errorf("open the store: %w", err)
		}
		defer func() {
			if closed := k.ended(ctx, l.Close); closed != nil {
				err = errors.Join(err, fmt.Errorf("close the store: %w", closed))
			}
		}()
		l.Fill(1, 100)
		if err := l.Append(ctx); err != nil {
			return fmt.Errorf("append a record: %w", err)
		}
		if err := l.Sync(ctx); err != nil {
			return fmt.Errorf("make it durable: %w", err)
		}
		if err := l.PrepareReads(ctx, 1); err != nil {
			return fmt.Errorf("append records to read: %w", err)
		}
		n, err := l.Read(ctx)
		if err == nil && n == 0 {
			err = errors.New("none came back of those that were appended")
		}
		if err != nil {
			return fmt.Errorf("read a record: %w", err)
		}
		return nil
	})
}

func (k *pluginCheck) allocator(ctx context.Context, f allocate.Factory, _ plugin.Description) (tried string, err error) {
	a, err := f.Build(ctx, allocate.Params{Settings: plugin.Settings{Name: f.Name()}.WithDefaults()}, plugin.Raw(k.raw))
	if err != nil {
		return "", err
	}
	defer func() {
		err = errors.Join(err, k.ended(ctx, func(context.Context) error { return allocate.Close(a) }))
	}()
	const queues, members = 8, 3
	r := allocatebench.Request(queues, members)
	got, err := a.Allocate(ctx, r)
	if err != nil {
		return "", fmt.Errorf("allocate %d queues to %d members: %w", queues, members, err)
	}
	if err := got.Check(r); err != nil {
		return "", err
	}
	return fmt.Sprintf("shared out %d queues among %d members", queues, members), nil
}

// silent is a handler to which nobody comes.
type silent struct{}

// Opened implements transport.Handler.
func (silent) Opened(transport.Peer) transport.Session { return silent{} }

// Settle implements transport.Handler.
func (silent) Settle() {}

// Arrived implements transport.Session.
func (silent) Arrived([]command.Frame) {}

// Closed implements transport.Session.
func (silent) Closed(error) {}

func (k *pluginCheck) transport(ctx context.Context, f transport.Factory, _ plugin.Description) (tried string, err error) {
	t, err := f.Build(ctx, transport.Params{Settings: plugin.Settings{Name: f.Name()}.WithDefaults()}, plugin.Raw(k.raw))
	if err != nil {
		return "", err
	}
	if err := t.Start(ctx); err != nil {
		return "", fmt.Errorf("start the transport: %w", err)
	}
	defer func() {
		if stopped := k.ended(ctx, t.Shutdown); stopped != nil {
			err = errors.Join(err, fmt.Errorf("stop the transport: %w", stopped))
		}
	}()
	l, err := t.Serve(ctx, transport.Listen{Address: "127.0.0.1:0"}, transport.Services{Frames: silent{}})
	if err != nil {
		return "", fmt.Errorf("listen on a port of this machine: %w", err)
	}
	if err := k.ended(ctx, func(context.Context) error { return l.Close() }); err != nil {
		return "", fmt.Errorf("close the listener: %w", err)
	}
	return "listened", nil
}

func (k *pluginCheck) replicator(ctx context.Context, f replication.Factory, d plugin.Description) (tried string, err error) {
	end := func(what string, c plugin.Component) {
		if stopped := k.ended(ctx, c.Shutdown); stopped != nil {
			err = errors.Join(err, fmt.Errorf("stop the %s: %w", what, stopped))
		}
	}
	p := storage.Params{
		Settings: plugin.Settings{Name: memory.Name}.WithDefaults(), Segment: 64 << 20,
		Index: message.IndexRules{DelayLevels: message.DefaultDelayLevels()},
	}
	if d.Publish == "explicit" {
		p.Publish = storage.Explicit
	}
	st, err := memory.NewFactory().Build(ctx, p, nil)
	if err != nil {
		return "", err
	}
	if err := st.Start(ctx); err != nil {
		return "", err
	}
	defer end("store", st)
	r, err := f.Build(ctx, replication.Params{
		Settings: plugin.Settings{Name: f.Name()}.WithDefaults(), Store: st, Sequencer: storage.NewSequencer(nil),
	}, plugin.Raw(k.raw))
	if err != nil {
		return "", err
	}
	if err := r.Start(ctx); err != nil {
		return "", fmt.Errorf("start it over a store in memory: %w", err)
	}
	defer end("replicator", r)
	return "started as " + r.Role().Kind.String(), nil
}
