package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/internal/bench"
)

func (p *program) benchCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "bench", Short: "Load for any RocketMQ-compatible broker",
		Long: `Drives a broker with raw frames and tells throughput, latency and cost. It works against any broker that speaks
RocketMQ's remoting protocol.

Without --rate the loop is closed: every slot of connections x depth sends again when it was answered. With --rate it
is open: messages are due at that rate and latency counts from when they were due, whatever the broker does.

The broker is always named, by --broker or --namesrv: bench loads it, and does not go by NAMESRV_ADDR as other commands do.

An interrupt ends the measurement and prints what was measured until then.`,
	}
	c.AddCommand(
		p.benchRun("produce", "Send messages", bench.Produce, true),
		p.benchRun("consume", "Pull messages", bench.Consume, false),
		p.benchRun("e2e", "Send and pull at once, latency from end to end", bench.EndToEnd, true),
		p.benchTopics(),
		p.benchFloor(),
		p.benchWatch(),
	)
	return c
}

func (p *program) benchRun(name, short string, run func(context.Context, bench.Options) (*bench.Result, error), sends bool) *cobra.Command {
	var o bench.Options
	var out output
	var sec tlsFlags
	var quiet bool
	header := choice{"json", []string{"json", "rocketmq"}}
	from := choice{"begin", []string{"begin", "end"}}
	c := &cobra.Command{
		Use: name, Short: short, Args: noArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if o.Broker == "" && o.NameServer == "" {
				said := "say which broker: its address with --broker, or that of a name server with --namesrv"
				if set := os.Getenv("NAMESRV_ADDR"); set != "" {
					said += fmt.Sprintf("; bench loads brokers, and does not go by NAMESRV_ADDR (%s) unasked: add --namesrv with one of its addresses", set)
				}
				return errors.New(said)
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if o.TLS, err = sec.client(); err != nil {
				return err
			}
			if header.word == "rocketmq" {
				o.Header = command.RocketMQ
			}
			if from.word == "end" {
				o.Begin = bench.FromEnd
			}
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			var finish func()
			o.Progress, finish = progress(p.stderr, quiet || out.json())
			res, err := run(ctx, o)
			finish()
			if err != nil {
				return err
			}
			if out.json() {
				if err := p.printJSON(res); err != nil {
					return err
				}
			} else {
				res.Print(p.stdout)
			}
			return res.Refused()
		},
	}
	f := c.Flags()
	f.Var(addressFlag{to: &o.Broker}, "broker", "`address` of the broker")
	f.Var(addressFlag{to: &o.NameServer}, "namesrv", "`address` of a name server, which tells the brokers of the topic")
	f.StringVar(&o.Topic, "topic", "HardpointBench", "topic")
	f.StringVar(&o.Group, "group", "HardpointBenchGroup", "producer or consumer group")
	f.IntVar(&o.Queues, "queues", 4, "queues of the topic, where no route tells them or it is created")
	f.IntVar(&o.Connections, "connections", 4, "connections")
	f.Var(durationFlag{&o.Duration}, "duration", "measured time, 10s unless there is a count")
	f.Var(durationFlag{&o.Warmup}, "warmup", "time before the measurement begins")
	f.Int64Var(&o.Count, "count", 0, "ends after so many messages, or a few more that are under way")
	header.register(c, "header", "", "encoding of request headers")
	f.IntSliceVar(&o.PIDs, "pid", nil, "the server's process or processes on this machine, whose CPU and memory are told (Linux)")
	o.Timeout = 15 * time.Second
	f.Var(durationFlag{&o.Timeout}, "timeout", "how long an answer may take")
	f.BoolVar(&quiet, "quiet", false, "no progress on the terminal")
	if sends {
		f.IntVar(&o.Depth, "depth", 0, "requests in flight on each connection, 64 in a closed loop and at most 1024 in an open one")
		o.Size = 1024
		f.Var(sizeFlag{&o.Size}, "size", "length of a body, as in 100 (bytes) or 4KiB")
		f.Float64Var(&o.Rate, "rate", 0, "messages per second over all connections; 0: as many as can be")
		f.BoolVar(&o.FromSend, "from-send", false, "with a rate, count latency from when a message was sent")
		f.BoolVar(&o.CreateTopic, "create-topic", false, "create the topic first; without it the broker's automatic creation is relied on")
	} else {
		f.IntVar(&o.Depth, "depth", 1, "queues that each connection reads at once")
		from.register(c, "from", "", "what is there, again and again for the duration, or what comes")
		f.BoolVar(&o.Verify, "verify", false, "read every queue once and check offsets and checksums")
	}
	if name != "produce" { // which pulls nothing
		f.IntVar(&o.Batch, "batch", 32, "messages that a pull asks for")
	}
	sec.register(c)
	out.register(c)
	return c
}

// progress shows a bar on a terminal.
func progress(w io.Writer, off bool) (func(bench.Progress), func()) {
	if off || !terminal(w) {
		return nil, func() {}
	}
	return bar(w)
}

// bar draws on w what it is told, until the returned finish.
func bar(w io.Writer) (tell func(bench.Progress), finish func()) {
	const whole = 1000
	var label atomic.Value
	label.Store("starting")
	container := mpb.New(mpb.WithOutput(w), mpb.WithWidth(48), mpb.WithAutoRefresh())
	b := container.AddBar(whole,
		mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return label.Load().(string) }, decor.WCSyncWidth)),
		mpb.AppendDecorators(decor.Percentage()),
		mpb.BarRemoveOnComplete(),
	)
	show := make(chan bench.Progress, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for p := range show {
			label.Store(fmt.Sprintf("%s %.0f msg/s ", p.Phase, p.PerSec))
			b.SetCurrent(int64(p.Part * (whole - 1)))
		}
	}()
	return func(p bench.Progress) {
			select {
			case show <- p:
			default: // the terminal is slow; the next one will do
			}
		}, func() {
			close(show)
			<-done
			b.Abort(true)
			container.Wait()
		}
}

func (p *program) benchFloor() *cobra.Command {
	var listen, file string
	c := &cobra.Command{
		Use: "floor", Short: "Serve the floor: what sockets and page cache cost alone",
		Long: `Serves until an interrupt. It parses the frames, writes what one read brought with one pwrite to a file, and answers
sends like a broker. Compare a broker's throughput with that of this server under the same load:

    hardpoint bench floor --listen 127.0.0.1:10920 --file /tmp/floor &
    hardpoint bench produce --broker 127.0.0.1:10920`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			f := bench.Floor{File: file}
			if err := f.Listen(ctx, listen); err != nil {
				return err
			}
			fmt.Fprintf(p.stdout, "floor on %s\n", f.Address())
			return f.Serve(ctx)
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:10920", "`address` to serve")
	c.Flags().StringVar(&file, "file", "", "`file` to write from start to end, emptied at 16 GiB; empty: nothing is written")
	return c
}
