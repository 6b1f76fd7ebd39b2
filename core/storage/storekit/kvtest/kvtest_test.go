package kvtest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hardpointmq/hardpoint/core/storage/storekit"
)

func TestMemKV(t *testing.T) {
	Run(t, Harness{New: func(string) storekit.KV { return &storekit.MemKV{} }, Volatile: true})
}

// faulty is MemKV with a fault of its own.
type faulty struct {
	storekit.MemKV
	fault string
}

func (f *faulty) Apply(ops []storekit.Op, sync bool) error {
	switch f.fault {
	case "forgets removals":
		ops = slices.DeleteFunc(slices.Clone(ops), func(op storekit.Op) bool { return op.Until != nil })
	case "wrong order":
		ops = slices.Clone(ops)
		slices.Reverse(ops)
	case "refuses":
		return errors.New("not today")
	}
	return f.MemKV.Apply(ops, sync)
}

func (f *faulty) Get(key, dst []byte) ([]byte, bool, error) {
	switch f.fault {
	case "overwrites dst":
		return f.MemKV.Get(key, nil)
	case "hides empty values":
		v, found, err := f.MemKV.Get(key, dst)
		return v, found && len(v) > len(dst), err
	}
	return f.MemKV.Get(key, dst)
}

func (f *faulty) Scan(from, to []byte, reverse bool, each func(k, v []byte) bool) error {
	switch f.fault {
	case "never backwards":
		reverse = false
	case "never ends":
		return f.MemKV.Scan(from, to, reverse, func(k, v []byte) bool { each(k, v); return true })
	case "includes the end":
		to = append(bytes.Clone(to), 0)
	}
	return f.MemKV.Scan(from, to, reverse, each)
}

// keeping keeps what it is lent.
type keeping struct {
	storekit.MemKV
	values map[string][]byte
}

func (k *keeping) Apply(ops []storekit.Op, sync bool) error {
	for _, op := range ops {
		if op.Until == nil {
			k.values[string(op.Key)] = op.Value
		}
	}
	return k.MemKV.Apply(ops, sync)
}

func (k *keeping) Get(key, dst []byte) ([]byte, bool, error) {
	v, found := k.values[string(key)]
	return append(dst, v...), found, nil
}

// recorder takes what a case says.
type recorder struct{ said strings.Builder }

type stopped struct{}

func (*recorder) Helper()                             {}
func (*recorder) Logf(string, ...any)                 {}
func (r *recorder) Errorf(format string, args ...any) { fmt.Fprintf(&r.said, format+"\n", args...) }
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(stopped{})
}

// TestFaults: each fault is found, and said in the words of the method that has it.
func TestFaults(t *testing.T) {
	mem := func(fault string) func(string) storekit.KV {
		return func(string) storekit.KV { return &faulty{fault: fault} }
	}
	for name, c := range map[string]struct {
		open func(string) storekit.KV
		test func(*backend)
		says string
	}{
		"removals":  {mem("forgets removals"), remove, `Scan from "" to "\xff"`},
		"order":     {mem("wrong order"), order, "Scan"},
		"refuses":   {mem("refuses"), get, `Apply of [set "a" set "b"`},
		"dst":       {mem("overwrites dst"), get, `Get of "a" appended to "before "`},
		"empty":     {mem("hides empty values"), get, `Get of "b": found is false, want true`},
		"backwards": {mem("never backwards"), scan, "reverse true"},
		"ends":      {mem("never ends"), scan, "called each"},
		"end":       {mem("includes the end"), scan, `to "a"`},
		"random":    {mem("never backwards"), many, "reverse true"},
		"lent":      {func(string) storekit.KV { return &keeping{values: map[string][]byte{}} }, lent, "copy what is kept"},
		"forgets":   {mem(""), reopen, "Scan"},
		"two":       {mem(""), oneOpener, "a second backend was opened"},
	} {
		r := &recorder{}
		b := &backend{tb: r, h: Harness{New: c.open}, model: map[string]string{}}
		func() {
			defer func() {
				if p := recover(); p != nil && p != (stopped{}) {
					panic(p)
				}
			}()
			b.open()
			c.test(b)
		}()
		if !strings.Contains(r.said.String(), c.says) {
			t.Errorf("%s: said %q, want %q", name, r.said.String(), c.says)
		}
	}
}
