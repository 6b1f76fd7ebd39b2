// Package harness runs hardpoint processes for tests: it builds the binary,
// starts brokers and name servers on free ports, kills, stops, freezes and
// restarts them on the same ports, and speaks raw remoting frames to them.
//
// Nothing here sleeps to synchronise: readiness and every other state of another
// process is polled with a deadline through [Until].
//
// Environment: HARDPOINT_TEST_BINARY names a binary that is used as it is;
// HARDPOINT_TEST_NORACE builds the binary without the race detector;
// HARDPOINT_TEST_LONG asks for the long form of tests.
package harness
