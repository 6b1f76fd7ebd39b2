package commitlog

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

const (
	identityFile = "hardpoint.log"
	cutFile      = "hardpoint.cut"
)

// identity is the content of hardpoint.log and of its copy.
type identity struct {
	LogID   string `json:"logId"`
	Segment int64  `json:"segment"`
	// QueueFile is the size of the ConsumeQueue files.
	QueueFile int64 `json:"queueFile"`
}

// readIdentity returns nil when there is none.
func readIdentity(fsys vfs.FS, name string, log *slog.Logger) (*identity, error) {
	var id *identity
	found, err := readCopied(fsys, name, log, func(b []byte) (err error) {
		id, err = parseIdentity(b)
		return err
	}, "it should name the log's id and segment size; restore it, or remove it and its copy to adopt the directory as a new log id")
	if err != nil || !found {
		return nil, err
	}
	return id, nil
}

func parseIdentity(b []byte) (*identity, error) {
	var id identity
	if err := json.Unmarshal(b, &id); err != nil {
		return nil, err
	}
	if id.LogID == "" || id.Segment <= 0 {
		return nil, errors.New("a field is missing")
	}
	if id.Segment <= message.MinRecordSize+message.BlankSize || id.Segment > maxSegment {
		return nil, fmt.Errorf("no log has segments of %d bytes", id.Segment)
	}
	return &id, nil
}

func writeIdentity(fsys vfs.FS, name string, id *identity) error {
	b, err := json.Marshal(id)
	if err != nil {
		return err
	}
	return writeCopied(fsys, name, append(b, '\n'))
}

// copySuffix marks the copy of a small file that nothing else could replace.
const copySuffix = ".bak"

// writeCopied replaces a file, then its copy.
func writeCopied(fsys vfs.FS, name string, b []byte) error {
	if err := vfs.WriteFileAtomic(fsys, name, b); err != nil {
		return err
	}
	return vfs.WriteFileAtomic(fsys, name+copySuffix, b)
}

// readCopied gives parse the content of a file or, where that is missing or
// damaged, of its copy, and makes both the same again. false: there is neither.
// should says what stands in it, for the error when neither can be used.
func readCopied(fsys vfs.FS, name string, log *slog.Logger, parse func([]byte) error, should string) (bool, error) {
	var damage error
	usable := func(name string) ([]byte, bool, error) {
		b, err := vfs.ReadFile(fsys, name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		if err := parse(b); err != nil {
			damage = &storage.CorruptError{File: name, Reason: should, Err: err}
			return b, false, nil
		}
		return b, true, nil
	}
	b, ok, err := usable(name)
	if err != nil {
		return false, err
	}
	from, to := name, name+copySuffix
	if ok {
		if other, err := vfs.ReadFile(fsys, to); err == nil && bytes.Equal(other, b) {
			return true, nil
		}
	} else {
		from, to = to, from
		if b, ok, err = usable(from); err != nil || !ok {
			return false, errors.Join(err, damage)
		}
		log.Warn("a file of the log is damaged or missing; its copy is used", "file", to, "copy", from)
	}
	// A disk that is full is no reason not to serve.
	if err := vfs.WriteFileAtomic(fsys, to, b); err != nil {
		log.Warn("a file of the log and its copy could not be made the same", "file", to, "error", err)
	}
	return true, nil
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
