package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.uber.org/fx"

	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/wiring"
	"github.com/hardpointmq/hardpoint/plugins/standard"
)

// outOfProcess makes the plugins that were asked to run as processes do so.
func outOfProcess(n *node) fx.Option {
	return fx.Options()
}

// describe asks a plugin what it says to its part of the configuration.
func describe[P, T any](ctx context.Context, r *wiring.Registry[P, T], cfg *config.Config, kind, name string) error {
	f, err := r.Lookup(name)
	if err != nil {
		return err
	}
	raw, err := cfg.PluginRaw(kind, name)
	if err != nil {
		return err
	}
	_, err = f.Describe(ctx, raw)
	return err
}

func (p *program) pluginCommand() *cobra.Command {
	c := &cobra.Command{Use: "plugin", Short: "The plugins of this program"}
	c.AddCommand(p.pluginList())
	return c
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
