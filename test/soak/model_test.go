package soak

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/test/harness"
)

// place is where a message is.
type place struct {
	topic  string
	queue  int32
	offset int64
}

// model is what the broker acknowledged.
type model struct {
	mu       sync.Mutex
	keys     map[place]string
	progress map[progress]int64
	acked    int64
	audited  int64 // records that were compared
	faults   []string

	refused atomic.Int64 // sends for which the log had no room in time
}

// progress is a queue of a group that one client alone commits to.
type progress struct {
	group, topic string
	queue        int32
}

func newModel() *model {
	return &model{keys: map[place]string{}, progress: map[progress]int64{}}
}

// fault notes that something is wrong; the first ones are enough.
func (m *model) fault(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.faults) < 20 {
		m.faults = append(m.faults, fmt.Sprintf(format, args...))
	}
}

// stored notes an acknowledged message.
func (m *model) stored(at place, key string) {
	m.mu.Lock()
	other, twice := m.keys[at]
	m.keys[at] = key
	m.acked++
	m.mu.Unlock()
	if twice {
		m.fault("%v was given to %s and to %s", at, other, key)
	}
}

// audit compares a record that was read.
func (m *model) audit(topic string, v *message.View) {
	key, _ := message.Property(v.Properties, "KEYS")
	at := place{topic, v.QueueID, v.QueueOffset}
	m.mu.Lock()
	want, known := m.keys[at] // what is not known was not acknowledged yet, or to nobody
	m.audited++
	m.mu.Unlock()
	if known && want != string(key) {
		m.fault("%v holds %s, acknowledged was %s", at, key, want)
	}
}

// committed notes progress that was acknowledged.
func (m *model) committed(p progress, offset int64) {
	m.mu.Lock()
	m.progress[p] = offset
	m.mu.Unlock()
}

// check reads everything that is left: each acknowledged message is there, or below
// the first one of its queue, because it expired.
func (m *model) check(c *harness.Conn) (left, expired int, err error) {
	first := map[progress]int64{}
	found := map[place]bool{}
	for t := range topics {
		for q := range int32(queues) {
			name := stable(t)
			low, _, err := c.Range(name, q)
			if err != nil {
				return 0, 0, err
			}
			if _, err := c.ReadQueue(name, q, low, func(v *message.View) error {
				m.audit(name, v)
				found[place{name, q, v.QueueOffset}] = true
				return nil
			}); err != nil {
				return 0, 0, err
			}
			if low, _, err = c.Range(name, q); err != nil { // it may have gone on
				return 0, 0, err
			}
			first[progress{topic: name, queue: q}] = low
		}
	}
	for at, key := range m.keys {
		switch {
		case found[at]:
			left++
		case at.offset < first[progress{topic: at.topic, queue: at.queue}]:
			expired++
		default:
			m.fault("%v, acknowledged to %s, is not there", at, key)
		}
	}
	return left, expired, nil
}
