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
// ends when its calls are done. A store keeps its process until it is shut down.
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
	configs := slices.Clone(l.built)
	if len(configs) == 0 {
		configs = []plugin.Raw{l.described}
	}
	l.mu.Unlock()
	p, err := l.launch(ctx, cmd, log)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, l.o.StartTimeout)
	defer cancel()
	for _, raw := range configs {
		if _, err := wire.Describe(ctx, candidate{p}, log, l.contract, l.name, raw); err != nil {
			if !p.run.alive() {
				err = p.Cause()
			}
			p.end()
			return nil, fmt.Errorf("%s: %w", cmd.Path, err)
		}
	}
	return p, nil
}

// candidate is a process that is checked, as a launcher of itself.
type candidate struct{ *process }

// Acquire implements wire.Launcher.
func (c candidate) Acquire(context.Context, *slog.Logger) (wire.Process, error) { return c, nil }

// Release implements wire.Process.
func (candidate) Release(bool) {}

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

// noteBuilt remembers the configuration of an instance.
func (l *launcher) noteBuilt(raw plugin.Raw) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.built = slices.DeleteFunc(l.built, func(o plugin.Raw) bool { return bytes.Equal(o, raw) })
	if len(l.built) == keptConfigs {
		l.built = l.built[1:]
	}
	l.built = append(l.built, bytes.Clone(raw))
}

// noteDescribed remembers a configuration that was only checked.
func (l *launcher) noteDescribed(raw plugin.Raw) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.described = bytes.Clone(raw)
}
