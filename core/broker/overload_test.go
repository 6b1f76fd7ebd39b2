package broker_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/broker"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/wiring"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
	"github.com/hardpointmq/hardpoint/plugins/storage/commitlog"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
)

const (
	overloadPeers = 1000
	overloadDepth = 8       // requests of a peer under way
	throttled     = 1 << 20 // bytes a second
	memoryLimit   = 512 << 20
)

// throttle makes a store take so many bytes a second while it is on.
type throttle struct {
	on   atomic.Bool
	last atomic.Int64
}

// around waits for the time that the bytes since the last batch take.
func (h *throttle) around(ctx context.Context, c storagemw.Call) error {
	if c.Op != storagemw.OpAppend || c.Done {
		return nil
	}
	size := int64(c.At) - h.last.Swap(int64(c.At))
	if !h.on.Load() || size <= 0 {
		return nil
	}
	t := time.NewTimer(time.Duration(size) * time.Second / throttled)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return nil
}

// TestOverload holds the store at 1 MB/s under 1,000 connections: sends are
// refused with a code that official clients retry, memory stays bounded, and
// soon after the throttle ends every connection has a send of that time accepted;
// the log says how soon.
func TestOverload(t *testing.T) {
	var slow throttle
	slow.on.Store(true)
	b := startThrottled(t, &slow)

	var n overloadCounts
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range overloadPeers {
		wg.Go(func() {
			c, err := net.Dial("tcp", b.Address())
			if err != nil {
				n.other.Add(1)
				return
			}
			wg.Go(func() { <-stop; c.Close() })
			p := overloadPeer{conn: c, send: sendFrame("overload", int32(i%4), make([]byte, 1024)), n: &n}
			p.while(&slow.on)
			if p.err == nil {
				p.untilAccepted()
			}
		})
	}
	// Long enough for what grows to show: some seconds of what the store takes.
	var most uint64
	require.Eventually(t, func() bool {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most = max(most, m.Sys-m.HeapReleased)
		return n.accepted.Load() > 3*overloadPeers && n.refused.Load() > 2*overloadPeers
	}, 2*time.Minute, 20*time.Millisecond, "a throttled store accepts a little and refuses the rest")
	t.Logf("throttled: %d accepted, %d refused, at most %d MiB of the system's, the peers' included", n.accepted.Load(), n.refused.Load(), most>>20)
	require.Less(t, most, uint64(memoryLimit))

	slow.on.Store(false)
	began := time.Now()
	require.Eventually(t, func() bool { return n.again.Load() == overloadPeers },
		time.Minute, 5*time.Millisecond, "connections have sends refused after the throttle ended")
	t.Logf("a new send of every peer was accepted %v after the throttle ended", time.Since(began).Round(time.Millisecond))
	close(stop)
	wg.Wait()
	require.Zero(t, n.other.Load())
}

type overloadCounts struct{ accepted, refused, other, again atomic.Int64 }

// overloadPeer is a client that sends again whatever was refused.
type overloadPeer struct {
	conn     net.Conn
	send     []byte
	underWay int
	n        *overloadCounts
	err      error
}

// while keeps sends under way as long as the throttle is on, and then waits for
// their answers.
func (p *overloadPeer) while(on *atomic.Bool) {
	for p.err == nil && (p.underWay > 0 || on.Load()) {
		for p.err == nil && p.underWay < overloadDepth && on.Load() {
			p.write()
		}
		if p.underWay > 0 {
			p.answer()
		}
	}
}

func (p *overloadPeer) untilAccepted() {
	for p.err == nil {
		p.write()
		if p.answer() == command.RespSuccess {
			p.n.again.Add(1)
			return
		}
	}
}

func (p *overloadPeer) write() {
	_, p.err = p.conn.Write(p.send)
	p.underWay++
}

func (p *overloadPeer) answer() int32 {
	if p.err != nil {
		return 0
	}
	var f command.Frame
	if f, p.err = readFrame(p.conn); p.err != nil {
		return 0
	}
	p.underWay--
	var h command.Header
	if p.err = h.Decode(&f); p.err != nil {
		p.n.other.Add(1)
		return 0
	}
	switch h.Code {
	case command.RespSuccess:
		p.n.accepted.Add(1)
	case command.RespServiceNotAvailable:
		p.n.refused.Add(1)
	default:
		p.n.other.Add(1)
	}
	return h.Code
}

func startThrottled(t *testing.T, slow *throttle, flags ...string) *broker.Broker {
	t.Helper()
	fs := pflag.NewFlagSet("broker", pflag.ContinueOnError)
	config.RegisterFlags(fs)
	require.NoError(t, fs.Parse(append([]string{
		"--data", t.TempDir(), "--listen", "127.0.0.1:0", "--storage", commitlog.NewFactory().Name(),
		"--set", "mappedFileSizeCommitLog=67108864", "--set", "diskSpaceWarningLevelRatio=99", // of any machine
	}, flags...)))
	l, err := config.Load(config.Options{Mode: config.Broker, Flags: fs, Hostname: "broker-a"})
	require.NoError(t, err)
	plugins, err := wiring.NewPlugins(
		[]storage.Factory{storagemw.Wrap(commitlog.NewFactory(), storagemw.Faults(slow.around))}, nil,
		[]replication.Factory{solo.NewFactory()}, []transport.Factory{remoting.NewFactory()})
	require.NoError(t, err)
	b, err := broker.New(t.Context(), broker.Params{Config: &l.Config, Loaded: l, Plugins: plugins})
	require.NoError(t, err)
	require.NoError(t, b.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(t, b.Shutdown(ctx))
	})
	return b
}

// sendFrame is a whole SEND_MESSAGE_V2 frame.
func sendFrame(topic string, queue int32, body []byte) []byte {
	w := command.Begin(nil, command.JSON, command.ReqSendMessageV2, 1, 0)
	(&command.SendRequest{
		ProducerGroup: []byte("p"), Topic: []byte(topic), DefaultTopic: []byte("TBW102"), DefaultTopicQueueNums: 4,
		QueueID: queue, BornTimestamp: time.Now().UnixMilli(), MaxReconsumeTimes: -1,
		Properties: []byte("UNIQ_KEY\x01" + strconv.Itoa(int(queue)) + "\x02"),
	}).Append(&w)
	return append(w.End(len(body)), body...)
}

func readFrame(r io.Reader) (command.Frame, error) {
	var n [4]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return command.Frame{}, err
	}
	buf := make([]byte, 4+binary.BigEndian.Uint32(n[:]))
	copy(buf, n[:])
	if _, err := io.ReadFull(r, buf[4:]); err != nil {
		return command.Frame{}, err
	}
	fs, _, _, err := command.Split(buf, nil, command.DefaultLimits())
	if err != nil || len(fs) != 1 {
		return command.Frame{}, io.ErrUnexpectedEOF
	}
	return fs[0], nil
}
