package commitlog

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hardpointmq/hardpoint/plugins/storage/commitlog/indexfile"
)

// unitSize is the size of a ConsumeQueue unit in bytes.
const unitSize = 20

// Ways of writing the log, values of Config.CommitLogWrite.
const (
	WritePwrite = "pwrite"
	WriteMap    = "map"
)

// Config configures the store. The JSON names are RocketMQ's keys where it has
// one; sizes are bytes, intervals ms.
type Config struct {
	// StorePathCommitLog is the directory of the segments; empty: commitlog
	// below the store's directory.
	StorePathCommitLog string `json:"storePathCommitLog"`
	// MappedFileSizeConsumeQueue is the size of a ConsumeQueue file, rounded up
	// to whole units of 20 bytes. 20 to 1 GiB.
	MappedFileSizeConsumeQueue int64 `json:"mappedFileSizeConsumeQueue"`
	// FlushIntervalConsumeQueue is the time between flushes of ConsumeQueues,
	// key index and checkpoint, 10 to 60,000 ms. It bounds what is rebuilt from
	// the log after a power loss, never what can be lost.
	FlushIntervalConsumeQueue int64 `json:"flushIntervalConsumeQueue"`

	// MessageIndexEnable keeps the key index.
	MessageIndexEnable bool `json:"messageIndexEnable"`
	// MaxHashSlotNum and MaxIndexNum are the slots and entries of one file of
	// the key index; existing files with other numbers are set aside and made
	// again from the log.
	MaxHashSlotNum int32 `json:"maxHashSlotNum"`
	MaxIndexNum    int32 `json:"maxIndexNum"`

	// CommitLogWrite is "pwrite", or "map" to copy into a mapping that is
	// touched ahead.
	CommitLogWrite string `json:"commitLogWrite"`
	// WarmMapedFileEnable touches a whole new segment before it is used, with
	// CommitLogWrite "map".
	WarmMapedFileEnable bool `json:"warmMapedFileEnable"`
	// CheckCRCOnRecover compares bodies with their CRC when the end of the log
	// is looked for.
	CheckCRCOnRecover bool `json:"checkCRCOnRecover"`
	// MaxMappedFiles bounds the ConsumeQueue files that are mapped at a time;
	// the least recently used are closed. 16 to 60,000.
	MaxMappedFiles int `json:"maxMappedFiles"`
}

// NewDefaultConfig returns RocketMQ's defaults.
func NewDefaultConfig() Config {
	return Config{
		MappedFileSizeConsumeQueue: 6_000_000,
		FlushIntervalConsumeQueue:  1000,
		MessageIndexEnable:         true,
		MaxHashSlotNum:             5_000_000,
		MaxIndexNum:                20_000_000,
		CommitLogWrite:             WritePwrite,
		CheckCRCOnRecover:          true,
		MaxMappedFiles:             8192,
	}
}

// Validate reports everything that is out of range.
func (c *Config) Validate() error {
	var errs []error
	rng := func(name string, v, low, high int64) {
		if v < low || v > high {
			errs = append(errs, fmt.Errorf("%s is %d, allowed are %d to %d", name, v, low, high))
		}
	}
	rng("mappedFileSizeConsumeQueue", c.MappedFileSizeConsumeQueue, unitSize, 1<<30)
	rng("flushIntervalConsumeQueue", c.FlushIntervalConsumeQueue, 10, 60_000)
	rng("maxHashSlotNum", int64(c.MaxHashSlotNum), 1, indexfile.MaxSlots)
	rng("maxIndexNum", int64(c.MaxIndexNum), 2, 100_000_000)
	rng("maxMappedFiles", int64(c.MaxMappedFiles), 16, 60_000)
	if c.CommitLogWrite != WritePwrite && c.CommitLogWrite != WriteMap {
		errs = append(errs, fmt.Errorf("commitLogWrite is %q, allowed are %q and %q", c.CommitLogWrite, WritePwrite, WriteMap))
	}
	if strings.Contains(c.StorePathCommitLog, ",") {
		errs = append(errs, fmt.Errorf("storePathCommitLog is %q; a list of directories is not supported, name one", c.StorePathCommitLog))
	}
	return errors.Join(errs...)
}

// queueFileSize is the size of a ConsumeQueue file in whole units.
func (c *Config) queueFileSize() int64 {
	return (c.MappedFileSizeConsumeQueue + unitSize - 1) / unitSize * unitSize
}
