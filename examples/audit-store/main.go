// Command audit-store shows a decorator of stores: whatever store a broker runs
// on, a line is written for each change of its log.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/storage/storagemw"
	"github.com/hardpointmq/hardpoint/core/wiring"
	"github.com/hardpointmq/hardpoint/plugins/standard"
	"github.com/hardpointmq/hardpoint/sdk/embedded"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "audit-store:", err)
		os.Exit(1)
	}
}

// audited are the default plugins, each store with its changes written to w.
func audited(w io.Writer) (*wiring.Plugins, error) {
	p, err := standard.Plugins()
	if err != nil {
		return nil, err
	}
	audit := Audit(w)
	for _, name := range p.Storage.Names() {
		f, err := p.Storage.Lookup(name)
		if err != nil {
			return nil, err
		}
		p.Storage = p.Storage.With(storagemw.Wrap(f, audit))
	}
	return p, nil
}

// run sends one message to a broker in this process.
func run(ctx context.Context, w io.Writer) (err error) {
	p, err := audited(w)
	if err != nil {
		return err
	}
	b, err := embedded.New(ctx, embedded.WithPlugins(p))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close(ctx)) }()
	_, err = b.API().Send(ctx, &api.SendRequest{Topic: "Greetings", Body: []byte("hello")})
	return err
}
