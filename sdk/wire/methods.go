package wire

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Contract is what a host of one kind expects of a process.
type Contract struct {
	// Kind is its name, as [Storage].
	Kind string
	// Version is kind and major version, as "storage/1".
	Version string
	// Methods are the full names of those that each process of the kind has, as
	// /hardpoint.storage.v1.Storage/Open. Those that a later version of the protos adds
	// do not belong here: a process that was built before is hosted.
	Methods []string
	// OfFacet are further ones, of plugins that offer a facet.
	OfFacet map[string]string
	// Kept are facets that the host uses itself and does not pass on: they are in no
	// description, and a process with them takes the place of one without.
	Kept []string
}

// PassedOn are the facets of a plugin that its host offers.
func (c *Contract) PassedOn(facets []string) []string {
	return slices.DeleteFunc(slices.Clone(facets), func(f string) bool { return slices.Contains(c.Kept, f) })
}

// methods are those that a plugin with these facets needs.
func (c *Contract) methods(facets []string) []string {
	out := slices.Clone(c.Methods)
	for _, f := range facets {
		if m := c.OfFacet[f]; m != "" {
			out = append(out, m)
		}
	}
	return out
}

// askTime bounds the question of Lacking: a method that has not refused until then
// counts as one that is there.
const askTime = 2 * time.Second

// Lacking asks the other end of a connection which of some methods it does not have,
// by calling each with an empty request at the same time. Such a request names no
// plugin and no instance, so nothing comes of it. The error is that of a connection
// that broke, or of ctx.
func Lacking(ctx context.Context, conn grpc.ClientConnInterface, methods []string) ([]string, error) {
	limit, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	answers := make([]error, len(methods))
	var all sync.WaitGroup
	for i, m := range methods {
		all.Go(func() {
			answers[i] = conn.Invoke(limit, m, &emptypb.Empty{}, &emptypb.Empty{}, asking{})
		})
	}
	all.Wait()
	var lacks []string
	for i, err := range answers {
		switch status.Code(err) {
		case codes.Unimplemented:
			lacks = append(lacks, methods[i])
		case codes.Unavailable, codes.Canceled:
			return nil, FromRPC(ctx, err, nil)
		}
	}
	return lacks, ctx.Err()
}

// asking marks the calls of Lacking.
type asking struct{ grpc.EmptyCallOption }

// IsAsking tells whether a call with these options only asks whether the method is
// there.
func IsAsking(opts []grpc.CallOption) bool {
	return slices.ContainsFunc(opts, func(o grpc.CallOption) bool {
		_, ok := o.(asking)
		return ok
	})
}
