package main

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// A line of go test -bench: name, iterations, then numbers with their units.
var (
	besideName    = regexp.MustCompile(`^BenchmarkBeside/cache/(\d+)B/batch=(\d+)(?:-\d+)?$`)
	sustainedName = regexp.MustCompile(`^BenchmarkSustained/1024B/batch=1024(?:-\d+)?$`)
	storeName     = regexp.MustCompile(`^BenchmarkStore/append/(\d+)B/batch=(\d+)(?:-\d+)?$`)
)

// goBenchmarks reads what the benchmarks of commitlog print; lines of others are passed over.
func goBenchmarks(in io.Reader) ([]result, error) {
	var out []result
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		units := map[string]float64{}
		for i := 2; i+1 < len(f); i += 2 {
			v, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%q is no line of go test -bench: %w", lines.Text(), err)
			}
			units[f[i+1]] = v
		}
		r := result{"name": "commitlog", "part": "append"}
		set := func(name, unit string) {
			if v, ok := units[unit]; ok {
				r[name] = v
			}
		}
		if m := besideName.FindStringSubmatch(f[0]); m != nil {
			r["load"] = fmt.Sprintf("%s B, batch of %s", m[1], m[2])
			set("recordsPerSecond", "records/s")
			set("ofPlainWrites", "of-raw")
			set("cpuNanosPerRecord", "cpu-ns/record")
		} else if m := storeName.FindStringSubmatch(f[0]); m != nil {
			r["load"] = fmt.Sprintf("allocations, %s B, batch of %s", m[1], m[2])
			set("allocations", "allocs/op")
		} else if sustainedName.MatchString(f[0]) {
			r["load"] = "sustained, until everything is on the disk"
			set("ofPlainWrites", "of-raw")
			set("recordsPerSecond", "records/s")
		} else {
			continue
		}
		out = append(out, r)
	}
	return out, lines.Err()
}
