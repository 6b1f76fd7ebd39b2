package broker

import "github.com/hardpointmq/hardpoint/core/internal/catalog"

// Files of a store's folder config that only Hardpoint's brokers have, for tools that
// look into a store without one. Each has a copy with the suffix .bak beside it.
const (
	SnapshotFile = catalog.SnapshotFile
	LedgerFile   = catalog.LedgerFile
)

// Ledger tells what a broker wrote into the other files of the folder. The zero value
// knows of none.
type Ledger = catalog.Ledger

// ParseLedger reads a LedgerFile.
func ParseLedger(b []byte) (Ledger, error) { return catalog.ParseLedger(b) }

// CheckSnapshot returns an error that says why when b is not the whole of a
// SnapshotFile.
func CheckSnapshot(b []byte) error { return catalog.CheckSnapshot(b) }
