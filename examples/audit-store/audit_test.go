package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/plugins/standard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestConformance: a store behind the decorator is still that store.
func TestConformance(t *testing.T) {
	p, err := audited(io.Discard)
	require.NoError(t, err)
	f, err := p.Storage.Lookup("memory")
	require.NoError(t, err)
	storagetest.Run(t, storagetest.Harness{
		Factory: f, Form: storagetest.Decorated,
		Lacks: storagetest.Lacks{ProcessDeath: true, Reopen: true},
	})
}

// TestNoFacetIsLost: the decorator offers what the store offers. Whoever adds a
// facet to the contract thinks of it in Audit, then raises the number.
func TestNoFacetIsLost(t *testing.T) {
	require.Equal(t, 6, reflect.TypeFor[storage.Capabilities]().NumField())
	p, err := standard.Plugins()
	require.NoError(t, err)
	for _, name := range p.Storage.Names() {
		f, err := p.Storage.Lookup(name)
		require.NoError(t, err)
		params := storage.Params{Settings: plugin.Settings{Dir: t.TempDir()}.WithDefaults(), Segment: 1 << 20}
		s, err := f.Build(t.Context(), params, nil)
		require.NoError(t, err)
		got, want := Audit(io.Discard)(params, s).Capabilities(), s.Capabilities()
		require.Equal(t, want.Facets(), got.Facets(), name)
		require.Equal(t, want.Survives, got.Survives, name)
		require.Equal(t, want.ExpiresBeside, got.ExpiresBeside, name)
	}
	require.Empty(t, Audit(io.Discard)(storage.Params{}, storagetest.Nop{}).Capabilities().Facets())
}

// open starts a store in memory whose changes are written to w.
func open(t *testing.T, w io.Writer) storage.Store {
	t.Helper()
	p, err := audited(w)
	require.NoError(t, err)
	f, err := p.Storage.Lookup("memory")
	require.NoError(t, err)
	s, err := f.Build(t.Context(), storage.Params{Settings: plugin.Settings{Name: "mine"}, Segment: 1 << 20, Publish: storage.Explicit}, nil)
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, s.Shutdown(context.Background())) })
	return s
}

func batch(t *testing.T, s storage.Store) *storage.Pending {
	t.Helper()
	p := storagetest.NewWriter(message.IndexRules{}).Pending([]storagetest.Message{{Queue: message.Queue{Topic: "A"}}, {Queue: message.Queue{Topic: "B"}}, {Queue: message.Queue{Topic: "A"}}})
	require.NoError(t, storagetest.OpenSequencer(t, s, nil, 1).Assign(p, 0))
	return p
}

// TestLines: one for each change, none for what changes nothing.
func TestLines(t *testing.T) {
	var w bytes.Buffer
	s := open(t, &w)
	ctx, caps, p := t.Context(), s.Capabilities(), batch(t, s)
	size := len(p.Buf)
	require.NoError(t, s.Append(ctx, &p.Batches[0]))
	require.NoError(t, caps.RawLog.Publish(ctx, p.End))
	require.NoError(t, s.Sync(ctx, p.End))
	require.NoError(t, s.Offsets(ctx, nil, &storage.OffsetAnswers{}))
	_, err := caps.Retention.Segments(ctx)
	require.NoError(t, err)
	require.NoError(t, caps.Retention.Drop(ctx, []message.Queue{{Topic: "B"}}))
	require.NoError(t, caps.Retention.Expire(ctx, 0))
	require.ErrorIs(t, caps.RawLog.Truncate(ctx, 1), storage.ErrGap)
	require.NoError(t, caps.RawLog.Truncate(ctx, 0))
	require.NoError(t, caps.RawLog.Reset(ctx, 0, nil))
	var got []line
	for text := range strings.Lines(w.String()) {
		var l line
		require.NoError(t, json.Unmarshal([]byte(text), &l), text)
		require.Equal(t, "mine", l.Store)
		require.Positive(t, l.Time)
		l.Store, l.Time = "", 0
		got = append(got, l)
	}
	require.Len(t, got, 7)
	require.Contains(t, got[4].Error, storage.ErrGap.Error())
	got[4].Error = ""
	require.Equal(t, []line{
		{Op: storagemw.OpAppend, Bytes: size, Records: map[string]int{"A": 2, "B": 1}},
		{Op: storagemw.OpPublish, At: p.End},
		{Op: storagemw.OpDrop, Queues: []message.Queue{{Topic: "B"}}},
		{Op: storagemw.OpExpire},
		{Op: storagemw.OpTruncate, At: 1},
		{Op: storagemw.OpTruncate},
		{Op: storagemw.OpReset},
	}, got)
}

// full is a disk that takes some lines.
type full struct {
	mu    sync.Mutex
	lines int
}

func (f *full) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lines == 0 {
		return 0, errors.New("no space left")
	}
	f.lines--
	return len(b), nil
}

// TestWithoutTrailNoChange: the change whose line is lost was made; no other is.
func TestWithoutTrailNoChange(t *testing.T) {
	s := open(t, &full{lines: 1})
	ctx, caps, p := t.Context(), s.Capabilities(), batch(t, s)
	require.NoError(t, s.Append(ctx, &p.Batches[0]))
	require.NoError(t, caps.RawLog.Publish(ctx, p.End), "its line is lost")
	freed := 0
	p = batch(t, s)
	p.Batches[0].Free = func(*storage.Batch) { freed++ }
	for _, err := range []error{
		s.Append(ctx, &p.Batches[0]), caps.RawLog.Publish(ctx, 0), caps.RawLog.Truncate(ctx, 0), caps.RawLog.Reset(ctx, 0, nil),
		caps.Retention.Expire(ctx, 0), caps.Retention.Drop(ctx, nil),
	} {
		require.ErrorIs(t, err, storage.ErrReadOnly)
		require.ErrorContains(t, err, "no space left")
	}
	require.Equal(t, 1, freed)
	var c storage.Chunk
	require.NoError(t, s.Read(ctx, storage.ReadRequest{Queue: message.Queue{Topic: "A"}}, &c), "reading goes on")
	require.Len(t, c.Units, 2)
	c.Release()
}

// TestProgram runs it: a message that was sent is in the trail.
func TestProgram(t *testing.T) {
	var w bytes.Buffer
	require.NoError(t, run(t.Context(), &w))
	require.Contains(t, w.String(), `"op":"Append"`)
	require.Contains(t, w.String(), `"records":{"Greetings":1}`)
}
