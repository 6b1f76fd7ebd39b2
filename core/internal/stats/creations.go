package stats

import (
	"sync"
	"time"
)

// CreationBounds are the upper bounds of the buckets of Creations, those of RocketMQ's
// rocketmq_topic_create_execution_time.
var CreationBounds = [...]time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second, 3 * time.Second, 5 * time.Second}

// Creation is what requests are told apart by that make or change topics or groups.
type Creation struct {
	Group  bool // else of topics
	System bool // a topic of the system's; false of groups
	Failed bool
}

// Spent is how long such requests took.
type Spent struct {
	UpTo [len(CreationBounds)]uint64 // how many took at most as long as each of CreationBounds
	N    uint64
	Sum  time.Duration
}

type creations struct {
	mu sync.Mutex
	by map[Creation]Spent
}

// Created counts a request.
func (s *Stats) Created(c Creation, took time.Duration) {
	s.creations.mu.Lock()
	defer s.creations.mu.Unlock()
	if s.creations.by == nil {
		s.creations.by = map[Creation]Spent{}
	}
	x := s.creations.by[c]
	for i, bound := range CreationBounds {
		if took <= bound {
			x.UpTo[i]++
		}
	}
	x.N++
	x.Sum += max(took, 0)
	s.creations.by[c] = x
}

// Creations calls yield for each kind of requests that there was, in no order.
func (s *Stats) Creations(yield func(Creation, Spent) bool) {
	s.creations.mu.Lock()
	defer s.creations.mu.Unlock()
	for c, x := range s.creations.by {
		if !yield(c, x) {
			return
		}
	}
}
