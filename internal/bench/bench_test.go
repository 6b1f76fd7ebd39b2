package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/internal/hosttest"
	"github.com/hardpointmq/hardpoint/internal/rpc"
	"github.com/hardpointmq/hardpoint/sdk/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPercentilesOfAKnownDistribution(t *testing.T) {
	o := Options{}.withDefaults(1)
	h := newHistogram(&o)
	for ms := int64(1); ms <= 10_000; ms++ { // uniform, 0.1 ms to 1 s
		require.NoError(t, h.RecordValue(ms*100_000))
	}
	l := latencyOf(h)
	require.EqualValues(t, 10_000, l.Count)
	for _, c := range []struct{ got, want float64 }{
		{l.Min, 0.1}, {l.P50, 500}, {l.P90, 900}, {l.P99, 990}, {l.P999, 999}, {l.P9999, 999.9}, {l.Max, 1000}, {l.Mean, 500.05},
	} {
		require.InEpsilon(t, c.want, c.got, 0.003)
	}
	require.Equal(t, Latency{}, latencyOf(newHistogram(&o)), "nothing recorded")
}

func TestTemplate(t *testing.T) {
	for _, typ := range []command.HeaderType{command.JSON, command.RocketMQ} {
		t.Run(typ.String(), func(t *testing.T) {
			o := Options{Size: 40, Header: typ}.withDefaults(1)
			tpl, err := newTemplate(&o, 3, 1)
			require.NoError(t, err)
			tpl.nonce = 77
			buf := tpl.append(nil, opaqueBase+5, 1_700_000_000_123, 0xABC, 99)
			buf = tpl.append(buf, opaqueBase+6, 1_700_000_000_124, 0xABD, -1)
			frames, used, _, err := command.Split(buf, nil, command.DefaultLimits())
			require.NoError(t, err)
			require.Len(t, frames, 2)
			require.Equal(t, len(buf), used)
			keys := map[string]bool{}
			for i := range frames {
				var h command.Header
				require.NoError(t, h.Decode(&frames[i]))
				require.EqualValues(t, opaqueBase+5+i, h.Opaque)
				require.Equal(t, command.ReqSendMessageV2, h.Code)
				var req command.SendRequest
				require.NoError(t, req.Decode(&h))
				require.Equal(t, o.Topic, string(req.Topic))
				require.EqualValues(t, 3, req.QueueID)
				require.EqualValues(t, 1_700_000_000_123+i, req.BornTimestamp)
				keys[string(req.Properties)] = true
				require.Len(t, frames[i].Body, 40)
			}
			require.Len(t, keys, 2, "unique keys differ")
			require.EqualValues(t, 77, binary.BigEndian.Uint64(frames[0].Body))
			require.EqualValues(t, 99, binary.BigEndian.Uint64(frames[0].Body[8:]))
			require.NotEqual(t, frames[0].Body, frames[1].Body)
		})
	}
	o := Options{Topic: markKey}.withDefaults(1)
	_, err := newTemplate(&o, 0, 1)
	require.ErrorContains(t, err, "choose others")
}

func TestGlance(t *testing.T) {
	for _, typ := range []command.HeaderType{command.JSON, command.RocketMQ} {
		for _, code := range []int32{0, 2, 14} {
			for _, remark := range []string{"", `odd "opaque":12, text`} {
				raw := command.AppendResponse(nil, typ, code, 1234567, remark, 0)
				frames, _, _, err := command.Split(raw, nil, command.DefaultLimits())
				require.NoError(t, err)
				var h command.Header
				gotCode, gotOpaque, err := glance(&frames[0], &h)
				require.NoError(t, err)
				require.Equal(t, code, gotCode)
				require.EqualValues(t, 1234567, gotOpaque)
			}
		}
	}
	var h command.Header
	_, _, err := glance(&command.Frame{Header: []byte(`{"code":0,"opaque":}`)}, &h)
	require.Error(t, err)
}

func TestOptionsAreChecked(t *testing.T) {
	ctx := t.Context()
	for name, tc := range map[string]struct {
		run  func(context.Context, Options) (*Result, error)
		o    Options
		want string
	}{
		"no address":       {Produce, Options{}, "address of a broker or of a name server"},
		"two addresses":    {Produce, Options{Broker: "a:1", NameServer: "b:1"}, "address of a broker or of a name server"},
		"negative rate":    {Produce, Options{Broker: "a:1", Rate: -1}, "rate"},
		"verify with time": {Consume, Options{Broker: "a:1", Verify: true, Duration: time.Second}, "verify reads every queue once"},
		"consumer's rate":  {Consume, Options{Broker: "a:1", Rate: 5}, "no rate"},
		"short body":       {EndToEnd, Options{Broker: "a:1", Size: 8}, "time stamp"},
		"no such process":  {Produce, Options{Broker: "a:1", PIDs: []int{-5}}, "process -5"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tc.run(ctx, tc.o)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// serveFloor runs a floor for the length of a test.
func serveFloor(t *testing.T, file string, size int64) *Floor {
	t.Helper()
	f := &Floor{File: file, FileSize: size}
	ctx, cancel := context.WithCancel(context.Background())
	require.NoError(t, f.Listen(ctx, "127.0.0.1:0"))
	done := make(chan error, 1)
	go func() { done <- f.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return f
}

func TestFloor(t *testing.T) {
	file := filepath.Join(t.TempDir(), "floor")
	f := serveFloor(t, file, 0)
	res, err := Produce(t.Context(), Options{Broker: f.Address(), Connections: 2, Depth: 8, Size: 100, Count: 1000})
	require.NoError(t, err)
	require.EqualValues(t, 1000, res.Messages)
	require.EqualValues(t, 100_000, res.Bytes)
	require.Empty(t, res.Errors)
	st, err := os.Stat(file)
	require.NoError(t, err)
	require.Greater(t, st.Size(), int64(100_000), "what was read was written")
}

// A floor that runs for long fills no disk.
func TestFloorBeginsAnew(t *testing.T) {
	file := filepath.Join(t.TempDir(), "floor")
	f := serveFloor(t, file, 50_000)
	res, err := Produce(t.Context(), Options{Broker: f.Address(), Connections: 1, Depth: 8, Size: 1000, Count: 1000})
	require.NoError(t, err)
	require.EqualValues(t, 1000, res.Messages)
	require.Empty(t, res.Errors)
	st, err := os.Stat(file)
	require.NoError(t, err)
	require.Less(t, st.Size(), int64(100_000), "1 MB went through")
}

func TestAgainstABroker(t *testing.T) {
	b := embedded.Start(t)
	ctx := t.Context()
	res, err := Produce(ctx, Options{NameServer: b.NamesrvAddress(), Connections: 3, Depth: 4, Size: 64, Count: 600, PIDs: []int{os.Getpid(), os.Getppid()}})
	require.NoError(t, err)
	if _, err := usageOf(os.Getpid()); err == nil {
		require.Equal(t, []int{os.Getpid(), os.Getppid()}, res.Server.PIDs)
		require.Greater(t, res.Server.ResidentBytes, res.Generator.ResidentBytes/2, "the processes together")
		require.Positive(t, res.Server.AnonymousBytes)
		require.Greater(t, res.Server.CPUSeconds, res.Generator.CPUSeconds/2)
	}
	require.EqualValues(t, 600, res.Messages)
	require.EqualValues(t, 600, res.Latency.Count)
	require.Equal(t, "closed", res.Loop)
	require.Equal(t, []string{b.Address()}, res.Brokers)

	// Open loop: so many as were due, to the message.
	res, err = Produce(ctx, Options{Broker: b.Address(), Connections: 2, Rate: 2000, Count: 200, Header: command.RocketMQ})
	require.NoError(t, err)
	require.EqualValues(t, 200, res.Messages)
	require.Equal(t, "open", res.Loop)
	require.Greater(t, res.Seconds, 0.05)

	res, err = Consume(ctx, Options{NameServer: b.NamesrvAddress(), Connections: 2, Verify: true, Batch: 7})
	require.NoError(t, err)
	require.EqualValues(t, 800, res.Verified.Messages)
	require.Equal(t, 4, res.Verified.Queues)

	// Again and again for the time, and no more than a count.
	for d := 300 * time.Millisecond; ; d *= 2 { // until the machine has done it more than once
		res, err = Consume(ctx, Options{Broker: b.Address(), Connections: 4, Duration: d})
		require.NoError(t, err)
		if res.Messages > 800 {
			break
		}
		require.Less(t, d, time.Minute)
	}
	res, err = Consume(ctx, Options{Broker: b.Address(), Connections: 1, Count: 50, Batch: 1})
	require.NoError(t, err)
	require.EqualValues(t, 50, res.Messages)
	require.EqualValues(t, 50, res.Requests)

	res, err = EndToEnd(ctx, Options{NameServer: b.NamesrvAddress(), Topic: "E", CreateTopic: true, Queues: 2, Connections: 2, Rate: 1000, Count: 100})
	require.NoError(t, err)
	require.EqualValues(t, 100, res.Messages)
	require.EqualValues(t, 100, res.Latency.Count)
	require.Zero(t, res.Missing)
	require.GreaterOrEqual(t, res.Latency.Mean, 0.0)

	var text bytes.Buffer
	res.Print(&text)
	require.Contains(t, text.String(), "end to end ms: p50")
}

func TestInterruptTellsWhatWasMeasured(t *testing.T) {
	f := serveFloor(t, "", 0)
	ctx, cancel := context.WithCancel(t.Context())
	res, err := Produce(ctx, Options{Broker: f.Address(), Duration: time.Hour, Progress: func(p Progress) {
		if p.PerSec > 0 {
			cancel()
		}
	}})
	require.NoError(t, err)
	require.True(t, res.Interrupted)
	require.Positive(t, res.Messages)
	require.Less(t, res.Seconds, 60.0)
}

func TestRefusalEndsTheRun(t *testing.T) {
	b := embedded.Start(t, embedded.With("autoCreateTopicEnable", "false"))
	_, err := Produce(t.Context(), Options{Broker: b.Address(), Topic: "Unknown", Duration: time.Minute})
	var re *rpc.CodeError
	require.ErrorAs(t, err, &re)
	require.Equal(t, command.RespTopicNotExist, re.Code)
	_, err = Consume(t.Context(), Options{NameServer: b.NamesrvAddress(), Topic: "Unknown"})
	require.ErrorAs(t, err, &re)
	require.Equal(t, command.RespTopicNotExist, re.Code)
}

// peer is a broker that says what a test wants.
func peer(t *testing.T, serve func(nc net.Conn)) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			serve(nc)
			_ = nc.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

func TestBrokersThatMisbehave(t *testing.T) {
	for name, tc := range map[string]struct {
		serve func(nc net.Conn)
		want  string
	}{
		"closes":        {func(net.Conn) {}, "connection to"},
		"garbage":       {func(nc net.Conn) { _, _ = nc.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")); drain(nc) }, "remoting frame too large"},
		"wrong opaque":  {func(nc net.Conn) { _, _ = nc.Write(command.AppendResponse(nil, command.JSON, 0, 5, "", 0)); drain(nc) }, "was not asked"},
		"never answers": {drain, "did not answer within"},
	} {
		t.Run(name, func(t *testing.T) {
			limit := time.Minute
			if name == "never answers" {
				limit = 300 * time.Millisecond
			}
			_, err := Produce(t.Context(), Options{Broker: peer(t, tc.serve), Connections: 1, Depth: 1, Count: 5, Timeout: limit})
			require.ErrorContains(t, err, tc.want)
			_, err = Produce(t.Context(), Options{Broker: peer(t, tc.serve), Connections: 1, Rate: 100, Count: 5, Timeout: limit})
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// A name server that lies must not cost the machine's memory.
func TestNameServersThatLie(t *testing.T) {
	lie := func(stray int32, queues int) string {
		return peer(t, func(nc net.Conn) {
			f, err := readFrame(nc)
			var h command.Header
			if err != nil || h.Decode(&f) != nil {
				return
			}
			body := fmt.Sprintf(`{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:1"},"brokerName":"b"}],"queueDatas":[{"brokerName":"b","readQueueNums":%d,"writeQueueNums":%d,"perm":6}]}`, queues, queues)
			_, _ = nc.Write(append(command.AppendResponse(nil, command.JSON, 0, h.Opaque+stray, "", len(body)), body...))
			drain(nc)
		})
	}
	for addr, want := range map[string]string{
		lie(0, math.MaxInt32): "2147483647 queues", lie(0, -1): "-1 queues", lie(77, 4): "no response yet",
	} {
		o := Options{NameServer: addr, Count: 5}
		if strings.HasPrefix(want, "no response") {
			o.Timeout = 100 * time.Millisecond
		}
		_, err := Produce(t.Context(), o)
		require.ErrorContains(t, err, want)
		_, err = Consume(t.Context(), o)
		require.ErrorContains(t, err, want)
	}
}

// TestRouteForbids: brokers that the route says not to write to, or not to read from, are
// left out, as by clients.
func TestRouteForbids(t *testing.T) {
	for perm, run := range map[int]func(context.Context, Options) (*Result, error){4: Produce, 2: Consume} {
		addr := peer(t, func(nc net.Conn) {
			f, err := readFrame(nc)
			var h command.Header
			if err != nil || h.Decode(&f) != nil {
				return
			}
			body := fmt.Sprintf(`{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:1"},"brokerName":"b"}],"queueDatas":[{"brokerName":"b","readQueueNums":4,"writeQueueNums":4,"perm":%d}]}`, perm)
			_, _ = nc.Write(append(command.AppendResponse(nil, command.JSON, 0, h.Opaque, "", len(body)), body...))
			drain(nc)
		})
		_, err := run(t.Context(), Options{NameServer: addr, Count: 5})
		require.ErrorContains(t, err, fmt.Sprintf("to keep off b (permission %d)", perm))
	}
}

func drain(nc net.Conn) {
	buf := make([]byte, 4096)
	for {
		if _, err := nc.Read(buf); err != nil {
			return
		}
	}
}

// In an open loop a broker that stands still is charged for what was due.
func TestOpenLoopChargesAStandstill(t *testing.T) {
	const still = 300 * time.Millisecond
	addr := peer(t, func(nc net.Conn) {
		buf, filled, first := make([]byte, 1<<20), 0, true
		for {
			n, err := nc.Read(buf[filled:])
			if err != nil {
				return
			}
			filled += n
			if first {
				<-time.After(still)
				first = false
			}
			frames, used, _, err := command.Split(buf[:filled], nil, command.DefaultLimits())
			if err != nil {
				return
			}
			var out []byte
			var h command.Header
			for i := range frames {
				if h.Decode(&frames[i]) != nil {
					return
				}
				out = command.AppendResponse(out, command.JSON, 0, h.Opaque, "", 0)
			}
			filled = copy(buf, buf[used:filled])
			_, _ = nc.Write(out)
		}
	})
	o := Options{Broker: addr, Connections: 1, Depth: 1, Rate: 1000, Count: 100, Size: 10}
	due, err := Produce(t.Context(), o)
	require.NoError(t, err)
	require.Greater(t, due.Latency.P50, 150.0, "half of the messages were due while it stood still")
	o.FromSend = true
	sent, err := Produce(t.Context(), o)
	require.NoError(t, err)
	require.Less(t, sent.Latency.P50, due.Latency.P50, "one message alone was sent then")
	require.Greater(t, sent.Latency.Max, 250.0)
}

// record is a stored message.
func record(t *testing.T, queueID int32, offset int64) []byte {
	t.Helper()
	host := message.HostOf(netip.MustParseAddrPort("127.0.0.1:1"))
	r := message.Record{Topic: "T", QueueID: queueID, BornHost: host, StoreHost: host, Body: []byte("some body")}
	buf := make([]byte, r.Size())
	r.Encode(buf, nil)
	message.Stamp(buf, message.Position(offset*1000), offset, 1)
	return buf
}

func pullAnswer(t *testing.T, body []byte, next int64) command.Frame {
	t.Helper()
	w := command.Begin(nil, command.JSON, 0, 1, command.FlagResponse)
	r := command.PullResponse{NextBeginOffset: next, MaxOffset: 10}
	r.Append(&w)
	frames, _, _, err := command.Split(append(w.End(len(body)), body...), nil, command.DefaultLimits())
	require.NoError(t, err)
	return frames[0]
}

func TestVerifyFindsGaps(t *testing.T) {
	r := newRun(&Options{Verify: true, Topic: "T", Group: "G", Batch: 1, Timeout: time.Second})
	c := newConsumer(r)
	c.streams = []*stream{{id: 2, max: 10}}
	body := record(t, 2, 0)
	f := pullAnswer(t, body, 1)
	var h command.Header
	got, err := c.answered(0, 0, &f, &h, 1)
	require.NoError(t, err)
	require.EqualValues(t, 1, got.messages)

	f = pullAnswer(t, record(t, 2, 2), 3)
	_, err = c.answered(0, 0, &f, &h, 1)
	require.ErrorIs(t, err, ErrVerify)
	require.ErrorContains(t, err, "offset 2 of queue 2 came where 1 was due")

	c.streams[0].at = 1
	bad := record(t, 2, 1)
	bad[bytes.Index(bad, []byte("some body"))]++
	f = pullAnswer(t, bad, 2)
	_, err = c.answered(0, 0, &f, &h, 1)
	require.ErrorIs(t, err, ErrVerify)

	c.streams[0].at = 1
	raw := command.AppendResponse(nil, command.JSON, command.RespPullOffsetMoved, 1, "", 0)
	frames, _, _, err := command.Split(raw, nil, command.DefaultLimits())
	require.NoError(t, err)
	_, err = c.answered(0, command.RespPullOffsetMoved, &frames[0], &h, 1)
	require.Error(t, err)
}

func TestParseUsage(t *testing.T) {
	if _, err := usageOf(os.Getpid()); errors.Is(err, errNoUsage) {
		hosttest.Refused(t, "%v", err)
	}
	u, err := usageOf(os.Getpid())
	require.NoError(t, err)
	require.Positive(t, u.rss)
	require.GreaterOrEqual(t, u.rss, u.anon)
	require.Equal(t, 2*u.rss, u.plus(u).rss)
	p := processOf([]int{7}, usage{cpu: 1, ok: true}, usage{cpu: 3, rss: 5, ok: true}, 1000)
	require.Equal(t, 2.0, p.CPUSeconds)
	require.Equal(t, 2000.0, p.CPUMicrosPerMsg)
	require.Nil(t, processOf([]int{7}, usage{}, usage{ok: true}, 1))
}

// What the generator costs for each message, without sockets.
func BenchmarkTemplate(b *testing.B) {
	o := Options{Size: 1024}.withDefaults(1)
	tpl, err := newTemplate(&o, 0, 1)
	require.NoError(b, err)
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	i := uint64(0)
	for b.Loop() {
		buf = tpl.append(buf[:0], opaqueBase, 1_700_000_000_123, i, 1)
		i++
	}
}

func BenchmarkGlance(b *testing.B) {
	w := command.Begin(nil, command.JSON, 0, opaqueBase+1, command.FlagResponse)
	r := command.SendResponse{MsgID: []byte(strings.Repeat("0", 32)), QueueOffset: 12345, QueueID: 1}
	r.Append(&w)
	frames, _, _, err := command.Split(w.End(0), nil, command.DefaultLimits())
	require.NoError(b, err)
	var h command.Header
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := glance(&frames[0], &h); err != nil {
			b.Fatal(err)
		}
	}
}
