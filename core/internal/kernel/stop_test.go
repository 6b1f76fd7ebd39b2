package kernel_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
)

// A stop hook that hangs does not keep the others, and the store after them, from
// being stopped.
func TestStopLeavesAHangingHookBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h kernel.Hooks
		release, stopped := make(chan struct{}), false
		h.OnStop(func(context.Context) error { stopped = true; return nil })
		h.OnStop(func(context.Context) error { <-release; return nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := h.Stop(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "stop hook 2 of 2")
		require.True(t, stopped)
		require.NoError(t, ctx.Err(), "the next one had time")
		close(release)
	})
}

// Reads that hang end when the broker lets go, in handlers and parked.
func TestReleaseEndsReads(t *testing.T) {
	hang, reading := make(chan struct{}), make(chan struct{}, 10)
	hook := func(ctx context.Context, c storagemw.Call) error {
		if c.Op != storagemw.OpRead || c.Done {
			return nil
		}
		select {
		case <-hang:
		default:
			return nil
		}
		reading <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	e := enginetest.Start(t, enginetest.Options{Store: func(p storage.Params, next storage.Store) storage.Store {
		return storagemw.Faults(hook)(p, next)
	}})
	c, other := e.Connect(t), e.Connect(t)
	require.Zero(t, c.Send(enginetest.Message{Topic: "T", Body: "x"}).Code)
	p := enginetest.Pull("reader", "T", 0, 1)
	p.SysFlag |= command.PullSuspend
	p.SuspendTimeoutMillis = 60_000
	parked := c.Begin(command.ReqPullMessage, p.Append, nil)
	require.False(t, c.Answered(parked))
	close(hang)
	require.Zero(t, other.Send(enginetest.Message{Topic: "T", Body: "y"}).Code)
	<-reading
	done := make(chan *enginetest.Reply, 1)
	go func() {
		p := enginetest.Pull("reader", "T", 0, 0)
		done <- other.Do(command.ReqPullMessage, p.Append, nil)
	}()
	<-reading
	e.K.Release()
	require.Equal(t, command.RespSystemError, (<-done).Code)
	require.Equal(t, command.RespSystemError, c.Wait(parked).Code)
	require.False(t, e.HasLog("level=ERROR"), e.Log)
}
