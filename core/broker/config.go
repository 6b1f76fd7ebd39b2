package broker

import (
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// unitSize is what RocketMQ counts for one unit of an index.
const unitSize = 20

var loopback = netip.MustParseAddrPort("127.0.0.1:0")

// shut is the session of a peer that came to a broker which did not start.
type shut struct{}

func (shut) Arrived([]command.Frame) {}
func (shut) Closed(error)            {}

// Limits are the transport limits that a configuration asks for.
func Limits(c *config.Config) transport.Limits {
	n := &c.Network
	return transport.Limits{
		Frame: int(n.MaxFrameSize), Header: int(n.MaxHeaderSize), Connections: n.MaxConnections,
		PeerBytes: int(n.MaxPendingBytesPerPeer), TotalBytes: n.MaxPendingBytes, ReadBytes: n.MaxBytesInFlight, Idle: n.IdleTimeout,
	}
}

// kernelConfig picks what the engine needs.
func kernelConfig(c *config.Config) kernel.Config {
	k := kernel.Config{
		Identity: kernel.Identity{
			ClusterName: c.Broker.ClusterName, BrokerName: c.Broker.Name, BrokerID: c.Broker.ID,
			Permission: int32(c.Broker.Permission), Zone: c.Broker.ZoneName, Region: c.Broker.RegionID, TraceOn: c.Broker.TraceOn,
		},
		TopicRules: kernel.TopicRules{
			AutoCreateTopic: c.Topics.AutoCreateTopic, AutoCreateGroup: c.Topics.AutoCreateSubscriptionGroup,
			DefaultTopicQueueNums: c.Topics.DefaultTopicQueueNums,
			ClusterTopic:          c.Topics.ClusterTopic, BrokerTopic: c.Topics.BrokerTopic,
		},
		ReadRules: kernel.ReadRules{
			LongPolling: c.Consume.LongPolling, ShortPolling: c.Consume.ShortPollingTime,
			Hot:           storage.Limit{Count: int32(c.Consume.MaxTransferCountInMemory), Bytes: int32(c.Consume.MaxTransferBytesInMemory)},
			Cold:          storage.Limit{Count: int32(c.Consume.MaxTransferCountInDisk), Bytes: int32(c.Consume.MaxTransferBytesInDisk)},
			FilterScan:    int32(c.Consume.MaxFilterMessageSize / unitSize),
			MaxQueryBatch: int32(c.Consume.MaxMsgsNumBatch), QueryMax: int32(c.Consume.QueryMaxNum),
		},
		Dir: c.Store.RootDir, MaxMessageSize: int(c.Broker.MaxMessageSize), SendWait: c.Broker.SendWait,
		OffsetInterval: time.Second, FileInterval: c.Consume.FlushConsumerOffsetInterval,
		ChannelExpired: c.Broker.ChannelExpiredTimeout, NotifyIDs: c.Consume.NotifyConsumerIdsChanged,
		Index: IndexRules(c),
	}
	k.RetentionRules = retentionRules(&c.Retention)
	if c.Topics.TraceTopic {
		k.TraceTopic = c.Topics.TraceTopicName
	}
	return k
}

func retentionRules(r *config.Retention) kernel.RetentionRules {
	hours, _ := r.Hours() // core/config has checked them
	return kernel.RetentionRules{
		Reserved: r.FileReservedTime, Hours: kernel.Hours(hours), Every: r.CleanInterval, Pause: r.SegmentPause, Batch: r.BatchMax,
		MaxUsed: r.MaxUsedRatio, Forcibly: min(r.CleanForciblyRatio, r.WarningRatio), Warning: r.WarningRatio, CleanForcibly: r.CleanForcibly,
		ReaderWait: r.ReaderWait, HoldMost: r.HoldMost,
	}
}

// IndexRules are those by which a broker with this configuration makes queues.
func IndexRules(c *config.Config) message.IndexRules {
	return message.IndexRules{DelayLevels: delayLevels(c.Store.MessageDelayLevel)}
}

// delayLevels reads messageDelayLevel, which core/config has checked.
func delayLevels(text string) []int64 {
	unit := map[byte]int64{'s': 1000, 'm': 60_000, 'h': 3_600_000, 'd': 86_400_000}
	var out []int64
	for _, f := range strings.Fields(text) {
		n, err := strconv.ParseInt(f[:len(f)-1], 10, 64)
		if u, ok := unit[f[len(f)-1]]; ok && err == nil {
			out = append(out, n*u)
		}
	}
	return out
}
