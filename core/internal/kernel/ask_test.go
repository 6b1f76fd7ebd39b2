package kernel_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
)

// A request to a peer gets that peer's answer, or the reason why there is none,
// once.
func TestAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := enginetest.Start(t, enginetest.Options{})
		c := e.Connect(t)
		var conn *kernel.Conn
		e.K.Conns(func(x *kernel.Conn) bool { conn = x; return false })
		type outcome struct {
			code int32
			body string
			err  error
		}
		got := make(chan outcome, 10)
		ask := func() *enginetest.Reply {
			conn.Ask(command.ReqGetConsumerRunningInfo, (&command.ConsumerRunningInfoRequest{ConsumerGroup: "G", ClientID: "id"}).Append, []byte("body"), 10*time.Second,
				func(a kernel.Answer, err error) {
					o := outcome{err: err}
					if err == nil {
						o.code, o.body = a.Header.Code, string(a.Body)
					}
					got <- o
				})
			p := c.Pushes()
			require.Len(t, p, 1)
			return p[0]
		}
		answer := func(opaque, code int32, body string) {
			w := command.Begin(nil, command.JSON, code, opaque, command.FlagResponse)
			require.NoError(t, c.FeedFrames(command.Frame{Header: w.End(len(body)), Body: []byte(body)}))
		}
		r := ask()
		require.Equal(t, "id", r.Ext["clientId"])
		require.Equal(t, "body", string(r.Body))
		require.Zero(t, r.Flag&command.FlagOneway)
		other := ask()
		answer(other.Opaque, 1, "second")
		require.Equal(t, outcome{1, "second", nil}, <-got)
		answer(r.Opaque, 0, "first")
		require.Equal(t, outcome{0, "first", nil}, <-got)
		answer(r.Opaque, 0, "again")
		answer(4711, 0, "nobody asked")
		late := ask()
		require.ErrorIs(t, (<-got).err, kernel.ErrNoAnswer)
		answer(late.Opaque, 0, "late")
		ask()
		c.Close(nil)
		require.ErrorIs(t, (<-got).err, kernel.ErrPeerGone)
		conn.Ask(307, nil, nil, time.Second, func(_ kernel.Answer, err error) { got <- outcome{err: err} })
		require.ErrorIs(t, (<-got).err, kernel.ErrPeerGone)
		synctest.Wait()
		require.Empty(t, got)
		last := e.Connect(t)
		e.K.Conns(func(x *kernel.Conn) bool { conn = x; return false })
		conn.Ask(307, nil, nil, time.Hour, func(_ kernel.Answer, err error) { got <- outcome{err: err} })
		require.Len(t, last.Pushes(), 1)
		e.K.Release()
		require.Error(t, (<-got).err)
	})
}
