package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"html"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const small = "testdata/results.jsonl"

// parts are those of make bench-peers.
var parts = []string{"send", "sync", "pull", "cold", "latency", "memory", "start", "restart", "topics", "jetstream", "append"}

func TestPage(t *testing.T) {
	r := newResults()
	require.NoError(t, r.readFile(small))
	var out bytes.Buffer
	require.NoError(t, run([]string{"page", small}, nil, &out))
	page := out.String()
	plain := html.UnescapeString(page)
	has := func(want string) {
		t.Helper()
		if !strings.Contains(plain, want) { // without printing the page
			t.Errorf("the page does not contain %q", want)
		}
	}

	measured := map[string]bool{}
	for _, k := range r.keys {
		measured[k.part] = true
	}
	for _, p := range parts {
		require.True(t, measured[p], "%s has no result of %s", small, p)
	}
	seen := map[string]int{}
	for _, s := range r.shown() {
		has(">" + s.title + "</h2>")
		for _, k := range s.keys(r) {
			seen[k.part+k.load+k.name]++
		}
		for _, p := range s.plots {
			has(s.title + ": " + p.title + "</title>")
		}
	}
	for _, k := range r.keys {
		require.Equal(t, 1, seen[k.part+k.load+k.name], "%v is shown in one section", k)
	}
	for _, o := range r.outcomes() {
		has(o.what)
	}

	// It asks nobody for anything and runs nothing.
	for _, never := range []string{"<script", "http:", "https:", "//", "@import", "url(", "<link", "<img", "<iframe"} {
		if strings.Contains(page, never) {
			t.Errorf("the page contains %s", never)
		}
	}
	has("prefers-color-scheme: dark")
	charts := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(page, -1)
	require.NotEmpty(t, charts)
	ids := map[string]bool{}
	for _, c := range charts {
		require.Contains(t, c, `role="img"`)
		id := regexp.MustCompile(`aria-labelledby="(\S+) (\S+)"`).FindStringSubmatch(c)
		require.Len(t, id, 3)
		require.Contains(t, c, `<title id="`+id[1]+`">`)
		require.Regexp(t, `<desc id="`+id[2]+`">[^<]+`, c)
		require.False(t, ids[id[1]], "ids are unique")
		ids[id[1]] = true
		d := xml.NewDecoder(strings.NewReader(c))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, c)
		}
	}
}

// The test above must be able to fail.
func TestPageWithoutAPart(t *testing.T) {
	text, err := os.ReadFile(small)
	require.NoError(t, err)
	var kept []string
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, `"part": "restart"`) {
			kept = append(kept, line)
		}
	}
	r := newResults()
	require.NoError(t, r.read(strings.NewReader(strings.Join(kept, ""))))
	var out bytes.Buffer
	require.NoError(t, writePage(&out, r))
	require.NotContains(t, out.String(), "Restart after kill -9 under load</h2>")
	for _, o := range r.outcomes() {
		if o.part == "restart" {
			require.Equal(t, notMeasured, o.verdict)
		}
	}
}

func TestTables(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run([]string{"tables", small}, nil, &out))
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "|") {
			require.True(t, strings.HasSuffix(line, "|\n"), line)
		}
	}
	for _, want := range []string{"### Targets", "### Send, ASYNC_FLUSH", "different protocol", "### Where and how", "| met |", "| missed |"} {
		require.Contains(t, out.String(), want)
	}
}

func TestVerdicts(t *testing.T) {
	line := func(part, load, name, round, more string) string {
		return `{"part":"` + part + `","load":"` + load + `","name":"` + name + `","round":` + round + "," + more + "}\n"
	}
	r := newResults()
	require.NoError(t, r.read(strings.NewReader(
		line("start", "empty", "commitlog", "1", `"ms":10`)+line("start", "empty", "apache", "1", `"ms":1000`)+
			line("start", "empty", "commitlog", "2", `"ms":30`)+line("start", "empty", "apache", "2", `"ms":1200`)+
			line("start", "empty", "commitlog", "3", `"ms":20`)+line("start", "empty", "apache", "3", `"ms":900`)+
			line("restart", "killed under load, 2 GiB", "commitlog", "1", `"ms":300`)+line("restart", "killed under load, 2 GiB", "apache", "1", `"ms":900`)+
			line("append", "128 B, batch of 64", "commitlog", "1", `"recordsPerSecond":4000000`)+
			`{"part":"failed","load":"cold","round":2,"said":"no <root>"}`+"\n"+
			line("send", "1 x 64, 1024 B", "apache", "1", `"messagesPerSecond":5,"errors":[{"code":2}]`))))
	of := func(part string) outcome {
		for _, o := range r.outcomes() {
			if o.part == part && o.verdict != notMeasured {
				return o
			}
		}
		return outcome{}
	}
	require.Equal(t, met, of("start").verdict)
	require.Equal(t, "1/50.0 [1/100.0–1/40.0]", of("start").measured, "the medians 20 and 1000; rounds by pairs")
	require.Equal(t, missed, of("restart").verdict)
	require.Equal(t, missed, of("append").verdict)
	require.Equal(t, "4,000,000 [4,000,000–4,000,000]", of("append").measured)
	bad := r.wrong()
	require.Len(t, bad, 2)
	require.Contains(t, bad[0], "cold failed in round 2")
	require.Contains(t, bad[1], "apache")
	var page bytes.Buffer
	require.NoError(t, writePage(&page, r))
	require.Contains(t, page.String(), "no &lt;root&gt;")
}

func TestGoBenchmarks(t *testing.T) {
	in := `goos: linux
BenchmarkBeside/cache/1024B/batch=64-2        	       2	       460.1 cpu-ns/record	         0.6006 of-raw	       320.5 raw-cpu-ns/record	   2732107 raw-records/s	   1640784 records/s
BenchmarkStore/append/1024B/batch=64-2        	  113836	       512.8 ns/op	2301.07 MB/s	   1950056 records/s	      11 B/op	       0 allocs/op
BenchmarkStore/sync-2                        	      22	   3621530 ns/op	    7148 B/op	      21 allocs/op
BenchmarkSustained/1024B/batch=1024-2        	       1	         0.97 of-raw	   1950056 records/s
PASS
`
	var out bytes.Buffer
	require.NoError(t, run([]string{"append"}, strings.NewReader(in), &out))
	r := newResults()
	require.NoError(t, r.read(&out))
	require.Len(t, r.keys, 3)
	v, ok := r.median(key{"append", "1024 B, batch of 64", "commitlog"}, "ofPlainWrites")
	require.True(t, ok)
	require.InDelta(t, 0.6006, v, 1e-9)
	v, ok = r.median(key{"append", "allocations, 1024 B, batch of 64", "commitlog"}, "allocations")
	require.True(t, ok)
	require.Zero(t, v)
	_, err := goBenchmarks(strings.NewReader("BenchmarkStore/x-2 1 a ns/op\n"))
	require.Error(t, err)
}

func TestBadInput(t *testing.T) {
	for _, line := range []string{"{", "[]", `{"load":"x"}`} {
		require.ErrorIs(t, newResults().read(strings.NewReader(line)), errResults)
	}
	require.ErrorIs(t, run(nil, nil, nil), errUsage)
	require.ErrorIs(t, run([]string{"page"}, nil, nil), errUsage)
	require.ErrorIs(t, run([]string{"page", "testdata/none"}, nil, nil), os.ErrNotExist)
}
