package catalog

import (
	"context"
	"maps"
	"sync"

	"github.com/hardpointmq/hardpoint/core/internal/kernel"
)

// valueTable is what behaviours remember of groups in topics.
type valueTable struct {
	mu sync.RWMutex
	m  map[kernel.ValueKey][]byte
	// modes counts changes of request modes: a file mirrors them.
	modes int
}

// put takes v over; empty removes.
func (t *valueTable) put(k kernel.ValueKey, v []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count(k)
	if len(v) == 0 {
		delete(t.m, k)
		return
	}
	t.m[k] = v
}

func (t *valueTable) remove(gone func(k kernel.ValueKey) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.m, func(k kernel.ValueKey, _ []byte) bool {
		if !gone(k) {
			return false
		}
		t.count(k)
		return true
	})
}

// count notes that the value of a key changes.
func (t *valueTable) count(k kernel.ValueKey) {
	if k.Kind == kernel.ValueRequestMode {
		t.modes++
	}
}

func (t *valueTable) modeChanges() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.modes
}

// replace takes over the table of a private state.
func (t *valueTable) replace(from *valueTable) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.m = from.m
	t.modes += from.modes + 1
}

func (t *valueTable) dump(w *writer) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for k, v := range t.m {
		w.value(k, v)
	}
}

func (w *writer) value(k kernel.ValueKey, v []byte) {
	w.entry(entryValue, append(str(str(str(nil, k.Kind), k.Group), k.Topic), str(nil, string(v))...))
}

// Value implements kernel.Values.
func (c *Catalog) Value(k kernel.ValueKey) []byte {
	t := &c.s.values
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.m[k]
}

// OfKind implements kernel.Values.
func (c *Catalog) OfKind(kind string, yield func(k kernel.ValueKey, v []byte) bool) {
	t := &c.s.values
	t.mu.RLock()
	defer t.mu.RUnlock()
	for k, v := range t.m {
		if k.Kind == kind && !yield(k, v) {
			return
		}
	}
}

// PutValue implements kernel.Values.
func (c *Catalog) PutValue(ctx context.Context, k kernel.ValueKey, v []byte) error {
	defer c.lockKey("v/" + k.Kind + "/" + k.Group + "/" + k.Topic)()
	w := &writer{}
	w.value(k, v)
	return c.change(ctx, w, false, false)
}
