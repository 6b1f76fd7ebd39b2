package kernel_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/plugin"
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

// A store that is away comes back: clients try again. What has an identity keeps it.
func TestCodeOf(t *testing.T) {
	away := fmt.Errorf("reading T/0 at 0: %w", plugin.ErrUnavailable)
	for want, errs := range map[int32][]error{
		command.RespServiceNotAvailable: {plugin.ErrUnavailable, away, &api.Error{ID: api.SystemError, Text: "T", Err: away}},
		command.RespTopicNotExist:       {&api.Error{ID: api.TopicNotExist, Err: away}},
		command.RespSystemError:         {errors.New("a fault"), &api.Error{ID: api.SystemError}, &api.Error{ID: "OF_A_PLUGIN"}},
		command.RespInvalidParameter:    {&command.FieldError{}},
	} {
		for _, err := range errs {
			require.Equal(t, want, kernel.CodeOf(err), "%v", err)
		}
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
