package solo_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagetest"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
)

// wanderer is a store that goes away, and comes back, when a test says so.
type wanderer struct {
	storage.Store
	mu    sync.Mutex
	moved chan struct{}
	gone  error // calls fail with it
	back  error // what Reopened says; nil: it waits
	held  bool
}

var errBack = errors.New("it is back")

func newWanderer(t *testing.T, cfg solo.Config) *wanderer {
	t.Helper()
	p := storage.Params{Settings: plugin.Settings{Name: "memory"}.WithDefaults(), Segment: segment}
	if cfg.FlushDiskType == solo.SyncFlush {
		p.Publish = storage.Explicit
	}
	w := &wanderer{Store: newStore(t, p), moved: make(chan struct{})}
	require.NoError(t, w.Start(t.Context()))
	return w
}

func (w *wanderer) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	close(w.moved)
	w.moved = make(chan struct{})
}

func (w *wanderer) goes() {
	w.set(func() { w.gone = fmt.Errorf("%w: its process is gone", plugin.ErrUnavailable) })
}

func (w *wanderer) away() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gone
}

func (w *wanderer) wait(ctx context.Context, ready func() (bool, error)) error {
	for {
		w.mu.Lock()
		ok, err := ready()
		moved := w.moved
		w.mu.Unlock()
		if ok {
			return err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *wanderer) Gone(ctx context.Context) error {
	return w.wait(ctx, func() (bool, error) { return w.gone != nil, w.gone })
}

func (w *wanderer) Reopened(ctx context.Context) error {
	return w.wait(ctx, func() (bool, error) {
		switch back := w.back; {
		case w.gone == nil:
			return true, nil
		case back == nil:
			return false, nil
		case errors.Is(back, errBack):
			w.gone, w.back = nil, nil
			return true, nil
		default:
			w.back = nil
			return true, back
		}
	})
}

func (w *wanderer) Append(ctx context.Context, b *storage.Batch) error {
	if err := w.away(); err != nil {
		b.Done()
		return err
	}
	return w.Store.Append(ctx, b)
}

func (w *wanderer) Sync(ctx context.Context, end message.Position) error {
	if w.held { // it dies over the flush
		return w.Gone(ctx)
	}
	if err := w.away(); err != nil {
		return err
	}
	return w.Store.Sync(ctx, end)
}

func (w *wanderer) Capabilities() storage.Capabilities {
	c := w.Store.Capabilities()
	c.Reopener = w
	return c
}

// led is a solo on a wanderer, and the offices that its engine is told.
type led struct {
	*node
	w     *wanderer
	roles chan replication.Role
	fail  chan error // of the next OnRole
}

func lead(t *testing.T, cfg solo.Config) *led {
	t.Helper()
	n := &led{w: newWanderer(t, cfg), roles: make(chan replication.Role, 100), fail: make(chan error, 1)}
	s, err := solo.New(t.Context(), replication.Params{
		Settings: plugin.Settings{Name: "solo"}, Store: n.w, Sequencer: storage.NewSequencer(nil),
		OnRole: func(_ context.Context, r replication.Role) error {
			n.roles <- r
			if r.ReadOnly == "" {
				select {
				case err := <-n.fail:
					return err
				default:
				}
			}
			return nil
		},
	}, cfg)
	require.NoError(t, err)
	n.node = &node{Solo: s, store: n.w, w: storagetest.NewWriter(message.IndexRules{}), sink: make(sink, 1000)}
	require.NoError(t, n.Start(t.Context()))
	t.Cleanup(func() {
		require.NoError(t, n.Shutdown(context.WithoutCancel(t.Context())))
		require.NoError(t, n.w.Store.Shutdown(context.WithoutCancel(t.Context())))
	})
	require.Equal(t, replication.Role{Kind: replication.RoleLeader, Term: 1}, <-n.roles)
	return n
}

// told is the next office but one that says the same with another reason.
func (n *led) told(t *testing.T, term uint64, readOnly string) {
	t.Helper()
	r := <-n.roles
	require.Equal(t, replication.RoleLeader, r.Kind)
	require.Equal(t, term, r.Term)
	if readOnly == "" {
		require.Empty(t, r.ReadOnly)
	} else {
		require.Contains(t, r.ReadOnly, readOnly)
	}
}

// A store that goes away ends the office: what waits is unknown, nothing is taken.
// When it is back the next office goes on with what the log really holds.
func TestStoreGoesAway(t *testing.T) {
	for name, cfg := range map[string]solo.Config{"async": solo.NewDefaultConfig(), "sync": syncConfig()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := lead(t, cfg)
				first := n.append(t, 2)
				require.Equal(t, replication.Stored, (<-n.sink).o)
				if name == "sync" { // one more is in the log, and its flush is not done
					n.w.held = true
					n.append(t, 1)
				}
				n.w.goes()
				n.told(t, 1, "the store is away")
				if name == "sync" {
					x := <-n.sink
					require.Equal(t, replication.Unknown, x.o)
					require.ErrorIs(t, x.err, plugin.ErrUnavailable)
					n.w.held = false
				}
				err := n.Append(t.Context(), n.pending(), n.sink)
				require.ErrorIs(t, err, replication.ErrReadOnly)
				require.NoError(t, n.Barrier(t.Context()), "reads go on")
				n.w.set(func() { n.w.back = fmt.Errorf("%w: no licence", plugin.ErrUnavailable) })
				n.told(t, 1, "no licence")

				n.fail <- errors.New("the engine is not ready")
				n.w.set(func() { n.w.back = errBack })
				n.told(t, 2, "")
				n.told(t, 2, "the engine is not ready")
				require.Empty(t, n.roles)
				<-time.After(2 * time.Second)
				n.told(t, 3, "")
				require.Equal(t, replication.Role{Kind: replication.RoleLeader, Term: 3}, n.Role())
				p := n.append(t, 1)
				want := first.Units[1].Offset + 1
				if name == "sync" {
					want++ // what was unknown is in the log, and published
				}
				require.Equal(t, want, p.Units[0].Offset)
				require.Equal(t, replication.Stored, (<-n.sink).o)
				require.Empty(t, n.roles)

				n.w.goes() // again, and another one comes back
				n.told(t, 3, "the store is away")
				n.w.set(func() { n.w.back = fmt.Errorf("%w: its id is another one", storage.ErrFailed) })
				n.told(t, 3, "its id is another one")
				n.w.set(func() { n.w.back = errBack })
				synctest.Wait()
				require.Empty(t, n.roles)
				require.ErrorIs(t, n.Append(t.Context(), n.pending(), n.sink), replication.ErrReadOnly)
			})
		})
	}
}

// pending is one message.
func (n *led) pending() *storage.Pending {
	return n.node.w.Pending([]storagetest.Message{{Queue: queue}})
}

// A failed flush is no reason to go on when the store goes away later.
func TestFailedThenAway(t *testing.T) {
	n := lead(t, syncConfig())
	n.w.set(func() { n.w.gone = errors.New("input/output error") })
	err := n.Append(t.Context(), n.pending(), n.sink)
	require.NoError(t, err)
	require.Equal(t, replication.Unknown, (<-n.sink).o)
	n.told(t, 1, "restarted")
	n.w.goes()
	n.w.set(func() { n.w.back = errBack })
	require.ErrorIs(t, n.Append(t.Context(), n.pending(), n.sink), replication.ErrReadOnly)
	require.Contains(t, n.Role().ReadOnly, "input/output error")
}
