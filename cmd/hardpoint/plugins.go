package main

import (
	"context"
	"errors"
	"fmt"
	"os"
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
