// Package soak has many clients do everything at once to a broker that is built with
// the race detector, compares what it says with what it acknowledged before, and looks
// whether its goroutines, files and memory are back when the clients are gone.
//
// HARDPOINT_TEST_LONG makes it ten minutes instead of ten seconds.
package soak
