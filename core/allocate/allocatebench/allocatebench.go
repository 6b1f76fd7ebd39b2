// Package allocatebench has the request of the shared benchmarks of allocators,
// for package testing (allocatetest) and for programs (hardpoint plugin bench).
package allocatebench

import (
	"fmt"

	"github.com/hardpointmq/hardpoint/core/allocate"
)

// The size that the shared benchmarks have.
const (
	Queues  = 1000
	Members = 100
)

// Request makes one of n queues, over brokers of four queues, and m members.
func Request(n, m int) *allocate.Request {
	r := &allocate.Request{Group: "g", Generation: 1}
	for i := range n {
		r.Queues = append(r.Queues, allocate.Queue{Topic: "t", Broker: fmt.Sprintf("broker-%c", 'a'+i/4%26), ID: int32(i % 4)})
	}
	for i := range m {
		r.Members = append(r.Members, allocate.Member{ClientID: fmt.Sprintf("10.0.0.%03d@1", i)})
	}
	return r
}
