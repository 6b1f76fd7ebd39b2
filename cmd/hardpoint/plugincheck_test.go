package main

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCheckEnds: a plugin that never closes is found, not waited for.
func TestCheckEnds(t *testing.T) {
	for limit := 4 * time.Second; ; limit *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		out, err := exec.CommandContext(ctx, "hardpoint", "plugin", "check", "--timeout", limit.String(), stubbornProgram).CombinedOutput()
		require.NoError(t, ctx.Err(), "it waits for ever: %s", out)
		cancel()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, "%s", out)
		require.Equal(t, exitFailure, exit.ExitCode(), "%s", out)
		if strings.Contains(string(out), "\nproblem: storage memory: it does not answer within "+limit.String()+": close the store: ") {
			return
		}
		require.Less(t, limit, time.Minute, "%s", out) // a busy machine: it did not come that far
	}
}
