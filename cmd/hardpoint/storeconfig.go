package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hardpointmq/hardpoint/core/broker"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/plugins/storage/commitlog"
)

// configFile is one of the metadata files of a store.
type configFile struct {
	File string `json:"file"`
	Size int64  `json:"size"`
	// State is ok, foreign (another broker wrote it: it is taken over at the next
	// start), copy (it is damaged, its copy is whole) or damaged.
	State string `json:"state"`
}

// States of a metadata file.
const (
	fileOK      = "ok"
	fileForeign = "foreign"
	fileCopy    = "copy"
	fileDamaged = "damaged"
)

// metadata is what the folder config of a store says.
type metadata struct {
	files    []configFile
	findings []commitlog.Finding
	// topics is nil where topics.json cannot be used.
	topics  map[string]bool
	offsets map[string]map[int32]int64
}

// readMetadata reads the folder config of a store and changes nothing.
func readMetadata(dir string) (*metadata, error) {
	m := &metadata{files: []configFile{}}
	folder := filepath.Join(dir, "config")
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, err
	}
	ours, err := ledgerOf(folder)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := e.Name()
		if !e.Type().IsRegular() || strings.HasSuffix(name, ".bak") {
			continue
		}
		path := filepath.Join(folder, name)
		var check func([]byte) error
		switch {
		case strings.HasSuffix(name, ".json"):
			check = func(b []byte) error { return m.parse(name, b) }
		case name == broker.LedgerFile:
			check = func(b []byte) error { _, err := broker.ParseLedger(b); return err }
		case name == broker.SnapshotFile:
			check = broker.CheckSnapshot
		default:
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		f := configFile{File: "config/" + name, Size: int64(len(b)), State: fileOK}
		if err := check(b); err != nil {
			m.damaged(&f, path, err, check, ours.Known())
		} else if ours.Foreign(name, b) {
			f.State = fileForeign
			m.findings = append(m.findings, commitlog.Finding{Level: commitlog.Note, File: f.File, What: "another broker, or a person, has written it", Means: "the next start of a Hardpoint broker takes it over into the log"})
		}
		m.files = append(m.files, f)
	}
	return m, nil
}

// damaged tells of a file that cannot be read.
func (m *metadata) damaged(f *configFile, path string, fault error, check func([]byte) error, ours bool) {
	f.State = fileDamaged
	d := commitlog.Finding{Level: commitlog.Damage, File: f.File, What: "it cannot be read: " + fault.Error()}
	b, err := os.ReadFile(path + ".bak")
	if err == nil {
		err = check(b)
	}
	switch {
	case err == nil:
		f.State = fileCopy
		d.Means, d.Repair = "its copy is used, which may be older", "it is put into the backup and made again from its copy"
	case ours:
		d.Means = "nothing is lost: the next start of a Hardpoint broker writes it again from the log"
	default:
		d.Means = "what it held is lost unless it is restored; an Apache broker starts without it"
	}
	if strings.HasPrefix(f.File, "config/hardpoint.") {
		d.Level, d.Repair = commitlog.Note, ""
		d.Means = "the next start reads more of the log, and writes it again"
	}
	m.findings = append(m.findings, d)
}

// parse reads one of the JSON files and keeps what others are compared with.
func (m *metadata) parse(name string, b []byte) error {
	if len(b) == 0 {
		return errors.New("it is empty")
	}
	switch name {
	case "topics.json":
		var t struct {
			Topics map[string]json.RawMessage `json:"topicConfigTable"`
		}
		if err := command.DecodeBody(b, &t); err != nil {
			return err
		}
		m.topics = map[string]bool{}
		for topic := range t.Topics {
			m.topics[topic] = true
		}
	case "consumerOffset.json":
		var o struct {
			Offsets map[string]map[int32]int64 `json:"offsetTable"`
		}
		if err := command.DecodeBody(b, &o); err != nil {
			return err
		}
		m.offsets = o.Offsets
	default:
		_, err := command.LenientJSON(b)
		return err
	}
	return nil
}

// compare looks for groups that are ahead of their queues.
func (m *metadata) compare(r *commitlog.Report) {
	ends := make(map[message.Queue]int64, len(r.Queues))
	topics := map[string]bool{}
	for i := range r.Queues {
		q := &r.Queues[i]
		ends[message.Queue{Topic: q.Topic, ID: q.ID}] = q.Max
		topics[q.Topic] = true
	}
	const shown = 20
	n := 0
	for _, key := range sortedKeys(m.offsets) {
		topic, group, ok := strings.Cut(key, "@")
		if !ok || !topics[topic] {
			continue
		}
		for _, id := range sortedKeys(m.offsets[key]) {
			at, end := m.offsets[key][id], ends[message.Queue{Topic: topic, ID: id}]
			if at <= end {
				continue
			}
			if n++; n <= shown {
				m.findings = append(m.findings, commitlog.Finding{Level: commitlog.Note, File: "config/consumerOffset.json",
					What: fmt.Sprintf("group %s is at offset %d of queue %d of topic %s, which ends at %d", group, at, id, topic, end), Means: "the end of the queue is lost, or not written yet; the group goes on at the end"})
			}
		}
	}
	if n > shown {
		m.findings = append(m.findings, commitlog.Finding{Level: commitlog.Note, File: "config/consumerOffset.json", What: fmt.Sprintf("so are %d more", n-shown), Means: "as above"})
	}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// ledgerOf is what a broker wrote into the files of a folder config; the zero value where
// that cannot be told.
func ledgerOf(folder string) (broker.Ledger, error) {
	for _, name := range []string{broker.LedgerFile, broker.LedgerFile + ".bak"} {
		path := filepath.Join(folder, name)
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if info, statErr := os.Stat(path); statErr == nil && info.IsDir() {
			return broker.Ledger{}, fmt.Errorf("%s is a directory, where a file belongs, so that no broker can write it: move it away", path)
		}
		if err != nil {
			return broker.Ledger{}, err
		}
		if l, err := broker.ParseLedger(b); err == nil { // else told by who reads all files
			return l, nil
		}
	}
	return broker.Ledger{}, nil
}

// mendable counts the files that mend makes again.
func (m *metadata) mendable() int {
	n := 0
	for _, f := range m.files {
		if f.State == fileCopy && !strings.HasPrefix(f.File, "config/hardpoint.") {
			n++
		}
	}
	return n
}

// mend makes files again from their copies, after it has put the damaged ones into
// the backup.
func (m *metadata) mend(dir, backup string) (done []string, err error) {
	for _, f := range m.files {
		if f.State != fileCopy || strings.HasPrefix(f.File, "config/hardpoint.") {
			continue
		}
		path := filepath.Join(dir, filepath.FromSlash(f.File))
		b, err := os.ReadFile(path + ".bak")
		if err != nil {
			return done, err
		}
		was, err := os.ReadFile(path)
		if err != nil {
			return done, err
		}
		to := filepath.Join(backup, filepath.FromSlash(f.File))
		if err := vfs.EnsureDir(vfs.OS{}, filepath.Dir(to)); err != nil {
			return done, err
		}
		if err := vfs.WriteFileAtomic(vfs.OS{}, to, was); err != nil {
			return done, err
		}
		if err := vfs.WriteFileAtomic(vfs.OS{}, path, b); err != nil {
			return done, err
		}
		done = append(done, f.File+" is made again from its copy")
	}
	return done, nil
}
