package nameserver

import (
	"errors"
	"time"

	engine "github.com/hardpointmq/hardpoint/core/internal/nameserver"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// Config is the configuration of a name server. The comments name the keys of
// RocketMQ's namesrv.conf.
type Config struct {
	// Dir is where the key-value configuration is kept (kvConfig.json, in
	// RocketMQ's text); empty: in memory only.
	Dir string
	// Transport is the name of the transport plugin, TransportConfig its own
	// configuration.
	Transport       string
	TransportConfig plugin.Raw
	// Listen is where and how it serves.
	Listen transport.Listen

	// ScanInterval is how often silent brokers are looked for, at least 10 ms
	// (scanNotActiveBrokerInterval).
	ScanInterval time.Duration
	// BrokerExpiry is after which silence a broker is forgotten that does not
	// say so itself with heartbeatTimeoutMillis, at least 100 ms
	// (brokerChannelExpiredTime).
	BrokerExpiry time.Duration
	// OrderMessageEnable adds the configuration of ordered topics to routes.
	OrderMessageEnable bool
	// EnableAllTopicList answers requests for the list of all topics.
	EnableAllTopicList bool
	// EnableTopicList answers requests for the topics of a cluster or unit.
	EnableTopicList bool
}

// NewDefaultConfig returns RocketMQ's defaults, served by the transport
// "remoting" on port 9876 of every interface.
func NewDefaultConfig() Config {
	d := engine.NewDefaultConfig()
	return Config{
		Transport: "remoting", Listen: transport.Listen{Address: ":9876"},
		ScanInterval: d.ScanInterval, BrokerExpiry: d.BrokerExpiry, OrderMessageEnable: d.OrderMessageEnable,
		EnableAllTopicList: d.EnableAllTopicList, EnableTopicList: d.EnableTopicList,
	}
}

// Validate returns every fault.
func (c Config) Validate() error {
	var errs []error
	if c.Transport == "" {
		errs = append(errs, errors.New("the name server has no transport; the usual one is remoting"))
	}
	if c.Listen.Address == "" {
		errs = append(errs, errors.New("namesrvListen is empty; the usual one is :9876"))
	}
	return errors.Join(append(errs, c.rules().Validate())...)
}

func (c Config) rules() engine.Config {
	return engine.Config{
		ScanInterval: c.ScanInterval, BrokerExpiry: c.BrokerExpiry, OrderMessageEnable: c.OrderMessageEnable,
		EnableAllTopicList: c.EnableAllTopicList, EnableTopicList: c.EnableTopicList,
	}
}
