package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/internal/bench"
)

func (p *program) benchTopics() *cobra.Command {
	var o bench.TopicsOptions
	var out output
	var sec tlsFlags
	c := &cobra.Command{
		Use: "topics", Short: "Create, fill and read many topics",
		Long: `Creates topics as fast as the broker does it, waits until a name server lists them all, sends messages to every queue and
pulls every queue once, as far as the flags say, and tells how long each took.

    hardpoint bench topics --broker 127.0.0.1:10911 --namesrv 127.0.0.1:9876 --topics 10000 --create --list 500
    hardpoint bench topics --broker 127.0.0.1:10911 --topics 1000 --create --fill --read`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if o.TLS, err = sec.client(); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			o.Header = command.JSON
			res, err := bench.Topics(ctx, o)
			if err != nil {
				return err
			}
			if out.json() {
				return p.printJSON(res)
			}
			for _, r := range []*bench.Result{res.Create, res.Fill, res.Read} {
				if r != nil {
					r.Print(p.stdout)
				}
				if r == res.Create && res.Registered != nil {
					fmt.Fprintf(p.stdout, "  the name server had them %.3f s after the last was answered\n", *res.Registered)
				}
			}
			return nil
		},
	}
	f := c.Flags()
	f.Var(addressFlag{to: &o.Broker}, "broker", "`address` of the broker")
	f.Var(addressFlag{to: &o.NameServer}, "namesrv", "`address` of a name server that is waited for until it lists the topics created")
	f.StringVar(&o.Topic, "topic", "HardpointBenchMany", "what the names of the topics begin with")
	f.StringVar(&o.Group, "group", "HardpointBenchGroup", "producer and consumer group")
	f.IntVar(&o.Topics, "topics", 1000, "topics")
	f.IntVar(&o.Queues, "queues", 8, "queues of each")
	f.BoolVar(&o.Create, "create", false, "create them")
	f.IntVar(&o.List, "list", 0, "create so many with a request, with UPDATE_AND_CREATE_TOPIC_LIST; 0: one, with UPDATE_AND_CREATE_TOPIC")
	f.BoolVar(&o.Fill, "fill", false, "send messages to every queue")
	f.BoolVar(&o.Read, "read", false, "pull each queue once from its beginning, and fail unless it has that many messages")
	f.IntVar(&o.PerQueue, "per-queue", 1, "messages of each queue, at most 32")
	f.IntVar(&o.Connections, "connections", 4, "connections")
	f.IntVar(&o.Depth, "depth", 1, "requests in flight on each connection")
	o.Size = 1024
	f.Var(sizeFlag{&o.Size}, "size", "length of a body, as in 100 (bytes) or 4KiB")
	f.IntSliceVar(&o.PIDs, "pid", nil, "the server's process or processes on this machine, whose CPU and memory are told (Linux)")
	o.Timeout = time.Minute
	f.Var(durationFlag{&o.Timeout}, "timeout", "how long an answer may take")
	sec.register(c)
	out.register(c)
	return c
}

func (p *program) benchWatch() *cobra.Command {
	var w bench.Watch
	var listen string
	var out output
	c := &cobra.Command{
		Use: "watch", Short: "Tell what brokers ask a name server",
		Long: `Forwards between brokers and a name server until an interrupt, and tells then what brokers asked, how large it was and
how long the answers took. SIGHUP begins to count anew (not on Windows). Start the broker with this address as that of its
name server.

    hardpoint bench watch --listen 127.0.0.1:9870 --namesrv 127.0.0.1:9876`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			if err := w.Listen(ctx, listen); err != nil {
				return err
			}
			again := make(chan os.Signal, 1)
			signal.Notify(again, syscall.SIGHUP)
			defer signal.Stop(again)
			go func() {
				for {
					select {
					case <-again:
						w.Reset()
					case <-ctx.Done():
						return
					}
				}
			}()
			fmt.Fprintf(p.stderr, "watching on %s\n", w.Address())
			if err := w.Serve(ctx); err != nil {
				return err
			}
			if out.json() {
				return p.printJSON(w.Asked())
			}
			w.Print(p.stdout)
			return nil
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:9870", "`address` to serve")
	w.To = "127.0.0.1:9876"
	c.Flags().Var(addressFlag{to: &w.To}, "namesrv", "`address` of the name server")
	out.register(c)
	return c
}
