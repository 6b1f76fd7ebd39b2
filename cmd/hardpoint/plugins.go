package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/wiring"
	"github.com/hardpointmq/hardpoint/internal/suggest"
	"github.com/hardpointmq/hardpoint/plugins/standard"
	"github.com/hardpointmq/hardpoint/sdk/serve"
)

func (p *program) pluginCommand() *cobra.Command {
	c := &cobra.Command{Use: "plugin", Short: "The plugins of this program"}
	c.AddCommand(p.pluginList(), p.pluginServe(), p.pluginBench(), p.pluginNew(), p.pluginCheck())
	return c
}

func (p *program) pluginServe() *cobra.Command {
	return &cobra.Command{
		Use: "serve KIND NAME", Short: "Serve a plugin to a broker that started this process",
		Long: "Serves one of the plugins of this program to the process that started it. A broker starts it by itself with\n--storage-process or process: true in the plugin's configuration. KIND is allocate, replication,\nstorage or transport.",
		Args: exactly("KIND", "NAME"), ValidArgsFunction: completePlugin,
		RunE: func(c *cobra.Command, args []string) error {
			k, err := kindNamed(args[0])
			if err != nil {
				return misuse{err}
			}
			all, err := standard.Plugins()
			if err != nil {
				return err
			}
			o, err := k.serve(all, args[1])
			if err != nil {
				return misuse{err}
			}
			return serve.Run(c.Context(), o)
		},
	}
}

// completePlugin completes KIND and NAME.
func completePlugin(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var words []string
	for _, k := range pluginKinds() {
		switch {
		case len(args) == 0:
			words = append(words, k.name)
		case len(args) == 1 && k.name == args[0]:
			if all, err := standard.Plugins(); err == nil {
				words = k.names(all)
			}
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

// pluginInfo is a line of `plugin list`.
type pluginInfo struct {
	Kind     string   `json:"kind"`
	Name     string   `json:"name"`
	Form     string   `json:"form,omitempty"` // formInProcess or formProcess
	Program  string   `json:"program,omitempty"`
	Version  string   `json:"version"`
	Contract string   `json:"contract"`
	Facets   []string `json:"facets"`
	Needs    []string `json:"needs,omitempty"`
}

// The forms of a plugin, as in the names of conformance tests.
const (
	formInProcess = "in_process"
	formProcess   = "process"
)

func (p *program) pluginList() *cobra.Command {
	var out output
	var file string
	c := &cobra.Command{
		Use: "list", Short: "List the plugins that this program contains and a configuration names",
		Long: "Lists the plugins that this program contains. With --config also those that a configuration file names programs for,\nwhich are launched to ask them, and which run as a process of their own.",
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := standard.Plugins()
			if err != nil {
				return err
			}
			cfg := &config.Config{}
			if file != "" {
				l, err := config.Load(config.Options{File: file, Secrets: os.Environ(), NoStore: true})
				if err != nil {
					return err
				}
				cfg = &l.Config
				all = withPrograms(all, cfg, supervision(cfg), nil)
			}
			list, fault := listPlugins(c.Context(), all, cfg)
			if out.json() {
				if err := p.printJSON(list); err != nil {
					return err
				}
				return fault
			}
			g := newPage(p.stdout)
			g.row("KIND", "NAME", "VERSION", "CONTRACT", "FORM", "FACETS", "PROGRAM")
			for _, i := range list {
				g.line("%s\t%s\t%s\t%s\t%s\t%s\t%s", i.Kind, i.Name, i.Version, i.Contract, strings.ReplaceAll(i.Form, "_", " "), strings.Join(i.Facets, " "), i.Program)
			}
			if err := g.end(); err != nil {
				return err
			}
			return fault
		},
	}
	c.Flags().StringVar(&file, "config", "", "configuration `file` whose plugins are listed, too")
	out.register(c)
	return c
}

// listPlugins describes all plugins as cfg configures them. Those that cannot be
// described are in the error.
func listPlugins(ctx context.Context, all *wiring.Plugins, cfg *config.Config) ([]pluginInfo, error) {
	list, faults := []pluginInfo{}, []error(nil)
	for _, k := range pluginKinds() {
		for _, name := range k.names(all) {
			prog, isProgram := cfg.Programs[k.name+"."+name]
			var raw plugin.Raw
			if isProgram { // others are listed as they are without configuration
				var err error
				if raw, err = cfg.PluginRaw(k.name, name); err != nil {
					return nil, err
				}
			}
			d, err := k.describe(ctx, all, name, raw)
			if err != nil {
				if !isProgram { // a program's error has its place
					err = fmt.Errorf("%s plugin %s: %w", k.name, name, err)
				}
				faults = append(faults, cfg.PluginError(k.name, name, err))
				continue
			}
			info := pluginInfo{Kind: k.name, Name: name, Form: formInProcess, Program: prog.Path, Version: d.Version, Contract: d.Contract, Facets: d.Facets, Needs: d.Needs}
			if isProgram || cfg.PluginProcess(k.name, name) {
				info.Form = formProcess
			}
			if info.Facets == nil {
				info.Facets = []string{}
			}
			list = append(list, info)
		}
	}
	return list, errors.Join(faults...)
}

// pluginField is a field of a plugin's configuration, as `config explain
// plugins.KIND.NAME` prints it.
type pluginField struct {
	Key         string          `json:"key"`
	Type        string          `json:"type"`
	Default     json.RawMessage `json:"default,omitempty"`
	Env         string          `json:"env"`
	Description string          `json:"description,omitempty"`
}

// explainPlugin lists the fields of the plugin that key, plugins.KIND.NAME with
// or without a field, names.
func (p *program) explainPlugin(ctx context.Context, key string, asJSON bool) error {
	parts := strings.SplitN(key, ".", 4)
	if len(parts) < 3 {
		return misusef("%s: write plugins.KIND.NAME; `hardpoint plugin list` lists kinds and names", key)
	}
	all, err := standard.Plugins()
	if err != nil {
		return err
	}
	k, err := kindNamed(parts[1])
	if err != nil {
		return misuse{err}
	}
	prefix := strings.Join(parts[:3], ".")
	ours := slices.Contains(k.names(all), parts[2])
	var d plugin.Description
	if !ours && !config.IsPluginName(parts[2]) {
		return misusef("%s: %s", key, badName(parts[2]))
	}
	if ours {
		if d, err = k.describe(ctx, all, parts[2], nil); err != nil {
			return err
		}
	}
	fields, err := fieldsOf(d, prefix)
	if err != nil {
		return err
	}
	// What is not in this program can be a program of its own, which is not known here.
	foreign := fmt.Sprintf("This program has no %s plugin %s; %s.path can name a program that is one. All fields but these are its own: they are passed to it as they are,\nand it says what it does not know when the broker starts, `hardpoint config check FILE` checks a configuration, or `hardpoint plugin check PROGRAM` the program.\n", parts[1], parts[2], prefix)
	if near := suggest.Nearest(parts[2], slices.Values(k.names(all))); near != "" {
		foreign += fmt.Sprintf("Did you mean plugins.%s.%s?\n", parts[1], near)
	}
	if len(parts) == 4 {
		one := slices.DeleteFunc(slices.Clone(fields), func(f pluginField) bool { return f.Key != key })
		if len(one) == 0 && !ours {
			one = []pluginField{{Key: key, Type: "any", Env: config.PluginEnv(key), Description: "A field of the program's own, which is passed to it as it is."}}
		}
		if len(one) == 0 {
			var known []string
			for _, f := range fields {
				known = append(known, strings.SplitN(f.Key, ".", 4)[3])
			}
			return misusef("%s: %s %s has no field %q; known are %s%s", key, parts[1], parts[2], parts[3], strings.Join(known, ", "), suggest.DidYouMean(parts[3], slices.Values(known)))
		}
		fields = one
	}
	if asJSON {
		return p.printJSON(fields)
	}
	g := newPage(p.stdout)
	g.row("KEY", "TYPE", "DEFAULT", "ENVIRONMENT", "MEANING")
	for _, f := range fields {
		g.line("%s\t%s\t%s\t%s\t%s", f.Key, f.Type, f.Default, f.Env, f.Description)
	}
	if err := g.end(); err != nil || ours {
		return err
	}
	_, err = fmt.Fprint(p.stdout, "\n", foreign)
	return err
}

// fieldsOf reads the JSON Schema of a plugin, and adds the fields that are the
// host's.
func fieldsOf(d plugin.Description, prefix string) ([]pluginField, error) {
	var schema struct {
		Properties map[string]struct {
			Type    string          `json:"type"`
			Default json.RawMessage `json:"default"`
		} `json:"properties"`
	}
	if len(d.Schema) > 0 {
		if err := json.Unmarshal(d.Schema, &schema); err != nil {
			return nil, fmt.Errorf("schema of %s: %w", prefix, err)
		}
	}
	fields := []pluginField{}
	add := func(name, typ string, def json.RawMessage, desc string) {
		key := prefix + "." + name
		fields = append(fields, pluginField{Key: key, Type: typ, Default: def, Env: config.PluginEnv(key), Description: desc})
	}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		add(name, schema.Properties[name].Type, schema.Properties[name].Default, "")
	}
	for _, f := range config.HostFields() {
		add(f.Name, f.Type, f.Default, f.Desc)
	}
	return fields, nil
}
