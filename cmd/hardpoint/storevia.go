package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hardpointmq/hardpoint/core/broker"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/plugins/standard"
	"github.com/hardpointmq/hardpoint/plugins/storage/commitlog"
)

// viaStore reads a store through its contract: it is opened, which recovers it as any
// start does, and closed. With deep each queue is compared with the log.
func (r *storeRun) viaStore(ctx context.Context, deep bool) (_ *commitlog.Report, err error) {
	all, err := standard.Plugins()
	if err != nil {
		return nil, err
	}
	f, err := all.Storage.Lookup(r.kind)
	if err != nil {
		return nil, err
	}
	raw, err := r.cfg.PluginRaw("storage", r.kind)
	if err != nil {
		return nil, err
	}
	s, err := f.Build(ctx, storage.Params{
		Settings: plugin.Settings{Name: r.kind, Dir: r.dir, Logger: r.log()}, Segment: r.cfg.Store.SegmentSize,
		Publish: storage.Explicit, Index: broker.IndexRules(r.cfg),
	}, raw)
	if err != nil {
		return nil, err
	}
	if err := s.Start(ctx); err != nil {
		if errors.Is(err, storage.ErrIdentity) {
			return nil, fmt.Errorf("%w; name the broker's file with --config", err)
		}
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Shutdown(context.WithoutCancel(ctx))) }()
	w := &walk{run: r, s: s, deriver: message.NewDeriver(broker.IndexRules(r.cfg)), queues: map[message.Queue]*walked{}, report: &commitlog.Report{
		Closed: true, Segments: []commitlog.SegmentReport{}, Queues: []commitlog.QueueReport{}, Index: []commitlog.IndexReport{}, Findings: []commitlog.Finding{},
	}}
	if err := w.log(ctx); err != nil {
		return nil, err
	}
	return w.report, w.settle(ctx, deep)
}

// walk is a reading of a store through its contract.
type walk struct {
	run     *storeRun
	s       storage.Store
	deriver *message.Deriver
	queues  map[message.Queue]*walked
	report  *commitlog.Report
}

// walked is what the log has of a queue: how many units, and a sum of what they say.
type walked struct {
	n        int64
	from, to int64
	sum      uint64
}

// add takes a unit into the sum; the order does not matter.
func (q *walked) add(u *message.Unit) {
	if q.n == 0 {
		q.from = u.Offset
	}
	q.n, q.to = q.n+1, u.Offset+1
	h := uint64(u.At)*0x9E3779B97F4A7C15 ^ uint64(u.Offset)*0xC2B2AE3D27D4EB4F ^ uint64(u.Size)<<32 ^ uint64(u.TagsCode)
	q.sum += h * 0xFF51AFD7ED558CCD
}

// bad adds a finding; at is a position where there is one.
func (w *walk) bad(at int64, format string, args ...any) {
	w.report.Add(commitlog.Finding{Level: commitlog.Damage, File: "(database)", Offset: at, What: fmt.Sprintf(format, args...),
		Means: "what is there cannot be read; restore the store from a backup or another replica"})
}

// log reads all records.
func (w *walk) log(ctx context.Context) error {
	st := w.s.State()
	raw := w.s.Capabilities().RawLog
	if raw == nil {
		return fmt.Errorf("store %s does not show its log", w.run.kind)
	}
	r := w.report
	r.LogID, r.SegmentSize, r.First, r.Tail = st.LogID, st.Segment, st.First, st.Tail
	r.Checkpoint = commitlog.CheckpointReport{Published: int64(st.Published), IndexAt: -1}
	for _, d := range st.Damaged {
		w.bad(int64(d.From), "positions %d to %d: %s", d.From, d.To, d.Reason)
	}
	var c storage.Chunk
	defer c.Release()
	var (
		v     message.View
		units []message.Unit
		buf   []byte
		want  = 1 << 20
	)
	for pos := st.First; pos < st.Tail; {
		if err := ctx.Err(); err != nil {
			return err
		}
		// Records from pos on, at least one that is whole.
		buf = buf[:0]
		for next := pos; next < st.Tail && len(buf) < want; next = message.Position(c.Next) {
			if err := raw.ReadLog(ctx, next, want-len(buf), &c); err != nil {
				return err
			}
			for _, f := range c.Frags {
				buf = append(buf, f...)
			}
		}
		read := pos
		for b := buf; ; {
			err := message.Parse(b, &v)
			if errors.Is(err, message.ErrBlank) {
				pos = (pos/message.Position(st.Segment) + 1) * message.Position(st.Segment)
				break
			}
			if errors.Is(err, message.ErrShort) {
				break
			}
			if err == nil {
				if err = v.CheckBody(); err == nil && v.Position != pos {
					err = fmt.Errorf("it states position %d", v.Position)
				}
			}
			if err != nil {
				w.bad(int64(pos), "the record at position %d is damaged: %s; what lies behind it in the log was not read", pos, err)
				return nil
			}
			r.Records, r.Bytes = r.Records+1, r.Bytes+int64(v.Size)
			if pos < st.Published {
				units, _ = w.deriver.Derive(&v, nil, units[:0], nil)
				for i := range units {
					q := w.queues[units[i].Queue]
					if q == nil {
						q = &walked{}
						w.queues[units[i].Queue] = q
					}
					q.add(&units[i])
				}
			}
			b, pos = b[v.Size:], pos+message.Position(v.Size)
		}
		switch {
		case pos > read:
			want = 1 << 20
		case want > int(min(st.Segment, 1<<30)):
			w.bad(int64(pos), "there is no whole record at position %d; what lies behind it was not read", pos)
			return nil
		default:
			want *= 4
		}
		if w.run.exam.Progress != nil {
			w.run.exam.Progress(int64(pos-st.First), int64(st.Tail-st.First))
		}
	}
	return nil
}

// settle lists the queues and compares them with what the log had.
func (w *walk) settle(ctx context.Context, deep bool) error {
	var a storage.OffsetAnswers
	if err := w.s.Offsets(ctx, nil, &a); err != nil {
		return err
	}
	slices.SortFunc(a.Answers, func(x, y storage.OffsetAnswer) int {
		return cmp.Or(cmp.Compare(x.Queue.Topic, y.Queue.Topic), cmp.Compare(x.Queue.ID, y.Queue.ID))
	})
	for _, q := range a.Answers {
		w.report.Queues = append(w.report.Queues, commitlog.QueueReport{Topic: q.Queue.Topic, ID: q.Queue.ID, Min: q.Min, Max: q.Max})
		of := w.queues[q.Queue]
		if of == nil {
			of = &walked{from: q.Max, to: q.Max}
		}
		delete(w.queues, q.Queue)
		if !deep {
			continue
		}
		var is walked
		if err := w.queue(ctx, q, &is); err != nil {
			return err
		}
		if is.n != of.n || is.sum != of.sum {
			w.bad(0, "queue %s has %d entries from offset %d to %d, the log has %d records of it from %d to %d, and they are not the same", q.Queue, is.n, q.Min, q.Max, of.n, of.from, of.to)
		}
	}
	if !deep {
		return nil
	}
	left := slices.Collect(maps.Keys(w.queues))
	slices.SortFunc(left, func(a, b message.Queue) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.ID, b.ID))
	})
	for _, q := range left {
		if w.run.exam.HasTopic == nil || w.run.exam.HasTopic(q.Topic) {
			w.bad(0, "queue %s is missing, the log has %d records of it", q, w.queues[q].n)
		}
	}
	return nil
}

// queue reads the entries of a queue.
func (w *walk) queue(ctx context.Context, q storage.OffsetAnswer, is *walked) error {
	var c storage.Chunk
	defer c.Release()
	for next := q.Min; next < q.Max; {
		if err := ctx.Err(); err != nil {
			return err
		}
		limit := storage.Limit{Count: 1024, Bytes: 4 << 20}
		err := w.s.Read(ctx, storage.ReadRequest{Queue: q.Queue, Offset: next, Hot: limit, Cold: limit}, &c)
		if err != nil {
			return err
		}
		for i := range c.Units {
			is.add(&c.Units[i])
		}
		if c.Next <= next {
			w.bad(0, "queue %s cannot be read from offset %d on (%s)", q.Queue, next, c.Status)
			return nil
		}
		next = c.Next
	}
	return nil
}
