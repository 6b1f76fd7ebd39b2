package embedded_test

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/sdk/embedded"
)

// TestVeryManyQueues has many more queues than the store may map, in topics of
// eight; HARDPOINT_TEST_QUEUES=80000 is the long form.
func TestVeryManyQueues(t *testing.T) {
	const perTopic = 8
	topics := 60
	if v := os.Getenv("HARDPOINT_TEST_QUEUES"); v != "" {
		n, err := strconv.Atoi(v)
		require.NoError(t, err)
		topics = n / perTopic
	}
	opts := []embedded.Option{
		embedded.WithDir(t.TempDir()), embedded.With("mappedFileSizeConsumeQueue", "4000"), embedded.With("mappedFileSizeCommitLog", "16777216"),
		embedded.With("plugins.storage.commitlog.maxMappedFiles", "64"),
		embedded.With("diskSpaceWarningLevelRatio", "99"), embedded.With("cleanFileForciblyEnable", "false"), // of any machine
	}
	timed := func(what string, do func()) {
		began := time.Now()
		do()
		t.Logf("%s: %v", what, time.Since(began).Round(time.Millisecond))
	}
	var b *embedded.Broker
	start := func() {
		timed("start", func() {
			var err error
			b, err = embedded.New(t.Context(), opts...)
			require.NoError(t, err)
		})
		t.Cleanup(func() { _ = b.Close(t.Context()) })
	}
	stop := func() { timed("stop", func() { require.NoError(t, b.Close(t.Context())) }) }
	// each calls do for all topics, for many at a time.
	each := func(what string, do func(topic string) error) {
		timed(what, func() {
			names := make(chan string)
			var wg sync.WaitGroup
			for range 64 {
				wg.Go(func() {
					for name := range names {
						if err := do(name); err != nil {
							t.Errorf("%s: %v", name, err)
						}
					}
				})
			}
			for i := range topics {
				names <- fmt.Sprintf("topic-%05d", i)
			}
			close(names)
			wg.Wait()
		})
	}
	send := func() {
		each("send", func(topic string) error {
			for q := range int32(perTopic) {
				if _, err := b.API().Send(t.Context(), &api.SendRequest{Topic: topic, Queue: q, Body: []byte(topic)}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	read := func(want int) {
		each("read", func(topic string) error {
			for q := range int32(perTopic) {
				r, err := b.API().Pull(t.Context(), &api.PullRequest{Group: "g", Queue: message.Queue{Topic: topic, ID: q}, Max: 32})
				if err != nil {
					return err
				}
				if len(r.Messages) != want {
					return fmt.Errorf("queue %d has %d messages", q, len(r.Messages))
				}
			}
			return nil
		})
	}
	start()
	each("create", func(topic string) error {
		return b.API().PutTopic(t.Context(), api.Topic{Name: topic, ReadQueues: perTopic, WriteQueues: perTopic})
	})
	send()
	read(1)
	stop()
	start()
	all, err := b.API().Topics(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(all), topics)
	read(1)
	send()
	read(2)
	stop()
}
