// Package bench is the load generator of `hardpoint bench`: it drives any broker
// that speaks RocketMQ's remoting protocol with raw frames, and serves the floor
// that brokers are compared with.
//
// # Cost of its own
//
// Frames are patched templates: opaque, birth time, unique key and, end to end,
// a time stamp in the body are overwritten in place; an answer is looked at for
// code and opaque only. One goroutine per connection reads what there is, and
// answers all of it with one write. That costs a microsecond or two per message.
//
// # Closed and open loop
//
// In a closed loop each of connections × depth slots sends its next request when
// the last one was answered: the highest rate that so many can reach. In an open
// loop messages are due at a fixed rate, whatever the broker does, and latency
// counts from when a message was due, so that a broker that stands still for a
// second is charged for everything that should have been sent in it.
package bench
