package e2e

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
	"github.com/hardpointmq/hardpoint/sdk/serve"
	"github.com/hardpointmq/hardpoint/test/harness"
)

// memberEnv makes the test binary a member of a consumer group instead of a
// test: "name server,group,topic,model".
const memberEnv = "HARDPOINT_E2E_MEMBER"

// smallEnv makes the test binary a plugin whose records are small.
const smallEnv = "HARDPOINT_E2E_SMALL"

// small is a store that takes 1 MiB at most.
func small() storage.Factory {
	return storage.NewFactory("small", func(memory.Config) plugin.Description { return plugin.Description{LargestRecord: 1 << 20} },
		func() memory.Config { return memory.Config{} },
		func(context.Context, storage.Params, memory.Config) (*storagetest.Nop, error) {
			return &storagetest.Nop{}, nil
		})
}

func TestMain(m *testing.M) {
	rlog.SetLogLevel("fatal")
	if os.Getenv(smallEnv) != "" {
		serve.Main(serve.Storage(small()))
	}
	if spec := os.Getenv(memberEnv); spec != "" {
		if err := runMember(strings.Split(spec, ",")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// These tests wait for the client's timers most of the time.
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	harness.Main(m)
}

var instances atomic.Int64

// instance is a name of its own for every client: those of one name share their
// connections and their name server.
func instance() string { return fmt.Sprintf("e2e-%d-%d", os.Getpid(), instances.Add(1)) }

func newProducer(t testing.TB, ns string, opts ...producer.Option) rocketmq.Producer {
	t.Helper()
	opts = append([]producer.Option{
		producer.WithNameServer(primitive.NamesrvAddr{ns}), producer.WithInstanceName(instance()),
		producer.WithGroupName("e2e-producer"), producer.WithSendMsgTimeout(10 * time.Second),
	}, opts...)
	p, err := rocketmq.NewProducer(opts...)
	require.NoError(t, err)
	require.NoError(t, p.Start())
	t.Cleanup(func() { _ = p.Shutdown() })
	return p
}

// handler is what a push consumer calls for each message.
type handler func(m *primitive.MessageExt) consumer.ConsumeResult

func newPushConsumer(t testing.TB, ns, group, topic, tags string, h handler, opts ...consumer.Option) rocketmq.PushConsumer {
	t.Helper()
	c, err := startPushConsumer(ns, group, topic, tags, h, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Shutdown() })
	return c
}

func startPushConsumer(ns, group, topic, tags string, h handler, opts ...consumer.Option) (rocketmq.PushConsumer, error) {
	opts = append([]consumer.Option{
		consumer.WithNameServer(primitive.NamesrvAddr{ns}), consumer.WithInstance(instance()), consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}, opts...)
	c, err := rocketmq.NewPushConsumer(opts...)
	if err != nil {
		return nil, err
	}
	err = c.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: tags},
		func(_ context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			result := consumer.ConsumeSuccess
			for _, m := range ms {
				if r := h(m); r != consumer.ConsumeSuccess {
					result = r
				}
			}
			return result, nil
		})
	if err == nil {
		err = c.Start()
	}
	return c, err
}

// createTopic creates a topic with the client's admin and waits until the name
// server knows it: consumers of this client fail to start without a route.
func createTopic(t testing.TB, n *harness.Node, topic string, queues int) {
	t.Helper()
	createTopicAt(t, n.Namesrv, n.Addr, topic, queues)
	awaitRoute(t, n.Namesrv, topic)
}

// createTopicAt creates a topic at one of several brokers.
func createTopicAt(t testing.TB, ns, broker, topic string, queues int) {
	t.Helper()
	a, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver([]string{ns})))
	require.NoError(t, err)
	require.NoError(t, a.CreateTopic(t.Context(), admin.WithTopicCreate(topic), admin.WithBrokerAddrCreate(broker),
		admin.WithReadQueueNums(queues), admin.WithWriteQueueNums(queues)))
}

// runMember is a consumer in a process of its own: it writes a line for each
// message and ends when its input does.
func runMember(spec []string) error {
	ns, group, topic, model := spec[0], spec[1], spec[2], consumer.Clustering
	if spec[3] == "broadcasting" {
		model = consumer.BroadCasting
	}
	out := make(chan string, 1024)
	c, err := startPushConsumer(ns, group, topic, "*", func(m *primitive.MessageExt) consumer.ConsumeResult {
		out <- fmt.Sprintf("got %d %s", m.Queue.QueueId, m.GetKeys())
		return consumer.ConsumeSuccess
	}, consumer.WithConsumerModel(model))
	if err != nil {
		return err
	}
	go func() {
		for line := range out {
			fmt.Println(line)
		}
	}()
	out <- "started"
	_, _ = io.Copy(io.Discard, os.Stdin)
	return c.Shutdown()
}

// memberProcess is a group member in a process of its own.
type memberProcess struct {
	seen    *collector
	cmd     *exec.Cmd
	stdin   io.Closer
	started atomic.Bool
}

// startMember runs this test binary again as a member of a group.
func startMember(t *testing.T, ns, group, topic, model string) *memberProcess {
	t.Helper()
	p := &memberProcess{seen: newCollector()}
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), memberEnv+"="+strings.Join([]string{ns, group, topic, model}, ","),
		"rocketmq.client.localOffsetStoreDir="+t.TempDir())
	p.cmd.Stdout = harness.NewLines(func(line string) {
		var queue int
		var key string
		if line == "started" {
			p.started.Store(true)
		} else if _, err := fmt.Sscanf(line, "got %d %s", &queue, &key); err == nil {
			p.seen.add(key, queue)
		}
	})
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	require.NoError(t, err)
	p.stdin = in
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		_ = p.stdin.Close()
		p.kill()
	})
	harness.Until(t, 30*time.Second, "member process started", p.started.Load)
	return p
}

// kill ends the member as a crash does.
func (p *memberProcess) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// eachStore runs f against a broker of every durable store, and against one whose
// transport is a process.
func eachStore(t *testing.T, f func(t *testing.T, n *harness.Node)) {
	t.Helper()
	for _, s := range harness.Durable() {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			f(t, harness.New(t, harness.Options{Store: s, Race: true, Set: settings}))
		})
	}
	t.Run("transport-process", func(t *testing.T) {
		t.Parallel()
		f(t, harness.New(t, harness.Options{Race: true, Set: append(slices.Clone(settings), transportProcess)}))
	})
}

// transportProcess makes the transport a process of its own.
const transportProcess = "plugins.transport.remoting.process=true"

// settings keep a broker's files small. Waiting in a queue is not what is tested
// here, and two cores may be busy.
var settings = []string{"mappedFileSizeCommitLog=8MiB", "waitTimeMillsInSendQueue=5000"}
