// Package embedded runs a broker inside a Go program or test: the same engine
// and plugins as the hardpoint binary, on ports of its own choosing.
//
// In a test it takes one line, and ends with the test:
//
//	b := embedded.Start(t)
//	producer.WithNameServer([]string{b.NamesrvAddress()})
//
// Messages are kept in memory unless [WithDir] names a directory; then the store
// is commitlog, RocketMQ's files, and survives. Several brokers can run in one
// process, each for itself or as the broker groups of one cluster:
//
//	a := embedded.Start(t)
//	b := embedded.Start(t, embedded.WithName("b"), embedded.WithNameServers(a.NamesrvAddress()))
package embedded
