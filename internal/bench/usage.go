package bench

import "errors"

// errNoUsage: this system does not tell.
var errNoUsage = errors.New("CPU and memory of another process are read from /proc, which only Linux has")

// usage is what a process has used.
type usage struct {
	cpu                   float64 // seconds
	rss, anon, file, peak int64   // bytes
	ok                    bool
}

func (u usage) plus(v usage) usage {
	return usage{u.cpu + v.cpu, u.rss + v.rss, u.anon + v.anon, u.file + v.file, u.peak + v.peak, u.ok && v.ok}
}
