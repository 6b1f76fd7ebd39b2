package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/sdk/wire/pluginpb"
)

// sentinel is an error whose identity crosses. Codes are part of the wire: they
// are never reused.
type sentinel struct {
	code uint32
	name string // as exported
	err  error
}

func sentinels() []sentinel {
	return []sentinel{
		{1, "storage.ErrFull", storage.ErrFull},
		{2, "storage.ErrFenced", storage.ErrFenced},
		{3, "storage.ErrReadOnly", storage.ErrReadOnly},
		{4, "storage.ErrTooLarge", storage.ErrTooLarge},
		{5, "storage.ErrGap", storage.ErrGap},
		{6, "storage.ErrFailed", storage.ErrFailed},
		{7, "storage.ErrIdentity", storage.ErrIdentity},
		{8, "storage.ErrNotRunning", storage.ErrNotRunning},
		{9, "storage.ErrUnsupported", storage.ErrUnsupported},
		{10, "storage.ErrOrder", storage.ErrOrder},
		{32, "plugin.ErrUnavailable", plugin.ErrUnavailable},
		{33, "plugin.ErrConfig", plugin.ErrConfig},
		{96, "allocate.ErrRequest", allocate.ErrRequest},
		{128, "replication.ErrNotLeader", replication.ErrNotLeader},
		{129, "replication.ErrFenced", replication.ErrFenced},
		{130, "replication.ErrBusy", replication.ErrBusy},
		{131, "replication.ErrReadOnly", replication.ErrReadOnly},
		{132, "replication.ErrNotRunning", replication.ErrNotRunning},
		{160, "transport.ErrClosed", transport.ErrClosed},
		{161, "transport.ErrSlow", transport.ErrSlow},
		{162, "transport.ErrLimit", transport.ErrLimit},
		{163, "transport.ErrNotRunning", transport.ErrNotRunning},
		{164, "transport.ErrIdle", transport.ErrIdle},
		{192, "io.EOF", io.EOF}, // why a peer is closed, as the next two
		{193, "command.ErrFrameTooLarge", command.ErrFrameTooLarge},
		{194, "command.ErrHeader", command.ErrHeader},
		{64, "context.Canceled", context.Canceled},
		{65, "context.DeadlineExceeded", context.DeadlineExceeded},
	}
}

// remoteError is an error that came over the wire: its text, and what it
// matches.
type remoteError struct {
	text   string
	wraps  []error
	origin uint64
}

func (e *remoteError) Error() string   { return e.text }
func (e *remoteError) Unwrap() []error { return e.wraps }
func (e *remoteError) Origin() uint64  { return e.origin }

// Numbered is an error to which the host gave a number before it crossed, so that it
// is known again when the plugin gives it back. [OriginOf] finds it.
type Numbered struct {
	Err    error
	Number uint64
}

// Error implements error.
func (e *Numbered) Error() string { return e.Err.Error() }

// Unwrap gives the error itself.
func (e *Numbered) Unwrap() error { return e.Err }

// Origin is the number.
func (e *Numbered) Origin() uint64 { return e.Number }

// OriginOf is the number of the [Numbered] error that err is or came of, 0 for none.
func OriginOf(err error) uint64 {
	var o interface {
		error
		Origin() uint64
	}
	if errors.As(err, &o) {
		return o.Origin()
	}
	return 0
}

// ToFailure is an error as it crosses; it gives nil for a nil error.
func ToFailure(err error) *pluginpb.Failure {
	if err == nil {
		return nil
	}
	f := &pluginpb.Failure{Text: valid(err.Error()), Origin: OriginOf(err)}
	if f.Text == "" { // a Failure without any field is no bytes, which is no error
		f.Text = fmt.Sprintf("an error without a text (%T)", err)
	}
	for _, s := range sentinels() {
		if errors.Is(err, s.err) {
			f.Codes = append(f.Codes, s.code)
		}
	}
	var c *storage.CorruptError
	if errors.As(err, &c) {
		f.Corrupt = &pluginpb.Corrupt{File: valid(c.File), Offset: c.Offset, Reason: valid(c.Reason)}
		if c.Err != nil {
			f.Corrupt.Cause = valid(c.Err.Error())
		}
	}
	return f
}

// valid makes text of what may be none: proto refuses to carry it.
func valid(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

// FromFailure is the error that crossed: its text, and what it matches with
// errors.Is and errors.As. It gives nil for nil.
func FromFailure(f *pluginpb.Failure) error {
	if f == nil {
		return nil
	}
	e := &remoteError{text: f.GetText(), origin: f.GetOrigin()}
	for _, code := range f.GetCodes() {
		for _, s := range sentinels() {
			if s.code == code {
				e.wraps = append(e.wraps, s.err)
			}
		}
	}
	if c := f.GetCorrupt(); c != nil {
		k := &storage.CorruptError{File: c.GetFile(), Offset: c.GetOffset(), Reason: c.GetReason()}
		if c.GetCause() != "" {
			k.Err = errors.New(c.GetCause())
		}
		e.wraps = append(e.wraps, k)
	}
	return e
}

// OfCall is the error of a plugin's answer to a call with ctx. When ctx is over
// its reason counts: the plugin may only have been told that it is.
func OfCall(ctx context.Context, err error) error {
	var e *remoteError
	if ctx.Err() == nil || !errors.As(err, &e) || len(e.wraps) != 1 { // with more it says more
		return err
	}
	if errors.Is(e, context.Canceled) || errors.Is(e, context.DeadlineExceeded) {
		return ctx.Err()
	}
	return err
}

// FromRPC joins the error of a gRPC call with the one in its answer. A call that
// did not reach the plugin, or lost it, is plugin.ErrUnavailable.
func FromRPC(ctx context.Context, err error, f *pluginpb.Failure) error {
	if err == nil {
		return OfCall(ctx, FromFailure(f))
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s, _ := status.FromError(err)
	switch s.Code() {
	case codes.Canceled:
		// The context is alive, so it was the connection that ended.
	case codes.DeadlineExceeded:
		return context.DeadlineExceeded
	case codes.Unimplemented:
		return &remoteError{text: "the plugin does not know a call of this host; build both from the same version: " + s.Message(), wraps: []error{plugin.ErrUnavailable}}
	}
	return &remoteError{text: plugin.ErrUnavailable.Error() + ": " + s.Message(), wraps: []error{plugin.ErrUnavailable}}
}
