package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	"go.uber.org/fx"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/wiring"
	"github.com/hardpointmq/hardpoint/sdk/external"
	"github.com/hardpointmq/hardpoint/sdk/serve"
	"github.com/hardpointmq/hardpoint/sdk/wire"
)

// pluginKind is a contract as the commands see it.
type pluginKind struct {
	name     string
	names    func(p *wiring.Plugins) []string
	describe func(ctx context.Context, p *wiring.Plugins, name string, raw plugin.Raw) (plugin.Description, error)
	// launch makes the plugin one in a process of its own. Nil, as serve: plugins
	// of the kind run in the broker's process only.
	launch func(p *wiring.Plugins, name string, c external.Command)
	serve  func(p *wiring.Plugins, name string) (serve.Options, error)
	// refuse makes whoever asks for the plugin get err.
	refuse func(p *wiring.Plugins, name string, err error)
}

type (
	storageRegistry     = *wiring.Registry[storage.Params, storage.Store]
	allocateRegistry    = *wiring.Registry[allocate.Params, allocate.Allocator]
	replicationRegistry = *wiring.Registry[replication.Params, replication.Replicator]
	transportRegistry   = *wiring.Registry[transport.Params, transport.Transport]
)

func pluginKinds() []pluginKind {
	return []pluginKind{
		kindOf(wire.Storage, func(p *wiring.Plugins) *storageRegistry { return &p.Storage }, external.Storage, serve.Storage),
		kindOf(wire.Allocate, func(p *wiring.Plugins) *allocateRegistry { return &p.Allocate }, external.Allocate, serve.Allocate),
		kindOf(wire.Replication, func(p *wiring.Plugins) *replicationRegistry { return &p.Replication }, external.Replication, serve.Replication),
		kindOf(wire.Transport, func(p *wiring.Plugins) *transportRegistry { return &p.Transport }, external.Transport, serve.Transport),
	}
}

func kindOf[P, T any](
	name string, of func(*wiring.Plugins) **wiring.Registry[P, T],
	launch func(name string, c external.Command, o external.Options) plugin.Factory[P, T],
	serves func(...plugin.Factory[P, T]) serve.Options,
) pluginKind {
	k := pluginKind{
		name:  name,
		names: func(p *wiring.Plugins) []string { return (*of(p)).Names() },
		describe: func(ctx context.Context, p *wiring.Plugins, name string, raw plugin.Raw) (plugin.Description, error) {
			f, err := (*of(p)).Lookup(name)
			if err != nil {
				return plugin.Description{}, err
			}
			return f.Describe(ctx, raw)
		},
		refuse: func(p *wiring.Plugins, name string, err error) {
			*of(p) = (*of(p)).With(plugin.NewRawFactory(name,
				func(context.Context, plugin.Raw) (plugin.Description, error) { return plugin.Description{}, err },
				func(context.Context, P, plugin.Raw) (none T, _ error) { return none, err }))
		},
	}
	if launch != nil {
		k.launch = func(p *wiring.Plugins, name string, c external.Command) {
			*of(p) = (*of(p)).With(launch(name, c, external.Options{}))
		}
		k.serve = func(p *wiring.Plugins, name string) (serve.Options, error) {
			f, err := (*of(p)).Lookup(name)
			if err != nil {
				return serve.Options{}, err
			}
			return serves(f), nil
		}
	}
	return k
}

// kindNamed finds a kind as a person names it.
func kindNamed(name string) (pluginKind, error) {
	var known []string
	for _, k := range pluginKinds() {
		if k.name == name {
			return k, nil
		}
		known = append(known, k.name)
	}
	slices.Sort(known)
	return pluginKind{}, fmt.Errorf("there is no kind of plugins %q; known are %s", name, strings.Join(known, ", "))
}

// outOfProcess makes the plugins that are processes of their own, by --storage-process
// or the configuration, take the places of their names.
func outOfProcess(n *node) fx.Option {
	return fx.Decorate(func(p *wiring.Plugins) (*wiring.Plugins, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("finding the program that serves plugins as a process: %w", err)
		}
		return withPrograms(withProcesses(p, &n.Config, self), &n.Config), nil
	})
}

// withProcesses are the plugins of which some run as a process of this program.
// Names that no plugin has are left to those who judge the configuration.
func withProcesses(p *wiring.Plugins, c *config.Config, self string) *wiring.Plugins {
	out := *p
	for _, k := range pluginKinds() {
		for _, name := range k.names(p) {
			if !c.PluginProcess(k.name, name) {
				continue
			}
			if k.launch == nil {
				k.refuse(&out, name, fmt.Errorf("%w of %q: process: %s plugins do not run as a process of their own", plugin.ErrConfig, name, k.name))
				continue
			}
			k.launch(&out, name, external.Command{Path: self, Args: []string{"plugin", "serve", k.name, name}})
		}
	}
	return &out
}

// withPrograms are the plugins with those beside them that the configuration
// names programs for. One whose program cannot be run is there to say so.
func withPrograms(p *wiring.Plugins, c *config.Config) *wiring.Plugins {
	out := *p
	for _, k := range pluginKinds() {
		for _, prog := range c.Programs {
			if prog.Kind != k.name {
				continue
			}
			if field, err := runnable(prog); err != nil {
				k.refuse(&out, prog.Name, c.ProgramError(prog, field, err))
				continue
			}
			if k.launch == nil {
				k.refuse(&out, prog.Name, c.ProgramError(prog, "path", fmt.Errorf("%s plugins do not run as a process of their own", k.name)))
				continue
			}
			k.launch(&out, prog.Name, external.Command{Path: prog.Path, Args: prog.Args, Env: prog.Env, Checksum: prog.Checksum})
		}
	}
	return &out
}

// runnable looks at a program before it is run, and names the field at fault.
func runnable(p config.Program) (field string, err error) {
	st, err := os.Stat(p.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "path", fmt.Errorf("the program of %s plugin %q, %s, is not there; a relative path is relative to the configuration file", p.Kind, p.Name, p.Path)
	case err != nil:
		return "path", fmt.Errorf("the program of %s plugin %q: %w", p.Kind, p.Name, err)
	case !st.Mode().IsRegular():
		return "path", fmt.Errorf("the program of %s plugin %q, %s, is not a file", p.Kind, p.Name, p.Path)
	case runtime.GOOS != "windows" && st.Mode()&0o111 == 0:
		return "path", fmt.Errorf("the program of %s plugin %q, %s, is not executable: chmod +x %s", p.Kind, p.Name, p.Path, p.Path)
	case p.Checksum == "":
		return "", nil
	}
	f, err := os.Open(p.Path)
	if err != nil {
		return "checksum", fmt.Errorf("the checksum of %s plugin %q: %w", p.Kind, p.Name, err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "checksum", fmt.Errorf("the checksum of %s plugin %q: %w", p.Kind, p.Name, err)
	}
	if sum := hex.EncodeToString(h.Sum(nil)); sum != p.Checksum {
		return "checksum", fmt.Errorf("the program of %s plugin %q, %s, has the SHA-256 %s and not %s: it is another program than the one that was allowed; if that is right, change the checksum", p.Kind, p.Name, p.Path, sum, p.Checksum)
	}
	return "", nil
}

// checkPrograms asks the plugins that are programs what they say to their
// configuration. Those that were chosen have been asked.
func checkPrograms(ctx context.Context, c *config.Config, p *wiring.Plugins, chosen ...string) []error {
	var faults []error
	for _, which := range slices.Sorted(maps.Keys(c.Programs)) {
		prog := c.Programs[which]
		if slices.Contains(chosen, which) {
			continue
		}
		if err := describeConfigured(ctx, c, p, prog.Kind, prog.Name); err != nil {
			faults = append(faults, c.PluginError(prog.Kind, prog.Name, err))
		}
	}
	return faults
}

func describeConfigured(ctx context.Context, c *config.Config, p *wiring.Plugins, kind, name string) error {
	k, err := kindNamed(kind)
	if err != nil {
		return err
	}
	raw, err := c.PluginRaw(kind, name)
	if err != nil {
		return err
	}
	_, err = k.describe(ctx, p, name, raw)
	return err
}
