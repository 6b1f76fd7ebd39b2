package broker_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/broker"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/wiring"
	"github.com/hardpointmq/hardpoint/internal/hosttest"
	"github.com/hardpointmq/hardpoint/internal/rpc"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
	"github.com/hardpointmq/hardpoint/plugins/storage/memory"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
	"github.com/hardpointmq/hardpoint/sdk/external"
)

// TestUpgradeOfAReplicator replaces the program of a replicator under load: a send is
// stored or refused as something to try again, and all that was acknowledged is there.
func TestUpgradeOfAReplicator(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	for _, flush := range []string{config.AsyncFlush, config.SyncFlush} {
		t.Run(flush, func(t *testing.T) {
			var up external.Replacer
			p := configured(t, "listen=127.0.0.1:0", "flushDiskType="+flush)
			p.Plugins, err = wiring.NewPlugins([]storage.Factory{memory.NewFactory()}, nil,
				[]replication.Factory{external.Replication(solo.Name, turningProgram(self, 2), external.Options{Replacer: &up, Linger: -1})},
				[]transport.Factory{remoting.NewFactory()})
			require.NoError(t, err)
			b, err := broker.New(t.Context(), p)
			require.NoError(t, err)
			require.NoError(t, b.Start(t.Context()))
			defer func() { require.NoError(t, b.Shutdown(context.Background())) }()
			require.NoError(t, b.PutTopic(t.Context(), api.Topic{Name: "T", ReadQueues: 1, WriteQueues: 1, Perm: 6}))

			var wg sync.WaitGroup
			var sent, refused atomic.Int64
			acked := make([][]string, 3)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			for g := range acked {
				wg.Go(func() {
					for n := 0; ctx.Err() == nil; {
						body := strconv.Itoa(g) + "-" + strconv.Itoa(n)
						_, err := b.Send(t.Context(), &api.SendRequest{Topic: "T", Body: []byte(body)})
						var said *api.Error
						switch {
						case err == nil:
							acked[g] = append(acked[g], body)
							sent.Add(1)
							n++
						case errors.As(err, &said) && said.ID == api.ServiceNotAvailable:
							refused.Add(1)
							runtime.Gosched()
						default:
							t.Errorf("a send during an upgrade: %v", err)
							return
						}
					}
				})
			}
			for i := range 5 {
				before, old := sent.Load(), hosttest.Children(t, os.Getpid())
				require.NoError(t, up.Replace(t.Context(), turningProgram(self, 3+i)))
				require.Eventually(t, func() bool {
					now := hosttest.Children(t, os.Getpid())
					return len(now) == 1 && now[0] != old[0]
				}, patience, 10*time.Millisecond, "the old process does not end")
				require.Eventually(t, func() bool { return sent.Load() > before+10 && b.Ready() == nil }, patience, time.Millisecond, "nothing is sent: %v", b.Ready())
			}
			stop()
			wg.Wait()
			stored := map[string]int{}
			for at := int64(0); at < sent.Load(); {
				r, err := b.Pull(t.Context(), &api.PullRequest{Queue: message.Queue{Topic: "T"}, Offset: at})
				require.NoError(t, err)
				require.Greater(t, r.Next, at)
				for _, m := range r.Messages {
					stored[string(m.Body)]++
				}
				at = r.Next
			}
			for _, bodies := range acked {
				for _, body := range bodies {
					require.Equal(t, 1, stored[body], body)
				}
			}
			t.Logf("%d stored, %d refused", sent.Load(), refused.Load())
		})
	}
}

// sharing is a broker that shares queues with an allocator in a process.
type sharing struct {
	t      *testing.T
	b      *broker.Broker
	dialer transport.Dialer
	asks   *rpc.Client
	peers  map[string]*rpc.Client
}

const patience = time.Minute

func newSharing(t *testing.T, f allocate.Factory) *sharing {
	fs := pflag.NewFlagSet("broker", pflag.ContinueOnError)
	config.RegisterFlags(fs)
	require.NoError(t, fs.Parse([]string{"--data", t.TempDir(), "--listen", "127.0.0.1:0", "--storage", memory.Name}))
	l, err := config.Load(config.Options{Mode: config.Broker, Flags: fs, Hostname: "broker-a"})
	require.NoError(t, err)
	plugins, err := wiring.NewPlugins([]storage.Factory{memory.NewFactory()}, []allocate.Factory{f},
		[]replication.Factory{solo.NewFactory()}, []transport.Factory{remoting.NewFactory()})
	require.NoError(t, err)
	b, err := broker.New(t.Context(), broker.Params{Config: &l.Config, Loaded: l, Plugins: plugins})
	require.NoError(t, err)
	require.NoError(t, b.Start(t.Context()))
	tr, err := remoting.NewFactory().Build(t.Context(), transport.Params{}, nil)
	require.NoError(t, err)
	require.NoError(t, tr.Start(t.Context()))
	s := &sharing{t: t, b: b, peers: map[string]*rpc.Client{}, dialer: tr.(transport.Dialer)}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for _, c := range s.peers {
			_ = c.Close()
		}
		_ = s.asks.Close()
		require.NoError(t, b.Shutdown(ctx))
		require.NoError(t, tr.Shutdown(ctx))
		require.Empty(t, hosttest.Children(t, os.Getpid()), "the process ends with the broker")
	})
	s.asks = s.dial()
	require.NoError(t, b.PutTopic(t.Context(), api.Topic{Name: "T", ReadQueues: 8, WriteQueues: 8, Perm: 6}))
	return s
}

func (s *sharing) dial() *rpc.Client {
	c, err := rpc.Dial(s.t.Context(), s.dialer, s.b.Address(), rpc.Options{})
	require.NoError(s.t, err)
	return c
}

// call sends a request with a body.
func call(ctx context.Context, c *rpc.Client, code int32, body any) (*rpc.Response, error) {
	b, err := command.EncodeBody(body)
	if err != nil {
		return nil, err
	}
	r, err := c.Call(ctx, rpc.Request(code, nil, b))
	if err == nil {
		err = r.Err()
	}
	return r, err
}

func (s *sharing) join(ids ...string) {
	for _, id := range ids {
		if s.peers[id] == nil {
			s.peers[id] = s.dial()
		}
		_, err := call(s.t.Context(), s.peers[id], command.ReqHeartBeat, enginetest.Heartbeat(id, "G", 1, "T"))
		require.NoError(s.t, err)
	}
}

// queues are those that the broker says a member has.
func (s *sharing) queues(id string) ([]int32, error) {
	r, err := call(s.t.Context(), s.asks, command.ReqQueryAssignment, command.QueryAssignmentBody{
		ClientID: id, ConsumerGroup: "G", MessageModel: command.Clustering, StrategyName: "turning", Topic: "T",
	})
	if err != nil {
		return nil, err
	}
	var out command.QueryAssignmentResponse
	if err := json.Unmarshal(r.Body, &out); err != nil {
		return nil, err
	}
	var got []int32
	for _, a := range out.Assignments {
		got = append(got, a.MessageQueue.QueueID)
	}
	slices.Sort(got)
	return got, nil
}

// eventually waits until a member has these queues.
func (s *sharing) eventually(id string, want ...int32) {
	s.t.Helper()
	var got []int32
	require.Eventually(s.t, func() bool {
		var err error
		got, err = s.queues(id)
		require.NoError(s.t, err)
		return slices.Equal(want, got)
	}, patience, 10*time.Millisecond, "member %s should have %v", id, want)
}

// turningProgram is this test's program as an allocator.
func turningProgram(path string, version int) external.Command {
	return external.Command{Path: path, Env: []string{broker.VersionEnv + "=" + strconv.Itoa(version)}}
}

// TestUpgradeOfAnAllocator replaces the program of an allocator ten times under
// load: no send and no query fails, and each version takes effect.
func TestUpgradeOfAnAllocator(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	var up external.Replacer
	s := newSharing(t, external.Allocate("turning", turningProgram(self, 2), external.Options{Replacer: &up}))
	s.join("a", "b")
	even, odd := []int32{0, 2, 4, 6}, []int32{1, 3, 5, 7}
	s.eventually("a", even...)
	s.eventually("b", odd...)

	var wg sync.WaitGroup
	var sent atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := s.b.Send(t.Context(), &api.SendRequest{Topic: "T", Body: []byte("x")}); err != nil {
					t.Errorf("a send during an upgrade: %v", err)
					return
				}
				sent.Add(1)
			}
		})
	}
	for i := range 10 {
		before := sent.Load()
		require.NoError(t, up.Replace(t.Context(), turningProgram(self, 3+i)))
		if i%2 == 0 {
			s.eventually("a", odd...)
		} else {
			s.eventually("a", even...)
		}
		require.Eventually(t, func() bool { return sent.Load() > before }, patience, time.Millisecond, "nothing is sent")
	}
	stop()
	wg.Wait()
	require.Eventually(t, func() bool { return len(hosttest.Children(t, os.Getpid())) == 1 }, patience, 10*time.Millisecond, "an old process does not end")
}

// TestAllocatorGone: without its process the last assignment stays, and when it
// is back the group is shared anew.
func TestAllocatorGone(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "allocator")
	require.NoError(t, os.Symlink(self, path))
	s := newSharing(t, external.Allocate("turning", turningProgram(path, 2), external.Options{}))
	s.join("a", "b")
	s.eventually("a", 0, 2, 4, 6)
	require.NoError(t, os.Remove(path)) // it cannot start again
	p, err := os.FindProcess(hosttest.Children(t, os.Getpid())[0])
	require.NoError(t, err)
	require.NoError(t, p.Kill())
	require.Eventually(t, func() bool { return !hosttest.Running(p.Pid) }, patience, time.Millisecond)
	s.join("c")
	for range 3 {
		got, err := s.queues("a")
		require.NoError(t, err)
		require.Equal(t, []int32{0, 2, 4, 6}, got, "the last assignment stays")
	}
	_, err = s.b.Send(t.Context(), &api.SendRequest{Topic: "T", Body: []byte("x")})
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, path))
	s.eventually("a", 1, 4, 7)
	s.eventually("c", 0, 3, 6)
}
