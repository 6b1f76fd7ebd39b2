package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/hardpointmq/hardpoint/core/vfs"
)

// Fields of the checkpoint file, as offsets (RocketMQ's StoreCheckpoint). Those
// from cpIndexAt on are ours and lie where RocketMQ leaves zeros.
const (
	cpPhysicTime = 0  // store time of the last record that is durable
	cpLogicsTime = 8  // of the last one whose units are durable
	cpIndexTime  = 16 // of the last one whose keys are durable
	cpConfirm    = 32 // published mark
	cpIndexAt    = 2048
	cpIndexSum   = 2056 // complement of cpIndexAt: tells it from zeros
	cpIndexUsed  = 2064 // 1 when the key index has files
	cpIndexLast  = 2072 // name of its last file, a number; 0: none, or unknown
	cpQueues     = 2080 // how many queues have files
	cpQueuesHash = 2088 // sum of the hashes of their names
	cpQueuesSum  = 2096 // complement of the two, one xor the other

	checkpointSize = 4096
	// checkpointSlack is how far in ms the times may be ahead of the truth.
	checkpointSlack = 3000
)

// checkpoint is the checkpoint file, written through a mapping where there are
// mappings. Each field has one writer at a time.
type checkpoint struct {
	f   vfs.File
	m   vfs.Mapping
	mem []byte
	mu  sync.Mutex // fields written by position
	buf [8]byte
}

// checkpointFields is what recovery reads.
type checkpointFields struct {
	physic, logics, index int64
	confirm               int64
	// indexAt is the position below which all keys are durable; -1 unknown.
	indexAt int64
	// indexUsed: the key index had files; indexLast is the name of the last.
	indexUsed bool
	indexLast int64
	// queues is how many queues there were, -1 unknown, and queuesHash the sum of
	// the hashes of their names.
	queues     int64
	queuesHash uint64
	// odd: there are bytes where neither RocketMQ nor this store writes any.
	odd bool
}

// parseCheckpoint reads the fields; missing bytes count as zeros, values that
// cannot be are 0.
func parseCheckpoint(b []byte) checkpointFields {
	var p [checkpointSize]byte
	copy(p[:], b)
	get := func(off int) int64 { return max(int64(binary.BigEndian.Uint64(p[off:])), 0) }
	c := checkpointFields{physic: get(cpPhysicTime), logics: get(cpLogicsTime), index: get(cpIndexTime), confirm: get(cpConfirm), indexAt: -1, indexUsed: get(cpIndexUsed) == 1, indexLast: get(cpIndexLast), queues: -1}
	at, sum := binary.BigEndian.Uint64(p[cpIndexAt:]), binary.BigEndian.Uint64(p[cpIndexSum:])
	if at == ^sum && int64(at) >= 0 {
		c.indexAt = int64(at)
	}
	n, hash := binary.BigEndian.Uint64(p[cpQueues:]), binary.BigEndian.Uint64(p[cpQueuesHash:])
	if n^hash == ^binary.BigEndian.Uint64(p[cpQueuesSum:]) && int64(n) >= 0 {
		c.queues, c.queuesHash = int64(n), hash
	}
	c.odd = len(trimZeros(p[cpConfirm+8:cpIndexAt])) > 0 || len(trimZeros(p[cpQueuesSum+8:])) > 0
	return c
}

// since is the store time from which the log must be looked at again.
func (c checkpointFields) since() int64 {
	return max(min(c.physic, c.logics)-checkpointSlack, 0)
}

func openCheckpoint(fsys vfs.FS, name string) (*checkpoint, checkpointFields, error) {
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, checkpointFields{}, err
	}
	var b [checkpointSize]byte
	if _, err = f.ReadAt(b[:], 0); errors.Is(err, io.EOF) {
		err = nil // a new or short file: the rest is zero
	}
	c := &checkpoint{f: f}
	if err == nil {
		var size int64
		if size, err = f.Size(); err == nil && size < checkpointSize {
			if _, err = f.WriteAt(b[:], 0); err == nil {
				err = f.Sync()
			}
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, checkpointFields{}, fmt.Errorf("checkpoint: %w", err)
	}
	if rErr := f.Reserve(0, checkpointSize); rErr == nil {
		if m, mErr := f.Map(0, checkpointSize, true); mErr == nil {
			c.m, c.mem = m, m.Bytes()
		}
	}
	return c, parseCheckpoint(b[:]), nil
}

// set writes one field.
func (c *checkpoint) set(off int, v int64) error {
	if c.mem != nil {
		binary.BigEndian.PutUint64(c.mem[off:], uint64(v))
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	binary.BigEndian.PutUint64(c.buf[:], uint64(v))
	_, err := c.f.WriteAt(c.buf[:], int64(off))
	return err
}

// setIndexAt writes up to where keys are durable.
func (c *checkpoint) setIndexAt(at int64) error {
	if err := c.set(cpIndexAt, at); err != nil {
		return err
	}
	return c.set(cpIndexSum, ^at)
}

// setQueues writes which queues have files that are durable.
func (c *checkpoint) setQueues(n int64, hash uint64) error {
	return errors.Join(c.set(cpQueues, n), c.set(cpQueuesHash, int64(hash)), c.set(cpQueuesSum, int64(^(uint64(n)^hash))))
}

func (c *checkpoint) sync() error {
	if c.m != nil {
		return c.m.Sync(0, checkpointSize)
	}
	return c.f.SyncData()
}

func (c *checkpoint) close() error {
	var err error
	if c.m != nil {
		err = c.m.Close()
		c.m, c.mem = nil, nil
	}
	return errors.Join(err, c.f.Close())
}
