// Package storagetest is the conformance suite of the storage contract, its
// shared benchmarks, and doubles and builders for tests that need a store.
//
// A store's test is a few lines:
//
//	func TestConformance(t *testing.T) {
//		storagetest.Run(t, storagetest.Harness{Factory: mystore.NewFactory()})
//	}
//
//	func BenchmarkStore(b *testing.B) {
//		storagetest.Benchmark(b, storagetest.Harness{Factory: mystore.NewFactory()})
//	}
//
// The zero Lacks says that the store offers every facet and runs every test; a
// store that answers differently than its harness says fails the run. Tests are
// named TestConformance/<store>/<form>/<facet>/<case> with the facets store,
// raw_log, key_index, retention and model.
//
// The model run does random operations on the store and on a simple model in
// memory and compares them. It prints its seed; HARDPOINT_TEST_SEED repeats one,
// HARDPOINT_TEST_ROUNDS asks for more rounds (default 3).
//
// The suite poisons what a store may not keep: the bytes of a batch after
// Append returned, its units and keys after Free.
//
// [Writer] makes Pendings from plain messages, [Clock] is a clock that tests
// set, [Nop] and [Err] are stores for tests of what stands above.
package storagetest
