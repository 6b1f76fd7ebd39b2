package kernel

import (
	"context"
	"sync"

	"github.com/hardpointmq/hardpoint/core/command"
)

// Beside bounds goroutines that serve requests beside their sessions, which many
// connections may share and which would wait with them. The zero value admits none; Stop
// is for Hooks.OnStop. Safe for concurrent use.
type Beside struct {
	// Most is how many there are at a time.
	Most int

	mu      sync.Mutex
	n       int
	stopped bool
	wg      sync.WaitGroup
}

// Begin reports whether a goroutine may begin; it calls End.
func (b *Beside) Begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped || b.n >= b.Most {
		return false
	}
	b.n++
	b.wg.Add(1)
	return true
}

// End says that a goroutine is through.
func (b *Beside) End() {
	b.mu.Lock()
	b.n--
	b.mu.Unlock()
	b.wg.Done()
}

// Stop admits no more and waits for those that are under way.
func (b *Beside) Stop(context.Context) error {
	b.mu.Lock()
	b.stopped = true
	b.mu.Unlock()
	b.wg.Wait()
	return nil
}

// Panicked answers what serving the request beside its session panicked with, as the
// session does.
func (t *Ticket) Panicked(p any) {
	err := t.Conn.Recovered(p, t.Code)
	t.Reply(command.RespSystemError, func(w *command.Writer) { w.Remark(err.Error()) })
}

// Fail answers an error: its code and its text.
func (t *Ticket) Fail(err error) {
	t.Reply(CodeOf(err), func(w *command.Writer) { w.Remark(err.Error()) })
}
