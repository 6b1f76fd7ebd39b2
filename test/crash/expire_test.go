package crash

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/test/harness"
)

// expiring makes a broker delete every segment but the newest at once.
func expiring() []string {
	hours := make([]string, 24)
	for h := range hours {
		hours[h] = fmt.Sprintf("%02d", h)
	}
	return []string{
		"fileReservedTime=0", "deleteWhen=" + strings.Join(hours, ";"), "cleanResourceInterval=10", "deleteCommitLogFilesInterval=0",
	}
}

func expireRounds() int {
	if harness.Long() {
		return 100
	}
	return 4
}

// TestKillWhileExpiring kills a broker that deletes segments as fast as it makes new
// ones: what was acknowledged is there or below the minimum of its queue, at its
// place; nothing else is; minimums never go back below what was read; numbers are
// never given twice, in a queue that lost all of its messages either.
func TestKillWhileExpiring(t *testing.T) {
	t.Parallel()
	for _, s := range harness.Durable() {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			rng := seed(t)
			n := harness.New(t, harness.Options{Store: s, Set: append(append(settings("ASYNC_FLUSH"), storeSettings(s)...), expiring()...)})
			createTopic(t, n)
			const rare = "rare"
			sendRare(t, n, rare, 0)
			l := newLedger()
			for round := range expireRounds() {
				killUnderLoad(t, l, n, rng, round, false)
				n.Start()
				if err := l.verifyRest(n.Addr); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				sendRare(t, n, rare, int64(round+1))
			}
			c := dial(t, n)
			expired := int64(0)
			for q := range int32(queues) {
				first, _, err := c.Range(topic, q)
				if err != nil {
					t.Fatal(err)
				}
				expired += first
			}
			if expired == 0 {
				t.Fatal("nothing has expired")
			}
			first, end, err := c.Range(rare, 0)
			if err != nil || end != int64(expireRounds()+1) {
				t.Fatalf("%s has %d to %d, want the end %d: %v", rare, first, end, expireRounds()+1, err)
			}
			t.Logf("%d rounds, %d messages acknowledged, %d of them expired", expireRounds(), len(l.acked), expired)
		})
	}
}

func dial(t *testing.T, n *harness.Node) *harness.Conn {
	t.Helper()
	c, err := harness.Dial(n.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// sendRare sends the message with a number of a queue in which all others may have
// expired.
func sendRare(t *testing.T, n *harness.Node, topic string, number int64) {
	t.Helper()
	c := dial(t, n)
	defer c.Close()
	if number == 0 {
		if err := c.CreateTopic(topic, 1); err != nil {
			t.Fatal(err)
		}
	}
	r, err := c.Send(&harness.Send{Topic: topic, Body: []byte("x")})
	if err != nil || r.QueueOffset != number {
		t.Fatalf("a message of %s got the number %d, want %d: %v", topic, r.QueueOffset, number, err)
	}
}

// verifyRest reads what did not expire, beside a broker that goes on deleting.
func (l *ledger) verifyRest(addr string) error {
	c, err := harness.Dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	clear(l.found)
	var from [queues]int64 // what lies below was expired or not read
	given := map[ack]uint64{}
	for id, a := range l.acked {
		a.at = 0
		if other, twice := given[a]; twice {
			return fmt.Errorf("the messages %d and %d were both acknowledged with %+v", id, other, a)
		}
		given[a] = id
	}
	for q := range int32(queues) {
		first, end, err := c.Range(topic, q)
		if err != nil {
			return err
		}
		if end < l.ends[q] {
			return fmt.Errorf("%s/%d ended at %d and now at %d", topic, q, l.ends[q], end)
		}
		at := first
		from[q] = first
		for deadline := time.Now().Add(30 * time.Second); at < end; {
			if time.Now().After(deadline) {
				return fmt.Errorf("%s/%d: reading stands at %d of %d", topic, q, at, end)
			}
			code, r, err := c.Pull(harness.Pull{Topic: topic, Queue: q, Offset: at, Max: 1024}, func(v *message.View) error {
				if v.QueueOffset < at || v.QueueID != q {
					return fmt.Errorf("%s/%d at %d: a record of queue %d with offset %d", topic, q, at, v.QueueID, v.QueueOffset)
				}
				if v.QueueOffset > at { // it expired under the read, as with RocketMQ
					at, from[q] = v.QueueOffset, v.QueueOffset
				}
				id, err := l.check(v)
				l.found[id] = seen{ack{v.QueueID, v.QueueOffset, v.Position}, v.Size}
				at++
				return err
			})
			if err != nil {
				return err
			}
			if r.NextBeginOffset < at {
				return fmt.Errorf("%s/%d: a pull at %d is told to go on at %d", topic, q, at, r.NextBeginOffset)
			}
			switch code {
			case command.RespPullOffsetMoved, command.RespPullRetryImmediately: // it expired meanwhile
				at = r.NextBeginOffset
				from[q] = at
			case command.RespSuccess:
			default:
				return fmt.Errorf("%s/%d: a pull at %d, below the end %d, gave code %d", topic, q, at, end, code)
			}
		}
		l.ends[q] = end
		// What was passed over has expired indeed.
		var passed error
		if !harness.Poll(30*time.Second, func() bool {
			first, _, passed = c.Range(topic, q)
			return passed != nil || first >= from[q]
		}) || passed != nil {
			return fmt.Errorf("%s/%d: reading passed over what lies below %d, and the queue begins at %d: %w", topic, q, from[q], first, passed)
		}
	}
	for id, a := range l.acked {
		if a.offset < from[a.queue] {
			if a.offset >= l.ends[a.queue] {
				return fmt.Errorf("id %d was acknowledged as %+v, above the end %d of its queue", id, a, l.ends[a.queue])
			}
			continue
		}
		if s, ok := l.found[id]; !ok || s.ack != a {
			return fmt.Errorf("id %d was acknowledged as %+v, found: %v as %+v; %s/%d was read from %d to %d", id, a, ok, s, topic, a.queue, from[a.queue], l.ends[a.queue])
		}
	}
	return nil
}
