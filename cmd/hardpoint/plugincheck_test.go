package main

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCheckEnds: a plugin that never closes is found, not waited for.
func TestCheckEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "hardpoint", "plugin", "check", "--timeout", "8s", stubbornProgram).CombinedOutput()
	require.NoError(t, ctx.Err(), "it waits for ever: %s", out)
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", out)
	require.Equal(t, exitFailure, exit.ExitCode(), "%s", out)
	require.Regexp(t, `(?m)^problem: storage memory: it does not answer within 8s: close the store: `, string(out))
}
