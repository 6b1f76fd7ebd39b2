package storekit

import (
	"bytes"
	"context"
	"slices"
	"sort"
	"sync"
)

// leafSize is how many pairs a leaf holds at most.
const leafSize = 256

// large values get memory of their own, so that a small pair that lives long
// does not keep records in memory.
const largeValue = 64

type pair struct{ key, value []byte }

// MemKV is a KV in memory: sorted leaves in a sorted list. What it holds is gone
// with Close. The zero value is ready for Open.
type MemKV struct {
	mu     sync.RWMutex
	leaves [][]pair // none is empty
}

// Open implements KV.
func (m *MemKV) Open(context.Context) error { return nil }

// Sync implements KV: there is nothing that could survive.
func (m *MemKV) Sync() error { return nil }

// Close implements KV.
func (m *MemKV) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leaves = nil
	return nil
}

// Apply implements KV. It copies what it keeps, with two allocations a call.
func (m *MemKV) Apply(ops []Op, _ bool) error {
	small, big := 0, 0
	for i := range ops {
		if ops[i].Until != nil {
			continue
		}
		small += len(ops[i].Key)
		if n := len(ops[i].Value); n >= largeValue {
			big += n
		} else {
			small += n
		}
	}
	smalls, bigs := make([]byte, 0, small), make([]byte, 0, big)
	keep := func(block *[]byte, b []byte) []byte {
		n := len(*block)
		*block = append(*block, b...)
		return (*block)[n:len(*block):len(*block)]
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range ops {
		op := &ops[i]
		if op.Until != nil {
			m.remove(op.Key, op.Until)
			continue
		}
		p := pair{key: keep(&smalls, op.Key)}
		if len(op.Value) >= largeValue {
			p.value = keep(&bigs, op.Value)
		} else {
			p.value = keep(&smalls, op.Value)
		}
		m.set(p)
	}
	return nil
}

// find gives the place of the first pair with at least key: leaf and index; the
// leaf may be len(leaves).
func (m *MemKV) find(key []byte) (leaf, at int) {
	leaf = sort.Search(len(m.leaves), func(i int) bool {
		l := m.leaves[i]
		return bytes.Compare(l[len(l)-1].key, key) >= 0
	})
	if leaf < len(m.leaves) {
		l := m.leaves[leaf]
		at = sort.Search(len(l), func(i int) bool { return bytes.Compare(l[i].key, key) >= 0 })
	}
	return leaf, at
}

func (m *MemKV) set(p pair) {
	leaf, at := m.find(p.key)
	if leaf < len(m.leaves) && bytes.Equal(m.leaves[leaf][at].key, p.key) {
		m.leaves[leaf][at].value = p.value
		return
	}
	if at == 0 && leaf > 0 && len(m.leaves[leaf-1]) < leafSize {
		leaf-- // behind the last of the leaf before
		at = len(m.leaves[leaf])
	}
	if leaf == len(m.leaves) || (at == 0 && len(m.leaves[leaf]) == leafSize) {
		fresh := append(make([]pair, 0, leafSize), p)
		m.leaves = slices.Insert(m.leaves, leaf, fresh)
		return
	}
	l := m.leaves[leaf]
	if len(l) == leafSize {
		half := append(make([]pair, 0, leafSize), l[leafSize/2:]...)
		clear(l[leafSize/2:])
		l = l[:leafSize/2]
		m.leaves[leaf] = l
		m.leaves = slices.Insert(m.leaves, leaf+1, half)
		if at > leafSize/2 {
			leaf, at, l = leaf+1, at-leafSize/2, half
		}
	}
	m.leaves[leaf] = slices.Insert(l, at, p)
}

// remove takes away [from, until).
func (m *MemKV) remove(from, until []byte) {
	if bytes.Compare(from, until) >= 0 {
		return
	}
	first, i := m.find(from)
	last, j := m.find(until)
	if first == len(m.leaves) {
		return
	}
	if first == last {
		m.leaves[first] = slices.Delete(m.leaves[first], i, j)
		if len(m.leaves[first]) == 0 {
			m.leaves = slices.Delete(m.leaves, first, first+1)
		}
		return
	}
	// The head loses its end, the tail (if there is one) its beginning, what
	// lies between goes as a whole.
	if j > 0 {
		m.leaves[last] = slices.Delete(m.leaves[last], 0, j)
	}
	if i > 0 {
		clear(m.leaves[first][i:])
		m.leaves[first] = m.leaves[first][:i]
		first++
	}
	m.leaves = slices.Delete(m.leaves, first, last)
}

// Get implements KV.
func (m *MemKV) Get(key, dst []byte) ([]byte, bool, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	leaf, at := m.find(key)
	if leaf == len(m.leaves) || !bytes.Equal(m.leaves[leaf][at].key, key) {
		return dst, false, nil
	}
	return append(dst, m.leaves[leaf][at].value...), true, nil
}

// Scan implements KV.
func (m *MemKV) Scan(from, to []byte, reverse bool, each func(key, value []byte) bool) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if !reverse {
		leaf, at := m.find(from)
		for ; leaf < len(m.leaves); leaf, at = leaf+1, 0 {
			for _, p := range m.leaves[leaf][at:] {
				if bytes.Compare(p.key, to) >= 0 || !each(p.key, p.value) {
					return nil
				}
			}
		}
		return nil
	}
	leaf, at := m.find(to)
	for {
		if at == 0 {
			if leaf == 0 {
				return nil
			}
			leaf--
			at = len(m.leaves[leaf])
		}
		at--
		if p := m.leaves[leaf][at]; bytes.Compare(p.key, from) < 0 || !each(p.key, p.value) {
			return nil
		}
	}
}
