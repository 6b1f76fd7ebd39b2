package main

import (
	"context"
	"fmt"
	"os"

	"go.uber.org/fx"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/wiring"
	"github.com/hardpointmq/hardpoint/plugins/standard"
	"github.com/hardpointmq/hardpoint/sdk/serve"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "serve" { // started by a broker
		serve.Main(serve.Allocate(NewFactory()))
	}
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "custom-allocator:", err)
		os.Exit(1)
	}
}

// run registers the allocator beside the default ones, as a broker does, and
// asks all of them the same question.
func run(ctx context.Context) error {
	var plugins *wiring.Plugins
	if _, err := wiring.New(wiring.Options{}, standard.Module, wiring.Allocate(NewFactory()), fx.Populate(&plugins)); err != nil {
		return err
	}
	req := &allocate.Request{Group: "workers", Members: []allocate.Member{{ClientID: "anna"}, {ClientID: "ben"}}}
	for i := range 4 {
		req.Queues = append(req.Queues, allocate.Queue{Topic: "Jobs", Broker: "broker-a", ID: int32(i)})
	}
	for _, name := range plugins.Allocate.Names() {
		f, err := plugins.Allocate.Lookup(name)
		if err != nil {
			return err
		}
		a, err := f.Build(ctx, allocate.Params{}, nil)
		if err != nil {
			return err
		}
		got, err := a.Allocate(ctx, req)
		if err != nil {
			return err
		}
		fmt.Print(name, ":")
		for i, owner := range got.Owner {
			who := "nobody"
			if owner >= 0 {
				who = req.Members[owner].ClientID
			}
			fmt.Printf(" %d→%s", i, who)
		}
		fmt.Println()
	}
	return nil
}
