package enginetest_test

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
)

// FuzzRequests feeds a whole engine with what a client may send: no bytes make a
// handler panic (or, in a send, the broker), and afterwards it serves.
func FuzzRequests(f *testing.F) {
	for _, r := range load(f) {
		wire, err := base64.StdEncoding.DecodeString(r.Request)
		require.NoError(f, err)
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		e := enginetest.Start(t, enginetest.Options{})
		c := e.Connect(t)
		require.Zero(t, c.Send(enginetest.Message{Topic: "T", Body: "before"}).Code)
		_ = e.Connect(t).Feed(wire)
		require.False(t, e.HasLog("panicked"), e.Log)
		r := c.Send(enginetest.Message{Topic: "T", Body: "after"})
		require.Zero(t, r.Code, r.Remark)
	})
}
