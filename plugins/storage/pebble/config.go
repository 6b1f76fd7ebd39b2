package pebble

import (
	"errors"
	"fmt"
)

// Config is what users may choose.
type Config struct {
	// CacheBytes is the size of the block cache, at least 1 MiB.
	CacheBytes int64 `json:"cacheBytes"`
	// MemTableBytes is what is gathered in memory before it is flushed into a
	// sorted table, 1 MiB to 1 GiB. The write-ahead log rolls with it.
	MemTableBytes int64 `json:"memTableBytes"`
	// ReserveBytes is how much space stays free: below it appends are refused
	// as full. 0 switches the check off.
	ReserveBytes int64 `json:"reserveBytes"`
	// MaxOpenFiles bounds the tables that are held open, at least 32.
	MaxOpenFiles int `json:"maxOpenFiles"`
}

// NewDefaultConfig returns the defaults.
func NewDefaultConfig() *Config {
	return &Config{
		CacheBytes:    64 << 20,
		MemTableBytes: 32 << 20,
		ReserveBytes:  64 << 20,
		MaxOpenFiles:  1000,
	}
}

// Validate implements plugin.Validator.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.CacheBytes >= 1<<20, "cacheBytes is %d, at least %d (1 MiB) are needed", c.CacheBytes, 1<<20)
	check(c.MemTableBytes >= 1<<20 && c.MemTableBytes <= 1<<30, "memTableBytes is %d, allowed are %d (1 MiB) to %d (1 GiB)", c.MemTableBytes, 1<<20, 1<<30)
	check(c.ReserveBytes >= 0, "reserveBytes is %d, it cannot be negative", c.ReserveBytes)
	check(c.MaxOpenFiles >= 32, "maxOpenFiles is %d, at least 32 are needed", c.MaxOpenFiles)
	return errors.Join(errs...)
}
