package logunits_test

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/internal/logunits"
)

func TestReplaceAttr(t *testing.T) {
	var b bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&b, &slog.HandlerOptions{ReplaceAttr: logunits.ReplaceAttr}))
	log.Info("x", "wait", 87_345_632*time.Nanosecond, "long", 21_399_999_999*time.Nanosecond, "n", 5, slog.Group("g", "late", -2*time.Second))
	for _, want := range []string{`"wait":"87.346ms"`, `"long":"21.4s"`, `"n":5`, `"late":"-2s"`} {
		require.Contains(t, b.String(), want)
	}
}
