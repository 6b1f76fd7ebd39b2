package e2e

import (
	"context"
	"testing"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/internal/tlstest"
	"github.com/hardpointmq/hardpoint/test/harness"
)

// TestTLS: the official client at a name server and a broker that take TLS only. They
// have verified each other, since the broker has registered. It is not parallel: the
// client's option WithTls is one for all clients of the process.
func TestTLS(t *testing.T) {
	t.Cleanup(func() {
		_, err := rocketmq.NewProducer(producer.WithNameServer(primitive.NamesrvAddr{"127.0.0.1:1"}), producer.WithTls(false))
		require.NoError(t, err)
	})
	a := tlstest.New(t)
	pair := a.Issue(t, "broker-a", nil)
	n := harness.New(t, harness.Options{Race: true, Set: []string{
		"tls.server.mode=enforcing", "tls.server.certPath=" + pair.Cert, "tls.server.keyPath=" + pair.Key,
		"tls.client.authServer=true", "tls.client.trustCertPath=" + a.CAFile,
	}})
	const topic, messages = "TLS", 20
	p := newProducer(t, n.Namesrv, producer.WithTls(true))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for range messages {
		r, err := p.SendSync(ctx, newMessage(topic, "key", "hello"))
		require.NoError(t, err)
		require.Equal(t, primitive.SendOK, r.Status)
	}
	got := make(chan string, 10*messages)
	newPushConsumer(t, n.Namesrv, "tls-group", topic, "*", func(m *primitive.MessageExt) consumer.ConsumeResult {
		got <- string(m.Body)
		return consumer.ConsumeSuccess
	}, consumer.WithTls(true))
	for range messages {
		select {
		case body := <-got:
			require.Equal(t, "hello", body)
		case <-ctx.Done():
			t.Fatal("not all messages came")
		}
	}
}
