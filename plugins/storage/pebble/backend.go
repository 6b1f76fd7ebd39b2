package pebble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/core/storage/storekit"
)

var _ storekit.KV = (*backend)(nil)

// backend is Pebble as a storekit.KV.
type backend struct {
	dir   string
	cfg   *Config
	log   *slog.Logger
	clock plugin.Clock
	fs    func() vfs.FS

	db    *pebble.DB
	cache *pebble.Cache
	files *deferFS
	space space
	// failed: a commit ended in Pebble's Fatalf. abandoned: at a place where
	// Pebble holds locks, so that Close would wait for ever.
	failed    error
	abandoned bool
}

// Open implements storekit.KV. It waits a while for the lock, bounded by ctx.
func (b *backend) Open(ctx context.Context) error {
	files := b.fs()
	b.files = newDeferFS(files, files.PathJoin(b.dir, "LOCK"))
	b.space = space{fs: b.files, clock: b.clock, log: b.log, dir: b.dir, reserve: b.cfg.ReserveBytes}
	b.cache = pebble.NewCache(b.cfg.CacheBytes)
	db, err := pebble.Open(b.dir, &pebble.Options{
		FS: &lockFS{FS: b.files, lock: func(name string) (io.Closer, error) {
			l, err := waitLock(ctx, b.files, name, b.clock, b.log)
			if err != nil {
				return nil, err
			}
			err = b.files.checkMarker(b.dir)
			if err == nil {
				err = b.files.checkWAL(b.dir)
			}
			if err != nil {
				return nil, errors.Join(err, l.Close())
			}
			return l, nil
		}},
		Cache:                       b.cache,
		MemTableSize:                uint64(b.cfg.MemTableBytes),
		MemTableStopWritesThreshold: 4,
		MaxOpenFiles:                b.cfg.MaxOpenFiles,
		Logger:                      logger{b.log},
		FormatMajorVersion:          pebble.FormatColumnarBlocks, // see the package comment
		L0StopWritesThreshold:       24,
		EventListener: &pebble.EventListener{
			// Pebble would end the process; whoever reads gets the error anyway.
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				b.log.Error("damaged data in the database", "detail", info.String())
			},
			BackgroundError: func(err error) {
				b.log.Error("a flush or a compaction failed and is tried again", "error", err)
			},
		},
	})
	if err != nil {
		b.cache.Unref()
		return explain(err)
	}
	b.db = db
	return nil
}

// explain marks a full disk.
func explain(err error) error {
	if isNoSpace(err) {
		return fmt.Errorf("%w: %w", storage.ErrFull, err)
	}
	return err
}

// Apply implements storekit.KV.
func (b *backend) Apply(ops []storekit.Op, sync bool) (err error) {
	if b.failed != nil {
		return b.failed
	}
	size, grows := 0, false
	for i := range ops {
		size += len(ops[i].Key) + len(ops[i].Value)
		grows = grows || ops[i].Until == nil
	}
	// What removes things makes space in the end, so it may use the reserve; what is owed must.
	if reserved := len(ops) > 0 && (ops[0].Until != nil || ops[0].Owed); grows && !reserved {
		if err := b.space.take(int64(size)); err != nil {
			return err
		}
	}
	batch := b.db.NewBatchWithSize(size + 16*len(ops) + 64)
	for i := range ops {
		if op := &ops[i]; op.Until != nil {
			err = batch.DeleteRange(op.Key, op.Until, nil)
		} else {
			err = batch.Set(op.Key, op.Value, nil)
		}
		if err != nil {
			return errors.Join(err, batch.Close())
		}
	}
	if err := b.commit(batch); err != nil {
		return err
	}
	if err := batch.Close(); err != nil {
		return err
	}
	if sync {
		return b.files.syncWAL()
	}
	return b.files.failed()
}

// commit turns the end that Pebble wants to put to the process into an error.
func (b *backend) commit(batch *pebble.Batch) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case fatal:
			b.failed = r
			b.abandoned = !strings.Contains(string(r), commitError)
			err = r
		default:
			panic(r)
		}
	}()
	return batch.Commit(pebble.Sync)
}

// Get implements storekit.KV.
func (b *backend) Get(key, dst []byte) ([]byte, bool, error) {
	v, closer, err := b.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return dst, false, nil
	}
	if err != nil {
		return dst, false, b.damage(err)
	}
	dst = append(dst, v...)
	return dst, true, closer.Close()
}

// Scan implements storekit.KV.
func (b *backend) Scan(from, to []byte, reverse bool, each func(key, value []byte) bool) (err error) {
	it, err := b.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return b.damage(err)
	}
	defer func() {
		if e := it.Close(); err == nil && e != nil {
			err = b.damage(e)
		}
	}()
	first, next := it.First, it.Next
	if reverse {
		first, next = it.Last, it.Prev
	}
	for ok := first(); ok; ok = next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return b.damage(err)
		}
		if !each(it.Key(), v) {
			break
		}
	}
	return it.Error()
}

// damage makes the contract's error of corruption.
func (b *backend) damage(err error) error {
	if pebble.IsCorruptionError(err) {
		return &storage.CorruptError{File: b.dir, Reason: "a table of the database", Err: err}
	}
	return err
}

// Sync implements storekit.KV.
func (b *backend) Sync() error { return b.files.syncWAL() }

// Close implements storekit.KV. A database that failed where Pebble holds locks
// cannot be closed; it stays locked until the process ends.
func (b *backend) Close() error {
	if b.abandoned {
		return errors.New("the database failed and stays locked until the process ends")
	}
	err := errors.Join(b.db.Close(), b.files.failed())
	b.cache.Unref()
	return err
}

// commitError begins what Pebble says when the log could not be written; it
// holds no locks then.
const commitError = "fatal commit error"

// fatal is how Pebble's wish to end the process reaches commit.
type fatal string

func (f fatal) Error() string { return string(f) }

// logger gives Pebble's few lines to slog.
type logger struct{ log *slog.Logger }

// Infof implements pebble.Logger; what it tells is for debugging.
func (l logger) Infof(format string, args ...any) {
	l.log.Debug("pebble", "says", fmt.Sprintf(format, args...))
}

// Errorf implements pebble.Logger.
func (l logger) Errorf(format string, args ...any) {
	l.log.Error("pebble reports a fault", "says", fmt.Sprintf(format, args...))
}

// Fatalf implements pebble.Logger: Pebble counts on that it does not return.
func (l logger) Fatalf(format string, args ...any) {
	panic(fatal("pebble cannot go on: " + fmt.Sprintf(format, args...)))
}
