package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

func retentionKeys() []Key {
	const g = GroupRetention
	return []Key{
		{Name: "fileReservedTime", Group: g, Type: Duration, Unit: "h", Min: 0, Max: 87_600, Default: "72", Applies: Broker, Reloadable: true, Desc: "How long messages are kept at least, by the time at which they were stored. The log goes in whole segments, and the newest one stays."},
		{Name: "deleteWhen", Group: g, Type: Text, Default: "04", Applies: Broker, Reloadable: true, Desc: "Hours of the day, local time, in which what is older than fileReservedTime is deleted, as in 04 or 02;14. Above diskMaxUsedSpaceRatio it is at any hour."},
		{Name: "cleanResourceInterval", Group: g, Type: Duration, Unit: "ms", Min: 10, Max: 3_600_000, Default: "10000", Applies: Broker, Reloadable: true, Desc: "How often the disk and the age of the log are looked at."},
		{Name: "deleteFileBatchMax", Group: g, Type: Int, Min: 1, Max: 100_000, Default: "10", Applies: Broker, Reloadable: true, Desc: "Segments deleted at a time; the next ones follow after cleanResourceInterval."},
		{Name: "deleteCommitLogFilesInterval", Group: g, Type: Duration, Unit: "ms", Min: 0, Max: 600_000, Default: "100", Applies: Broker, Reloadable: true, Desc: "Pause between two deleted segments: a file system takes a while to free a large file, and sends wait for it."},
		{Name: "destroyMapedFileIntervalForcibly", Group: g, Type: Duration, Unit: "ms", Min: 0, Max: 3_600_000, Default: "120000", Applies: Broker, Reloadable: true, Desc: "How long readers may keep an old segment from being deleted before the log says so. Nothing is taken away from a reader; a client that does not take its answer is disconnected."},
		{Name: "diskMaxUsedSpaceRatio", Group: g, Type: Int, Unit: "%", Min: 10, Max: 95, Default: "75", Applies: Broker, Reloadable: true, Desc: "Use of the disk, as df shows it, above which what is older than fileReservedTime is deleted at any hour."},
		{Name: "diskSpaceCleanForciblyRatio", Group: g, Type: Int, Unit: "%", Min: 30, Max: 98, Default: "85", Applies: Broker, Reloadable: true, Desc: "Use of the disk above which the oldest segments are deleted whatever their age, consumed or not, if cleanFileForciblyEnable. At most diskSpaceWarningLevelRatio."},
		{Name: "diskSpaceWarningLevelRatio", Group: g, Type: Int, Unit: "%", Min: 35, Max: 99, Default: "90", Applies: Broker, Reloadable: true, Desc: "Use of the disk above which sends are refused with a code that clients retry, until it is two percent less. Reading goes on, and so do progress and deletions."},
		{Name: "cleanFileForciblyEnable", Group: g, Type: Bool, Default: "true", Applies: Broker, Reloadable: true, Desc: "Deletes segments before their time when the disk is full; false: never, and the broker takes no messages then."},
		{Name: "expiryHoldMost", Group: g, Type: Duration, Unit: "h", Min: 0, Max: 87_600, Default: "24", Applies: Broker, Reloadable: true, Desc: "How long what still needs an old segment (a lagging replica, say) may keep it from being deleted."},
	}
}

// Retention is when the log is deleted, and what a full disk does.
type Retention struct {
	FileReservedTime   time.Duration `koanf:"fileReservedTime"`
	DeleteWhen         string        `koanf:"deleteWhen"` // Hours reads it
	CleanInterval      time.Duration `koanf:"cleanResourceInterval"`
	BatchMax           int           `koanf:"deleteFileBatchMax"`
	SegmentPause       time.Duration `koanf:"deleteCommitLogFilesInterval"`
	ReaderWait         time.Duration `koanf:"destroyMapedFileIntervalForcibly"`
	MaxUsedRatio       int           `koanf:"diskMaxUsedSpaceRatio"` // percent, as all ratios
	CleanForciblyRatio int           `koanf:"diskSpaceCleanForciblyRatio"`
	WarningRatio       int           `koanf:"diskSpaceWarningLevelRatio"`
	CleanForcibly      bool          `koanf:"cleanFileForciblyEnable"`
	HoldMost           time.Duration `koanf:"expiryHoldMost"`
}

// Hours are those of DeleteWhen, one bit for each hour of the day.
func (r *Retention) Hours() (hours uint32, err error) {
	for part := range strings.SplitSeq(r.DeleteWhen, ";") {
		part = strings.TrimSpace(part)
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 || n > 23 || len(part) > 2 {
			return 0, fmt.Errorf("%.20q is no hour; allowed are hours from 00 to 23, several separated by semicolons, as in 04 or 02;14", part)
		}
		hours |= 1 << n
	}
	return hours, nil
}
