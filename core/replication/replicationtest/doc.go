// Package replicationtest proves replicators and replaces them in tests.
//
// [Run] is the conformance suite of the replication contract; a plugin calls it
// from a test named TestConformance. Its cases are named
// TestConformance/<replicator>/<form>/<part>/<case>.
//
// [Scripted] is a replicator that does what a test tells it: it behaves as one
// with replicas does, without any. The engine's tests run on it.
//
// Both use the standard library and the core's packages only.
package replicationtest
