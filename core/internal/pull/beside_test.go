package pull_test

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/plugins/replication/solo"
)

// distant is a store as if it were in another process; reads of T do what a test says.
type distant struct {
	storagemw.Base
	read atomic.Pointer[func() error]
}

func (d *distant) Capabilities() storage.Capabilities {
	c := d.Base.Capabilities()
	c.Reopener = d
	return c
}

func (d *distant) Gone(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}
func (d *distant) Reopened(context.Context) error { return nil }

func (d *distant) Read(ctx context.Context, r storage.ReadRequest, c *storage.Chunk) error {
	if f := d.read.Load(); f != nil && r.Queue.Topic == "T" {
		if err := (*f)(); err != nil {
			return err
		}
	}
	return d.Store.Read(ctx, r, c)
}

func startDistant(t *testing.T) (*enginetest.Engine, *distant) {
	t.Helper()
	d := &distant{}
	e := enginetest.Start(t, enginetest.Options{Replication: solo.NewFactory(), Store: func(_ storage.Params, next storage.Store) storage.Store {
		d.Base = storagemw.Base{Store: next}
		return d
	}})
	topic(t, e, "T", 1, 6)
	return e, d
}

// TestReadsBesideTheSession: while a store in another process is asked, the session
// goes on, so that its pulls, and those of others who share it, are under way together.
func TestReadsBesideTheSession(t *testing.T) {
	e, d := startDistant(t)
	c := e.Connect(t)
	send(t, c, "T", 0, "", "x")
	const pulls = 3
	entered, leave := make(chan struct{}, pulls), make(chan struct{})
	read := func() error {
		entered <- struct{}{}
		<-leave
		return nil
	}
	d.read.Store(&read)
	asked := make(chan int32, pulls)
	go func() {
		p := enginetest.Pull("G", "T", 0, 0)
		for range pulls {
			asked <- c.Begin(command.ReqPullMessage, p.Append, nil)
		}
	}()
	late := time.After(time.Minute)
	for range pulls { // none has its answer
		select {
		case <-entered:
		case <-late:
			close(leave)
			t.Fatal("a pull waits for another one's read")
		}
	}
	close(leave)
	for range pulls {
		require.Equal(t, []string{"x"}, bodies(c.Wait(<-asked)))
	}
}

// TestReadBesideFails: the client gets what the session would have answered.
func TestReadBesideFails(t *testing.T) {
	e, d := startDistant(t)
	c := e.Connect(t)
	send(t, c, "T", 0, "", "x")
	read := func() error { return plugin.ErrUnavailable }
	d.read.Store(&read)
	r := c.Pull(enginetest.Pull("G", "T", 0, 0))
	require.Equal(t, command.RespServiceNotAvailable, r.Code)
	require.Contains(t, r.Remark, plugin.ErrUnavailable.Error())
	read2 := func() error { panic("this store cannot read") }
	d.read.Store(&read2)
	r = c.Pull(enginetest.Pull("G", "T", 0, 0))
	require.Equal(t, command.RespSystemError, r.Code)
	d.read.Store(nil)
	require.Equal(t, []string{"x"}, bodies(c.Pull(enginetest.Pull("G", "T", 0, 0))))
}

// TestParksBesideTheSession: a pull that waits is woken as any other, and nothing is
// left of one whose client went while it was read.
func TestParksBesideTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, d := startDistant(t)
		c, gone := e.Connect(t), e.Connect(t)
		send(t, c, "T", 0, "", "x")
		p := parked(enginetest.Pull("G", "T", 0, 1), time.Minute)
		waits := c.Begin(command.ReqPullMessage, p.Append, nil)
		synctest.Wait()

		entered, leave := make(chan struct{}), make(chan struct{})
		read := func() error {
			close(entered)
			<-leave
			return nil
		}
		d.read.Store(&read)
		gone.Begin(command.ReqPullMessage, p.Append, nil)
		<-entered
		var reads atomic.Int64
		count := func() error {
			reads.Add(1)
			return nil
		}
		d.read.Store(&count)
		gone.Close(io.EOF)
		close(leave)
		synctest.Wait()

		send(t, c, "T", 0, "", "y")
		require.Equal(t, []string{"y"}, bodies(c.Wait(waits)))
		synctest.Wait()
		require.EqualValues(t, 1, reads.Load(), "for the client that is there")
		require.Zero(t, gone.Peer.Sends())
	})
}
