package kernel_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A handler that panics answers code 1 and hurts nobody else.
func TestPanicIsAnswered(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{Prepare: func(e *enginetest.Engine) {
		e.K.Handle(9998, func(*kernel.Request) { panic("a bug") })
	}})
	for _, typ := range []command.HeaderType{command.JSON, command.RocketMQ} {
		c := e.Connect(t)
		c.Type = typ
		r := c.Do(9998, nil, nil)
		require.Equal(t, command.RespSystemError, r.Code)
		require.Contains(t, r.Remark, "a bug")
		require.True(t, e.HasLog("level=ERROR", "a bug"))
		require.Zero(t, c.Send(enginetest.Message{Topic: "T", Body: "x"}).Code)
	}
}

func TestUnknownCode(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c := e.Connect(t)
	r := c.Do(12345, nil, nil)
	require.Equal(t, command.RespRequestCodeNotSupported, r.Code)
	require.Contains(t, r.Remark, "request type 12345 not supported")
	c.Oneway(12345, nil, nil)
	require.Zero(t, c.Send(enginetest.Message{Topic: "T", Body: "x"}).Code)
	require.Equal(t, 2, c.Peer.Sends(), "a oneway request gets no answer, not even this one")
}

// A header that cannot be read ends the connection, after what came before it
// was stored.
func TestMalformedHeader(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	c, other := e.Connect(t), e.Connect(t)
	require.Zero(t, other.Send(enginetest.Message{Topic: "T", Body: "x"}).Code)
	m := enginetest.Message{Topic: "T"}
	good, _ := c.Request(command.ReqSendMessageV2, 0, m.Header(false), []byte("before"))
	bad := binary.BigEndian.AppendUint32(nil, 8)
	bad = binary.BigEndian.AppendUint32(bad, 4)
	bad = append(bad, "{no}"...)
	require.NoError(t, c.Feed(good.Append(nil), bad))
	select {
	case <-c.Peer.Done():
	default:
		t.Error("the connection is open")
	}
	require.Equal(t, int64(2), other.Send(enginetest.Message{Topic: "T", Body: "x"}).Int("queueOffset"))
}
