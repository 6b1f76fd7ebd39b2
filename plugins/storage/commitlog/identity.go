package commitlog

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

const (
	identityFile = "hardpoint.log"
	cutFile      = "hardpoint.cut"
)

// identity is the content of hardpoint.log.
type identity struct {
	LogID   string `json:"logId"`
	Segment int64  `json:"segment"`
	// QueueFile is the size of the ConsumeQueue files.
	QueueFile int64 `json:"queueFile"`
}

// readIdentity returns nil when there is none.
func readIdentity(fsys vfs.FS, name string) (*identity, error) {
	b, err := vfs.ReadFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var id identity
	if err := json.Unmarshal(b, &id); err != nil || id.LogID == "" || id.Segment <= 0 {
		return nil, &storage.CorruptError{File: name, Reason: "it should name the log's id and segment size; restore it, or remove it to adopt the directory as a new log id", Err: err}
	}
	return &id, nil
}

func writeIdentity(fsys vfs.FS, name string, id *identity) error {
	b, err := json.Marshal(id)
	if err != nil {
		return err
	}
	return vfs.WriteFileAtomic(fsys, name, append(b, '\n'))
}

func newLogID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}

// readCut returns where a truncation that did not finish was to cut; -1 for
// none. The file was written atomically, so it is whole or not there.
func readCut(fsys vfs.FS, name string) (message.Position, error) {
	b, err := vfs.ReadFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return -1, nil
	}
	if err != nil {
		return 0, err
	}
	var at message.Position
	if err := json.Unmarshal(b, &at); err != nil || at < 0 {
		return 0, &storage.CorruptError{File: name, Reason: "it should hold the position of a truncation under way", Err: err}
	}
	return at, nil
}

func writeCut(fsys vfs.FS, name string, at message.Position) error {
	return vfs.WriteFileAtomic(fsys, name, fmt.Appendf(nil, "%d\n", at))
}
