//go:build unix

package external_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/internal/hosttest"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
	"github.com/hardpointmq/hardpoint/sdk/external"
)

// TestChildren: what a plugin started ends with it, however it ends.
func TestChildren(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, s storage.Store, pid int){
		"it is asked to end": func(t *testing.T, s storage.Store, _ int) {
			require.NoError(t, s.Shutdown(t.Context()))
		},
		"it is killed": func(t *testing.T, s storage.Store, pid int) {
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
			require.ErrorContains(t, s.Capabilities().Reopener.Gone(t.Context()), "signal: killed")
		},
		"its host kills it": func(t *testing.T, s storage.Store, pid int) {
			hosttest.Stop(t, pid)
			require.ErrorContains(t, s.Capabilities().Reopener.Gone(t.Context()), "by this host")
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := impatient(nil)
			o.Linger = 0
			o.Backoff = external.Backoff{First: time.Hour, Most: time.Hour} // no other process beside it
			s := running(t, external.Storage(memory.Name, command(t, "parent"), o), storage.Events{})
			pids := children(t)
			require.Len(t, pids, 1)
			kids := hosttest.Children(t, pids[0])
			require.Len(t, kids, 1)
			require.True(t, hosttest.Running(kids[0]))
			end(t, s, pids[0])
			require.Eventually(t, func() bool { return !hosttest.Running(kids[0]) }, patience, time.Millisecond)
		})
	}
}
