// Package logunits makes values in JSON log lines say their unit.
package logunits

import (
	"log/slog"
	"time"
)

// ReplaceAttr is one of slog.HandlerOptions: a duration becomes a text with its unit,
// "21.4s". The JSON handler writes a bare number of nanoseconds, which nobody reads as
// one.
func ReplaceAttr(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() != slog.KindDuration {
		return a
	}
	d, unit := a.Value.Duration(), time.Microsecond
	if d.Abs() >= time.Second {
		unit = time.Millisecond
	}
	return slog.String(a.Key, d.Round(unit).String())
}
