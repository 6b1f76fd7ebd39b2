package wire

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/sdk/wire/pluginpb"
)

// Launcher gives the process of a plugin, which it starts when there is none.
// Safe for concurrent use.
type Launcher interface {
	// Acquire returns a running process; log, when not nil, gets its output.
	// Errors match plugin.ErrUnavailable and say why the process did not start.
	Acquire(ctx context.Context, log *slog.Logger) (Process, error)
}

// Process is a running plugin process.
type Process interface {
	// Conn is the control connection; the services of all kinds that the process
	// serves are on it.
	Conn() grpc.ClientConnInterface
	// Knows checks that the process has methods, by their full names. The error
	// matches plugin.ErrUnavailable and names the program and what it lacks. It is
	// called before the methods are; a process is asked once for each ([Lacking]).
	Knows(ctx context.Context, methods []string) error
	// Gone is closed when the process has ended.
	Gone() <-chan struct{}
	// Retired is closed when another process has taken the place of this one,
	// which still runs: a user that can should acquire that one and release this.
	Retired() <-chan struct{}
	// Cause says why the process is gone, as an error that matches
	// plugin.ErrUnavailable. It waits a moment for the process to end.
	Cause() error
	// CallTimeout is how long the process may owe an answer on a data socket without
	// saying anything there; then its user gives it up ([Process.Fail]). 0: no limit.
	CallTimeout() time.Duration
	// Stopping is closed when the host has begun to stop, nil when it never says so.
	// From then on no process is started, and one that owes an answer on a data socket,
	// or to the call that shuts its instance down, for StopTimeout is given up. 0: then
	// as before.
	Stopping() <-chan struct{}
	StopTimeout() time.Duration
	// Fail ends a process that cannot be relied on any more, for all who use it;
	// why becomes part of Cause. It does not wait. Nothing happens to one that is
	// gone.
	Fail(why error)
	// Release gives the process back, once per Acquire. Without other users it
	// ends: at once, or, with linger, when it was not acquired for a while.
	Release(linger bool)
}

// Describe asks the process of a plugin to check a configuration and to tell what
// an instance would offer, and checks that both ends mean the same contract and that
// the process has the methods that the host will call.
func Describe(ctx context.Context, l Launcher, log *slog.Logger, c *Contract, name string, raw plugin.Raw) (plugin.Description, error) {
	proc, err := l.Acquire(ctx, log)
	if err != nil {
		return plugin.Description{}, err
	}
	defer proc.Release(true)
	return DescribeIn(ctx, proc, c, name, raw)
}

// DescribeIn is Describe in a process that the caller has acquired, and keeps.
func DescribeIn(ctx context.Context, proc Process, c *Contract, name string, raw plugin.Raw) (plugin.Description, error) {
	r, err := pluginpb.NewPluginClient(proc.Conn()).Describe(ctx, &pluginpb.DescribeRequest{Kind: c.Kind, Name: name, Config: raw})
	if err = FromRPC(ctx, err, r.GetFailure()); err != nil {
		return plugin.Description{}, err
	}
	d := r.GetDescription()
	if d.GetName() != name {
		return plugin.Description{}, fmt.Errorf("%w: %s plugin %q describes itself as %q; this is a fault of the plugin",
			plugin.ErrUnavailable, c.Kind, name, d.GetName())
	}
	if d.GetContract() != c.Version {
		return plugin.Description{}, fmt.Errorf("%w: %s plugin %q speaks contract %q, this host %q; take a plugin built for it",
			plugin.ErrUnavailable, c.Kind, name, d.GetContract(), c.Version)
	}
	if err := proc.Knows(ctx, c.methods(d.GetFacets())); err != nil {
		return plugin.Description{}, err
	}
	return plugin.Description{
		Name: d.GetName(), Version: d.GetVersion(), Contract: d.GetContract(), Facets: c.PassedOn(d.GetFacets()), Needs: d.GetNeeds(),
		Publish: d.GetPublish(), LargestRecord: d.GetLargestRecord(), Schema: d.GetSchema(),
	}, nil
}

// ToSettings is what crosses of Settings: the rest is made anew on the other side
// ([Settings]).
func ToSettings(s *plugin.Settings) *pluginpb.Settings {
	out := &pluginpb.Settings{Name: s.Name, Dir: s.Dir, LogLevel: int32(slog.LevelError)}
	for _, l := range []slog.Level{slog.LevelWarn, slog.LevelInfo, slog.LevelDebug} {
		if s.Logger.Enabled(context.Background(), l) {
			out.LogLevel = int32(l)
		}
	}
	return out
}
