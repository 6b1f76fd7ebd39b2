package main

import (
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"

	"github.com/hardpointmq/hardpoint/internal/logunits"
)

// terminal reports whether w is one.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

func jsonLog(w io.Writer, format string) bool {
	return format == "json" || format == "auto" && !terminal(w)
}

// setLevel sets the level that logLevel names; core/config has checked the word.
func setLevel(to *slog.LevelVar, level string) {
	var l slog.Level
	if l.UnmarshalText([]byte(level)) != nil {
		l = slog.LevelInfo
	}
	to.Set(l)
}

// newLogger makes the process's logger (logFormat), whose level can change.
func newLogger(w io.Writer, l *slog.LevelVar, format string) *slog.Logger {
	if jsonLog(w, format) {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l, ReplaceAttr: logunits.ReplaceAttr}))
	}
	return slog.New(tint.NewTextHandler(w, &tint.Options{Level: l, TimeFormat: time.TimeOnly, NoColor: !terminal(w) || os.Getenv("NO_COLOR") != ""}))
}
