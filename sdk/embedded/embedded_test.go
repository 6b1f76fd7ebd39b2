package embedded_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/wiring"
	"github.com/hardpointmq/hardpoint/sdk/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A broker in a program, used without a client. Official clients connect to
// NamesrvAddress.
func Example() {
	ctx := context.Background()
	b, err := embedded.New(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close(ctx)

	sent, err := b.API().Send(ctx, &api.SendRequest{Topic: "Greetings", Body: []byte("hello")})
	if err != nil {
		fmt.Println(err)
		return
	}
	got, err := b.API().Pull(ctx, &api.PullRequest{Group: "example", Queue: sent.Queue, Offset: sent.Offset})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(got.Messages[0].Body))
	// Output: hello
}

func send(t *testing.T, b *embedded.Broker, topic, body string) api.SendResult {
	t.Helper()
	res, err := b.API().Send(t.Context(), &api.SendRequest{Topic: topic, Queue: -1, Body: []byte(body)})
	require.NoError(t, err)
	return res
}

func pull(t *testing.T, b *embedded.Broker, q message.Queue, offset int64) []api.Message {
	t.Helper()
	res, err := b.API().Pull(t.Context(), &api.PullRequest{Group: "g", Queue: q, Offset: offset, Max: 32})
	require.NoError(t, err)
	return res.Messages
}

// counts is a meter of counters only.
type counts struct {
	plugin.NopMeter
	mu sync.Mutex
	m  map[string]*count
}

type count struct{ atomic.Uint64 }

func (c *count) Add(n uint64) { c.Uint64.Add(n) }

func (c *counts) Counter(name, _ string, _ ...plugin.Label) plugin.Counter {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m[name] == nil {
		c.m[name] = &count{}
	}
	return c.m[name]
}

// What comes through the typed API counts like what clients send.
func TestSendsAreCounted(t *testing.T) {
	m := &counts{m: map[string]*count{}}
	b := embedded.Start(t, embedded.WithMeter(m))
	for range 3 {
		send(t, b, "T", "x")
	}
	_, err := b.API().Send(t.Context(), &api.SendRequest{Topic: "T"}) // without a body
	require.Error(t, err)
	require.EqualValues(t, 3, m.m["messages_in_total"].Load())
	require.EqualValues(t, 1, m.m["send_refused_total"].Load())
}

func TestInMemory(t *testing.T) {
	t.Chdir(t.TempDir())
	b := embedded.Start(t)
	require.NoError(t, b.Ready())
	require.NotEmpty(t, b.Address())
	require.NotEmpty(t, b.NamesrvAddress())
	sent := send(t, b, "T", "one")
	got := pull(t, b, sent.Queue, sent.Offset)
	require.Len(t, got, 1)
	require.Equal(t, "one", string(got[0].Body))
	require.Equal(t, sent.MessageID, got[0].MessageID)

	left, err := os.ReadDir(".")
	require.NoError(t, err)
	require.Empty(t, left, "a broker in memory leaves no files")
}

func TestPullWaitsForWhatComes(t *testing.T) {
	b := embedded.Start(t, embedded.WithoutNameServer())
	require.Empty(t, b.NamesrvAddress())
	q := send(t, b, "T", "first").Queue
	type answer struct {
		res api.PullResult
		err error
	}
	got := make(chan answer, 1)
	go func() {
		res, err := b.API().Pull(t.Context(), &api.PullRequest{Group: "g", Queue: q, Offset: 1, Wait: time.Minute})
		got <- answer{res, err}
	}()
	_, err := b.API().Send(t.Context(), &api.SendRequest{Topic: "T", Queue: q.ID, Body: []byte("second")})
	require.NoError(t, err)
	a := <-got
	require.NoError(t, a.err)
	require.Len(t, a.res.Messages, 1)
	require.Equal(t, "second", string(a.res.Messages[0].Body))
}

func TestDirectorySurvives(t *testing.T) {
	for _, store := range []string{"commitlog", "pebble"} {
		t.Run(store, func(t *testing.T) {
			dir := t.TempDir()
			b := embedded.Start(t, embedded.WithDir(dir), embedded.WithStorage(store))
			sent := send(t, b, "T", "kept")
			require.NoError(t, b.API().Commit(t.Context(), "g", sent.Queue, 1))

			_, err := embedded.New(t.Context(), embedded.WithDir(dir), embedded.WithStorage(store))
			require.Error(t, err, "two brokers on one directory")
			require.NoError(t, b.Close(t.Context()))
			require.NoError(t, b.Close(t.Context()), "twice is legal")

			b = embedded.Start(t, embedded.WithDir(dir), embedded.WithStorage(store))
			got := pull(t, b, sent.Queue, sent.Offset)
			require.Len(t, got, 1)
			require.Equal(t, "kept", string(got[0].Body))
			offset, ok, err := b.API().Progress(t.Context(), "g", sent.Queue)
			require.NoError(t, err)
			require.True(t, ok)
			require.EqualValues(t, 1, offset)
			topics, err := b.API().Topics(t.Context())
			require.NoError(t, err)
			require.True(t, slices.ContainsFunc(topics, func(x api.Topic) bool { return x.Name == "T" }), "%v", topics)
			require.Equal(t, sent.Offset+1, func() int64 {
				n, err := b.API().Offset(t.Context(), sent.Queue, api.MaxOffset, time.Time{})
				require.NoError(t, err)
				return n
			}())
		})
	}
}

func TestOptions(t *testing.T) {
	b := embedded.Start(t, embedded.With("brokerName", "other"), embedded.With("autoCreateTopicEnable", "false"))
	_, err := b.API().Send(t.Context(), &api.SendRequest{Topic: "Unknown", Body: []byte("x")})
	require.Equal(t, api.TopicNotExist, api.IDOf(err))
	require.NoError(t, b.API().PutTopic(t.Context(), api.Topic{Name: "Known", ReadQueues: 2, WriteQueues: 2, Perm: 6}))
	require.Equal(t, "Known", send(t, b, "Known", "x").Queue.Topic)
}

func TestWrongOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		opt  embedded.Option
		want string
	}{
		"unknown key":     {embedded.With("flushDiskTyp", "x"), "flushDiskType"},
		"bad value":       {embedded.With("flushDiskType", "sometimes"), "SYNC_FLUSH"},
		"files, no place": {embedded.WithStorage("commitlog"), "WithDir"},
		"within":          {embedded.With("transport", "inproc"), "WithoutNameServer"},
		"taken port":      {embedded.With("listen", "256.0.0.1:1"), "256.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := embedded.New(t.Context(), tc.opt)
			require.ErrorContains(t, err, tc.want)
		})
	}
	_, err := embedded.New(t.Context(), embedded.WithDir(t.TempDir()), embedded.WithStorage("nothing"))
	require.ErrorIs(t, err, wiring.ErrUnknownPlugin)
	embedded.Start(t, embedded.With("transport", "inproc"), embedded.With("advertise", "127.0.0.1:10911"), embedded.WithoutNameServer()) // nothing but the API
}

func TestAProcessIsNotPassedOverInSilence(t *testing.T) {
	_, err := embedded.New(t.Context(), embedded.With("storageProcess", "true"))
	require.ErrorContains(t, err, "external.Storage")
}

// As docs/quickstart.md has it.
func TestGreeting(t *testing.T) {
	b := embedded.Start(t) // in memory; with embedded.WithDir(t.TempDir()) in RocketMQ's files
	sent, err := b.API().Send(t.Context(), &api.SendRequest{Topic: "Greetings", Queue: -1, Body: []byte("hello")})
	if err != nil {
		t.Fatal(err)
	}
	got, err := b.API().Pull(t.Context(), &api.PullRequest{Group: "test", Queue: sent.Queue, Offset: sent.Offset, Wait: time.Second})
	if err != nil || string(got.Messages[0].Body) != "hello" {
		t.Fatal(got, err)
	}
}

// Two brokers with one name server are the groups of a cluster.
func TestBrokerGroups(t *testing.T) {
	a := embedded.Start(t)
	b := embedded.Start(t, embedded.WithName("b"), embedded.WithNameServers(a.NamesrvAddress()), embedded.WithDir(t.TempDir()))
	require.Empty(t, b.NamesrvAddress())
	require.NotEqual(t, a.Address(), b.Address())
	send(t, a, "T", "to a")
	send(t, b, "T", "to b")
	send(t, b, "T", "to b")

	conn, err := net.Dial("tcp", a.NamesrvAddress())
	require.NoError(t, err)
	defer conn.Close()
	w := command.Begin(nil, command.JSON, command.ReqGetBrokerClusterInfo, 1, 0)
	_, err = conn.Write(w.End(0))
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	got := make([]byte, 64<<10)
	n, err := io.ReadAtLeast(conn, got, 4)
	require.NoError(t, err)
	whole := 4 + int(binary.BigEndian.Uint32(got))
	m, err := io.ReadAtLeast(conn, got[n:], max(whole-n, 0))
	require.NoError(t, err)
	for _, want := range []string{a.Address(), b.Address(), `"embedded"`, `"b"`} {
		require.Contains(t, string(got[:n+m]), want)
	}
}
