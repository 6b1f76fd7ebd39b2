package commitlog

import (
	"context"
	"testing"
	"time"
)

// background is a context that outlives the test's own, for clean-up.
func background(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
