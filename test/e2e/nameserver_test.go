package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/test/harness"
)

// TestNameServerKilled kills a name server that brokers and clients use: when it runs
// again, with nothing in its memory, the broker registers by itself, with what changed
// meanwhile, and what was written to the key-value configuration is there.
func TestNameServerKilled(t *testing.T) {
	t.Parallel()
	ns := harness.New(t, harness.Options{Role: "namesrv", Race: true})
	b := harness.New(t, harness.Options{Role: "broker", Namesrv: ns.Addr, Race: true})
	awaitRoute(t, ns.Addr, "TBW102")
	kv := command.KVConfigRequest{Namespace: "ORDER_TOPIC_CONFIG", Key: "T", Value: "broker-a:4"}
	c, err := harness.Dial(ns.Addr)
	require.NoError(t, err)
	a, err := c.Call(command.ReqPutKVConfig, kv.Append, nil)
	require.NoError(t, err)
	require.NoError(t, a.Err())
	require.NoError(t, c.Close())

	for _, topic := range []string{"first", "second"} {
		ns.Kill()
		c, err := harness.Dial(b.Addr)
		require.NoError(t, err)
		require.NoError(t, c.CreateTopic(topic, 4), "a broker does without name servers")
		require.NoError(t, c.Close())
		ns.Start()
		began := time.Now()
		awaitRoute(t, ns.Addr, topic)
		// A process that is killed closes its connections; one that is lost without a word is
		// TestSilentOverTCP of core/internal/register.
		require.Less(t, time.Since(began), 10*time.Second)
	}

	c, err = harness.Dial(ns.Addr)
	require.NoError(t, err)
	defer c.Close()
	a, err = c.Call(command.ReqGetKVConfig, func(w *command.Writer) {
		w.Ext("namespace", kv.Namespace)
		w.Ext("key", kv.Key)
	}, nil)
	require.NoError(t, err)
	require.NoError(t, a.Err())
	require.Equal(t, kv.Value, a.Header.ExtString("value"))
}
