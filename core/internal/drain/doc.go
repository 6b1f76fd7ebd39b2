// Package drain leads producers to other brokers before one stops.
//
// Producers choose a broker by routes, which they ask a name server for every 30 s.
// One that goes away without a word costs them what was under way, and sends that are
// not tried again (asynchronous ones of the Go client, ordered ones) fail until the
// next question. So a broker first registers without write permission those topics
// that somebody else takes messages of, goes on serving while producers learn of that,
// and stops when nobody sends to it any more.
//
// Topics that only this broker takes messages of stay writable until it stops: without
// them there would be nowhere to send to for all that time. The same holds for topics
// with an order configuration, whose queues clients choose by it, whatever the
// permission. If no other broker has any topic of clients, or no name server answers,
// there is nothing to wait for.
//
// Another broker that has them and takes no messages drains, most likely: its producers
// are on their way here. So this one goes on serving as long as a drain takes, without
// leading anybody away, and does so as soon as one takes messages again, as who restarts
// brokers one after the other, and faster than they drain, would have it.
package drain
