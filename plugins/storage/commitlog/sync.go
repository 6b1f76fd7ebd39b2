package commitlog

import (
	"context"
	"fmt"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// Sync implements [storage.Store]. Callers take turns; one whose bytes became
// durable in another's turn returns without a system call.
func (s *Store) Sync(ctx context.Context, end message.Position) error {
	if !s.gate.enter() {
		return storage.ErrNotRunning
	}
	defer s.gate.leave()
	if int64(end) > s.marks.tail.Load() {
		return fmt.Errorf("%w: sync up to %d, the log ends at %d", storage.ErrGap, end, s.marks.tail.Load())
	}
	select {
	case <-s.syncTurn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { s.syncTurn <- struct{}{} }()
	if err := s.failure(); err != nil {
		return err
	}
	if int64(end) <= s.marks.durable.Load() {
		return nil
	}
	if err := s.syncLog(); err != nil {
		return s.fail(err)
	}
	return nil
}

// syncLog makes the log durable up to its present tail, oldest segment first.
// The caller has the turn.
func (s *Store) syncLog() error {
	t, at := s.marks.lastTime.Load(), s.marks.lastAt.Load() // before the tail: their records are below
	tail, durable := s.marks.tail.Load(), s.marks.durable.Load()
	for _, seg := range *s.list.Load() {
		if seg.base+seg.size <= durable || seg.base >= tail {
			continue
		}
		if !seg.acquire() {
			continue // cut or expired meanwhile
		}
		err := seg.open()
		if err == nil {
			err = seg.file.SyncData()
		}
		seg.release()
		if err != nil {
			return fmt.Errorf("sync %s: %w", seg.path, err)
		}
	}
	if tail > durable {
		s.marks.durable.Store(tail)
	}
	s.marks.syncedAt.Store(at)
	return s.cp.set(cpPhysicTime, t)
}

// flushDerived makes ConsumeQueues and key index durable and says so in the
// checkpoint. With all, also what need not be flushed so often.
func (s *Store) flushDerived(all bool) error {
	s.flushMu.Lock()
	defer s.flushMu.Unlock()
	if err := s.present(); err != nil {
		return err
	}
	at := s.marks.pubAt.Load() // before the others: it is no later than they are
	t, upTo := s.marks.pubTime.Load(), s.marks.published.Load()
	if err := s.queues.flush(); err != nil {
		return fmt.Errorf("flush ConsumeQueues: %w", err)
	}
	if err := s.cp.setQueues(s.queues.present.n.Load(), s.queues.present.hash.Load()); err != nil {
		return err
	}
	if err := s.cp.setLogics(t); err != nil {
		return err
	}
	if at = min(at, s.marks.syncedAt.Load()); s.damage.unsaved.Load() {
		at = -1
	}
	if err := s.setFlushed(max(at, s.cp.flushedAt)); err != nil { // what was durable is
		return err
	}
	if s.keys != nil {
		if err := s.keys.flush(upTo, t, all); err != nil {
			return fmt.Errorf("flush the key index: %w", err)
		}
	}
	return s.cp.sync()
}

// setFlushed writes into the checkpoint which record is durable with all before it and
// their units, -1 for none. The caller has flushMu, or nobody else the store.
func (s *Store) setFlushed(at int64) error {
	mark := ""
	if m := s.writer.mark.Load(); m != nil && ownMark(*m) {
		mark = *m
	}
	return s.cp.setFlushed(at, s.logID, mark)
}

// flushAll makes everything durable, for a clean end.
func (s *Store) flushAll() error {
	<-s.syncTurn
	err := s.syncLog()
	s.syncTurn <- struct{}{}
	if err != nil {
		return err
	}
	if s.keys != nil {
		if _, err := s.keys.drain(); err != nil {
			return err
		}
	}
	return s.flushDerived(true)
}
