// Package assign shares the queues of a topic among the members of a group for
// clients that let the broker do it: QUERY_ASSIGNMENT (400), and
// SET_MESSAGE_REQUEST_MODE (401) and GET_ALL_MESSAGE_REQUEST_MODE (402), which say
// how.
//
// # One broker computes
//
// Clients ask any broker of the topic. Of the topic's brokers, as the name servers
// know them, rendezvous hashing of the group's name picks one, the owner. It knows
// the members, since consumers send heartbeats to all brokers of their topics. A
// broker that is asked and is not the owner asks the owner, with a mark by which
// the owner knows that it must answer itself, even if it thinks that another one
// is the owner. With the answer comes the assignment of the whole group, unless
// the asking broker has it; when the owner does not answer, the others go by what
// it said last, until the name servers have noticed and there is a new owner. That
// one goes on from the same assignment, so that members keep their queues.
//
// # Generations
//
// The owner asks the allocator when members, zones, weights, queues, or the
// allocator have changed since the last time, and never otherwise. Each time the
// group's generation grows. The last assignment is a value of the catalog: after a
// restart members keep what they had. When the allocator fails (the process of a
// plugin is gone, or it answers nonsense), the last assignment stays, and the
// allocator is asked again soon.
//
// # Which allocator
//
// What SET_MESSAGE_REQUEST_MODE said of the group in the topic, else the group's
// attribute allocator, else the strategyName of the client's request.
package assign
