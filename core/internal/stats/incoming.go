package stats

import (
	"strings"
	"sync/atomic"
)

// Kind is RocketMQ's type of a message (TopicMessageType) by its properties.
type Kind uint8

// The kinds that are taken; delayed messages and transactions arrive in a later
// version.
const (
	Normal Kind = iota
	FIFO        // it has a sharding key
)

// String is the word that metrics have for it.
func (k Kind) String() string {
	if k == FIFO {
		return "fifo"
	}
	return "normal"
}

// SizeBounds are the upper bounds of the buckets of message sizes in bytes, as
// RocketMQ's rocketmq_message_size has them.
var SizeBounds = [...]int64{1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20}

// In is what was taken of a topic and a kind, as it is gathered for one batch.
type In struct {
	Messages, Bytes int64 // as stored
	Sizes           [len(SizeBounds) + 1]uint32
}

// Add counts n messages of one request that need so many bytes together. As RocketMQ
// does, they count as one of the middle size.
func (in *In) Add(n, bytes int64) {
	in.Messages += n
	in.Bytes += bytes
	size, i := bytes/max(n, 1), 0
	for i < len(SizeBounds) && size > SizeBounds[i] {
		i++
	}
	in.Sizes[i]++
}

// Incoming is what was taken of a topic and a kind since the start.
type Incoming struct {
	messages, bytes atomic.Int64
	sizes           [len(SizeBounds) + 1]atomic.Uint64
}

// Read returns messages and bytes, and of the sizes how many were at most as large
// as each of SizeBounds, and how many there were. Bytes are their sum.
func (i *Incoming) Read() (messages, bytes int64, upTo [len(SizeBounds)]uint64, n uint64) {
	for j := range i.sizes {
		n += i.sizes[j].Load()
		if j < len(upTo) {
			upTo[j] = n
		}
	}
	return i.messages.Load(), i.bytes.Load(), upTo, n
}

type incomingKey struct {
	topic string
	kind  Kind
}

// Took counts what clients sent and the log took. It allocates nothing but for a new
// topic.
func (s *Stats) Took(topic string, kind Kind, in *In) {
	k := incomingKey{topic, kind}
	s.mu.RLock()
	i := s.incoming[k]
	s.mu.RUnlock()
	if i == nil {
		s.mu.Lock()
		if i = s.incoming[k]; i == nil {
			i = &Incoming{}
			s.incoming[incomingKey{strings.Clone(topic), kind}] = i
		}
		s.mu.Unlock()
	}
	i.messages.Add(in.Messages)
	i.bytes.Add(in.Bytes)
	for j, n := range in.Sizes {
		if n > 0 {
			i.sizes[j].Add(uint64(n))
		}
	}
}

// Dead counts a message of a topic that went to the dead letters of a group.
func (s *Stats) Dead(group, topic string) { s.gotOf(group, topic).dead.Add(1) }

// InOf is what was taken of one topic and kind, OutOf what one group got of one topic.
type (
	InOf struct {
		Topic string
		Kind  Kind
		*Incoming
	}
	OutOf struct {
		Topic, Group string
		// Messages and Bytes, as stored, that the group got; Dead went to its dead
		// letters.
		Messages, Bytes, Dead int64
	}
)

// Flow is a copy of what came in and went out since the start, in no order.
func (s *Stats) Flow() (in []InOf, out []OutOf) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	in = make([]InOf, 0, len(s.incoming))
	for k, i := range s.incoming {
		in = append(in, InOf{k.topic, k.kind, i})
	}
	out = make([]OutOf, 0, len(s.gots))
	for p, g := range s.gots {
		out = append(out, OutOf{p.topic, p.group, g.nums.sum.Load(), g.size.sum.Load(), g.dead.Load()})
	}
	return in, out
}
