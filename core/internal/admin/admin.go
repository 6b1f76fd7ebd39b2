// Package admin serves the requests of tools (mqadmin, dashboards) that look at a
// broker or change it: topics, groups, their progress, clients, the broker itself.
package admin

import (
	"context"
	"fmt"
	"sync"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/client"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/internal/query"
	"github.com/hardpointmq/hardpoint/core/internal/stats"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

// Params is what the behaviour asks besides the kernel; all is needed.
type Params struct {
	Query   *query.Query
	Clients *client.Manager
	Stats   *stats.Stats
	// Usage tells how full the file system is that holds a directory.
	Usage func(dir string) (vfs.Usage, error)

	_ struct{}
}

// Admin is the behaviour.
type Admin struct {
	k       *kernel.Kernel
	q       *query.Query
	clients *client.Manager
	stats   *stats.Stats
	usage   func(dir string) (vfs.Usage, error)
	// undropped are topics that are deleted while their messages could not be: the
	// error of each.
	undropped sync.Map
	units     kernel.Beside // QUERY_CONSUME_QUEUE
}

// New makes the behaviour and registers it.
func New(k *kernel.Kernel, p Params) *Admin {
	a := &Admin{k: k, q: p.Query, clients: p.Clients, stats: p.Stats, usage: p.Usage}
	a.topics()
	a.groups()
	a.progress()
	a.connections()
	a.broker()
	return a
}

// badBody says that a body cannot be read.
func badBody(err error) error {
	return &api.Error{ID: api.InvalidParameter, Text: "the body of the request cannot be read: " + err.Error(), Err: err}
}

// answer sends a body in JSON, or the error.
func answer(r *kernel.Request, v any, err error) {
	var body []byte
	if err == nil {
		body, err = command.EncodeBody(v)
	}
	if err != nil {
		r.Fail(err)
		return
	}
	reply(r, body)
}

// largestBody is what clients take in one frame (16 MiB), with room for the header.
const largestBody = 16<<20 - 64<<10

// reply answers with a body. Clients close the connection when it is longer than they
// take, which says nothing to anybody.
func reply(r *kernel.Request, body []byte) {
	if len(body) > largestBody {
		r.Error(command.RespSystemError, fmt.Sprintf("the answer to %s has %d bytes, clients take %d at a time: ask for single topics or groups",
			command.RequestName(r.Header.Code), len(body), largestBody))
		return
	}
	r.JSON(body)
}

// known is Barrier: what the answer tells holds what was acknowledged anywhere.
func (a *Admin) known(what string) error {
	ctx, cancel := a.k.Waiting()
	defer cancel()
	return a.k.Barrier(ctx, what)
}

// reading is the context of reads for one request.
func (a *Admin) reading() context.Context { return a.k.Serving() }
