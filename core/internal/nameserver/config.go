package nameserver

import (
	"errors"
	"fmt"
	"time"
)

// Config is the configuration of a name server. The comments name the keys of
// RocketMQ's namesrv.conf.
type Config struct {
	// ScanInterval is how often silent brokers are looked for, at least 10 ms
	// (scanNotActiveBrokerInterval).
	ScanInterval time.Duration
	// BrokerExpiry is after which silence a broker is forgotten that does not
	// say so itself with heartbeatTimeoutMillis, at least 100 ms.
	BrokerExpiry time.Duration
	// OrderMessageEnable adds the configuration of ordered topics to routes.
	OrderMessageEnable bool
	// EnableAllTopicList answers requests for the list of all topics.
	EnableAllTopicList bool
	// EnableTopicList answers requests for the topics of a cluster or unit.
	EnableTopicList bool
}

// NewDefaultConfig returns RocketMQ's defaults.
func NewDefaultConfig() Config {
	return Config{
		ScanInterval: 5 * time.Second, BrokerExpiry: 120 * time.Second,
		EnableAllTopicList: true, EnableTopicList: true,
	}
}

// Validate returns every fault.
func (c Config) Validate() error {
	var errs []error
	if c.ScanInterval < 10*time.Millisecond {
		errs = append(errs, fmt.Errorf("scanNotActiveBrokerInterval is %v, at least 10ms are needed", c.ScanInterval))
	}
	if c.BrokerExpiry < 100*time.Millisecond {
		errs = append(errs, fmt.Errorf("brokerChannelExpiredTime is %v, at least 100ms are needed", c.BrokerExpiry))
	}
	return errors.Join(errs...)
}
