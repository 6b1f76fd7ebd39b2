package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hardpointmq/hardpoint/core/broker"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/nameserver"
	"github.com/hardpointmq/hardpoint/core/wiring"
	"github.com/hardpointmq/hardpoint/plugins/standard"
	"github.com/hardpointmq/hardpoint/plugins/transport/inproc"
	"github.com/hardpointmq/hardpoint/sdk/wire"
)

// modeFlag is --mode of the commands that look at a configuration.
type modeFlag struct{ mode config.Mode }

var modes = []config.Mode{config.Standalone, config.Broker, config.Namesrv}

func (m *modeFlag) register(c *cobra.Command) {
	m.mode = config.Standalone
	c.Flags().Var(m, "mode", "what the process runs as: standalone, broker or namesrv")
	_ = c.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions([]string{"standalone", "broker", "namesrv"}, cobra.ShellCompDirectiveNoFileComp))
}

func (m *modeFlag) String() string { return m.mode.String() }
func (m *modeFlag) Type() string   { return "mode" }
func (m *modeFlag) Set(s string) error {
	for _, mode := range modes {
		if s == mode.String() {
			m.mode = mode
			return nil
		}
	}
	return fmt.Errorf("must be standalone, broker or namesrv")
}

func (p *program) configCommand() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Check, explain and show the configuration"}
	c.AddCommand(p.configCheck(), p.configExplain(), p.configShow())
	return c
}

// finding is one line of `config check`.
type finding struct {
	Key    string `json:"key,omitempty"`
	Value  string `json:"value,omitempty"`
	Source string `json:"source,omitempty"`
	Text   string `json:"text"`
}

type verdict struct {
	File     string    `json:"file"`            // several: the first
	Files    []string  `json:"files,omitempty"` // where there are several
	Mode     string    `json:"mode"`
	OK       bool      `json:"ok"`
	Errors   []finding `json:"errors"`
	Warnings []finding `json:"warnings"`

	partial bool // faults kept plugins and warnings from being looked at
}

func (p *program) configCheck() *cobra.Command {
	var out output
	var mode modeFlag
	c := &cobra.Command{
		Use: "check FILE...", Short: "Check a configuration file, its plugins included",
		Long: "Reads a file as a start would, without opening anything, and lists everything that is wrong with it and everything\nthat has no effect. Several files are the broker groups of one process, as several --config. Plugins that are programs\nare launched and asked. The environment is read for ${env:NAME} only. Exit code 1 when a start would refuse the files.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("needs FILE, once for each broker group; none given")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			v := verdict{File: args[0], Mode: mode.String(), Errors: []finding{}, Warnings: []finding{}}
			if len(args) > 1 {
				v.Files = args
			}
			groups, err := config.LoadGroups(config.Options{Mode: mode.mode, Secrets: os.Environ()}, args...)
			var all *config.Errors
			switch {
			case errors.As(err, &all):
				v.partial = true
				for _, e := range all.List {
					v.Errors = append(v.Errors, finding{e.Key, e.Value, e.Source.String(), e.Error()})
				}
			case err != nil:
				return err
			default:
				for _, l := range groups {
					for _, w := range l.Warnings {
						v.Warnings = append(v.Warnings, finding{w.Key, "", w.Source.String(), w.String()})
					}
				}
				plugins, err := standard.Plugins()
				if err != nil {
					return err
				}
				of := func(i int) *wiring.Plugins {
					cfg := &groups[i].Config
					return withPrograms(plugins, cfg, supervision(cfg), nil)
				}
				for _, err := range checkGroups(c.Context(), groups, of) {
					v.Errors = append(v.Errors, findingOf(err))
				}
			}
			v.OK = len(v.Errors) == 0
			return p.printVerdict(v, out.json())
		},
	}
	out.register(c)
	mode.register(c)
	return c
}

func (p *program) printVerdict(v verdict, asJSON bool) error {
	if asJSON {
		if err := p.printJSON(v); err != nil {
			return err
		}
	} else {
		for _, f := range v.Errors {
			fmt.Fprintf(p.stdout, "error: %s\n", f.Text)
		}
		for _, f := range v.Warnings {
			fmt.Fprintf(p.stdout, "warning: %s\n", f.Text)
		}
		if v.partial {
			fmt.Fprintln(p.stdout, "the plugins' own keys, and keys without effect, are looked at when these errors are gone")
		}
		if v.OK {
			fmt.Fprintf(p.stdout, "%s fine as %s: %s\n", v.subject(), v.Mode, counted(len(v.Warnings), "warning"))
		} else {
			fmt.Fprintf(p.stdout, "%s refused as %s: %s\n", v.subject(), v.Mode, counted(len(v.Errors), "error"))
		}
	}
	if !v.OK {
		return errReported
	}
	return nil
}

// subject is what a sentence about the verdict begins with.
func (v *verdict) subject() string {
	if len(v.Files) > 1 {
		return strings.Join(v.Files, ", ") + " together are"
	}
	return v.File + " is"
}

// checkGroups is checkPlugins for all groups of a process; of gives the plugins of
// each.
func checkGroups(ctx context.Context, groups []*config.Loaded, of func(i int) *wiring.Plugins) []error {
	var faults []error
	for i, l := range groups {
		for _, err := range checkPlugins(ctx, l, of(i)) {
			if !slices.ContainsFunc(faults, func(f error) bool { return f.Error() == err.Error() }) {
				faults = append(faults, err) // the name server, and what environment and flags say, is there once
			}
		}
	}
	return faults
}

// checkPlugins lets the plugins of a configuration judge their own part, and the broker
// its address: every fault, for `config check` and for a start, with the same texts.
func checkPlugins(ctx context.Context, l *config.Loaded, plugins *wiring.Plugins) []error {
	all := []error{l.Config.PluginError(wire.Transport, inproc.Name, reachable(&l.Config))}
	if l.Mode&config.Namesrv != 0 {
		all = append(all, nameserver.CheckPlugins(ctx, &l.Config, plugins))
	}
	if l.Mode&config.Broker != 0 {
		all = append(all, l.Config.CheckAdvertise())
		all = append(all, broker.CheckPlugins(ctx, &l.Config, plugins)...)
		judged := []string{wire.Storage + "." + l.Config.Store.Storage, wire.Replication + "." + l.Config.Broker.Replication}
		for _, name := range l.Config.Network.Transports() {
			judged = append(judged, wire.Transport+"."+name)
		}
		all = append(all, checkPrograms(ctx, &l.Config, plugins, judged...)...)
	}
	var faults []error
	for _, err := range all {
		if err != nil && !slices.ContainsFunc(faults, func(f error) bool { return f.Error() == err.Error() }) {
			faults = append(faults, err) // name server and broker speak the same transport
		}
	}
	return faults
}

// reachable refuses a client port that no client could come to.
func reachable(c *config.Config) error {
	if c.Network.Transport != inproc.Name {
		return nil
	}
	return errors.New("transport inproc connects peers of one process alone: no client reaches a broker or a name server of this program through it, and they do not reach each other; choose another one, as remoting. It is for programs that embed a broker (package sdk/embedded)")
}

func findingOf(err error) finding {
	var known *config.Error
	if errors.As(err, &known) {
		return finding{known.Key, known.Value, known.Source.String(), err.Error()}
	}
	f := finding{Text: err.Error()}
	var of *config.PluginError
	if errors.As(err, &of) {
		f.Key, f.Source = of.Key, of.Source.String()
	}
	return f
}

func (p *program) configExplain() *cobra.Command {
	var out output
	c := &cobra.Command{
		Use: "explain [KEY]", Short: "Explain a configuration key, or list all",
		Long: "Tells what a key does, its values and default. KEY is the key, another spelling of it, or its environment variable;\nplugins.KIND.NAME lists the fields of a plugin. Without KEY it lists every known key and whether it has an effect.",
		Args: atMostOne("KEY"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, k := range config.Keys() {
				if k.Status == config.Honoured {
					names = append(names, k.Name)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return p.listKeys(out.json())
			}
			if strings.HasPrefix(args[0], "plugins.") {
				return p.explainPlugin(c.Context(), args[0], out.json())
			}
			k, err := config.Explain(args[0])
			if err != nil {
				return misuse{err}
			}
			if out.json() {
				return p.printJSON(explained(k))
			}
			_, err = fmt.Fprint(p.stdout, k.Describe())
			return err
		},
	}
	out.register(c)
	return c
}

// listKeys prints every known key.
func (p *program) listKeys(asJSON bool) error {
	if asJSON {
		list := []keyInfo{}
		for _, k := range config.Keys() {
			list = append(list, explained(k))
		}
		return p.printJSON(list)
	}
	g := newPage(p.stdout)
	for _, k := range config.Keys() {
		g.line("%s\t%s", k.Name, k.Status)
	}
	return g.end()
}

// keyInfo is a key as --output json prints it.
type keyInfo struct {
	Name        string   `json:"name"`
	Aliases     []string `json:"aliases,omitempty"`
	Group       string   `json:"group"`
	Type        string   `json:"type"`
	Unit        string   `json:"unit,omitempty"`
	Default     string   `json:"default"`
	Allowed     string   `json:"allowed"`
	Status      string   `json:"status"`
	Reason      string   `json:"reason,omitempty"`
	Description string   `json:"description"`
	Applies     string   `json:"appliesTo"`
	Env         string   `json:"env"`
	Flag        string   `json:"flag,omitempty"`
	Reloadable  bool     `json:"reloadable"`
	Process     bool     `json:"wholeProcess"`
}

func explained(k config.Key) keyInfo {
	return keyInfo{
		Name: k.Name, Aliases: k.Aliases, Group: string(k.Group), Type: k.Type.String(), Unit: k.Unit, Default: k.Default,
		Allowed: k.AllowedText(), Status: k.Status.String(), Reason: k.Reason, Description: k.Desc, Applies: k.Applies.String(),
		Env: k.Env(), Flag: k.Flag, Reloadable: k.Reloadable, Process: k.WholeProcess(config.Broker),
	}
}

// shown is a row of `config show`.
type shown struct {
	Group   string `json:"group,omitempty"` // brokerName, where there are several
	Key     string `json:"key"`
	Value   string `json:"value"`
	Default bool   `json:"default"`
	Source  string `json:"source"`
}

func (p *program) configShow() *cobra.Command {
	var out output
	var mode modeFlag
	var set bool
	c := &cobra.Command{
		Use: "show", Short: "Show every value and where it came from",
		Long: "Reads file, environment and flags as a start with the same ones would, and prints the result.",
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			groups, err := config.LoadGroups(config.Options{Mode: mode.mode, Env: os.Environ(), Flags: c.Flags()})
			if err != nil {
				return err
			}
			several := len(groups) > 1
			rows := []shown{}
			for _, l := range groups {
				for _, r := range l.Show() {
					if set && r.Default {
						continue
					}
					row := shown{Key: r.Key, Value: r.Value, Default: r.Default, Source: r.Source.String()}
					if several {
						row.Group = l.Config.Broker.Name
					}
					rows = append(rows, row)
				}
			}
			if out.json() {
				return p.printJSON(rows)
			}
			if set && len(rows) == 0 {
				fmt.Fprintln(p.stderr, "nothing is set by file, environment or flags: every value is its default")
			}
			g := newPage(p.stdout)
			for _, r := range rows {
				if several {
					g.line("%s\t%s\t%s\t%s", r.Group, r.Key, r.Value, r.Source)
					continue
				}
				g.line("%s\t%s\t%s", r.Key, r.Value, r.Source)
			}
			return g.end()
		},
	}
	config.RegisterFlags(c.Flags())
	completeConfigFlags(c)
	c.Flags().BoolVar(&set, "changed", false, "only what the file, the environment or flags set")
	out.register(c)
	mode.register(c)
	return c
}
