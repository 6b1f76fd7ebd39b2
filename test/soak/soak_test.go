package soak

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/test/harness"
)

const (
	clients = 64
	// topics that stay, each with some queues.
	topics, queues = 4, 4
)

// stable is the name of a topic that stays.
func stable(i int) string { return fmt.Sprintf("soak-%d", i) }

// settings have the broker roll and delete its segments all the time.
func settings() []string {
	hours := make([]string, 24)
	for h := range hours {
		hours[h] = fmt.Sprintf("%02d", h)
	}
	return []string{
		"mappedFileSizeCommitLog=4MiB", "mappedFileSizeConsumeQueue=60000", "maxHashSlotNum=5000", "maxIndexNum=20000", "waitTimeMillsInSendQueue=5000",
		"fileReservedTime=0", "deleteWhen=" + strings.Join(hours, ";"), "cleanResourceInterval=10", "deleteCommitLogFilesInterval=0",
	}
}

// TestEverythingAtOnce is what doc.go says.
func TestEverythingAtOnce(t *testing.T) {
	warm, whole := 2*time.Second, 7*time.Second
	if harness.Long() {
		warm, whole = 20*time.Second, 10*time.Minute
	}
	ns := harness.New(t, harness.Options{Role: "namesrv", Race: true})
	n := harness.New(t, harness.Options{Role: "broker", Namesrv: ns.Addr, Race: true, Set: settings()})
	c, err := harness.Dial(n.Addr)
	require.NoError(t, err)
	for i := range topics {
		require.NoError(t, c.CreateTopic(stable(i), queues))
	}
	require.NoError(t, c.Close())

	m := newModel()
	storm(t, n, ns, m, 0, warm)
	clean(t, n)
	before := settled(t, n, nil)
	storm(t, n, ns, m, 1, whole)
	require.Empty(t, m.faults)

	c, err = harness.Dial(n.Addr)
	require.NoError(t, err)
	left, expired, err := m.check(c)
	require.NoError(t, err)
	for p, want := range m.progress {
		h := command.QueryConsumerOffsetRequest{ConsumerGroup: []byte(p.group), Topic: []byte(p.topic), QueueID: p.queue, SetZeroIfNotFound: true}
		a, err := c.Call(command.ReqQueryConsumerOffset, h.Append, nil)
		require.NoError(t, err)
		require.NoError(t, a.Err(), "%v", p)
		var r command.OffsetResponse
		require.NoError(t, r.Decode(&a.Header))
		require.Equal(t, want, r.Offset, "%v", p)
	}
	require.NoError(t, c.Close())
	require.Empty(t, m.faults)
	require.NotZero(t, expired, "nothing has expired")
	clean(t, n)
	after := settled(t, n, &before)
	for _, line := range strings.Split(n.Log(), "\n") {
		require.NotContains(t, line, `"level":"ERROR"`)
		require.NotContains(t, line, "panicked")
	}
	fmt.Fprintf(os.Stderr, "%d clients for %v: %d messages acknowledged, %d of them left, %d expired; %d sends refused; %d records compared. Before: %v. After: %v.\n",
		clients, whole, m.acked, left, expired, m.refused.Load(), m.audited, before, after)
}

// storm has all clients do everything for some time, while the name server is restarted
// again and again; then all of them are gone.
func storm(t *testing.T, n, ns *harness.Node, m *model, seed uint64, length time.Duration) {
	t.Helper()
	over := make(chan struct{})
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			p := &peer{n: n, m: m, id: i, rng: rand.New(rand.NewPCG(seed, uint64(i)))}
			p.run(over)
		})
	}
	// It ends early when something is wrong.
	tick := time.NewTicker(length / 4)
	defer tick.Stop()
	for range 4 {
		<-tick.C
		ns.Kill()
		ns.Start()
		m.mu.Lock()
		wrong := len(m.faults)
		m.mu.Unlock()
		if wrong > 0 {
			break
		}
	}
	close(over)
	wg.Wait()
	require.Empty(t, m.faults)
	require.True(t, n.Running(), "the broker ended")
}

// clean deletes what the clients made but for the topics that stay.
func clean(t *testing.T, n *harness.Node) {
	t.Helper()
	c, err := harness.Dial(n.Addr)
	require.NoError(t, err)
	defer c.Close()
	for i := range clients {
		for _, topic := range []string{fleeting(i), fleeting(i) + "-auto"} {
			a, err := c.Call(command.ReqDeleteTopicInBroker, ext("topic", topic), nil)
			require.NoError(t, err)
			require.NoError(t, a.Err())
		}
	}
}
