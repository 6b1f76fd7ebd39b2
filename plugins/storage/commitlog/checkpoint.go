package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
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
	cpIndexLast  = 2072 // name of its last file with keys, a number; 0: none, or unknown
	cpQueues     = 2080 // how many queues have files
	cpQueuesHash = 2088 // sum of the hashes of their names
	cpQueuesSum  = 2096 // complement of the two, one xor the other
	cpFlushedAt  = 2104 // position of a record: it, all before it and their units are durable
	cpFlushedSum = 2112 // flushedSum of it; 0: there is none

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
	// flushedAt and logics are what the file says, -1 for no position. Guarded by the
	// flushMu of the store.
	flushedAt, logics int64
}

// checkpointFields is what recovery reads.
type checkpointFields struct {
	physic, logics, index int64
	confirm               int64
	// indexAt is the position below which all keys are durable; -1 unknown.
	indexAt int64
	// indexUsed: the key index had files; indexLast is the name of the
	// last with keys.
	indexUsed bool
	indexLast int64
	// queues is how many queues there were, -1 unknown, and queuesHash the sum of
	// the hashes of their names.
	queues     int64
	queuesHash uint64
	// flushedAt is as it stands there; whether it counts, flushedSum decides.
	flushedAt  int64
	flushedSum uint64
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
	c.flushedAt, c.flushedSum = get(cpFlushedAt), binary.BigEndian.Uint64(p[cpFlushedSum:])
	c.odd = len(trimZeros(p[cpConfirm+8:cpIndexAt])) > 0 || len(trimZeros(p[cpFlushedSum+8:])) > 0
	return c
}

// since is the store time from which the log must be looked at again.
func (c checkpointFields) since() int64 {
	return max(min(c.physic, c.logics)-checkpointSlack, 0)
}

// flushed is the position of a record that is durable with all before it and their
// units, -1 where nothing of the kind is known. mark is what the file abort holds.
func (c checkpointFields) flushed(logID, mark string) int64 {
	if c.flushedSum == 0 || c.flushedSum != flushedSum(c.flushedAt, c.logics, logID, mark) {
		return -1
	}
	return c.flushedAt
}

// flushedSum protects the position and ties it to the process that wrote it. Another
// program that had the store open since, and may have cut the log below or changed
// units, leaves another mark in the file abort, or (RocketMQ 4.9, which keeps what it
// finds there) another time of the queues.
func flushedSum(at, logics int64, logID, mark string) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d %d %s %s", at, logics, logID, mark) // never fails
	return h.Sum64()
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
	c := &checkpoint{f: f, flushedAt: -1}
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
	fields := parseCheckpoint(b[:])
	c.logics = fields.logics
	return c, fields, nil
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

// setLogics writes the store time of the last record whose units are durable. What
// setFlushed wrote before counts no more.
func (c *checkpoint) setLogics(t int64) error {
	c.logics = t
	return c.set(cpLogicsTime, t)
}

// setFlushed writes which record is durable with all before it and their units; one
// below 0 and an empty mark are for none. mark is what the file abort holds.
func (c *checkpoint) setFlushed(at int64, logID, mark string) error {
	if mark == "" {
		at = -1
	}
	c.flushedAt = at
	if at < 0 {
		return errors.Join(c.set(cpFlushedSum, 0), c.set(cpFlushedAt, 0))
	}
	return errors.Join(c.set(cpFlushedAt, at), c.set(cpFlushedSum, int64(flushedSum(at, c.logics, logID, mark))))
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
