// Package crash kills brokers under load and damages what they leave behind:
// what was acknowledged must be found again, once, at its acknowledged offset,
// for each store at what it promises.
//
// HARDPOINT_TEST_LONG runs 200 rounds a store instead of 20. HARDPOINT_TEST_CRASH_SEED
// repeats the random choices of a run; how the machine interleaves them it
// cannot repeat.
package crash
