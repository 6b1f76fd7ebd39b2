package lint

import (
	"bytes"
	"fmt"
	"regexp"
)

// The words are put together here because this file is searched, too.
var (
	unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME)\b`)
	machine    = regexp.MustCompile(`(^|[\s"'` + "`" + `(=:])/(wor` + `k|far` + `m|roo` + `t)/`)
)

// checkText finds what must not stand in any text of the repository.
func checkText(path string, content []byte) []string {
	if bytes.IndexByte(content, 0) >= 0 {
		return nil // not text
	}
	var found []string
	for i, line := range bytes.Split(content, []byte("\n")) {
		if m := unfinished.Find(line); m != nil {
			found = append(found, fmt.Sprintf("%s:%d says %s: finish it, or write down what is missing where its reader plans, in an issue", path, i+1, m))
		}
		if m := machine.Find(line); m != nil {
			found = append(found, fmt.Sprintf("%s:%d names the path %q of one machine: nobody else has it", path, i+1, bytes.TrimSpace(m)))
		}
	}
	return found
}

// programs are how executables of the systems begin that are built for.
var programs = [][]byte{
	[]byte("\x7fELF"), []byte("MZ\x90\x00"),
	{0xcf, 0xfa, 0xed, 0xfe}, {0xce, 0xfa, 0xed, 0xfe}, // Mach-O, little-endian
}

// checkProgram finds what `go build` leaves behind where it was called. Committed
// once, it is in every clone for ever.
func checkProgram(path string, start []byte) []string {
	for _, p := range programs {
		if bytes.HasPrefix(start, p) {
			return []string{fmt.Sprintf("%s is a built program: remove it, and build into bin/", path)}
		}
	}
	return nil
}
