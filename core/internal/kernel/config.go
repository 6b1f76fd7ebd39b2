package kernel

import (
	"net/netip"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// Config is what the engine needs to know of one broker group. Names are
// RocketMQ's; core/config maps its keys here.
type Config struct {
	Identity
	TopicRules
	ReadRules
	RetentionRules

	// Dir is where the engine keeps config/ and its snapshots.
	Dir string
	// MaxMessageSize bounds a body in bytes.
	MaxMessageSize int
	// OffsetInterval is how often changed offsets become a record (at most one
	// second) and FileInterval how often consumerOffset.json is written.
	OffsetInterval, FileInterval time.Duration
	// ChannelExpired drops clients without heartbeat.
	ChannelExpired time.Duration
	NotifyIDs      bool
	// SendWait is how long a send may wait for room before it is refused.
	SendWait time.Duration
	Index    message.IndexRules

	// BrokerProperties are appended to the properties of every sent message, SendForm
	// writes the answers; the kernel makes both.
	BrokerProperties []byte
	SendForm         *command.SendForm

	_ struct{}
}

// Identity is who the broker is to others.
type Identity struct {
	ClusterName, BrokerName string
	BrokerID                int64
	// Advertise is the address in routes, message ids and store hosts.
	Advertise netip.AddrPort
	// Permission is brokerPermission: 4 read, 2 write.
	Permission int32
	// Zone is where the broker is; empty: unknown.
	Zone string
	// Region is MSG_REGION, TraceOn is TRACE_ON.
	Region  string
	TraceOn bool
}

// TopicRules say which topics and groups come into being by themselves.
type TopicRules struct {
	AutoCreateTopic bool
	AutoCreateGroup bool
	// ClusterTopic and BrokerTopic tell whether the topics with the names of the
	// cluster and of the broker can be read and written.
	ClusterTopic, BrokerTopic bool
	DefaultTopicQueueNums     int32
	// TraceTopic, when not empty, is created at start (traceTopicEnable).
	TraceTopic string
}

// ReadRules bound pulls and queries.
type ReadRules struct {
	// LongPolling false: a pull is parked for ShortPolling at most.
	LongPolling  bool
	ShortPolling time.Duration
	// Hot and Cold bound what one pull gathers, FilterScan the units looked at.
	Hot, Cold  storage.Limit
	FilterScan int32
	// MaxQueryBatch bounds a key query (maxMsgsNumBatch), QueryMax one by unique
	// key (defaultQueryMaxNum).
	MaxQueryBatch, QueryMax int32
}

// RetentionRules say when segments of the log go. Names are RocketMQ's.
type RetentionRules struct {
	// Reserved is how long messages are kept at least, by store time.
	Reserved time.Duration
	// Hours are those of the day, local time, in which what is older is deleted.
	Hours Hours
	// Every is how often it is looked, Batch how many segments go at a time, Pause
	// the time between two.
	Every, Pause time.Duration
	Batch        int
	// In percent of the disk, as df shows them: above MaxUsed what is older than
	// Reserved is deleted at any hour, above Forcibly the oldest whatever its age
	// (if CleanForcibly), above Warning messages are refused.
	MaxUsed, Forcibly, Warning int
	CleanForcibly              bool
	// ReaderWait is how long a segment may be held by readers before that is said.
	ReaderWait time.Duration
	// HoldMost is how long a behaviour may hold back a segment.
	HoldMost time.Duration
}

// Hours are hours of a day, one bit for each.
type Hours uint32

// Has tells whether the hour (0 to 23) is among them.
func (h Hours) Has(hour int) bool { return h>>hour&1 == 1 }

// Config is the configuration as of now; the same pointer until it changes.
// Readers take it anew for each request and do not write to it.
func (k *Kernel) Config() *Config { return k.config.Load() }

// SetConfig replaces the configuration. After Start only what the key table
// calls reloadable may differ. The advertised address is kept once it is known.
func (k *Kernel) SetConfig(c Config) {
	if old := k.config.Load(); old != nil {
		c.Advertise = old.Advertise
	}
	if k.config.Load() == nil { // afterwards senders read it
		k.StoreHost = message.HostOf(c.Advertise)
	}
	on := "false"
	if c.TraceOn {
		on = "true"
	}
	if c.Region == "" {
		c.Region = command.DefaultRegion
	}
	c.SendForm = command.NewSendForm(&command.SendResponse{Region: []byte(c.Region), TraceOn: c.TraceOn})
	p := message.AppendProperty(nil, message.PropRegion, c.Region)
	p = message.AppendProperty(p, message.PropTraceOn, on)
	c.BrokerProperties = message.AppendProperty(p, message.PropCluster, c.ClusterName)
	k.config.Store(&c)
}

// SetAdvertise sets the advertised address when the listener's port is known;
// before Start only.
func (k *Kernel) SetAdvertise(a netip.AddrPort) {
	c := *k.config.Load()
	c.Advertise = a
	k.config.Store(&c)
	k.StoreHost = message.HostOf(a)
}
