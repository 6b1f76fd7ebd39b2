package client_test

import (
	"testing"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
)

// FuzzHeartbeat feeds bodies to the handler: it answers, whatever they are.
func FuzzHeartbeat(f *testing.F) {
	for _, s := range []string{
		"", "{", "null", `{"clientID":"c"}`, `{"clientID":"c","consumerDataSet":[{"groupName":"G","subscriptionDataSet":[{"topic":"T","subString":"*"}]}]}`,
		`{"clientID":"c","producerDataSet":[{"groupName":"P"}],"consumerDataSet":null}`, `{"clientID":1,"consumerDataSet":[null]}`,
	} {
		f.Add([]byte(s))
	}
	e := enginetest.Start(f, enginetest.Options{})
	f.Fuzz(func(t *testing.T, body []byte) {
		c := e.Connect(t)
		r := c.Do(command.ReqHeartBeat, nil, body)
		if e.HasLog("panicked") {
			t.Fatalf("the handler panicked on %q: %s", body, r.Remark)
		}
		c.Close(nil)
	})
}
