package nameserver

import (
	"bytes"
	"compress/zlib"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
)

// TestLargeRegistrationsWait has compressed registrations wait for a place, and
// small ones pass.
func TestLargeRegistrationsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		for range maxLarge {
			s.large <- struct{}{}
		}
		var z bytes.Buffer
		w := zlib.NewWriter(&z)
		_, err := w.Write([]byte("damaged")) // the answer is a refusal
		require.NoError(t, err)
		require.NoError(t, w.Close())

		answered := make(chan answerFrame, 1)
		go func() {
			answered <- open(t, s).call(command.ReqRegisterBroker, &command.RegisterBrokerRequest{
				BrokerID: command.BrokerID{BrokerName: "z", BrokerAddr: "h:1", ClusterName: "C"}, Compressed: true,
			}, z.Bytes())
		}()
		synctest.Wait()
		require.Empty(t, answered)
		require.Equal(t, command.RespSuccess, open(t, s).register(reg{name: "a", addr: "h:2"}).code)

		<-s.large
		synctest.Wait()
		require.Len(t, answered, 1)
		require.Equal(t, command.RespSystemError, (<-answered).code)
		<-s.large
		require.Empty(t, s.large) // the place was given back
	})
}
