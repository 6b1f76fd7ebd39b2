package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// userHz is the unit of times in /proc/PID/stat; it is 100 on every Linux.
const userHz = 100

// usageOf reads what a process has used so far.
func usageOf(pid int) (usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return usage{}, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return usage{}, err
	}
	return parseUsage(stat, status)
}

func parseUsage(stat, status []byte) (usage, error) {
	// The name in parentheses may contain anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return usage{}, fmt.Errorf("unknown form of /proc/PID/stat: %q", stat)
	}
	var ticks [2]int64
	for i := range ticks { // utime and stime are fields 14 and 15, the name is 2
		n, err := strconv.ParseInt(string(fields[11+i]), 10, 64)
		if err != nil {
			return usage{}, fmt.Errorf("unknown form of /proc/PID/stat: %w", err)
		}
		ticks[i] = n
	}
	u := usage{cpu: float64(ticks[0]+ticks[1]) / userHz, ok: true}
	for line := range strings.Lines(string(status)) {
		name, rest, _ := strings.Cut(line, ":")
		var to *int64
		switch name {
		case "VmRSS":
			to = &u.rss
		case "RssAnon":
			to = &u.anon
		case "RssFile":
			to = &u.file
		case "VmHWM":
			to = &u.peak
		default:
			continue
		}
		if f := strings.Fields(rest); len(f) > 0 {
			kb, err := strconv.ParseInt(f[0], 10, 64)
			if err != nil {
				return usage{}, fmt.Errorf("unknown form of /proc/PID/status: %w", err)
			}
			*to = kb << 10
		}
	}
	return u, nil
}
