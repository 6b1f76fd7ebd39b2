package main

import (
	"context"
	"maps"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/sdk/external"
)

// upgrades are the programs of plugins that can be replaced while the node runs,
// by KIND.NAME. It is filled before the node starts, and read after that.
type upgrades map[string]*external.Replacer

// replacer makes the one of a program.
func (u upgrades) replacer(p config.Program) *external.Replacer {
	r := &external.Replacer{}
	u[p.Kind+"."+p.Name] = r
	return r
}

// commandOf is how a program is launched.
func commandOf(p config.Program) external.Command {
	return external.Command{Path: p.Path, Args: p.Args, Env: p.Env, Checksum: p.Checksum}
}

// onHangup replaces the programs of plugins at each SIGHUP, until the returned
// function is called. A node without such programs leaves the signal as it is: it
// ends the process when its terminal goes.
func (n *node) onHangup(ctx context.Context) (stop func()) {
	if len(n.upgrades) == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case <-c:
				n.upgrade(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		signal.Stop(c)
		cancel()
		done.Wait()
	}
}

// upgrade starts the programs of plugins anew, as the configuration names them
// now. What else has changed in it waits for the next start.
func (n *node) upgrade(ctx context.Context) {
	l, err := n.reload()
	if err != nil {
		n.log.Error("the programs of plugins are not replaced: the configuration has faults", "error", err)
		return
	}
	for _, which := range slices.Sorted(maps.Keys(n.upgrades)) {
		p, ok := l.Config.Programs[which]
		if !ok {
			n.log.Warn("the program of a plugin is not replaced: the configuration does not name it any more, which takes a restart", "plugin", which)
			continue
		}
		if err := n.upgrades[which].Replace(ctx, commandOf(p)); err != nil {
			n.log.Error("the program of a plugin is not replaced, the old one goes on", "plugin", which, "error", l.Config.PluginError(p.Kind, p.Name, err))
			continue
		}
		n.log.Info("the program of a plugin is replaced", "plugin", which, "program", p.Path)
	}
	for _, which := range slices.Sorted(maps.Keys(l.Config.Programs)) {
		if n.upgrades[which] == nil {
			n.log.Warn("the configuration names a new program, which takes a restart", "plugin", which)
		}
	}
}

// reloadWith reads the configuration as at the start.
func reloadWith(o config.Options) func() (*config.Loaded, error) {
	return func() (*config.Loaded, error) { return config.Load(o) }
}
