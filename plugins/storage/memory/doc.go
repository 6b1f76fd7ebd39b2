// Package memory is a store that keeps its log in the memory of the process:
// for tests, for trying things out, and as the smallest example of a store on
// storekit. Everything is gone with Shutdown. It offers every facet and survives
// nothing.
package memory
