package pull_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
)

// Who may not read any more gets nothing of what comes afterwards, although he waited
// for it before.
func TestBarredWhileParked(t *testing.T) {
	for name, bar := range map[string]func(t *testing.T, e *enginetest.Engine){
		"the group from the topic": func(t *testing.T, e *enginetest.Engine) {
			k := kernel.ValueKey{Kind: kernel.ValueForbidden, Group: "G", Topic: "T"}
			require.NoError(t, e.K.Values.PutValue(t.Context(), k, strconv.AppendInt(nil, kernel.ForbiddenRead, 10)))
		},
		"the group": func(t *testing.T, e *enginetest.Engine) {
			g := command.DefaultSubscriptionGroup("G")
			g.ConsumeEnable = false
			require.NoError(t, e.K.Groups.Put(t.Context(), g))
		},
		"all from the topic": func(t *testing.T, e *enginetest.Engine) { topic(t, e, "T", 1, command.PermWrite) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := enginetest.Start(t, enginetest.Options{})
				c, producer := e.Connect(t), e.Connect(t)
				topic(t, e, "T", 1, 6)
				p := parked(enginetest.Pull("G", "T", 0, 0), 15*time.Second)
				n := c.Begin(command.ReqPullMessage, p.Append, nil)
				synctest.Wait()
				require.False(t, c.Answered(n))
				bar(t, e)
				send(t, producer, "T", 0, "", "x")
				r := c.Wait(n)
				require.Equal(t, command.RespNoPermission, r.Code)
				require.NotZero(t, r.Int("forbiddenType"))
				require.Empty(t, r.Body)
				require.Equal(t, r.Remark, c.Pull(p).Remark, "as it is told who asks now")
			})
		})
	}
}
