package solo

import (
	"errors"
	"fmt"
)

// Flush modes (flushDiskType).
const (
	AsyncFlush = "ASYNC_FLUSH"
	SyncFlush  = "SYNC_FLUSH"
)

// Config is the plugin's configuration, with RocketMQ's key names.
type Config struct {
	FlushDiskType string `json:"flushDiskType"`
	// FlushIntervalMs is in ms, 1 to 600,000.
	FlushIntervalMs int64 `json:"flushIntervalCommitLog"`
	// SyncFlushTimeoutMs is in ms, 1 to 600,000.
	SyncFlushTimeoutMs int64 `json:"syncFlushTimeout"`
}

// NewDefaultConfig returns RocketMQ's defaults.
func NewDefaultConfig() Config {
	return Config{FlushDiskType: AsyncFlush, FlushIntervalMs: 500, SyncFlushTimeoutMs: 5000}
}

// Validate implements plugin.Validator.
func (c *Config) Validate() error {
	var errs []error
	if c.FlushDiskType != AsyncFlush && c.FlushDiskType != SyncFlush {
		errs = append(errs, fmt.Errorf("flushDiskType is %q, it must be %s or %s", c.FlushDiskType, AsyncFlush, SyncFlush))
	}
	check := func(key string, v int64) {
		if v < 1 || v > 600_000 {
			errs = append(errs, fmt.Errorf("%s is %d ms, it must be from 1 to 600,000", key, v))
		}
	}
	check("flushIntervalCommitLog", c.FlushIntervalMs)
	check("syncFlushTimeout", c.SyncFlushTimeoutMs)
	return errors.Join(errs...)
}
