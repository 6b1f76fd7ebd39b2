package nameserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

// orderNamespace holds which brokers have how many queues of ordered topics.
const orderNamespace = "ORDER_TOPIC_CONFIG"

// kvFile is RocketMQ's name of the file, and its text is RocketMQ's, too.
// kvCopy, beside it, holds the same: RocketMQ keeps the text before the last change
// there, and reads it when the file cannot be used, as is done here.
const (
	kvFile = "kvConfig.json"
	kvCopy = kvFile + ".bak"
)

type kvText struct {
	Table map[string]map[string]string `json:"configTable"`
}

// kvStore is the key-value configuration: namespace, key, value. It is replaced
// as a whole with each change and written to disk before it is answered from.
type kvStore struct {
	fs   vfs.FS // nil: in memory only
	dir  string
	log  *slog.Logger
	mu   sync.Mutex // held by changes, over the write
	data atomic.Pointer[map[string]map[string]string]
}

func newKV(fsys vfs.FS, dir string, log *slog.Logger) *kvStore {
	s := &kvStore{fs: fsys, dir: dir, log: log}
	if dir == "" {
		s.fs = nil
	}
	s.data.Store(&map[string]map[string]string{})
	return s
}

// load reads the file, or its copy when it cannot be used; neither is an empty
// configuration.
func (s *kvStore) load() error {
	if s.fs == nil {
		return nil
	}
	path, copied := filepath.Join(s.dir, kvFile), filepath.Join(s.dir, kvCopy)
	table, err := s.read(path)
	if err != nil {
		there := !errors.Is(err, fs.ErrNotExist)
		var berr error
		if table, berr = s.read(copied); berr != nil {
			if !there && errors.Is(berr, fs.ErrNotExist) {
				return nil
			}
			return fmt.Errorf("key-value configuration of the name server: %w; its copy: %w. Restore one of them, or remove both to start without", err, berr)
		}
		s.log.Warn("the key-value configuration cannot be used; taking its copy", "file", path, "copy", copied, "error", err)
	}
	if table != nil {
		s.data.Store(&table)
	}
	return nil
}

func (s *kvStore) read(name string) (map[string]map[string]string, error) {
	b, err := vfs.ReadFile(s.fs, name)
	if err != nil {
		return nil, err
	}
	var t kvText
	if err := command.DecodeBody(b, &t); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return t.Table, nil
}

func (s *kvStore) get(namespace, key string) (string, bool) {
	v, ok := (*s.data.Load())[namespace][key]
	return v, ok
}

// list returns a namespace; the map is not to be changed.
func (s *kvStore) list(namespace string) (map[string]string, bool) {
	m, ok := (*s.data.Load())[namespace]
	return m, ok
}

// set changes one value and returns after it is durable; drop removes it.
func (s *kvStore) set(namespace, key, value string, drop bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.data.Load()
	if v, ok := old[namespace][key]; drop && !ok || !drop && ok && v == value {
		return nil
	}
	data := maps.Clone(old)
	if data[namespace] = maps.Clone(old[namespace]); data[namespace] == nil {
		data[namespace] = map[string]string{}
	}
	if drop {
		delete(data[namespace], key)
	} else {
		data[namespace][key] = value
	}
	if err := s.write(data); err != nil {
		return err
	}
	s.data.Store(&data)
	return nil
}

func (s *kvStore) write(data map[string]map[string]string) error {
	if s.fs == nil {
		return nil
	}
	b, err := json.Marshal(kvText{data})
	if err != nil {
		return fmt.Errorf("key-value configuration of the name server: %w", err)
	}
	if err := vfs.EnsureDir(s.fs, s.dir); err != nil {
		return err
	}
	// The copy first: when the file then cannot be written, the old one is whole.
	for _, name := range []string{kvCopy, kvFile} {
		if err := vfs.WriteFileAtomic(s.fs, filepath.Join(s.dir, name), b); err != nil {
			return err
		}
	}
	return nil
}
