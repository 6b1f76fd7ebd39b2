package storekit

import (
	"context"

	"github.com/hardpointmq/hardpoint/core/storage"
)

// KV is an ordered key-value backend. Open comes first, Close last, and both
// once; everything between may be called by several goroutines, but Apply by
// one at a time. Slices passed in either direction are lent for the call.
type KV interface {
	// Open takes what the backend needs, exclusively: a second opener of the
	// same directory gets an error. When it fails it releases what it took.
	Open(ctx context.Context) error
	// Apply does all of ops in order, or none of them. When it returns they
	// survive what Options.Survives says, with sync also power loss. An error
	// that matches storage.ErrFull promises that nothing was done; any other
	// fails the store.
	Apply(ops []Op, sync bool) error
	// Get appends the value of key to dst; found is false when there is none.
	Get(key, dst []byte) (value []byte, found bool, err error)
	// Scan calls each for every pair with from ≤ key < to, ascending, or
	// descending when reverse, until each returns false. What Apply does
	// meanwhile may be seen or not.
	Scan(from, to []byte, reverse bool, each func(key, value []byte) bool) error
	// Sync returns when everything applied before survives power loss. After
	// an error it is not called again.
	Sync() error
	// Close releases what Open took.
	Close() error
}

// Op is one change. With Until it removes all keys in [Key, Until), else it sets
// Key to Value.
type Op struct {
	Key, Value []byte
	Until      []byte
	// Owed, in the first op of a step, says that the step completes one that was
	// done, as publishing completes appending. A backend that refuses steps to keep
	// a reserve of space takes this one from the reserve.
	Owed bool
}

// Options tell what a backend promises.
type Options struct {
	// Survives is what an Apply without sync survives.
	Survives storage.Survival
}
