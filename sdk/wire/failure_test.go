package wire

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire/pluginpb"
)

// exported lists the sentinels that the source of a package declares.
func exported(t *testing.T, name, dir string) (out []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, s := range g.Specs {
				for _, id := range s.(*ast.ValueSpec).Names {
					if strings.HasPrefix(id.Name, "Err") {
						out = append(out, name+"."+id.Name)
					}
				}
			}
		}
	}
	return out
}

// TestEverySentinelHasACode fails for a sentinel that is new.
func TestEverySentinelHasACode(t *testing.T) {
	var want []string
	for _, name := range []string{"storage", "plugin", "allocate", "replication", "transport"} {
		want = append(want, exported(t, name, "../../core/"+name)...)
	}
	want = append(want, "context.Canceled", "context.DeadlineExceeded", "io.EOF", "command.ErrFrameTooLarge", "command.ErrHeader")
	var got []string
	codes := map[uint32]string{}
	for _, s := range sentinels() {
		got = append(got, s.name)
		require.NotContains(t, codes, s.code, "code of %s", s.name)
		codes[s.code] = s.name
	}
	require.ElementsMatch(t, want, got)
}

// cross sends an error to the other side.
func cross(t *testing.T, err error) error {
	t.Helper()
	b, fault := proto.Marshal(ToFailure(err))
	require.NoError(t, fault)
	var f pluginpb.Failure
	require.NoError(t, proto.Unmarshal(b, &f))
	return FromFailure(&f)
}

func TestErrorsKeepTheirIdentity(t *testing.T) {
	for _, s := range sentinels() {
		err := fmt.Errorf("append at %d: %w", 7, s.err)
		got := cross(t, err)
		require.EqualError(t, got, err.Error())
		for _, o := range sentinels() {
			require.Equal(t, o.code == s.code, errors.Is(got, o.err), "%s against %s", s.name, o.name)
		}
	}
	both := cross(t, fmt.Errorf("%w: %w", storage.ErrFailed, errors.Join(storage.ErrFull, errors.New("x"))))
	require.ErrorIs(t, both, storage.ErrFailed)
	require.ErrorIs(t, both, storage.ErrFull)

	in := &storage.CorruptError{File: "f", Offset: 9, Reason: "why", Err: errors.New("cause")}
	got := cross(t, fmt.Errorf("read: %w", in))
	var c *storage.CorruptError
	require.ErrorAs(t, got, &c)
	require.Equal(t, in.Error(), c.Error())
	require.EqualError(t, got, "read: "+in.Error())

	plain := cross(t, errors.New("no such device"))
	require.EqualError(t, plain, "no such device")
	require.Nil(t, ToFailure(nil))
	require.NoError(t, FromFailure(nil))
	require.EqualError(t, cross(t, errors.New("")), "an error without a text (*errors.errorString)")
	require.EqualError(t, cross(t, errors.New("not UTF-8: \xff")), "not UTF-8: \ufffd")
	// A code of a newer plugin is text.
	require.EqualError(t, FromFailure(&pluginpb.Failure{Text: "new", Codes: []uint32{9999}}), "new")
}

func TestErrorsOfCalls(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want error
	}{
		{t.Context(), status.Error(codes.Unavailable, "connection refused"), plugin.ErrUnavailable},
		{t.Context(), status.Error(codes.Canceled, "the client connection is closing"), plugin.ErrUnavailable},
		{t.Context(), status.Error(codes.Unimplemented, "unknown method"), plugin.ErrUnavailable},
		{t.Context(), status.Error(codes.DeadlineExceeded, "late"), context.DeadlineExceeded},
		{ended, status.Error(codes.Canceled, "cancelled"), context.Canceled},
	} {
		require.ErrorIs(t, FromRPC(c.ctx, c.err, nil), c.want)
	}
	require.ErrorIs(t, FromRPC(t.Context(), nil, ToFailure(storage.ErrIdentity)), storage.ErrIdentity)
	require.NoError(t, FromRPC(t.Context(), nil, nil))
}
