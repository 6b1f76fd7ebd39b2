package bench

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
)

// Options is a load. The zero value of a field means what is in brackets.
type Options struct {
	// Broker is the address of a broker; NameServer that of a name server, which
	// is asked for the brokers of the topic. One of them is needed.
	Broker, NameServer string
	// TLS is how brokers and name servers are connected to; nil: plain. Without a
	// ServerName the host of the address is verified.
	TLS *tls.Config
	// Topic is made by the first message where the broker allows it, or by
	// CreateTopic [HardpointBench].
	Topic       string
	CreateTopic bool
	// Queues is the number of queues used when no route tells it [4].
	Queues int
	// Group is the producer or consumer group [HardpointBenchGroup].
	Group string
	// Connections × Depth requests are in flight [4 × 64]. Of a consumer, Depth
	// is how many queues each connection reads at once [1].
	Connections, Depth int
	// Size is the length of a body in bytes [1024].
	Size int
	// Rate is messages per second over all connections; 0: as many as can be.
	Rate float64
	// FromSend counts the latency of a message at a fixed rate from when it was
	// sent rather than from when it was due.
	FromSend bool
	// Count ends the run after so many messages, Duration after so long [10 s
	// when neither is given]. Warmup comes before and is not counted.
	Count            int64
	Duration, Warmup time.Duration
	// Header is the encoding of request headers.
	Header command.HeaderType
	// Batch is how many messages a pull asks for [32].
	Batch int
	// Offset is where a consumer begins: 0 and above, or Begin [0], End.
	Begin Begin
	// Verify checks that every queue is read whole: offsets without gap or
	// repetition, bodies that match their checksums.
	Verify bool
	// PIDs are the server's processes, whose CPU and memory are told together.
	PIDs []int
	// Progress is told at intervals how far the run is, 0 to 1; nil: nobody.
	Progress func(Progress)
	// Timeout is how long an answer may take before the run fails [15 s].
	Timeout time.Duration
}

// Begin is where a consumer begins to read.
type Begin uint8

// Where a consumer begins.
const (
	FromBegin Begin = iota
	FromEnd
)

// Progress is how far a run is.
type Progress struct {
	Phase   string // "warm-up", "run"
	Part    float64
	PerSec  float64
	Elapsed time.Duration
}

// ErrOptions matches what is wrong with [Options], before anything was done.
var ErrOptions = errors.New("options of the load")

const (
	// maxSlots bounds connections × depth: opaques have ten digits.
	maxSlots = 1 << 20
	// minStamped is the shortest body with a time stamp.
	minStamped = 16
)

func (o Options) withDefaults(depth int) Options {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	if o.Topic == "" {
		o.Topic = "HardpointBench"
	}
	if o.Group == "" {
		o.Group = "HardpointBenchGroup"
	}
	def(&o.Queues, 4)
	def(&o.Connections, 4)
	def(&o.Depth, depth)
	def(&o.Size, 1024)
	def(&o.Batch, 32)
	if o.Timeout == 0 {
		o.Timeout = 15 * time.Second
	}
	return o
}

// sending fills in the defaults of loads that send.
func (o Options) sending() Options {
	depth := closedDepth
	if o.Rate > 0 {
		depth = openDepth
	}
	o = o.withDefaults(depth)
	if o.Duration == 0 && o.Count == 0 {
		o.Duration = 10 * time.Second
	}
	return o
}

func (o Options) check() error {
	var errs []error
	bad := func(cond bool, format string, args ...any) {
		if cond {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad((o.Broker == "") == (o.NameServer == ""), "give the address of a broker or of a name server")
	bad(o.Connections < 1 || o.Connections > 65535, "connections is %d, allowed are 1 to 65,535", o.Connections)
	bad(o.Depth < 1 || o.Depth > maxSlots, "depth is %d, allowed are 1 to %d", o.Depth, maxSlots)
	bad(o.Size < 1 || o.Size > 64<<20, "size is %d bytes, allowed are 1 to %d", o.Size, 64<<20)
	bad(o.Rate < 0, "rate is %v messages a second, it must not be negative", o.Rate)
	bad(o.Count < 0 || o.Duration < 0 || o.Warmup < 0, "count, duration and warm-up must not be negative")
	bad(o.Queues < 1, "queues is %d, at least 1 is needed", o.Queues)
	bad(o.Batch < 1, "batch is %d, at least 1 is needed", o.Batch)
	bad(o.Header > command.RocketMQ, "header %d is neither JSON nor ROCKETMQ", o.Header)
	if len(errs) > 0 {
		return fmt.Errorf("%w: %w", ErrOptions, errors.Join(errs...))
	}
	return nil
}
