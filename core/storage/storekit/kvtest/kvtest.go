// Package kvtest tests a backend of storekit by itself, and tells what is wrong in
// the words of its methods. The suite of stores (storagetest) comes after it: it runs
// on the whole store that the kit makes of the backend, where a mistake in a Scan
// looks like a lost record.
//
//	func TestBackend(t *testing.T) {
//		kvtest.Run(t, kvtest.Harness{New: func(dir string) storekit.KV { return &backend{dir: dir} }})
//	}
//
// What it cannot see is whether Sync reaches the disk.
package kvtest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"testing"

	"github.com/hardpointmq/hardpoint/core/storage/storekit"
)

// Harness tells what to test.
type Harness struct {
	// New makes a backend over the directory, which exists and is empty or was another
	// one's before. It opens nothing.
	New func(dir string) storekit.KV
	// Volatile: what was applied is gone with Close, and directories are not used.
	Volatile bool
}

// Run runs the cases, each on a new directory.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(b *backend)
	}{
		{"get", get}, {"scan", scan}, {"remove", remove}, {"order_in_apply", order}, {"lent_slices", lent},
		{"many_changes", many}, {"readers_beside_a_writer", readers}, {"reopen", reopen}, {"one_opener", oneOpener},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &backend{tb: t, h: h, dir: t.TempDir(), model: map[string]string{}}
			b.open()
			defer func() {
				if err := b.kv.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			}()
			c.test(b)
		})
	}
}

// tb is what the cases need of a test, so that they can be tested.
type tb interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// backend is an open one and the map that it must equal.
type backend struct {
	tb
	h     Harness
	dir   string
	kv    storekit.KV
	model map[string]string
}

func (b *backend) open() {
	b.Helper()
	b.kv = b.h.New(b.dir)
	if err := b.kv.Open(context.Background()); err != nil {
		b.Fatalf("Open: %v", err)
	}
}

func set(key, value string) storekit.Op { return storekit.Op{Key: []byte(key), Value: []byte(value)} }

func removal(from, to string) storekit.Op { return storekit.Op{Key: []byte(from), Until: []byte(to)} }

// apply applies to both, and overwrites what it lent.
func (b *backend) apply(sync bool, ops ...storekit.Op) {
	b.Helper()
	for _, op := range ops {
		if op.Until == nil {
			b.model[string(op.Key)] = string(op.Value)
			continue
		}
		for k := range b.model {
			if k >= string(op.Key) && k < string(op.Until) {
				delete(b.model, k)
			}
		}
	}
	if err := b.kv.Apply(ops, sync); err != nil {
		b.Fatalf("Apply of %s: %v", said(ops), err)
	}
	for _, op := range ops {
		for _, s := range [][]byte{op.Key, op.Value, op.Until} {
			for i := range s {
				s[i] = poison
			}
		}
	}
}

// poison is written over what was lent to a backend.
const poison = 0xA5

func said(ops []storekit.Op) string {
	var out []string
	for _, op := range ops {
		if op.Until == nil {
			out = append(out, fmt.Sprintf("set %q", op.Key))
		} else {
			out = append(out, fmt.Sprintf("remove [%q, %q)", op.Key, op.Until))
		}
	}
	return fmt.Sprint(out)
}

// check compares a Get with the map.
func (b *backend) check(key string) {
	b.Helper()
	want, there := b.model[key]
	lent := []byte(key)
	got, found, err := b.kv.Get(lent, []byte("before "))
	switch {
	case err != nil:
		b.Fatalf("Get of %q: %v", key, err)
	case found != there:
		b.Fatalf("Get of %q: found is %v, want %v", key, found, there)
	case found && string(got) != "before "+want:
		b.Fatalf("Get of %q appended to \"before \" gave %q, want %q", key, got, "before "+want)
	}
}

// span compares a Scan with the map, up to most pairs.
func (b *backend) span(from, to string, reverse bool, most int) {
	b.Helper()
	var want, got []string
	for k, v := range b.model {
		if k >= from && k < to {
			want = append(want, k+"="+v)
		}
	}
	sort.Slice(want, func(i, j int) bool { return keyOf(want[i]) < keyOf(want[j]) })
	if reverse {
		slices.Reverse(want)
	}
	want = want[:min(most, len(want))]
	calls := 0
	err := b.kv.Scan([]byte(from), []byte(to), reverse, func(k, v []byte) bool {
		calls++
		got = append(got, string(k)+"="+string(v))
		return calls < most
	})
	what := fmt.Sprintf("Scan from %q to %q, reverse %v, ended by each after %d", from, to, reverse, most)
	if err != nil {
		b.Fatalf("%s: %v", what, err)
	}
	if calls > most {
		b.Fatalf("%s: called each %d times", what, calls)
	}
	if !slices.Equal(got, want) {
		b.Fatalf("%s:\n got %q\nwant %q", what, got, want)
	}
}

func keyOf(pair string) string {
	k, _, _ := bytes.Cut([]byte(pair), []byte("="))
	return string(k)
}

// whole compares everything.
func (b *backend) whole() {
	b.Helper()
	b.span("", "\xff", false, 1<<20)
	b.span("", "\xff", true, 1<<20)
	for k := range b.model {
		b.check(k)
	}
}

func get(b *backend) {
	b.apply(false, set("a", "1"), set("b", ""), set("c\x00\xff", "3"))
	for _, key := range []string{"a", "b", "c\x00\xff", "", "c", "c\x00", "d"} {
		b.check(key)
	}
	b.apply(true, set("a", "longer than before"))
	b.check("a")
}

func scan(b *backend) {
	b.span("", "\xff", false, 10)
	b.apply(false, set("b", "2"), set("a", "1"), set("d", "4"), set("c", "3"), set("c\x00", "3a"))
	for _, to := range []string{"", "a", "c", "c\x00", "c\x01", "\xff"} {
		for _, from := range []string{"", "a", "b", "b\x00", "c\x00"} {
			for _, most := range []int{1, 2, 10} {
				b.span(from, max(from, to), false, most)
				b.span(from, max(from, to), true, most)
			}
		}
	}
}

func remove(b *backend) {
	b.apply(false, set("a", "1"), set("b", "2"), set("b\x00", "2a"), set("c", "3"), set("d", "4"))
	b.apply(false, removal("b", "c"))
	b.whole()
	b.apply(false, removal("x", "y"), removal("a", "a"))
	b.whole()
	b.apply(true, removal("", "\xff"))
	b.whole()
}

func order(b *backend) {
	b.apply(false, set("a", "old"), set("a", "new"), set("b", "gone"), removal("b", "c"), removal("c", "d"), set("c", "kept"))
	b.whole()
	b.apply(false) // of nothing
	b.whole()
}

func lent(b *backend) {
	b.apply(false, set("key", "value"), set("other", "x"))
	if got, found, err := b.kv.Get([]byte("key"), nil); err != nil || !found || string(got) != "value" {
		b.Fatalf("Get after the slices of Apply were overwritten: %q, found %v, error %v; what Apply is given is lent: copy what is kept", got, found, err)
	}
	got, _, err := b.kv.Get([]byte("key"), nil)
	if err != nil {
		b.Fatalf("Get: %v", err)
	}
	for i := range got {
		got[i] = poison
	}
	if again, _, _ := b.kv.Get([]byte("key"), nil); string(again) != "value" {
		b.Fatalf("Get after the slice that the last one returned was overwritten: %q; append a copy to dst", again)
	}
	b.whole()
}

// many applies random changes and looks at random places.
func many(b *backend) {
	seed := rand.Uint64()
	b.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	key := func() string { return fmt.Sprintf("%c%03d", 'a'+rune(rnd.IntN(3)), rnd.IntN(200)) }
	for n := range 300 {
		var ops []storekit.Op
		for range rnd.IntN(8) {
			if from, to := key(), key(); rnd.IntN(12) == 0 {
				ops = append(ops, removal(min(from, to), max(from, to)))
			} else {
				ops = append(ops, set(from, fmt.Sprint("value ", n)))
			}
		}
		b.apply(rnd.IntN(20) == 0, ops...)
		from, to := key(), key()
		b.span(min(from, to), max(from, to), rnd.IntN(2) == 0, 1+rnd.IntN(20))
		b.check(key())
	}
	b.whole()
}

// readers looks while another goroutine writes: the race detector judges, and values
// that were never written.
func readers(b *backend) {
	b.apply(false, set("k", "0"))
	var all sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if v, found, err := b.kv.Get([]byte("k"), nil); err != nil || !found || len(v) == 0 {
					b.Errorf("Get beside an Apply: %q, found %v, error %v", v, found, err)
					return
				}
				err := b.kv.Scan([]byte("k"), []byte("l"), false, func(k, v []byte) bool {
					if string(k) != "k" || len(v) == 0 {
						b.Errorf("Scan beside an Apply gave %q=%q", k, v)
					}
					return true
				})
				if err != nil {
					b.Errorf("Scan beside an Apply: %v", err)
					return
				}
			}
		})
	}
	for n := range 200 {
		b.apply(false, set("k", fmt.Sprint(n)), set(fmt.Sprint("a", n), "x"))
	}
	close(stop)
	all.Wait()
}

func reopen(b *backend) {
	if b.h.Volatile {
		return
	}
	b.apply(false, set("a", "1"), set("b", "2"), set("c", ""))
	b.apply(false, removal("b", "c"), set("d", "4\n\x00"))
	if err := b.kv.Sync(); err != nil {
		b.Fatalf("Sync: %v", err)
	}
	b.apply(true, set("e", "5"))
	for range 2 {
		if err := b.kv.Close(); err != nil {
			b.Fatalf("Close: %v", err)
		}
		b.open()
		b.whole()
	}
	b.apply(false, set("f", "6"))
	b.whole()
}

func oneOpener(b *backend) {
	if b.h.Volatile {
		return
	}
	b.apply(false, set("a", "1"))
	second := b.h.New(b.dir)
	if err := second.Open(context.Background()); err == nil {
		_ = second.Close()
		b.Fatalf("a second backend was opened on the directory of an open one: Open takes a lock in it (vfs.OS{}.Lock) and keeps it until Close")
	}
	b.whole()
	b.apply(false, set("b", "2"))
	b.whole()
}
