package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hardpointmq/hardpoint/core/plugin"
)

// Config is the configuration of one process, complete and checked. It is
// never written after Load; an update of a running process makes a new one.
// The field comments name the key; units, ranges and meaning are in the key
// table and in docs/configuration.md. Sizes are bytes.
type Config struct {
	Node      Node
	Network   Network
	Broker    BrokerConfig
	Topics    Topics
	Consume   Consume
	Store     Store
	Retention Retention
	Metrics   Metrics
	// PluginProcesses is what holds for all plugins that are processes of their own.
	PluginProcesses PluginProcesses
	Namesrv         NamesrvConfig
	TLS             TLS
	// Plugins holds what was written under plugins.KIND.NAME, without what is in
	// Processes and Programs. What a reference (${file:PATH}, ${env:NAME}) stood for
	// is a plugin.Secret; [RawOf] reveals it.
	Plugins map[string]map[string]map[string]any
	// Processes tells for KIND.NAME whether a plugin of this program was asked to
	// run as a process of its own.
	Processes map[string]bool
	// Programs are the plugins by KIND.NAME that are programs of their own.
	Programs map[string]Program

	raw    map[string]map[string]any // by KIND.NAME: top-level keys of the chosen plugins that were set
	origin map[string]Source         // by key; absent: default
}

// Node is what concerns the process itself.
type Node struct {
	Data         string        `koanf:"data"`
	Dev          bool          `koanf:"dev"`
	AdminListen  string        `koanf:"adminListen"` // "off": none
	DrainTimeout time.Duration `koanf:"drainTimeout"`
	LogLevel     string        `koanf:"logLevel"`
	LogFormat    string        `koanf:"logFormat"`
}

// Network is what concerns the client port of the broker and, for the limits,
// every port that speaks remoting.
type Network struct {
	Transport string `koanf:"transport"`
	Listen    string `koanf:"listen"`
	// MoreListeners is as it was written; see [Network.More].
	MoreListeners []string `koanf:"moreListeners"`
	Advertise     string   `koanf:"advertise"` // empty: see ChooseAdvertise
	// HAAdvertise is the address announced to replicas; empty: like Advertise.
	HAAdvertise            string        `koanf:"brokerIP2"`
	VIPChannel             bool          `koanf:"vipChannel"`
	MaxConnections         int           `koanf:"maxConnections"`
	MaxFrameSize           int64         `koanf:"maxFrameSize"`
	MaxHeaderSize          int64         `koanf:"maxHeaderSize"`
	MaxBytesInFlight       int64         `koanf:"maxBytesInFlight"`
	MaxPendingBytesPerPeer int64         `koanf:"maxPendingBytesPerPeer"`
	MaxPendingBytes        int64         `koanf:"maxPendingBytes"`
	IdleTimeout            time.Duration `koanf:"serverChannelMaxIdleTimeSeconds"`
	ConnectTimeout         time.Duration `koanf:"connectTimeoutMillis"`
}

// ListenerConfig is a listener beside the client port.
type ListenerConfig struct {
	// Transport is the plugin's name, Address where it listens, in its own terms.
	Transport, Address string
}

// String is the listener as it was written.
func (l ListenerConfig) String() string { return l.Transport + betweenListener + l.Address }

// More are the listeners of moreListeners, in its order.
func (n *Network) More() []ListenerConfig {
	out := make([]ListenerConfig, 0, len(n.MoreListeners))
	for _, text := range n.MoreListeners {
		name, address, _ := strings.Cut(text, betweenListener)
		out = append(out, ListenerConfig{name, address})
	}
	return out
}

// Transports are the names of the transport plugins in use, each once, that of the
// client port first.
func (n *Network) Transports() []string {
	names := []string{n.Transport}
	for _, l := range n.More() {
		if !slices.Contains(names, l.Transport) {
			names = append(names, l.Transport)
		}
	}
	return names
}

// BrokerConfig is the broker's identity and its life with the name servers.
type BrokerConfig struct {
	ClusterName              string        `koanf:"brokerClusterName"`
	Name                     string        `koanf:"brokerName"`
	ID                       int64         `koanf:"brokerId"`
	Role                     string        `koanf:"brokerRole"`
	Replication              string        `koanf:"replication"`
	NamesrvAddrs             []string      `koanf:"namesrvAddr"`
	Permission               int           `koanf:"brokerPermission"` // 2 write, 4 read, 6 both
	RegionID                 string        `koanf:"regionId"`
	ZoneName                 string        `koanf:"zoneName"`
	RegisterNameServerPeriod time.Duration `koanf:"registerNameServerPeriod"`
	RegisterBrokerTimeout    time.Duration `koanf:"registerBrokerTimeoutMills"`
	ChannelExpiredTimeout    time.Duration `koanf:"channelExpiredTimeout"`
	MaxMessageSize           int64         `koanf:"maxMessageSize"`
	SendWait                 time.Duration `koanf:"waitTimeMillsInSendQueue"`
	RejectTransactionMessage bool          `koanf:"rejectTransactionMessage"`
	TraceOn                  bool          `koanf:"traceOn"`
}

// Topics is the creation of topics and groups.
type Topics struct {
	AutoCreateTopic             bool   `koanf:"autoCreateTopicEnable"`
	DefaultTopicQueueNums       int32  `koanf:"defaultTopicQueueNums"`
	ClusterTopic                bool   `koanf:"clusterTopicEnable"`
	BrokerTopic                 bool   `koanf:"brokerTopicEnable"`
	AutoCreateSubscriptionGroup bool   `koanf:"autoCreateSubscriptionGroup"`
	TraceTopic                  bool   `koanf:"traceTopicEnable"`
	TraceTopicName              string `koanf:"msgTraceTopicName"`
}

// Consume is reading: polling, transfer limits, offsets, queries.
type Consume struct {
	LongPolling                 bool          `koanf:"longPollingEnable"`
	ShortPollingTime            time.Duration `koanf:"shortPollingTimeMills"`
	MaxTransferBytesInMemory    int64         `koanf:"maxTransferBytesOnMessageInMemory"`
	MaxTransferCountInMemory    int           `koanf:"maxTransferCountOnMessageInMemory"`
	MaxTransferBytesInDisk      int64         `koanf:"maxTransferBytesOnMessageInDisk"`
	MaxTransferCountInDisk      int           `koanf:"maxTransferCountOnMessageInDisk"`
	MaxFilterMessageSize        int64         `koanf:"maxFilterMessageSize"`
	FlushConsumerOffsetInterval time.Duration `koanf:"flushConsumerOffsetInterval"`
	NotifyConsumerIdsChanged    bool          `koanf:"notifyConsumerIdsChangedEnable"`
	QueryMaxNum                 int           `koanf:"defaultQueryMaxNum"`
	MaxMsgsNumBatch             int           `koanf:"maxMsgsNumBatch"`
}

// Store is the choice of the storage plugin and what the engine and the
// commit log know in common. The keys of a plugin's own are handed on by
// [Config.PluginRaw].
type Store struct {
	Storage              string        `koanf:"storage"`
	Process              bool          `koanf:"storageProcess"`
	RootDir              string        `koanf:"storePathRootDir"` // default DATA/store
	CommitLogDir         string        `koanf:"storePathCommitLog"`
	SegmentSize          int64         `koanf:"mappedFileSizeCommitLog"`
	ConsumeQueueFileSize int64         `koanf:"mappedFileSizeConsumeQueue"`
	FlushDiskType        string        `koanf:"flushDiskType"`
	SyncFlushTimeout     time.Duration `koanf:"syncFlushTimeout"`
	FlushInterval        time.Duration `koanf:"flushIntervalCommitLog"`
	FlushConsumeQueue    time.Duration `koanf:"flushIntervalConsumeQueue"`
	CommitLogWrite       string        `koanf:"commitLogWrite"`
	WarmMappedFile       bool          `koanf:"warmMapedFileEnable"`
	MessageIndex         bool          `koanf:"messageIndexEnable"`
	MaxHashSlotNum       int           `koanf:"maxHashSlotNum"`
	MaxIndexNum          int           `koanf:"maxIndexNum"`
	CheckCRCOnRecover    bool          `koanf:"checkCRCOnRecover"`
	MaxMappedFiles       int           `koanf:"maxMappedFiles"`
	MessageDelayLevel    string        `koanf:"messageDelayLevel"`
	AutoMessageVersion   bool          `koanf:"autoMessageVersionOnTopicLen"`
}

// PluginProcesses is the supervision of plugins that are processes of their own.
type PluginProcesses struct {
	StartTimeout   time.Duration `koanf:"pluginStartTimeout"`
	HealthInterval time.Duration `koanf:"pluginHealthInterval"` // 0: never
	HealthTimeout  time.Duration `koanf:"pluginHealthTimeout"`
	CallTimeout    time.Duration `koanf:"pluginCallTimeout"` // 0: for ever
	StopTimeout    time.Duration `koanf:"pluginStopTimeout"` // 0: as at other times
	BackoffFirst   time.Duration `koanf:"pluginBackoffFirst"`
	BackoffMost    time.Duration `koanf:"pluginBackoffMost"`   // at least BackoffFirst
	BreakerDeaths  int           `koanf:"pluginBreakerDeaths"` // 0: it never opens
	BreakerWindow  time.Duration `koanf:"pluginBreakerWindow"`
	BreakerOpen    time.Duration `koanf:"pluginBreakerOpen"`
}

// NamesrvConfig is the name server.
type NamesrvConfig struct {
	Listen                      string        `koanf:"namesrvListen"`
	ScanNotActiveBrokerInterval time.Duration `koanf:"scanNotActiveBrokerInterval"`
	BrokerExpiredTimeout        time.Duration `koanf:"brokerChannelExpiredTime"`
	OrderMessageEnable          bool          `koanf:"orderMessageEnable"`
	EnableAllTopicList          bool          `koanf:"enableAllTopicList"`
	EnableTopicList             bool          `koanf:"enableTopicList"`
}

// The words of flushDiskType, brokerRole and commitLogWrite.
const (
	AsyncFlush  = "ASYNC_FLUSH"
	SyncFlush   = "SYNC_FLUSH"
	AsyncMaster = "ASYNC_MASTER"
	SyncMaster  = "SYNC_MASTER"
	Slave       = "SLAVE"
	WritePwrite = "pwrite"
	WriteMap    = "map"
)

// AdminOff is the value of adminListen that opens no admin port.
const AdminOff = wordOff

// StoreRaw returns those keys of the chosen storage plugin that RocketMQ keeps
// at the top level (mappedFileSizeConsumeQueue …) and that were set by the
// user: numbers in RocketMQ's units (bytes, milliseconds), booleans, texts.
// Keys left at their default are not in it, so that a plugin's own defaults
// hold. The map is the caller's.
func (c *Config) StoreRaw() map[string]any { return maps.Clone(c.raw["storage."+c.Store.Storage]) }

// PluginRaw returns the configuration of a plugin as its factory takes it: for
// a chosen plugin the top-level keys that belong to it (flushDiskType to solo,
// maxIndexNum to commitlog) in the form of [Config.StoreRaw], and on top what
// was written under plugins.KIND.NAME. Nothing written gives nil: all defaults.
func (c *Config) PluginRaw(kind, name string) (plugin.Raw, error) {
	m := map[string]any{}
	maps.Copy(m, c.raw[kind+"."+name])
	maps.Copy(m, c.Plugins[kind][name])
	if len(m) == 0 {
		return nil, nil
	}
	raw, err := RawOf(m)
	if err != nil {
		return nil, fmt.Errorf("configuration of plugins.%s.%s: %w", kind, name, err)
	}
	return raw, nil
}

// PluginProcess reports whether the plugin is to run as a process of its own.
func (c *Config) PluginProcess(kind, name string) bool {
	return c.Processes[kind+"."+name] || kind == "storage" && name == c.Store.Storage && c.Store.Process
}
