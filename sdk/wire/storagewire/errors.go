package storagewire

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
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
		{64, "context.Canceled", context.Canceled},
		{65, "context.DeadlineExceeded", context.DeadlineExceeded},
	}
}

// remoteError is an error that came over the wire: its text, and what it
// matches.
type remoteError struct {
	text  string
	wraps []error
}

func (e *remoteError) Error() string   { return e.text }
func (e *remoteError) Unwrap() []error { return e.wraps }

// toFailure gives nil for a nil error.
func toFailure(err error) *storagepb.Failure {
	if err == nil {
		return nil
	}
	f := &storagepb.Failure{Text: err.Error()}
	for _, s := range sentinels() {
		if errors.Is(err, s.err) {
			f.Codes = append(f.Codes, s.code)
		}
	}
	var c *storage.CorruptError
	if errors.As(err, &c) {
		f.Corrupt = &storagepb.Corrupt{File: c.File, Offset: c.Offset, Reason: c.Reason}
		if c.Err != nil {
			f.Corrupt.Cause = c.Err.Error()
		}
	}
	return f
}

// fromFailure gives nil for nil.
func fromFailure(f *storagepb.Failure) error {
	if f == nil {
		return nil
	}
	e := &remoteError{text: f.GetText()}
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

// ofCall is the error of a plugin's answer to a call with ctx. When ctx is over
// its reason counts: the plugin may only have been told that it is.
func ofCall(ctx context.Context, err error) error {
	var e *remoteError
	if ctx.Err() == nil || !errors.As(err, &e) || len(e.wraps) != 1 { // with more it says more
		return err
	}
	if errors.Is(e, context.Canceled) || errors.Is(e, context.DeadlineExceeded) {
		return ctx.Err()
	}
	return err
}

// fromRPC joins the error of a gRPC call with the one in its answer. A call that
// did not reach the plugin, or lost it, is plugin.ErrUnavailable.
func fromRPC(ctx context.Context, err error, f *storagepb.Failure) error {
	if err == nil {
		return ofCall(ctx, fromFailure(f))
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
