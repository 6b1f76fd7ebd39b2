package external

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNotLaunched: what keeps a process from being launched at all, as a full
// temporary directory does, is not taken for an end of it.
func TestNotLaunched(t *testing.T) {
	out := newPump("none", slog.New(slog.DiscardHandler), &still{})
	defer out.stop()
	p := &process{out: out, run: newRunner(&program{path: "none"}, nil, out)}
	full := errors.New("no space left on device")
	err := p.whyNot(t.Context(), t.Context(), full)
	require.ErrorIs(t, err, full)
	require.ErrorContains(t, err, "it was not launched")
}
