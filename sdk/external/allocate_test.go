package external_test

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/allocate/allocatetest"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/internal/hosttest"
	"github.com/hardpointmq/hardpoint/plugins/allocate/averagely"
	"github.com/hardpointmq/hardpoint/plugins/allocate/circle"
	"github.com/hardpointmq/hardpoint/plugins/allocate/sticky"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
	"github.com/hardpointmq/hardpoint/sdk/external"
)

// versionEnv is the version of the program that allocators() are.
const versionEnv = "HARDPOINT_TEST_VERSION"

func allocators() []allocate.Factory {
	return []allocate.Factory{averagely.NewFactory(), circle.NewFactory(), sticky.NewFactory(), versioned()}
}

type versionedConfig struct {
	// Prefix is no field of version 4.
	Prefix string `json:"prefix"`
}

func (c versionedConfig) Validate() error {
	if c.Prefix != "" && os.Getenv(versionEnv) == "4" {
		return os.ErrInvalid
	}
	return nil
}

// versioned is an allocator that says who it is, version and pid. It dies of
// group "poison", and of group "bullet" when it is version 1.
func versioned() allocate.Factory {
	version := os.Getenv(versionEnv)
	return allocate.NewFactory("versioned",
		func(versionedConfig) plugin.Description {
			d := plugin.Description{Version: version}
			if version == "3" {
				d.Contract = "allocate/3"
			}
			return d
		},
		func() versionedConfig { return versionedConfig{} },
		func(_ context.Context, _ allocate.Params, c versionedConfig) (allocate.Func, error) {
			return func(ctx context.Context, r *allocate.Request) (allocate.Assignment, error) {
				if r.Group == "poison" || r.Group == "bullet" && version == "1" {
					panic("a bad mushroom")
				}
				a, err := averagely.Allocate(ctx, r)
				a.Why = slices.Repeat([]string{c.Prefix + version + " " + strconv.Itoa(os.Getpid())}, len(r.Queues))
				return a, err
			}, nil
		})
}

// allocateConformance is the allocators' part of TestConformance.
func allocateConformance(t *testing.T) {
	t.Helper()
	for _, h := range []allocatetest.Harness{
		{Factory: external.Allocate(averagely.Name, command(t, "serve"), external.Options{})},
		{Factory: external.Allocate(circle.Name, command(t, "serve"), external.Options{})},
		{Factory: external.Allocate(sticky.Name, command(t, "serve"), external.Options{}), Promises: allocatetest.Promises{FewMoves: true, OnlyNeeded: true}},
	} {
		h.Form = "process"
		allocatetest.Run(t, h)
	}
}

// versionedProgram is this binary in a version.
func versionedProgram(tb testing.TB, version int) external.Command {
	return command(tb, "serve", versionEnv+"="+strconv.Itoa(version))
}

func buildVersioned(t *testing.T, o external.Options) allocate.Allocator {
	t.Helper()
	if o.Linger == 0 {
		o.Linger = -1
	}
	a, err := external.Allocate("versioned", versionedProgram(t, 1), o).Build(t.Context(), allocate.Params{}, plugin.Raw(`{"prefix": "v"}`))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, allocate.Close(a)) })
	return a
}

func ask(t *testing.T, a allocate.Allocator, group string) (string, error) {
	t.Helper()
	r := allocatetest.Make(1, 1)
	r.Group = group
	got, err := a.Allocate(t.Context(), r)
	if err != nil {
		return "", err
	}
	return got.Why[0], nil
}

// TestAllocatorDies: the next call, and one that the process died in, are made
// by a process launched anew.
func TestAllocatorDies(t *testing.T) {
	a := buildVersioned(t, external.Options{})
	first, err := ask(t, a, "g")
	require.NoError(t, err)
	pids := children(t)
	require.Len(t, pids, 1)
	p, err := os.FindProcess(pids[0])
	require.NoError(t, err)
	require.NoError(t, p.Kill())
	second, err := ask(t, a, "g")
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	require.NotEqual(t, pids, children(t))

	_, err = ask(t, a, "poison")
	require.ErrorIs(t, err, plugin.ErrUnavailable)
	require.ErrorContains(t, err, "panic: a bad mushroom")
	require.ErrorContains(t, err, "exit status 2")
	third, err := ask(t, a, "g")
	require.NoError(t, err)
	require.NotEqual(t, second, third)
	require.NoError(t, allocate.Close(a))
	require.Empty(t, children(t))
}

// TestReplace: ten new versions of a program while it is used by many. No call
// fails, each Replace takes effect at once, and no old process is left.
func TestReplace(t *testing.T) {
	var up external.Replacer
	a := buildVersioned(t, external.Options{Replacer: &up})
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			r := allocatetest.Make(40, 7)
			for ctx.Err() == nil {
				if _, err := a.Allocate(t.Context(), r); err != nil {
					t.Errorf("a call during a replacement: %v", err)
					return
				}
			}
		})
	}
	for i := range 10 {
		version := 10 + i
		require.NoError(t, up.Replace(t.Context(), versionedProgram(t, version)))
		why, err := ask(t, a, "g")
		require.NoError(t, err)
		require.Contains(t, why, "v"+strconv.Itoa(version)+" ")
	}
	stop()
	wg.Wait()
	require.Eventually(t, func() bool { return len(children(t)) == 1 }, patience, 10*time.Millisecond, "an old process does not end")
	p, err := os.FindProcess(children(t)[0])
	require.NoError(t, err)
	require.NoError(t, p.Kill())
	why, err := ask(t, a, "g")
	require.NoError(t, err)
	require.Contains(t, why, "v19 ", "one that dies is launched anew in its last version")
	require.NoError(t, allocate.Close(a))
	require.Eventually(t, func() bool { return len(children(t)) == 0 }, patience, 10*time.Millisecond)
}

// TestReplaceRefused: a program that is no replacement changes nothing, and the
// error says why.
func TestReplaceRefused(t *testing.T) {
	var up external.Replacer
	require.ErrorContains(t, up.Replace(t.Context(), versionedProgram(t, 2)), "no factory")
	a := buildVersioned(t, external.Options{Replacer: &up})
	before, err := ask(t, a, "g")
	require.NoError(t, err)
	pids := children(t)
	for _, c := range []struct {
		name  string
		cmd   external.Command
		match error
		says  []string
	}{
		{"no program", external.Command{Path: "/no/such/program"}, plugin.ErrUnavailable, []string{"/no/such/program"}},
		{"exits", command(t, "exit"), plugin.ErrUnavailable, []string{"there is no licence for Tuesdays"}},
		{"panics", command(t, "panic"), plugin.ErrUnavailable, []string{"panic: at start"}},
		{"other contract", versionedProgram(t, 3), plugin.ErrUnavailable, []string{`"allocate/3"`, allocate.Contract}},
		{"refuses the configuration in use", versionedProgram(t, 4), plugin.ErrConfig, []string{"invalid argument"}},
		{"other plugins", command(t, "stores"), plugin.ErrConfig, []string{"serves no allocate plugins"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := up.Replace(t.Context(), c.cmd)
			require.ErrorIs(t, err, c.match)
			for _, w := range append(c.says, `allocate plugin "versioned" is not replaced`) {
				require.ErrorContains(t, err, w)
			}
			after, err := ask(t, a, "g")
			require.NoError(t, err)
			require.Equal(t, before, after)
			require.Equal(t, pids, children(t))
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, up.Replace(ctx, versionedProgram(t, 2)), context.Canceled)
	require.Equal(t, pids, children(t))
}

// TestReplaceIsARescue: the new version goes on where the old one dies.
func TestReplaceIsARescue(t *testing.T) {
	var up external.Replacer
	a := buildVersioned(t, external.Options{Replacer: &up})
	_, err := ask(t, a, "bullet")
	require.ErrorContains(t, err, "a bad mushroom")
	require.NoError(t, up.Replace(t.Context(), versionedProgram(t, 2)))
	why, err := ask(t, a, "bullet")
	require.NoError(t, err)
	require.Contains(t, why, "v2 ")
}

// TestReplaceTogether: factories that share a Replacer move together or not at
// all; a store keeps its process until it is shut down.
func TestReplaceTogether(t *testing.T) {
	var up external.Replacer
	o := external.Options{Replacer: &up, Linger: -1}
	f := external.Storage(memory.Name, versionedProgram(t, 1), o)
	s := running(t, f, storage.Events{})
	store := children(t)
	require.Len(t, store, 1)
	a := buildVersioned(t, o)
	require.Len(t, children(t), 2)
	require.ErrorIs(t, up.Replace(t.Context(), versionedProgram(t, 3)), plugin.ErrUnavailable)
	require.Len(t, children(t), 2)
	require.NoError(t, up.Replace(t.Context(), versionedProgram(t, 2)))
	why, err := ask(t, a, "g")
	require.NoError(t, err)
	require.Contains(t, why, "v2 ")
	require.NoError(t, s.Sync(t.Context(), 0))
	require.Contains(t, children(t), store[0])
	require.NoError(t, s.Shutdown(t.Context()))
	require.False(t, hosttest.Running(store[0]))
	s = running(t, f, storage.Events{})
	require.NoError(t, s.Sync(t.Context(), 0))
	require.NoError(t, s.Shutdown(t.Context()))
}

// TestReplaceUnused: a program that does not run is checked and takes effect.
func TestReplaceUnused(t *testing.T) {
	var up external.Replacer
	f := external.Allocate("versioned", versionedProgram(t, 1), external.Options{Replacer: &up, Linger: -1})
	require.NoError(t, up.Replace(t.Context(), versionedProgram(t, 2)))
	d, err := f.Describe(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "2", d.Version)
	require.True(t, json.Valid(d.Schema))
	require.Eventually(t, func() bool { return len(children(t)) == 0 }, patience, 10*time.Millisecond)
}

// BenchmarkAllocate is the same allocator in this process and through another.
func BenchmarkAllocate(b *testing.B) {
	for name, f := range map[string]allocate.Factory{
		"in_process": averagely.NewFactory(), "process": external.Allocate(averagely.Name, command(b, "serve"), external.Options{Linger: -1}),
	} {
		b.Run(name, func(b *testing.B) { allocatetest.Benchmark(b, allocatetest.Harness{Factory: f}) })
	}
}
