package drain_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/internal/drain"
	"github.com/hardpointmq/hardpoint/core/plugin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// text is a log.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (x *text) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.Write(p)
}

func (x *text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.b.String()
}

// rig is a broker with two topics of clients and one of its own.
type rig struct {
	*drain.Drain
	log  text
	sent atomic.Int64

	others map[string]drain.Other // what Elsewhere answers
	err    error                  // or that
	asked  []string               // the first time
	after  map[string]drain.Other // what it answers after the first time, if that is something else
	since  time.Time              // and not before
	told   int                    // how often it registered anew
	tell   func(ctx context.Context) error
}

func newRig(length time.Duration) *rig {
	r := &rig{}
	r.Drain = drain.New(drain.Params{
		Settings: plugin.Settings{Logger: slog.New(slog.NewTextHandler(&r.log, nil))},
		For:      length,
		Topics: func() []drain.Topic {
			return []drain.Topic{{Name: "both"}, {Name: "here"}, {Name: "TBW102", Own: true}}
		},
		Elsewhere: func(_ context.Context, topics []string) (map[string]drain.Other, error) {
			if r.asked == nil {
				r.asked = topics
			} else if r.after != nil && !time.Now().Before(r.since) {
				return r.after, nil
			}
			return r.others, r.err
		},
		Tell: func(ctx context.Context) error {
			r.told++
			if r.tell != nil {
				return r.tell(ctx)
			}
			return nil
		},
		Sent: r.sent.Load,
	})
	return r
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(35 * time.Second)
		r.others = map[string]drain.Other{"both": drain.Takes, "TBW102": drain.Takes}
		r.tell = func(context.Context) error {
			require.True(t, r.Led("both"), "registered before it is led away")
			require.Error(t, r.Ready())
			<-time.After(2 * time.Second)
			return nil
		}
		require.NoError(t, r.Ready())
		require.False(t, r.Led("both"))
		require.Zero(t, r.Left())
		began, ended := time.Now(), make(chan struct{})
		go func() {
			r.Run(t.Context())
			close(ended)
		}()
		<-time.After(12 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"both", "here", "TBW102"}, r.asked)
		require.True(t, r.Led("both"))
		require.True(t, r.Led("TBW102"), "topics are made elsewhere, too")
		require.False(t, r.Led("here"), "there is nowhere to go")
		require.Equal(t, 25*time.Second, r.Left(), "it counts from when name servers know")
		require.EqualError(t, r.Ready(), "it is draining and stops in 25s; its producers are led to other brokers")
		require.Contains(t, r.log.String(), "topics=2 topics_of_no_other_broker=1")
		r.sent.Add(600) // before the report at 30 s
		<-time.After(4 * time.Second)
		synctest.Wait()
		require.Contains(t, r.log.String(), `msg=draining left=30s messages_per_second=0`)
		<-time.After(2 * time.Second)
		synctest.Wait()
		require.Contains(t, r.log.String(), `msg=draining left=20s messages_per_second=120`)
		<-ended
		require.Equal(t, 37*time.Second, time.Since(began))
		require.Zero(t, r.Left())
		require.Error(t, r.Ready(), "what drained stops")
		require.True(t, r.Led("both"))
		require.Equal(t, 1, r.told)
		require.Contains(t, r.log.String(), "msg=drained messages=600 messages_per_second_at_the_end=0")
	})
}

// Of brokers that stop at the same moment none leaves a topic to nobody.
func TestOthersDrainToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(35 * time.Second)
		r.others, r.after = map[string]drain.Other{"both": drain.Takes, "TBW102": drain.Takes}, map[string]drain.Other{"TBW102": drain.Takes}
		r.tell = func(context.Context) error {
			require.Equal(t, r.told == 1, r.Led("both"))
			return nil
		}
		began := time.Now()
		r.Run(t.Context())
		require.Equal(t, 35*time.Second, time.Since(began), "the others need it until then")
		require.Equal(t, 2, r.told)
		require.False(t, r.Led("both"))
		require.True(t, r.Led("TBW102"))
		require.Contains(t, r.log.String(), "other brokers stop at the same time")
		require.Contains(t, r.log.String(), "so nobody is led away")
		require.NotContains(t, r.log.String(), "producers are led")
	})
}

// A broker that stops while another one drains serves the producers of both, and leads
// them to the other one when that is back.
func TestOthersDrainAlready(t *testing.T) {
	for name, c := range map[string]struct {
		back time.Duration // when the other one takes messages again
		led  bool
	}{"it comes back": {12 * time.Second, true}, "it comes back late": {33 * time.Second, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(35 * time.Second)
				r.others = map[string]drain.Other{"both": drain.Keeps, "TBW102": drain.Keeps}
				r.after, r.since = map[string]drain.Other{"both": drain.Takes, "TBW102": drain.Takes}, time.Now().Add(c.back)
				began, ended := time.Now(), make(chan struct{})
				go func() {
					r.Run(t.Context())
					close(ended)
				}()
				<-time.After(11 * time.Second)
				synctest.Wait()
				require.False(t, r.Led("both"), "nobody else would take the messages")
				require.EqualError(t, r.Ready(), "it is draining and stops in 24s; no other broker takes messages of its topics at present")
				<-time.After(5 * time.Second)
				synctest.Wait()
				require.Equal(t, c.led, r.Led("both"))
				require.Equal(t, 19*time.Second, r.Left())
				<-ended
				require.Equal(t, 35*time.Second, time.Since(began))
				require.Contains(t, r.log.String(), "take no messages at present")
				if c.led {
					require.Equal(t, 1, r.told)
					require.Contains(t, r.log.String(), "another broker takes messages again: producers are led there")
				} else {
					require.Zero(t, r.told)
				}
			})
		})
	}
}

// Where waiting is of use to nobody, nothing changes.
func TestNoDrain(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		length time.Duration
		ctx    context.Context //nolint:containedctx // a case
		others map[string]drain.Other
		err    error
		says   string
	}{
		"switched off":              {0, t.Context(), map[string]drain.Other{"both": drain.Takes}, nil, ""},
		"nobody else":               {time.Minute, t.Context(), nil, nil, "no other broker has the topics here"},
		"only the broker's own":     {time.Minute, t.Context(), map[string]drain.Other{"TBW102": drain.Takes}, nil, "no other broker has the topics here"},
		"no name server":            {time.Minute, t.Context(), nil, errors.New("nobody answers"), "nobody answers"},
		"hurried while it is asked": {time.Minute, over, nil, context.Canceled, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(c.length)
			r.others, r.err = c.others, c.err
			r.Run(c.ctx)
			require.Zero(t, r.told)
			require.NoError(t, r.Ready())
			require.False(t, r.Led("both"))
			require.False(t, r.Led("TBW102"))
			require.Contains(t, r.log.String(), c.says)
			if c.says == "" {
				require.Empty(t, r.log.String())
			}
		})
	}
}

func TestHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(35 * time.Second)
		r.others = map[string]drain.Other{"both": drain.Takes}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, cancel)
		began := time.Now()
		r.Run(ctx)
		require.Equal(t, 10*time.Second, time.Since(began))
		require.Contains(t, r.log.String(), "the drain is cut short")
		require.Contains(t, r.log.String(), "left=25s")
	})
}

// A name server that does not answer costs no more than the limit, and makes the drain
// no shorter for those who use another one.
func TestNameServerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(35 * time.Second)
		r.others = map[string]drain.Other{"both": drain.Takes}
		r.tell = func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		began := time.Now()
		r.Run(t.Context())
		require.Equal(t, 40*time.Second, time.Since(began))
		require.Contains(t, r.log.String(), "not all name servers know yet")
	})
}
