package catalog

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"slices"
)

// Files of the folder config that only Hardpoint has; each has a copy with the
// suffix .bak beside it.
const (
	SnapshotFile = snapshotName
	LedgerFile   = ledgerName
)

// CheckSnapshot returns ErrSnapshot when b is not the whole of a SnapshotFile. What it
// holds is not looked at.
func CheckSnapshot(b []byte) error {
	_, err := decodeSnapshot(b)
	return err
}

// Ledger tells what a broker wrote into the files of the folder config. The zero value
// knows of none.
type Ledger struct{ sums map[string][]uint32 }

// ParseLedger reads a LedgerFile.
func ParseLedger(b []byte) (Ledger, error) {
	var l ledger
	if err := json.Unmarshal(b, &l); err != nil {
		return Ledger{}, fmt.Errorf("the list of checksums %s: %w", LedgerFile, err)
	}
	if l.Files == nil {
		return Ledger{}, fmt.Errorf("the list of checksums %s names no files", LedgerFile)
	}
	return Ledger{l.Files}, nil
}

// Known reports whether there is a ledger at all.
func (l Ledger) Known() bool { return l.sums != nil }

// Foreign reports whether the ledger knows a file and not this content of it: somebody
// else wrote it, and the next start takes it over.
func (l Ledger) Foreign(name string, content []byte) bool {
	sums, ok := l.sums[name]
	return ok && !slices.Contains(sums, crc32.Checksum(content, castagnoli))
}
