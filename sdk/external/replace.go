package external

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/sdk/wire"
)

// Replacer replaces the program behind factories while they are used: an upgrade
// without a stop. It is given to the factories in Options; those that share one
// are replaced together. The zero value is ready. Safe for concurrent use.
type Replacer struct {
	mu        sync.Mutex // of one Replace at a time
	launchers []*launcher
}

func (r *Replacer) add(l *launcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.launchers = append(r.launchers, l)
}

// Replace starts cmd in place of the program that the factories have now, for
// all their launches from now on. Each new process must come up and describe the
// plugin of the same name and contract with every configuration in use (the last
// 8 that were built). Then allocators and transports move to it; an old process
// ends when its calls are done. A replicator ends its office and the new process takes
// the next one; until it has, writes are refused with replication.ErrReadOnly. A store
// keeps its process until it is shut down.
//
// What is checked against the others of a broker when it starts (facets offered and
// needed, when a replicator publishes) must be the same.
//
// It blocks until the new processes have been checked, at most the StartTimeout of
// Options for each; calls go on meanwhile. On an error nothing has changed, and
// the text says why; it matches plugin.ErrUnavailable when the program did not
// start or is another plugin, plugin.ErrConfig when it refuses a configuration,
// ctx's error when that ended.
func (r *Replacer) Replace(ctx context.Context, cmd Command) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.launchers) == 0 {
		return errors.New("no factory has this Replacer in its options")
	}
	var next []*process
	for _, l := range r.launchers {
		p, err := l.candidate(ctx, cmd)
		if err != nil {
			for _, p := range next {
				p.end()
			}
			return fmt.Errorf("%s plugin %q is not replaced: %w", l.contract.Kind, l.name, err)
		}
		next = append(next, p)
	}
	for i, l := range r.launchers {
		l.install(next[i])
	}
	return nil
}

// handover is how long a new process waits at least for the users of the old one.
const handover = 5 * time.Second

// candidate launches a process of cmd and checks that it is the same plugin.
func (l *launcher) candidate(ctx context.Context, cmd Command) (*process, error) {
	l.mu.Lock()
	var log *slog.Logger
	if l.cur != nil {
		log = l.cur.out.log.Load()
	}
	uses := slices.Clone(l.built)
	if len(uses) == 0 {
		uses = []use{l.described}
	}
	l.mu.Unlock()
	p, err := l.launch(ctx, cmd, log)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, l.o.StartTimeout)
	defer cancel()
	for _, u := range uses {
		d, err := wire.DescribeIn(ctx, p, l.contract, l.name, u.raw)
		if err == nil {
			err = u.replaceable(&d)
		}
		if err != nil {
			if !p.run.alive() {
				err = p.Cause()
			}
			p.end()
			return nil, fmt.Errorf("%s: %w", cmd.Path, err)
		}
	}
	return p, nil
}

// install makes p the process of the factory.
func (l *launcher) install(p *process) {
	l.mu.Lock()
	old := l.cur
	l.cmd, l.cur = p.cmd, p
	p.installed = true
	l.hist = newHistory(&l.o) // what the old program did is not its fault
	l.hist.begin(l.o.Clock.Now())
	wait := l.o.Linger
	unused := old == nil || old.users == 0
	if !unused {
		wait = max(wait, handover)
	}
	p.idle = time.AfterFunc(max(wait, 0), p.expire)
	if old != nil && old.idle != nil {
		old.idle.Stop()
		old.idle = nil
	}
	l.mu.Unlock()
	if old == nil {
		return
	}
	close(old.retired)
	if unused {
		old.end()
	}
}

// keptConfigs is how many configurations a new program is asked about.
const keptConfigs = 8

// use is a configuration, and what the plugin said to it.
type use struct {
	raw  plugin.Raw
	says *plugin.Description // nil: it was not asked
}

// replaceable refuses a plugin that the broker would not have put together with the
// others in the place of the one that it did: the broker does not ask again while it runs.
func (u *use) replaceable(d *plugin.Description) error {
	if u.says == nil {
		return nil
	}
	refuse := func(what string, now, then any) error {
		return fmt.Errorf("%w: it %s %q, the one in use %q; that takes a restart of the broker", plugin.ErrUnavailable, what, now, then)
	}
	if !slices.Equal(d.Facets, u.says.Facets) {
		return refuse("offers the facets", d.Facets, u.says.Facets)
	}
	if d.Publish != u.says.Publish {
		return refuse("publishes", d.Publish, u.says.Publish)
	}
	for _, need := range d.Needs {
		if !slices.Contains(u.says.Needs, need) {
			return refuse("needs", d.Needs, u.says.Needs)
		}
	}
	return nil
}

// noteBuilt remembers the configuration of an instance.
func (l *launcher) noteBuilt(raw plugin.Raw) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := use{raw: bytes.Clone(raw)}
	if bytes.Equal(l.described.raw, raw) {
		u.says = l.described.says
	}
	l.built = slices.DeleteFunc(l.built, func(o use) bool { return bytes.Equal(o.raw, raw) })
	if len(l.built) == keptConfigs {
		l.built = l.built[1:]
	}
	l.built = append(l.built, u)
}

// noteDescribed remembers a configuration that was only checked.
func (l *launcher) noteDescribed(raw plugin.Raw, says *plugin.Description) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.described = use{bytes.Clone(raw), says}
}
