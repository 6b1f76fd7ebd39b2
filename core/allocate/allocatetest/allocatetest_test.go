package allocatetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/plugin"
)

// circle is a correct allocator.
func circle(_ context.Context, r *allocate.Request) (allocate.Assignment, error) {
	if err := r.Check(); err != nil {
		return allocate.Assignment{}, err
	}
	a := allocate.Assignment{Owner: make([]int, len(r.Queues))}
	for i := range a.Owner {
		a.Owner[i] = i % len(r.Members)
	}
	return a, nil
}

// keep leaves queues where they are and gives the others to the first member.
func keep(ctx context.Context, r *allocate.Request) (allocate.Assignment, error) {
	a, err := circle(ctx, r)
	if err != nil {
		return a, err
	}
	clear(a.Owner)
	for i, m := range r.Members {
		for _, q := range m.Owned {
			a.Owner[q] = i
		}
	}
	return a, nil
}

// after changes what a correct allocator answers.
func after(change func(r *allocate.Request, a *allocate.Assignment)) allocate.Func {
	return func(ctx context.Context, r *allocate.Request) (allocate.Assignment, error) {
		a, err := circle(ctx, r)
		if err == nil {
			change(r, &a)
		}
		return a, err
	}
}

// recorder takes what a case finds.
type recorder struct {
	mu   sync.Mutex
	text string
	over bool // the case has ended
}

func (r *recorder) Helper()             {}
func (r *recorder) Logf(string, ...any) {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		panic("a case finds something after its end, as package testing does not allow")
	}
	// A case may say the same hundreds of times beside what is looked for.
	if text := fmt.Sprintf(format, args...) + "\n"; !strings.Contains(r.text, text) {
		r.text += text
	}
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// failing names the cases that fail, and gives what they say.
func failing(a allocate.Allocator, h Harness) (names []string, text string) {
	for _, c := range cases {
		if c.promised != nil && !c.promised(h.Promises) {
			continue
		}
		var r recorder
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.run(&r, a, h)
		}()
		<-done
		r.mu.Lock()
		r.over = true
		r.mu.Unlock()
		if r.text != "" {
			names = append(names, c.name)
			text += r.text
		}
	}
	return names, text
}

// TestTheSuite: it passes what is right, and finds each fault.
func TestTheSuite(t *testing.T) {
	var calls atomic.Int64
	all := func(owner int) allocate.Func {
		return after(func(_ *allocate.Request, a *allocate.Assignment) {
			for i := range a.Owner {
				a.Owner[i] = owner
			}
		})
	}
	unbalanced := Harness{Lacks: Lacks{Balance: true}}
	var first atomic.Bool
	second := make(chan struct{})
	for _, c := range []struct {
		name string
		a    allocate.Func
		h    Harness
		// case that must fail, and what it says; without it none may.
		fails, says string
	}{
		{"right", circle, Harness{}, "", ""},
		{"right without balance", keep, Harness{Lacks: Lacks{Balance: true}, Promises: Promises{OnlyNeeded: true}}, "", ""},
		{"nobody owns anything", all(-1), Harness{Lacks: Lacks{Complete: true}}, "", ""},
		{"does not check", func(_ context.Context, r *allocate.Request) (allocate.Assignment, error) {
			return allocate.Assignment{Owner: make([]int, len(r.Queues))}, nil
		}, unbalanced, "refuses bad requests", "a member twice"},
		{"has an error of its own", func(ctx context.Context, r *allocate.Request) (allocate.Assignment, error) {
			a, err := circle(ctx, r)
			if err != nil {
				err = errors.New("no")
			}
			return a, err
		}, Harness{}, "refuses bad requests", "want ErrRequest"},
		{"fails", func(_ context.Context, r *allocate.Request) (allocate.Assignment, error) {
			return allocate.Assignment{}, errors.Join(errors.New("not on Tuesdays"), r.Check())
		}, Harness{}, "properties", "not on Tuesdays"},
		{"has an owner too many", after(func(_ *allocate.Request, a *allocate.Assignment) { a.Owner = append(a.Owner, 0) }), Harness{}, "properties", "owners for"},
		{"has an owner that is no member", all(99), unbalanced, "properties", "to member 99"},
		{"has an owner below -1", all(-2), Harness{Lacks: Lacks{Balance: true, Complete: true}}, "properties", "to member -2"},
		{"leaves queues", all(-1), unbalanced, "properties", "has no owner"},
		{"gives one reason", after(func(_ *allocate.Request, a *allocate.Assignment) { a.Why = []string{"so"} }), Harness{}, "properties", "1 reasons"},
		{"is unbalanced", all(0), Harness{}, "properties", "shares from 0"},
		{"changes the request", after(func(r *allocate.Request, _ *allocate.Assignment) { r.Group = "x" }), Harness{}, "properties", "the request was changed"},
		{"sorts the members", after(func(r *allocate.Request, _ *allocate.Assignment) { slices.Reverse(r.Members) }), Harness{}, "properties", "the request was changed"},
		{"keeps state", after(func(_ *allocate.Request, a *allocate.Assignment) {
			if calls.Add(1)%2 == 0 {
				slices.Reverse(a.Owner)
			}
		}), Harness{}, "many at once", "another assignment"},
		{"fails while others are at work", func(ctx context.Context, r *allocate.Request) (allocate.Assignment, error) {
			a, err := circle(ctx, r)
			switch {
			case r.Group == "g0" && first.Swap(true):
				<-second
				slices.Reverse(a.Owner)
			case r.Group == "g1":
				close(second)
				err = errors.New("not on Tuesdays")
			}
			return a, err
		}, Harness{}, "many at once", "not on Tuesdays"},
		{"turns with the generation", after(func(r *allocate.Request, a *allocate.Assignment) {
			for i := range a.Owner {
				a.Owner[i] = (i + int(r.Generation%2)) % len(r.Members)
			}
		}), Harness{}, "settles", "nothing changed"},
		{"hides the context's end", func(ctx context.Context, r *allocate.Request) (allocate.Assignment, error) {
			if ctx.Err() != nil {
				return allocate.Assignment{}, errors.New("stopped")
			}
			return circle(ctx, r)
		}, Harness{}, "context", "want none or context.Canceled"},
		{"moves too many", circle, Harness{Promises: Promises{FewMoves: true}}, "few moves", "would do"},
		{"moves others", circle, Harness{Promises: Promises{OnlyNeeded: true}}, "only needed", "moved from"},
		{"knows no weight", circle, Harness{Promises: Promises{Weights: true}}, "weights and zones", "the weights sum up to"},
		{"knows no zone", circle, Harness{Promises: Promises{Zones: true}}, "weights and zones", "of another zone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, text := failing(c.a, c.h)
			if c.fails == "" && len(got) > 0 || c.fails != "" && !slices.Contains(got, c.fails) || !strings.Contains(text, c.says) {
				t.Fatalf("these cases failed: %q, want %q with %q:\n%s", got, c.fails, c.says, text)
			}
		})
	}
}

// TestRunClosesTheAllocator, which may be a process.
func TestRunClosesTheAllocator(t *testing.T) {
	closed := 0
	f := allocate.NewFactory("closer",
		func(struct{ X int }) plugin.Description { return plugin.Description{Version: "1"} },
		func() struct{ X int } { return struct{ X int }{} },
		func(context.Context, allocate.Params, struct{ X int }) (closer, error) {
			return closer{circle, &closed}, nil
		})
	Run(t, Harness{Factory: f, Form: "in_process"})
	if closed != 1 {
		t.Fatalf("closed %d times", closed)
	}
}

type closer struct {
	allocate.Func
	closed *int
}

func (c closer) Close() error { *c.closed++; return nil }
