package crash

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/test/harness"
)

// registry knows how many queues each topic was last acknowledged to have, and
// what was asked for since.
type registry struct {
	mu      sync.Mutex
	names   []string // in the order of their acknowledgement
	queues  map[string]int32
	pending map[string]int32
}

func (r *registry) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.names)
}

// create makes topics and gives some more queues, until the connection breaks.
func (r *registry) create(addr, prefix string, rng *rand.Rand) error {
	c, err := harness.Dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	var own []string
	for i := 0; ; i++ {
		name, n := fmt.Sprintf("%s-%d", prefix, i), 1+rng.Int32N(8)
		if i%3 == 2 {
			name = own[rng.IntN(len(own))]
			r.mu.Lock()
			n += r.queues[name]
			r.mu.Unlock()
		}
		r.mu.Lock()
		r.pending[name] = n
		r.mu.Unlock()
		if err := c.CreateTopic(name, n); err != nil {
			if strings.Contains(err.Error(), "answer ") {
				return fmt.Errorf("topic %s with %d queues: %w", name, n, err)
			}
			return nil // the broker is gone
		}
		r.mu.Lock()
		if r.queues[name] == 0 {
			r.names, own = append(r.names, name), append(own, name)
		}
		r.queues[name] = n
		delete(r.pending, name)
		r.mu.Unlock()
	}
}

// verify sends to the last queue of topics, and to the one that is not there.
func (r *registry) verify(addr string, names []string) error {
	c, err := harness.Dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, name := range names {
		n := r.queues[name]
		if asked, ok := r.pending[name]; ok { // either is right; from now on it is this one
			a, err := c.CallSend(&harness.Send{Topic: name, Queue: asked - 1, Body: []byte("x")})
			if err != nil {
				return err
			}
			if a.Err() == nil {
				n = asked
			}
			r.queues[name] = n
		}
		if _, err := c.Send(&harness.Send{Topic: name, Queue: n - 1, Body: []byte("x")}); err != nil {
			return fmt.Errorf("topic %s, acknowledged with %d queues: %w", name, n, err)
		}
		a, err := c.CallSend(&harness.Send{Topic: name, Queue: n, Body: []byte("x")})
		if err != nil {
			return err
		}
		if a.Header.Code == command.RespSuccess {
			return fmt.Errorf("topic %s, acknowledged with %d queues, has more", name, n)
		}
	}
	return nil
}

// TestKillWhileCreatingTopics is BC-36: topics that were acknowledged are there
// after kill -9, with their queues.
func TestKillWhileCreatingTopics(t *testing.T) {
	t.Parallel()
	for _, s := range harness.Durable() {
		if s.Process {
			continue // the same store; the catalog is in the broker
		}
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			rng := seed(t)
			n := harness.New(t, harness.Options{Store: s, Set: append(append(settings("ASYNC_FLUSH"), "autoCreateTopicEnable=false"), storeSettings(s)...)})
			r := &registry{queues: map[string]int32{}, pending: map[string]int32{}}
			for round := range rounds() {
				from, want := len(r.names), r.count()+3+rng.IntN(15)
				errs := make(chan error, 2)
				for p := range cap(errs) {
					own := rand.New(rand.NewPCG(rng.Uint64(), 36))
					go func() { errs <- r.create(n.Addr, fmt.Sprintf("t%d-%d", round, p), own) }()
				}
				made := harness.Poll(30*time.Second, func() bool { return r.count() >= want })
				n.Kill()
				for range cap(errs) {
					if err := <-errs; err != nil {
						t.Fatalf("round %d: %v", round, err)
					}
				}
				if !made {
					t.Fatalf("round %d: only %d of %d topics were made within 30 s", round, r.count()-from, want-from)
				}
				n.Start()
				// All of this round, some of those before.
				names := slices.Clone(r.names[from:])
				for range min(20, from) {
					names = append(names, r.names[rng.IntN(from)])
				}
				if err := r.verify(n.Addr, names); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				clear(r.pending)
			}
			t.Logf("%d rounds, %d topics", rounds(), len(r.names))
		})
	}
}
