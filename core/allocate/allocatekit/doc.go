// Package allocatekit has what allocators that keep queues where they are need:
// exact shares by weight, and sharing with the fewest moves. It is pure, as
// allocators must be.
package allocatekit
