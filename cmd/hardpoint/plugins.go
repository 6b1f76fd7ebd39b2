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
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.uber.org/fx"

	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/wiring"
	"github.com/hardpointmq/hardpoint/plugins/standard"
	"github.com/hardpointmq/hardpoint/sdk/external"
	"github.com/hardpointmq/hardpoint/sdk/serve"
)

// outOfProcess makes a store that was asked to run as a process of its own do so
// (--storage-process, plugins.storage.NAME.process): this program serves it.
func outOfProcess(n *node) fx.Option {
	name := n.Config.Store.Storage
	return fx.Decorate(func(p *wiring.Plugins) (*wiring.Plugins, error) {
		for which, on := range n.Config.Processes {
			if kind, _, _ := strings.Cut(which, "."); on && kind != kindStorage {
				return nil, fmt.Errorf("plugins.%s.process: only storage plugins run as a process of their own", which)
			}
		}
		if n.Mode&config.Broker == 0 || !n.Config.PluginProcess(kindStorage, name) {
			return p, nil
		}
		if _, err := p.Storage.Lookup(name); err != nil {
			return nil, err
		}
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("finding the program that serves store %s as a process: %w", name, err)
		}
		c := *p
		c.Storage = p.Storage.With(external.Storage(name, external.Command{Path: self, Args: []string{"plugin", "serve", kindStorage, name}}, external.Options{}))
		return &c, nil
	})
}

// pluginsChecked ends a start before anything opens, with everything that the
// plugins find wrong with their configuration.
func pluginsChecked(n *node) fx.Option {
	return fx.Module("plugins_checked", fx.Invoke(func(p *wiring.Plugins) error {
		return errors.Join(checkPlugins(context.Background(), n.Loaded, p)...)
	}))
}

const kindStorage = "storage"

func (p *program) pluginCommand() *cobra.Command {
	c := &cobra.Command{Use: "plugin", Short: "The plugins of this program"}
	c.AddCommand(p.pluginList(), p.pluginServe())
	return c
}

func (p *program) pluginServe() *cobra.Command {
	return &cobra.Command{
		Use: "serve KIND NAME", Short: "Serve a plugin to a broker that started this process",
		Long: "Serves one of the plugins of this program to the process that started it. A broker starts it by itself with\n--storage-process or process: true in the plugin's configuration. KIND is storage.",
		Args: exactly("KIND", "NAME"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var words []string
			switch len(args) {
			case 0:
				words = []string{kindStorage}
			case 1:
				for _, f := range standard.Stores() {
					words = append(words, f.Name())
				}
			}
			return words, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			if args[0] != kindStorage {
				return fmt.Errorf("plugins of kind %q are not served as a process; storage is", args[0])
			}
			all, err := wiring.NewRegistry(kindStorage, standard.Stores()...)
			if err != nil {
				return err
			}
			f, err := all.Lookup(args[1])
			if err != nil {
				return err
			}
			return serve.Run(c.Context(), serve.Storage(f))
		},
	}
}

// pluginInfo is a line of `plugin list`.
type pluginInfo struct {
	Kind     string   `json:"kind"`
	Name     string   `json:"name"`
	Version  string   `json:"version"`
	Contract string   `json:"contract"`
	Facets   []string `json:"facets"`
	Needs    []string `json:"needs,omitempty"`
}

func (p *program) pluginList() *cobra.Command {
	var out output
	c := &cobra.Command{
		Use: "list", Short: "List the plugins that this program contains", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := standard.Plugins()
			if err != nil {
				return err
			}
			var list []pluginInfo
			for _, one := range []func() ([]pluginInfo, error){
				func() ([]pluginInfo, error) { return infoOf(c.Context(), "storage", all.Storage) },
				func() ([]pluginInfo, error) { return infoOf(c.Context(), "allocate", all.Allocate) },
				func() ([]pluginInfo, error) { return infoOf(c.Context(), "replication", all.Replication) },
				func() ([]pluginInfo, error) { return infoOf(c.Context(), "transport", all.Transport) },
			} {
				infos, err := one()
				if err != nil {
					return err
				}
				list = append(list, infos...)
			}
			if out.json() {
				return p.printJSON(list)
			}
			w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "KIND\tNAME\tCONTRACT\tFACETS")
			for _, i := range list {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", i.Kind, i.Name, i.Contract, strings.Join(i.Facets, " "))
			}
			return w.Flush()
		},
	}
	out.register(c)
	return c
}

// pluginField is a field of a plugin's configuration, as `config explain
// plugins.KIND.NAME` prints it.
type pluginField struct {
	Key     string          `json:"key"`
	Type    string          `json:"type"`
	Default json.RawMessage `json:"default,omitempty"`
	Env     string          `json:"env"`
}

// explainPlugin lists the fields of the plugin that key, plugins.KIND.NAME with
// or without a field, names.
func (p *program) explainPlugin(ctx context.Context, key string, asJSON bool) error {
	parts := strings.SplitN(key, ".", 4)
	if len(parts) < 3 {
		return fmt.Errorf("%s: write plugins.KIND.NAME; `hardpoint plugin list` lists kinds and names", key)
	}
	all, err := standard.Plugins()
	if err != nil {
		return err
	}
	d, err := describe(ctx, all, parts[1], parts[2])
	if err != nil {
		return err
	}
	fields, err := fieldsOf(d, strings.Join(parts[:3], "."))
	if err != nil {
		return err
	}
	if len(parts) == 4 {
		one := slices.DeleteFunc(slices.Clone(fields), func(f pluginField) bool { return f.Key != key })
		if len(one) == 0 {
			var known []string
			for _, f := range fields {
				known = append(known, strings.SplitN(f.Key, ".", 4)[3])
			}
			return fmt.Errorf("%s: %s %s has no field %q; known are %s", key, parts[1], parts[2], parts[3], strings.Join(known, ", "))
		}
		fields = one
	}
	if asJSON {
		return p.printJSON(fields)
	}
	if len(fields) == 0 {
		fmt.Fprintf(p.stderr, "%s %s has no fields\n", parts[1], parts[2])
		return nil
	}
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KEY\tTYPE\tDEFAULT\tENVIRONMENT")
	for _, f := range fields {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", f.Key, f.Type, f.Default, f.Env)
	}
	return w.Flush()
}

func describe(ctx context.Context, all *wiring.Plugins, kind, name string) (plugin.Description, error) {
	switch kind {
	case kindStorage:
		return describeIn(ctx, all.Storage, name)
	case "allocate":
		return describeIn(ctx, all.Allocate, name)
	case "replication":
		return describeIn(ctx, all.Replication, name)
	case "transport":
		return describeIn(ctx, all.Transport, name)
	}
	return plugin.Description{}, fmt.Errorf("there is no kind of plugins %q; known are allocate, replication, storage and transport", kind)
}

func describeIn[P, T any](ctx context.Context, r *wiring.Registry[P, T], name string) (plugin.Description, error) {
	f, err := r.Lookup(name)
	if err != nil {
		return plugin.Description{}, err
	}
	return f.Describe(ctx, nil)
}

// fieldsOf reads the JSON Schema of a plugin, and adds the field that is the
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
	add := func(name, typ string, def json.RawMessage) {
		key := prefix + "." + name
		fields = append(fields, pluginField{Key: key, Type: typ, Default: def, Env: config.PluginEnv(key)})
	}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		add(name, schema.Properties[name].Type, schema.Properties[name].Default)
	}
	if strings.HasPrefix(prefix, "plugins."+kindStorage+".") {
		add("process", "boolean", json.RawMessage("false"))
	}
	return fields, nil
}

func infoOf[P, T any](ctx context.Context, kind string, r *wiring.Registry[P, T]) ([]pluginInfo, error) {
	var list []pluginInfo
	for _, name := range r.Names() {
		f, err := r.Lookup(name)
		if err != nil {
			return nil, err
		}
		var d plugin.Description
		if d, err = f.Describe(ctx, nil); err != nil {
			return nil, fmt.Errorf("%s %s: %w", kind, name, err)
		}
		facets := d.Facets
		if facets == nil {
			facets = []string{}
		}
		list = append(list, pluginInfo{kind, name, d.Version, d.Contract, facets, d.Needs})
	}
	return list, nil
}
