// Command benchreport makes tables and a page of what test/bench/run measured.
//
//	benchreport tables RESULTS...    # Markdown to stdout
//	benchreport page RESULTS...      # one HTML file without anything from elsewhere, to stdout
//	benchreport append               # output of go test -bench from stdin, as results to stdout
//
// RESULTS are files of JSON lines; several are taken as rounds of one run, so that parts can be
// measured at different times.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "benchreport:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: benchreport tables RESULTS... | page RESULTS... | append <OUTPUT")

func run(args []string, in io.Reader, out io.Writer) error {
	switch {
	case len(args) == 1 && args[0] == "append":
		rows, err := goBenchmarks(in)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if err := json.NewEncoder(out).Encode(r); err != nil {
				return err
			}
		}
		return nil
	case len(args) >= 2 && (args[0] == "tables" || args[0] == "page"):
		r := newResults()
		for _, name := range args[1:] {
			if err := r.readFile(name); err != nil {
				return err
			}
		}
		if args[0] == "page" {
			return writePage(out, r)
		}
		return writeMarkdown(out, r)
	}
	return errUsage
}
