package allocatewire

import (
	"fmt"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/sdk/wire/allocatewire/allocatepb"
)

// table collects strings, each once.
type table struct {
	list  []string
	index map[string]uint32
}

// column looks strings of one kind up: neighbours mostly have the same.
type column struct {
	t    *table
	last string
	at   uint32
	some bool
}

func (c *column) index(s string) uint32 {
	if c.some && c.last == s {
		return c.at
	}
	at, known := c.t.index[s]
	if !known {
		at = uint32(len(c.t.list))
		c.t.index[s] = at
		c.t.list = append(c.t.list, s)
	}
	c.last, c.at, c.some = s, at, true
	return at
}

// toRequest encodes a request that passed its Check.
func toRequest(r *allocate.Request) *allocatepb.AllocateRequest {
	n := len(r.Queues)
	t := &table{index: map[string]uint32{}}
	topics, brokers, zones := column{t: t}, column{t: t}, column{t: t}
	numbers := make([]uint32, 3*n)
	m := &allocatepb.AllocateRequest{
		Group: r.Group, Generation: r.Generation,
		Topic: numbers[:n:n], Broker: numbers[n : 2*n : 2*n], Zone: numbers[2*n:], Id: make([]int32, n),
		Members: make([]*allocatepb.Member, len(r.Members)),
	}
	for i := range r.Queues {
		q := &r.Queues[i]
		m.Topic[i], m.Broker[i], m.Zone[i], m.Id[i] = topics.index(q.Topic), brokers.index(q.Broker), zones.index(q.Zone), q.ID
	}
	for i := range r.Members {
		o := &r.Members[i]
		p := &allocatepb.Member{ClientId: o.ClientID, Zone: zones.index(o.Zone), Weight: o.Weight}
		if len(o.Owned) > 0 {
			p.Owned = make([]uint32, len(o.Owned))
			for j, q := range o.Owned {
				p.Owned[j] = uint32(q)
			}
		}
		m.Members[i] = p
	}
	m.Strings = t.list
	return m
}

// fromRequest decodes; errors match allocate.ErrRequest. What the contract's own
// Check finds is left to the allocator.
func fromRequest(m *allocatepb.AllocateRequest) (*allocate.Request, error) {
	n := len(m.GetTopic())
	if len(m.GetBroker()) != n || len(m.GetZone()) != n || len(m.GetId()) != n {
		return nil, fmt.Errorf("%w: the host sent %d topics, %d brokers, %d zones and %d ids of queues; there must be as many of each",
			allocate.ErrRequest, n, len(m.GetBroker()), len(m.GetZone()), len(m.GetId()))
	}
	var bad error
	text := func(i uint32) string {
		if i < uint32(len(m.Strings)) {
			return m.Strings[i]
		}
		bad = fmt.Errorf("%w: the host sent string %d of %d", allocate.ErrRequest, i, len(m.Strings))
		return ""
	}
	r := &allocate.Request{
		Group: m.GetGroup(), Generation: m.GetGeneration(),
		Queues: make([]allocate.Queue, n), Members: make([]allocate.Member, len(m.GetMembers())),
	}
	for i := range r.Queues {
		r.Queues[i] = allocate.Queue{Topic: text(m.Topic[i]), Broker: text(m.Broker[i]), Zone: text(m.Zone[i]), ID: m.Id[i]}
	}
	for i, p := range m.GetMembers() {
		o := allocate.Member{ClientID: p.GetClientId(), Zone: text(p.GetZone()), Weight: p.GetWeight()}
		if len(p.GetOwned()) > 0 {
			o.Owned = make([]int, len(p.Owned))
			for j, q := range p.Owned {
				o.Owned[j] = int(q)
			}
		}
		r.Members[i] = o
	}
	return r, bad
}

// toAnswer encodes an assignment that passed its Check.
func toAnswer(a *allocate.Assignment) *allocatepb.AllocateResponse {
	m := &allocatepb.AllocateResponse{Owner: make([]int32, len(a.Owner))}
	for i, o := range a.Owner {
		m.Owner[i] = int32(o)
	}
	if len(a.Why) > 0 {
		t := &table{index: map[string]uint32{}}
		why := column{t: t}
		m.Why = make([]uint32, len(a.Why))
		for i, s := range a.Why {
			m.Why[i] = why.index(s)
		}
		m.Reasons = t.list
	}
	return m
}

// fromAnswer decodes what may be anything, and checks it.
func fromAnswer(m *allocatepb.AllocateResponse, r *allocate.Request) (allocate.Assignment, error) {
	a := allocate.Assignment{Owner: make([]int, len(m.GetOwner()))}
	for i, o := range m.GetOwner() {
		a.Owner[i] = int(o)
	}
	if len(m.GetWhy()) > 0 {
		a.Why = make([]string, len(m.Why))
		for i, w := range m.Why {
			if w >= uint32(len(m.Reasons)) {
				return allocate.Assignment{}, fmt.Errorf("the assignment of group %q has reason %d of %d for queue %d", r.Group, w, len(m.Reasons), i)
			}
			a.Why[i] = m.Reasons[w]
		}
	}
	if err := a.Check(r); err != nil {
		return allocate.Assignment{}, err
	}
	return a, nil
}
