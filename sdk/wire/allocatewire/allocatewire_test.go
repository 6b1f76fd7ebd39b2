package allocatewire_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/allocate/allocatetest"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/internal/wiretest"
	"github.com/hardpointmq/hardpoint/plugins/allocate/averagely"
	"github.com/hardpointmq/hardpoint/plugins/allocate/circle"
	"github.com/hardpointmq/hardpoint/plugins/allocate/config"
	"github.com/hardpointmq/hardpoint/plugins/allocate/consistenthash"
	"github.com/hardpointmq/hardpoint/plugins/allocate/machineroom"
	"github.com/hardpointmq/hardpoint/plugins/allocate/sticky"
	"github.com/hardpointmq/hardpoint/plugins/allocate/zone"
	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/allocatewire"
	"github.com/hardpointmq/hardpoint/sdk/wire/allocatewire/allocatepb"
	"github.com/hardpointmq/hardpoint/sdk/wire/pluginpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served is a process that is none.
func served(tb testing.TB, f ...allocate.Factory) *wiretest.Pair {
	tb.Helper()
	return wiretest.New(tb, allocatewire.NewServer(nil, f...))
}

// build makes an allocator that is closed with the test.
func build(tb testing.TB, name string, l wire.Launcher) allocate.Allocator {
	tb.Helper()
	a, err := allocatewire.NewFactory(name, l).Build(tb.Context(), allocate.Params{}, nil)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, allocate.Close(a)) })
	return a
}

func TestConformance(t *testing.T) {
	uneven := allocatetest.Lacks{Balance: true}
	for _, h := range []allocatetest.Harness{
		{Factory: averagely.NewFactory()},
		{Factory: circle.NewFactory()},
		{Factory: sticky.NewFactory(), Promises: allocatetest.Promises{FewMoves: true, OnlyNeeded: true}},
		{Factory: zone.NewFactory(), Lacks: uneven, Promises: allocatetest.Promises{Weights: true, Zones: true}},
		{Factory: consistenthash.NewFactory(), Lacks: uneven, Promises: allocatetest.Promises{OnlyNeeded: true}},
		{Factory: machineroom.NewFactory(), Lacks: allocatetest.Lacks{Balance: true, Complete: true}},
		{Factory: config.NewFactory(), Config: plugin.Raw(`{"rules":[{"client":"*","queues":["broker-[a-f]/*"]}]}`), Lacks: allocatetest.Lacks{Balance: true, Complete: true}},
	} {
		h.Factory, h.Form = allocatewire.NewFactory(h.Factory.Name(), served(t, h.Factory)), "wire"
		allocatetest.Run(t, h)
	}
}

func BenchmarkAllocate(b *testing.B) {
	allocatetest.Benchmark(b, allocatetest.Harness{Factory: allocatewire.NewFactory(averagely.Name, served(b, averagely.NewFactory()))})
}

// echo remembers the last request and answers with what it was told to.
type echo struct {
	mu     sync.Mutex
	got    *allocate.Request
	answer func(ctx context.Context, r *allocate.Request) (allocate.Assignment, error)
	params allocate.Params
	closed int
}

func (e *echo) Allocate(ctx context.Context, r *allocate.Request) (allocate.Assignment, error) {
	e.mu.Lock()
	e.got = r
	answer := e.answer
	e.mu.Unlock()
	return answer(ctx, r)
}

func (e *echo) Close() error { e.closed++; return nil }

type echoConfig struct {
	Size int `json:"size"`
}

func (e *echo) factory(newErr error) allocate.Factory {
	return allocate.NewFactory("echo",
		func(echoConfig) plugin.Description { return plugin.Description{Version: "7"} },
		func() echoConfig { return echoConfig{} },
		func(_ context.Context, p allocate.Params, _ echoConfig) (*echo, error) {
			e.params = p
			return e, newErr
		})
}

// TestEverythingCrosses: the request as it is, and the answer.
func TestEverythingCrosses(t *testing.T) {
	r := &allocate.Request{
		Group: "g", Generation: 1 << 63,
		Queues: []allocate.Queue{
			{Topic: "a", Broker: "a", ID: -1, Zone: "a"}, {Topic: "a", Broker: "b", ID: 1 << 30}, {Topic: "ü", Broker: "a", Zone: "z"},
		},
		Members: []allocate.Member{
			{ClientID: "1", Zone: "z", Weight: 1 << 31, Owned: []int{2, 0}}, {ClientID: "2"}, {ClientID: "a", Zone: "a", Owned: []int{1}},
		},
	}
	want := allocate.Assignment{Owner: []int{2, -1, 0}, Why: []string{"near", "", "near"}}
	e := &echo{answer: func(context.Context, *allocate.Request) (allocate.Assignment, error) { return want, nil }}
	a := build(t, "echo", served(t, e.factory(nil)))
	got, err := a.Allocate(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, r, e.got)
	none := &allocate.Request{Group: "g", Queues: []allocate.Queue{}, Members: []allocate.Member{{ClientID: "1"}}}
	want = allocate.Assignment{Owner: []int{}}
	got, err = a.Allocate(t.Context(), none)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, none, e.got)
}

func TestSettingsCross(t *testing.T) {
	e := &echo{}
	f := allocatewire.NewFactory("echo", served(t, e.factory(nil)))
	a, err := f.Build(t.Context(), allocate.Params{Settings: plugin.Settings{Name: "my own"}}, nil)
	require.NoError(t, err)
	require.Equal(t, "my own", e.params.Name)
	require.NoError(t, allocate.Close(a))
	require.Equal(t, 1, e.closed, "the instance is closed in the process")
	_, err = a.Allocate(t.Context(), allocatetest.Make(1, 1))
	require.ErrorContains(t, err, "closed")
	require.NoError(t, allocate.Close(a))
}

// TestErrors keep their identity, and say who made them.
func TestErrors(t *testing.T) {
	e := &echo{}
	f := allocatewire.NewFactory("echo", served(t, e.factory(nil)))
	for _, build := range []func() error{
		func() error { _, err := f.Describe(t.Context(), plugin.Raw(`{"sise": 1}`)); return err },
		func() error {
			_, err := f.Build(t.Context(), allocate.Params{}, plugin.Raw(`{"sise": 1}`))
			return err
		},
	} {
		err := build()
		require.ErrorIs(t, err, plugin.ErrConfig)
		require.ErrorContains(t, err, "known fields are size")
	}
	_, err := allocatewire.NewFactory("echo", served(t, e.factory(errors.New("no cardboard")))).Build(t.Context(), allocate.Params{}, nil)
	require.ErrorContains(t, err, "no cardboard")
	_, err = allocatewire.NewFactory("other", served(t, e.factory(nil))).Build(t.Context(), allocate.Params{}, nil)
	require.ErrorIs(t, err, plugin.ErrConfig)
	require.ErrorContains(t, err, "echo")

	a := build(t, "echo", served(t, e.factory(nil)))
	e.answer = func(context.Context, *allocate.Request) (allocate.Assignment, error) {
		return allocate.Assignment{}, errors.Join(errors.New("not on Tuesdays"), allocate.ErrRequest)
	}
	_, err = a.Allocate(t.Context(), allocatetest.Make(2, 1))
	require.ErrorIs(t, err, allocate.ErrRequest)
	require.ErrorContains(t, err, "not on Tuesdays")
	e.answer = func(context.Context, *allocate.Request) (allocate.Assignment, error) {
		return allocate.Assignment{Owner: []int{0, 1 << 40}}, nil
	}
	_, err = a.Allocate(t.Context(), allocatetest.Make(2, 1))
	require.ErrorContains(t, err, `"echo"`)
	require.ErrorContains(t, err, "member 1099511627776 of 1")
}

// TestContexts end calls on both sides.
func TestContexts(t *testing.T) {
	entered, left := make(chan bool, 1), make(chan error, 1)
	e := &echo{answer: func(ctx context.Context, _ *allocate.Request) (allocate.Assignment, error) {
		_, deadline := ctx.Deadline()
		entered <- deadline
		<-ctx.Done()
		left <- ctx.Err()
		return allocate.Assignment{}, ctx.Err()
	}}
	a := build(t, "echo", served(t, e.factory(nil)))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := a.Allocate(ctx, allocatetest.Make(1, 1))
		done <- err
	}()
	require.False(t, <-entered)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Error(t, <-left)
	ctx, cancel = context.WithTimeout(t.Context(), 1)
	defer cancel()
	_, err := a.Allocate(ctx, allocatetest.Make(1, 1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// fleet launches processes that are none, one after the other.
type fleet struct {
	tb      testing.TB
	serve   func() wire.Served
	mu      sync.Mutex
	cur     *vessel
	all     []*vessel
	refuses error
	slow    func(ctx context.Context) // called once by the next launch
}

type vessel struct {
	*wiretest.Pair
	retired chan struct{}
	users   sync.WaitGroup
}

func (v *vessel) Retired() <-chan struct{} { return v.retired }
func (v *vessel) Release(bool)             { v.users.Done() }

func (f *fleet) Acquire(ctx context.Context, _ *slog.Logger) (wire.Process, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slow := f.slow; slow != nil {
		f.slow = nil
		f.mu.Unlock()
		slow(ctx)
		f.mu.Lock()
	}
	if f.refuses != nil {
		return nil, f.refuses
	}
	if f.cur != nil {
		select {
		case <-f.cur.Gone():
			f.cur = nil
		default:
		}
	}
	if f.cur == nil {
		f.cur = &vessel{Pair: wiretest.New(f.tb, f.serve()), retired: make(chan struct{})}
		f.all = append(f.all, f.cur)
	}
	f.cur.users.Add(1)
	return f.cur, nil
}

func (f *fleet) refuse(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuses = err
}

func (f *fleet) last() *vessel {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[len(f.all)-1]
}

func (f *fleet) launched() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.all)
}

// retire puts another process in the place of the one under way.
func (f *fleet) retire() *vessel {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.cur
	f.cur = nil
	close(old.retired)
	return old
}

// TestProcessDies: the call under way is made again, once, by the next process.
func TestProcessDies(t *testing.T) {
	f := &fleet{tb: t}
	n := 0
	e := &echo{answer: func(_ context.Context, r *allocate.Request) (allocate.Assignment, error) {
		n++
		if n == 1 {
			f.last().Kill()
		}
		return allocate.Assignment{Owner: make([]int, len(r.Queues))}, nil
	}}
	f.serve = func() wire.Served { return allocatewire.NewServer(nil, e.factory(nil)) }
	a := build(t, "echo", f)
	got, err := a.Allocate(t.Context(), allocatetest.Make(2, 1))
	require.NoError(t, err)
	require.Equal(t, []int{0, 0}, got.Owner)
	require.Equal(t, 2, n)
	require.Equal(t, 2, f.launched())
	f.last().Kill() // without a call under way
	_, err = a.Allocate(t.Context(), allocatetest.Make(2, 1))
	require.NoError(t, err)
	require.Equal(t, 3, f.launched())
	for _, v := range f.all[:2] {
		v.users.Wait() // given back
	}

	n = 0
	e.answer = func(context.Context, *allocate.Request) (allocate.Assignment, error) {
		n++
		f.last().Kill()
		return allocate.Assignment{}, nil
	}
	_, err = a.Allocate(t.Context(), allocatetest.Make(2, 1))
	require.ErrorIs(t, err, plugin.ErrUnavailable)
	require.Equal(t, 2, n, "made again once, not more")
	f.refuse(errors.Join(errors.New("no fuel"), plugin.ErrUnavailable))
	f.last().Kill()
	require.Eventually(t, func() bool { // a launch may be under way
		_, err = a.Allocate(t.Context(), allocatetest.Make(2, 1))
		require.ErrorIs(t, err, plugin.ErrUnavailable)
		return strings.Contains(err.Error(), "no fuel")
	}, time.Minute, time.Millisecond)
}

// TestProcessIsReplaced: new calls go to the new process at once; the old one is
// given back when its call is done, without waiting for another.
func TestProcessIsReplaced(t *testing.T) {
	entered, goOn := make(chan struct{}), make(chan struct{})
	e := &echo{answer: func(_ context.Context, r *allocate.Request) (allocate.Assignment, error) {
		if r.Group == "slow" {
			close(entered)
			<-goOn
		}
		return allocate.Assignment{Owner: make([]int, len(r.Queues))}, nil
	}}
	f := &fleet{tb: t, serve: func() wire.Served { return allocatewire.NewServer(nil, e.factory(nil)) }}
	a := build(t, "echo", f)
	var wg sync.WaitGroup
	wg.Go(func() {
		r := allocatetest.Make(2, 1)
		r.Group = "slow"
		_, err := a.Allocate(t.Context(), r)
		if err != nil {
			t.Error(err)
		}
	})
	<-entered
	old := f.retire()
	require.Equal(t, "7", allocate.Version(a))
	_, err := a.Allocate(t.Context(), allocatetest.Make(2, 1))
	require.NoError(t, err)
	require.Equal(t, 2, f.launched())
	close(goOn)
	wg.Wait()
	old.users.Wait()
	require.Equal(t, 1, e.closed, "the old instance is closed")
	f.retire().users.Wait()
}

// TestSlowStart: a call does not wait longer than it may for a process, but what
// it began is there for the next one; the error says why there is none.
func TestSlowStart(t *testing.T) {
	e := &echo{answer: func(_ context.Context, r *allocate.Request) (allocate.Assignment, error) {
		return allocate.Assignment{Owner: make([]int, len(r.Queues))}, nil
	}}
	f := &fleet{tb: t, serve: func() wire.Served { return allocatewire.NewServer(nil, e.factory(nil)) }}
	a := build(t, "echo", f)
	began, goOn := make(chan struct{}), make(chan struct{})
	f.mu.Lock()
	f.slow = func(ctx context.Context) {
		_, bounded := ctx.Deadline()
		if bounded {
			t.Error("the start ends with the call")
		}
		close(began)
		<-goOn
	}
	f.mu.Unlock()
	f.last().Kill()
	<-began
	ctx, cancel := context.WithTimeout(t.Context(), 1)
	defer cancel()
	_, err := a.Allocate(ctx, allocatetest.Make(2, 1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, plugin.ErrUnavailable)
	require.ErrorContains(t, err, `plugin "echo" is being started`)
	close(goOn)
	_, err = a.Allocate(t.Context(), allocatetest.Make(2, 1))
	require.NoError(t, err)
	require.Equal(t, 2, f.launched())
}

// TestVersionWithoutACall: the allocator moves by itself, and tells the version of
// the new program.
func TestVersionWithoutACall(t *testing.T) {
	e, version := &echo{}, "7"
	f := &fleet{tb: t}
	f.serve = func() wire.Served {
		return allocatewire.NewServer(nil, allocate.NewFactory("echo",
			func(echoConfig) plugin.Description { return plugin.Description{Version: version} },
			func() echoConfig { return echoConfig{} },
			func(context.Context, allocate.Params, echoConfig) (*echo, error) { return e, nil }))
	}
	a := build(t, "echo", f)
	require.Equal(t, "7", allocate.Version(a))
	version = "8"
	f.retire().users.Wait()
	require.Equal(t, "8", allocate.Version(a))
	require.Equal(t, 2, f.launched())
}

// liar is a process whose answers are no assignments.
type liar struct {
	*allocatewire.Server
	answer *allocatepb.AllocateResponse
}

func (l *liar) Register(r grpc.ServiceRegistrar) { allocatepb.RegisterAllocateServer(r, lies{l: l}) }

type lies struct {
	allocatepb.UnimplementedAllocateServer
	l *liar
}

func (l lies) Open(context.Context, *allocatepb.OpenRequest) (*allocatepb.OpenResponse, error) {
	return &allocatepb.OpenResponse{Instance: 1}, nil
}

func (l lies) Allocate(context.Context, *allocatepb.AllocateRequest) (*allocatepb.AllocateResponse, error) {
	return l.l.answer, nil
}

func (lies) Close(context.Context, *allocatepb.CloseRequest) (*allocatepb.CloseResponse, error) {
	return &allocatepb.CloseResponse{}, nil
}

// TestBadAnswers: the host says what is wrong with them.
func TestBadAnswers(t *testing.T) {
	l := &liar{Server: allocatewire.NewServer(nil, averagely.NewFactory())}
	a := build(t, averagely.Name, wiretest.New(t, l))
	for want, m := range map[string]*allocatepb.AllocateResponse{
		"0 owners for 2 queues":       {},
		"3 owners for 2 queues":       {Owner: []int32{0, 0, 0}},
		"to member 1 of 1":            {Owner: []int32{0, 1}},
		"to member -2 of 1":           {Owner: []int32{-2, 0}},
		"1 reasons for 2 queues":      {Owner: []int32{0, 0}, Why: []uint32{0}, Reasons: []string{"so"}},
		"reason 1 of 1 for queue 1":   {Owner: []int32{0, 0}, Why: []uint32{0, 1}, Reasons: []string{"so"}},
		"invalid allocation request":  {Failure: &pluginpb.Failure{Text: allocate.ErrRequest.Error(), Codes: []uint32{96}}},
		"the process has no open one": {Failure: &pluginpb.Failure{Text: "the process has no open one", Codes: []uint32{32}}},
	} {
		l.answer = m
		_, err := a.Allocate(t.Context(), allocatetest.Make(2, 1))
		require.ErrorContains(t, err, want)
		if m.GetFailure() == nil {
			require.ErrorContains(t, err, averagely.Name)
			require.ErrorContains(t, err, "fault of the plugin")
		}
	}
}

// TestBadRequests: a host that is wrong gets an answer, the process lives.
func TestBadRequests(t *testing.T) {
	client := allocatepb.NewAllocateClient(served(t, averagely.NewFactory()).Conn())
	open, err := client.Open(t.Context(), &allocatepb.OpenRequest{Plugin: averagely.Name})
	require.NoError(t, err)
	for want, m := range map[string]*allocatepb.AllocateRequest{
		"1 topics, 0 brokers": {Topic: []uint32{0}},
		"string 7 of 1":       {Strings: []string{"a"}, Topic: []uint32{7}, Broker: []uint32{0}, Zone: []uint32{0}, Id: []int32{0}},
		"owns queue 9 of 0":   {Strings: []string{""}, Members: []*allocatepb.Member{{ClientId: "c", Owned: []uint32{9}}}},
		"has no members":      {},
	} {
		m.Instance = open.GetInstance()
		r, err := client.Allocate(t.Context(), m)
		require.NoError(t, err)
		require.ErrorContains(t, wire.FromFailure(r.GetFailure()), want)
		require.ErrorIs(t, wire.FromFailure(r.GetFailure()), allocate.ErrRequest)
	}
	r, err := client.Allocate(t.Context(), &allocatepb.AllocateRequest{Instance: 99})
	require.NoError(t, err)
	require.ErrorIs(t, wire.FromFailure(r.GetFailure()), plugin.ErrUnavailable)
	for range 2 {
		c, err := client.Close(t.Context(), &allocatepb.CloseRequest{Instance: open.GetInstance()})
		require.NoError(t, err)
		require.Nil(t, c.GetFailure())
	}
}

// TestCompact: each string crosses once.
func TestCompact(t *testing.T) {
	var size int
	p := served(t, averagely.NewFactory())
	a := build(t, averagely.Name, launcher{p, counting{p.Conn(), &size}})
	_, err := a.Allocate(t.Context(), allocatetest.Make(1000, 100))
	require.NoError(t, err)
	require.Positive(t, size)
	require.Less(t, size, 10_000, "bytes for 1,000 queues and 100 members")
}

type launcher struct {
	*wiretest.Pair
	conn grpc.ClientConnInterface
}

func (l launcher) Acquire(context.Context, *slog.Logger) (wire.Process, error) { return l, nil }
func (l launcher) Conn() grpc.ClientConnInterface                              { return l.conn }

// counting tells the size of what is sent.
type counting struct {
	grpc.ClientConnInterface
	size *int
}

func (c counting) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	*c.size = proto.Size(args.(proto.Message))
	return c.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}
