// Command jetstream is NATS JetStream as test/bench/run measures it beside RocketMQ's
// protocol: a server with file storage, and loads driven by its own client. It is another
// protocol with other promises; the numbers say what each costs, not which is better.
//
//	jetstream serve --listen 127.0.0.1:4222 --dir /tmp/js [--sync-always]
//	jetstream produce --broker 127.0.0.1:4222 --connections 1 --depth 64
//	jetstream consume --broker 127.0.0.1:4222 --connections 4 --batch 32
//
// Without --sync-always the server writes each message before it acknowledges it and syncs
// files every two minutes, which is its default; RocketMQ's ASYNC_FLUSH syncs every 500 ms.
// With it, it syncs before each acknowledgement.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/pflag"

	"github.com/hardpointmq/hardpoint/internal/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "jetstream:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("say what to do: serve, produce or consume")

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	f := pflag.NewFlagSet(args[0], pflag.ContinueOnError)
	switch args[0] {
	case "serve":
		listen := f.String("listen", "127.0.0.1:4222", "address to serve")
		dir := f.String("dir", "", "folder of the store")
		always := f.Bool("sync-always", false, "sync files before each acknowledgement")
		if err := f.Parse(args[1:]); err != nil {
			return err
		}
		return serve(ctx, *listen, *dir, *always, func(at string) { fmt.Println("serving on", at) })
	case "produce", "consume":
		var o bench.Options
		f.StringVar(&o.Broker, "broker", "127.0.0.1:4222", "address of the server")
		f.StringVar(&o.Topic, "topic", "HardpointBench", "name of the stream")
		f.IntVar(&o.Connections, "connections", 4, "connections")
		f.IntVar(&o.Depth, "depth", 64, "messages without an acknowledgement on each connection; 1: each is waited for")
		f.IntVar(&o.Size, "size", 1024, "bytes of a message")
		f.IntVar(&o.Batch, "batch", 32, "messages that a fetch asks for; 0: the client's continuous consumption with its defaults")
		f.DurationVar(&o.Duration, "duration", 0, "measured time")
		f.DurationVar(&o.Warmup, "warmup", 0, "time before the measurement begins")
		f.Int64Var(&o.Count, "count", 0, "ends after so many messages")
		f.IntSliceVar(&o.PIDs, "pid", nil, "process of the server")
		if err := f.Parse(args[1:]); err != nil {
			return err
		}
		load := produce
		if args[0] == "consume" {
			load = consume
		}
		res, err := load(ctx, o)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(res)
	default:
		return fmt.Errorf("%w, not %q", errUsage, args[0])
	}
}

// largestUnsynced is how long the server goes without a sync when it need not sync always:
// its default.
const largestUnsynced = 2 * time.Minute

// serve runs until ctx ends; ready is told the address. Port 0 is one that is free.
func serve(ctx context.Context, listen, dir string, always bool, ready func(at string)) error {
	host, port, ok := strings.Cut(listen, ":")
	var number int
	if _, err := fmt.Sscan(port, &number); !ok || err != nil || dir == "" {
		return fmt.Errorf("--listen is %q and --dir %q: needed are HOST:PORT and a folder", listen, dir)
	}
	if number == 0 {
		number = server.RANDOM_PORT
	}
	s, err := server.NewServer(&server.Options{
		Host: host, Port: number, JetStream: true, StoreDir: dir, SyncAlways: always, SyncInterval: largestUnsynced,
		JetStreamMaxStore: 1 << 40, NoSigs: true,
	})
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	s.Start()
	if !s.ReadyForConnections(time.Minute) {
		return errors.New("the server is not ready after a minute")
	}
	ready(s.Addr().String())
	<-ctx.Done()
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

// open connects and makes sure of the stream.
func open(ctx context.Context, o *bench.Options) (*nats.Conn, jetstream.JetStream, error) {
	nc, err := nats.Connect("nats://"+o.Broker, nats.NoReconnect())
	if err != nil {
		return nil, nil, fmt.Errorf("nothing answers at %s: %w", o.Broker, err)
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(o.Depth+1))
	if err == nil {
		_, err = js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: o.Topic, Subjects: []string{o.Topic}, Storage: jetstream.FileStorage})
	}
	if err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("stream %s: %w", o.Topic, err)
	}
	return nc, js, nil
}

func produce(ctx context.Context, o bench.Options) (*bench.Result, error) {
	body := make([]byte, o.Size)
	for i := range body {
		body[i] = 'a' + byte(i%26)
	}
	return bench.Outside(ctx, o, "produce", func(ctx context.Context, l *bench.Loop) error {
		nc, js, err := open(ctx, &o)
		if err != nil {
			return err
		}
		defer nc.Close()
		if o.Depth == 1 {
			for l.More() {
				asked := time.Now()
				if _, err := js.Publish(ctx, o.Topic, body); err != nil {
					return fmt.Errorf("publish: %w", err)
				}
				l.Done(1, int64(len(body)), asked)
			}
			return nil
		}
		return published(ctx, js, &o, l, body)
	})
}

// published keeps Depth messages under way; acknowledgements of a connection come in order.
func published(ctx context.Context, js jetstream.JetStream, o *bench.Options, l *bench.Loop, body []byte) error {
	type sent struct {
		f     jetstream.PubAckFuture
		asked time.Time
	}
	way := make(chan sent, o.Depth-1) // and the one that is waited for
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		for s := range way {
			select {
			case <-s.f.Ok():
				l.Done(1, int64(len(body)), s.asked)
			case err := <-s.f.Err():
				failed <- fmt.Errorf("publish: %w", err)
				return
			case <-ctx.Done():
				failed <- ctx.Err()
				return
			}
		}
	}()
	for l.More() {
		s := sent{asked: time.Now()}
		var err error
		if s.f, err = js.PublishAsync(o.Topic, body); err != nil {
			close(way)
			return errors.Join(fmt.Errorf("publish: %w", err), <-failed)
		}
		select {
		case way <- s:
		case err := <-failed:
			return err
		}
	}
	close(way)
	return <-failed
}

// consume has each connection read the whole stream with a consumer of its own, again and
// again for the time. Nothing is acknowledged, as with pulls that commit nothing.
func consume(ctx context.Context, o bench.Options) (*bench.Result, error) {
	continuous := o.Batch == 0
	return bench.Outside(ctx, o, "consume", func(ctx context.Context, l *bench.Loop) error {
		nc, js, err := open(ctx, &o)
		if err != nil {
			return err
		}
		defer nc.Close()
		for {
			c, err := js.CreateConsumer(ctx, o.Topic, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy, DeliverPolicy: jetstream.DeliverAllPolicy, MemoryStorage: true})
			if err != nil {
				return fmt.Errorf("consumer: %w", err)
			}
			info := c.CachedInfo()
			if info.NumPending == 0 {
				return fmt.Errorf("stream %s is empty", o.Topic)
			}
			over, err := through(l, c, o.Batch, int64(info.NumPending), continuous)
			if err = errors.Join(err, js.DeleteConsumer(ctx, o.Topic, info.Name)); err != nil || over {
				return err
			}
		}
	})
}

// through reads n messages; over: the loop is to end.
func through(l *bench.Loop, c jetstream.Consumer, batch int, n int64, continuous bool) (over bool, err error) {
	if continuous {
		it, err := c.Messages()
		if err != nil {
			return false, err
		}
		defer it.Stop()
		for ; n > 0; n-- {
			if !l.More() {
				return true, nil
			}
			asked := time.Now()
			m, err := it.Next()
			if err != nil {
				return false, fmt.Errorf("next: %w", err)
			}
			l.Done(1, int64(len(m.Data())), asked)
		}
		return false, nil
	}
	for n > 0 {
		if !l.More() {
			return true, nil
		}
		asked := time.Now()
		got, err := c.Fetch(int(min(int64(batch), n)))
		if err != nil {
			return false, fmt.Errorf("fetch: %w", err)
		}
		var count, bytes int64
		for m := range got.Messages() {
			count++
			bytes += int64(len(m.Data()))
		}
		if err := got.Error(); err != nil {
			return false, fmt.Errorf("fetch: %w", err)
		}
		if count == 0 {
			return false, errors.New("a fetch brought nothing of what the stream has")
		}
		n -= count
		l.Done(count, bytes, asked)
	}
	return false, nil
}
