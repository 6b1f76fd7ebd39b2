package main

import (
	"context"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/sdk/external"
)

// upgrades are the processes of plugins that can be replaced while the node runs,
// by KIND.NAME. It is filled before the node starts, and read after that.
type upgrades map[string]*external.Replacer

// replacer makes the one of a plugin.
func (u upgrades) replacer(kind, name string) *external.Replacer {
	r := &external.Replacer{}
	u[kind+"."+name] = r
	return r
}

// programCommand is how a program that the configuration names is launched.
func programCommand(p config.Program) external.Command {
	return external.Command{Path: p.Path, Args: p.Args, Env: p.Env, Checksum: p.Checksum}
}

// ownCommand is how this program serves one of its own plugins. self is its file,
// which may hold another version by now.
func ownCommand(self, kind, name string) external.Command {
	return external.Command{Path: self, Args: []string{"plugin", "serve", kind, name}}
}

// commandNow is how the process of a plugin is launched by a configuration; false
// when the plugin is no process there.
func commandNow(c *config.Config, self, which string) (external.Command, bool) {
	if p, ok := c.Programs[which]; ok {
		return programCommand(p), true
	}
	kind, name, _ := strings.Cut(which, ".")
	return ownCommand(self, kind, name), c.PluginProcess(kind, name)
}

// hangups takes SIGHUP from here on until the process ends, so that none ends it
// while its first plugins are launched or while it stops. A node that has nothing to
// load anew, neither plugins that are processes nor certificates, leaves the signal as
// it is, which is nil: it ends the process when its terminal goes. A service has none,
// and `systemctl reload` must not end it.
func (n *node) hangups() <-chan os.Signal {
	if !slices.ContainsFunc(n.groups, func(g *group) bool { return g.hasProcesses() || g.hasCertificates() }) && !managed() {
		return nil
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c
}

func (g *group) hasProcesses() bool {
	c := &g.Config
	return c.Store.Process || slices.Contains(slices.Collect(maps.Values(c.Processes)), true) || len(c.Programs) > 0
}

// hasCertificates: TLS is made from files that may be replaced.
func (g *group) hasCertificates() bool {
	t := &g.Config.TLS
	return t.ServerCert != "" || t.ServerTrust != "" || t.Enable && (t.ClientCert != "" || t.ClientTrust != "")
}

// onHangup has what runs look at its files, and replaces the processes of plugins, at
// each of the signals, until the returned function is called.
func (n *node) onHangup(ctx context.Context, hangups <-chan os.Signal) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case <-hangups:
				for _, look := range n.files {
					look()
				}
				n.upgrade(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}

// upgrade starts the processes of plugins anew, as the configuration names their
// programs now. What else has changed in it waits for the next start.
func (n *node) upgrade(ctx context.Context) {
	now, err := n.reload()
	if err != nil {
		n.log.Error("the programs of plugins are not replaced: the configuration has faults", "error", err)
		return
	}
	self, err := os.Executable()
	if err != nil {
		n.log.Error("the programs of plugins are not replaced: the file of this program is not known", "error", err)
		return
	}
	for i, g := range n.groups { // by the same files in the same order as at the start
		g.upgrade(ctx, &now[i].Config, self)
	}
}

func (g *group) upgrade(ctx context.Context, now *config.Config, self string) {
	for _, which := range slices.Sorted(maps.Keys(g.upgrades)) {
		cmd, ok := commandNow(now, self, which)
		if !ok {
			g.log().Warn("the program of a plugin is not replaced: by the configuration it is no process any more, which takes a restart", "plugin", which)
			continue
		}
		err := g.upgrades[which].Replace(ctx, cmd)
		if ctx.Err() != nil {
			return // the node stops
		}
		if err != nil {
			kind, name, _ := strings.Cut(which, ".")
			g.log().Error("the program of a plugin is not replaced, the old one goes on", "plugin", which, "error", now.PluginError(kind, name, err))
			continue
		}
		g.log().Info("the program of a plugin is replaced", "plugin", which, "program", cmd.Path)
	}
	for _, which := range slices.Sorted(maps.Keys(now.Programs)) {
		if g.upgrades[which] == nil {
			g.log().Warn("the configuration names a new program, which takes a restart", "plugin", which)
		}
	}
}

// reloadWith reads the configuration as at the start.
func reloadWith(o config.Options) func() ([]*config.Loaded, error) {
	return func() ([]*config.Loaded, error) { return config.LoadGroups(o) }
}
