package crash

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/test/harness"
)

const (
	topic  = "crash"
	queues = 4
)

// ack is what the broker said of a message.
type ack struct {
	queue  int32
	offset int64
	at     message.Position
}

// seen is what a message was found to be.
type seen struct {
	ack
	size int32
}

// ledger knows what was sent, what was acknowledged and what was found.
type ledger struct {
	mu    sync.Mutex
	last  uint64 // id of the last message sent
	acked map[uint64]ack

	found map[uint64]seen
	ends  [queues]int64 // up to which found is complete
}

func newLedger() *ledger {
	return &ledger{acked: map[uint64]ack{}, found: map[uint64]seen{}}
}

func (l *ledger) nextID() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	return l.last
}

func (l *ledger) ackedCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// body is the body of a message: its id, then bytes that follow from the id.
func body(id uint64, size int) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, size), id)
	x := id*0x9E3779B97F4A7C15 | 1
	for len(b) < size {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b = append(b, byte(x))
	}
	return b
}

func key(id uint64) string { return fmt.Sprintf("k%d", id) }

func props(id uint64) string { return "KEYS\x01" + key(id) + "\x02" }

// check compares a record with what was sent under its id.
func (l *ledger) check(v *message.View) (uint64, error) {
	if len(v.Body) < 8 {
		return 0, fmt.Errorf("%s/%d at %d: body of %d bytes", v.Topic, v.QueueID, v.QueueOffset, len(v.Body))
	}
	id := binary.BigEndian.Uint64(v.Body)
	if id == 0 || id > l.last || string(body(id, len(v.Body))) != string(v.Body) {
		return 0, fmt.Errorf("%s/%d at %d: the body is of no message that was sent (id %d of %d)", v.Topic, v.QueueID, v.QueueOffset, id, l.last)
	}
	if k, _ := message.Property(v.Properties, "KEYS"); string(k) != key(id) {
		return 0, fmt.Errorf("%s/%d at %d: key %q of id %d", v.Topic, v.QueueID, v.QueueOffset, k, id)
	}
	return id, nil
}

// verify reads what is new in all queues, or everything, and holds it against
// the acknowledgements.
func (l *ledger) verify(addr string, all bool) error {
	c, err := harness.Dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if all {
		clear(l.found)
		l.ends = [queues]int64{}
	}
	for q := range int32(queues) {
		if first, _, err := c.Range(topic, q); err != nil {
			return err
		} else if first != 0 {
			return fmt.Errorf("%s/%d begins at %d, and nothing was expired", topic, q, first)
		}
		// Offsets without a gap, each of the record that states it.
		end, err := c.ReadQueue(topic, q, l.ends[q], func(v *message.View) error {
			id, err := l.check(v)
			if err != nil {
				return err
			}
			s := seen{ack{v.QueueID, v.QueueOffset, v.Position}, v.Size}
			if before, ok := l.found[id]; ok {
				return fmt.Errorf("id %d twice: %+v and %+v", id, before, s)
			}
			l.found[id] = s
			return nil
		})
		if err != nil {
			return err
		}
		if end < l.ends[q] {
			return fmt.Errorf("%s/%d ended at %d and now at %d", topic, q, l.ends[q], end)
		}
		l.ends[q] = end
	}
	lost, moved := 0, 0
	var first string
	for id, a := range l.acked {
		s, ok := l.found[id]
		switch {
		case !ok:
			lost++
		case s.ack != a:
			moved++
		default:
			continue
		}
		if first == "" {
			first = fmt.Sprintf("id %d acknowledged as %+v, found %v %+v", id, a, ok, s)
		}
	}
	if first != "" {
		return fmt.Errorf("of %d acknowledged messages %d are lost and %d are elsewhere; bounds %v; e.g. %s", len(l.acked), lost, moved, l.ends, first)
	}
	return nil
}

// gone wants of an empty log that nothing of what was acknowledged is found: not in its
// queue, and not at its position.
func (l *ledger) gone(addr string) error {
	c, err := harness.Dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	for q := range int32(queues) {
		if first, end, err := c.Range(topic, q); err != nil {
			return err
		} else if first != 0 || end != 0 {
			return fmt.Errorf("%s/%d has offsets %d to %d of an empty log", topic, q, first, end)
		}
	}
	return l.eachByID(c, func(id uint64, a *harness.Answer) error {
		if a.Err() == nil {
			return fmt.Errorf("id %d, acknowledged as %+v, is found in an empty log", id, l.acked[id])
		}
		return nil
	})
}

// refused wants of a broker whose log is gone that it answers why to whoever sends, asks
// for a message that was acknowledged, or for the bounds of a queue.
func (l *ledger) refused(addr, why string) error {
	c, err := harness.Dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	refusal := func(what string, err error) error {
		if err == nil {
			return fmt.Errorf("%s is answered, and not that the store %s", what, why)
		}
		if !strings.Contains(err.Error(), why) {
			return fmt.Errorf("%s is not told that the store %s: %w", what, why, err)
		}
		return nil
	}
	for q := range int32(queues) {
		_, _, err := c.Range(topic, q)
		if err := refusal(fmt.Sprintf("bounds of %s/%d", topic, q), err); err != nil {
			return err
		}
		_, _, err = c.Pull(harness.Pull{Topic: topic, Queue: q, Max: 1}, func(*message.View) error { return nil })
		if err := refusal(fmt.Sprintf("a pull of %s/%d", topic, q), err); err != nil {
			return err
		}
		_, err = c.Send(&harness.Send{Topic: topic, Queue: q, Props: props(1), Body: body(1, 100)})
		if err := refusal("a send", err); err != nil {
			return err
		}
	}
	return l.eachByID(c, func(id uint64, a *harness.Answer) error { return refusal(fmt.Sprintf("id %d", id), a.Err()) })
}

// eachByID asks for each acknowledged message by the id that it was acknowledged with.
func (l *ledger) eachByID(c *harness.Conn, each func(id uint64, a *harness.Answer) error) error {
	if len(l.acked) == 0 {
		return errors.New("nothing was acknowledged")
	}
	for id, at := range l.acked {
		h := command.ViewMessageRequest{Offset: int64(at.at)}
		a, err := c.Call(command.ReqViewMessageByID, h.Append, nil)
		if err == nil {
			err = each(id, a)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cut forgets the acknowledgements of what does not end before a damaged position.
func (l *ledger) cut(from message.Position) (forgotten int) {
	for id, a := range l.acked {
		if s, ok := l.found[id]; ok && s.at+message.Position(s.size) <= from {
			continue
		}
		// Not read yet: its record is longer than the body alone, so this errs
		// on the side of forgetting by less than one record.
		if _, ok := l.found[id]; !ok && a.at+maxRecord <= from {
			continue
		}
		delete(l.acked, id)
		forgotten++
	}
	return forgotten
}

// load is what four producers send, with window messages in flight on each
// connection, until the connections break or stop is closed; then the answers
// that still come are taken.
type load struct {
	wg      sync.WaitGroup
	mu      sync.Mutex
	refused []string
	stop    chan struct{}
}

const (
	producers = 4
	window    = 16
	maxBody   = 3000
	maxRecord = maxBody + 400
)

func startLoad(t *testing.T, l *ledger, addr string, rng *rand.Rand) *load {
	t.Helper()
	d := &load{stop: make(chan struct{})}
	for p := range producers {
		c, err := harness.Dial(addr)
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(rng.Uint64(), uint64(p)))
		d.run(l, c, r)
	}
	return d
}

func (d *load) run(l *ledger, c *harness.Conn, rng *rand.Rand) {
	slots := make(chan struct{}, window)
	dead := make(chan struct{}) // the reader has ended
	var mu sync.Mutex
	flying := map[int32]uint64{} // opaque to id; the writer adds before it writes
	writerDone := make(chan struct{})
	d.wg.Add(2)
	go func() {
		defer d.wg.Done()
		defer close(writerDone)
		var opaque int32
		for {
			select {
			case <-d.stop:
				return
			case <-dead:
				return
			case slots <- struct{}{}:
			}
			id := l.nextID()
			opaque++ // Conn counts the same way
			mu.Lock()
			flying[opaque] = id
			mu.Unlock()
			s := harness.Send{Topic: topic, Queue: int32(rng.IntN(queues)), Props: props(id), Body: body(id, 8+rng.IntN(maxBody-8))}
			if _, err := c.WriteSend(&s); err != nil {
				return
			}
		}
	}()
	go func() {
		defer d.wg.Done()
		defer c.Close()
		defer close(dead)
		var a harness.Answer
		stopped := false
		for {
			if !stopped {
				select {
				case <-writerDone:
					stopped = true
				default:
				}
			}
			mu.Lock()
			n := len(flying)
			mu.Unlock()
			if stopped && n == 0 {
				return
			}
			within := 30 * time.Second
			if n == 0 {
				within = 20 * time.Millisecond // look at stop again
			}
			if err := c.Read(within, &a); err != nil {
				if ne, ok := err.(interface{ Timeout() bool }); ok && ne.Timeout() && n == 0 {
					continue
				}
				return
			}
			if !a.Header.IsResponse() {
				continue
			}
			mu.Lock()
			id, ok := flying[a.Header.Opaque]
			delete(flying, a.Header.Opaque)
			mu.Unlock()
			if !ok {
				d.refuse("an answer to nothing that was sent")
				return
			}
			<-slots
			if err := a.Err(); err != nil {
				d.refuse(err.Error())
				continue
			}
			var r command.SendResponse
			if err := r.Decode(&a.Header); err != nil {
				d.refuse(err.Error())
				return
			}
			_, at, err := message.ParseOffsetID(string(r.MsgID))
			if err != nil {
				d.refuse(err.Error())
				return
			}
			l.mu.Lock()
			l.acked[id] = ack{r.QueueID, r.QueueOffset, at}
			l.mu.Unlock()
		}
	}()
}

func (d *load) refuse(why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.refused) < 20 {
		d.refused = append(d.refused, why)
	}
}

// wait ends the load and returns what was refused, but for what a broker says
// that is about to end.
func (d *load) wait() error {
	close(d.stop)
	d.wg.Wait()
	for _, r := range d.refused {
		if !strings.Contains(r, command.ResponseName(command.RespServiceNotAvailable)) {
			return fmt.Errorf("a send was refused: %s", r)
		}
	}
	return nil
}
