package plugin

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// ErrUnavailable says that the process of a plugin is gone or does not answer.
// Calls under way when a plugin process dies end with it, and so do calls made
// until it is back. Test with errors.Is.
var ErrUnavailable = errors.New("plugin is not available")

// ErrConfig marks every error about the configuration of a plugin: unknown
// field, wrong type, failed Validate. Test with errors.Is.
var ErrConfig = errors.New("invalid plugin configuration")

// Component is the life cycle of everything that the host starts and stops.
// The rules are in the package comment.
type Component interface {
	// Start makes the component ready to serve and returns then. ctx bounds
	// starting only. Start is called at most once.
	Start(ctx context.Context) error
	// Shutdown stops background work, waits for it and releases what Start
	// took. It returns early with ctx's error when ctx ends first. It is legal
	// without Start, after a failed Start, and twice.
	Shutdown(ctx context.Context) error
}

// Settings is what the host gives to every plugin, whatever its kind. It is
// passed by value and never changes after Build. Logger, Meter and Clock are
// never nil when wiring made the Settings; [Settings.WithDefaults] makes a
// hand-built one complete.
type Settings struct {
	// Name is the configured name of the plugin; it labels logs and metrics.
	Name string
	// Logger is the plugin's logger. Hot paths do not log.
	Logger *slog.Logger
	// Meter makes instruments. Make them once, in the constructor or Start.
	Meter Meter
	// Clock is the only source of time for decisions and stamps.
	Clock Clock
	// Dir is the directory that belongs to this plugin alone. It may not exist
	// yet. Empty for kinds that keep nothing on disk.
	Dir string

	_ struct{} // forces keyed literals, so that fields can be added
}

// WithDefaults returns s with a discarding logger, a meter that counts nothing
// and the system clock where s has none.
func (s Settings) WithDefaults() Settings {
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	if s.Meter == nil {
		s.Meter = NopMeter{}
	}
	if s.Clock == nil {
		s.Clock = SystemClock{}
	}
	return s
}

// Clock is the source of time. Implementations are safe for concurrent use.
type Clock interface {
	// Now is the wall clock; it may step backwards.
	Now() time.Time
	// NewTimer fires once after d (at once when d <= 0).
	NewTimer(d time.Duration) Timer
}

// Timer is a stoppable timer made by a [Clock].
type Timer interface {
	// C delivers the time at which the timer fired.
	C() <-chan time.Time
	// Stop prevents the timer from firing; false when it fired or was stopped.
	Stop() bool
	// Reset makes the timer fire after d from now, as time.Timer.Reset does
	// since Go 1.23: no stale value remains in C.
	Reset(d time.Duration) bool
}

// SystemClock is the clock of the operating system.
type SystemClock struct{}

// Now implements [Clock].
func (SystemClock) Now() time.Time { return time.Now() }

// NewTimer implements [Clock].
func (SystemClock) NewTimer(d time.Duration) Timer { return systemTimer{time.NewTimer(d)} }

type systemTimer struct{ *time.Timer }

func (t systemTimer) C() <-chan time.Time { return t.Timer.C }

// Label is one dimension of an instrument.
type Label struct{ Name, Value string }

// Meter makes instruments. Asking twice for the same name and labels gives the
// same instrument. Names are Prometheus names without the "hardpoint_" prefix,
// which the host adds; units are part of the name (bytes, seconds). Safe for
// concurrent use; the instruments are, too, and allocate nothing when used.
type Meter interface {
	Counter(name, help string, labels ...Label) Counter
	// Gauge registers a function that is called at each scrape; it must be
	// quick, must not block, and is dropped by calling the returned function.
	Gauge(name, help string, read func() float64, labels ...Label) (drop func())
	Histogram(name, help string, labels ...Label) Histogram
}

// Counter only grows.
type Counter interface{ Add(n uint64) }

// Histogram records a distribution; durations are in seconds.
type Histogram interface{ Observe(v float64) }

// NopMeter makes instruments that record nothing.
type NopMeter struct{}

type nop struct{}

func (nop) Add(uint64)      {}
func (nop) Observe(float64) {}

// Counter implements [Meter].
func (NopMeter) Counter(string, string, ...Label) Counter { return nop{} }

// Gauge implements [Meter].
func (NopMeter) Gauge(string, string, func() float64, ...Label) func() { return func() {} }

// Histogram implements [Meter].
func (NopMeter) Histogram(string, string, ...Label) Histogram { return nop{} }

// Secret is a configuration value that is never printed: it formats, logs and
// marshals as "******". Reveal gives the text.
type Secret string

const redacted = "******"

// Reveal returns the secret's text; call it only where the secret is used.
func (s Secret) Reveal() string { return string(s) }

// String implements fmt.Stringer.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString implements fmt.GoStringer, so that %#v redacts, too.
func (s Secret) GoString() string { return s.String() }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText implements encoding.TextMarshaler; JSON and YAML writers use it.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Secret) UnmarshalText(b []byte) error { *s = Secret(b); return nil }
