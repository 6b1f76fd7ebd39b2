package catalog

import (
	"context"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/internal/kernel"
)

// valueTable is what behaviours remember of groups in topics.
type valueTable struct {
	mu sync.RWMutex
	m  map[kernel.ValueKey][]byte
	// modes and forbidden are kinds that files mirror.
	modes, forbidden mirror
}

// mirror counts the values of a kind, and their changes.
type mirror struct {
	n       atomic.Int64
	changes int // guarded by valueTable.mu
}

// mirrorOf is nil for a kind that no file shows.
func (t *valueTable) mirrorOf(kind string) *mirror {
	switch kind {
	case kernel.ValueRequestMode:
		return &t.modes
	case kernel.ValueForbidden:
		return &t.forbidden
	}
	return nil
}

// put takes v over; empty removes.
func (t *valueTable) put(k kernel.ValueKey, v []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := len(t.m)
	if len(v) == 0 {
		delete(t.m, k)
	} else {
		t.m[k] = v
	}
	t.count(k, len(t.m)-before)
}

func (t *valueTable) remove(gone func(k kernel.ValueKey) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.m, func(k kernel.ValueKey, _ []byte) bool {
		if !gone(k) {
			return false
		}
		t.count(k, -1)
		return true
	})
}

// count notes that the value of a key changed, and how many more there are of its kind.
func (t *valueTable) count(k kernel.ValueKey, more int) {
	if m := t.mirrorOf(k.Kind); m != nil {
		m.changes++
		m.n.Add(int64(more))
	}
}

// changes tells how often what is mirrored changed.
func (t *valueTable) changes() (modes, forbidden int) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.modes.changes, t.forbidden.changes
}

// forbid replaces what groups may not do: group → topic → bits.
func (t *valueTable) forbid(table map[string]map[string]int32) {
	t.remove(func(k kernel.ValueKey) bool { return k.Kind == kernel.ValueForbidden })
	for group, topics := range table {
		for topic, bits := range topics {
			if bits != 0 {
				t.put(kernel.ValueKey{Kind: kernel.ValueForbidden, Group: group, Topic: topic}, strconv.AppendInt(nil, int64(bits), 10))
			}
		}
	}
}

// replace takes over the table of a private state.
func (t *valueTable) replace(from *valueTable) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.m = from.m
	for _, kind := range []string{kernel.ValueRequestMode, kernel.ValueForbidden} {
		to, f := t.mirrorOf(kind), from.mirrorOf(kind)
		to.n.Store(f.n.Load())
		to.changes += f.changes + 1
	}
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

// Has implements kernel.Values.
func (c *Catalog) Has(kind string) bool {
	m := c.s.values.mirrorOf(kind)
	return m != nil && m.n.Load() > 0
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
	return c.change(ctx, w, false, k.Kind == kernel.ValueForbidden) // the file of groups shows it
}
