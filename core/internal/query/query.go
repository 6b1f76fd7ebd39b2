// Package query answers questions about what is stored: QUERY_MESSAGE (12),
// VIEW_MESSAGE_BY_ID (33), SEARCH_OFFSET_BY_TIMESTAMP (29), GET_MAX_OFFSET (30),
// GET_MIN_OFFSET (31), GET_EARLIEST_MSG_STORETIME (32).
package query

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// overscan is how many candidates are read for each one wanted: hashes collide,
// and a key may be indexed twice.
const overscan = 4

// Query is the behaviour.
type Query struct {
	k    *kernel.Kernel
	pool sync.Pool
}

type scratch struct {
	chunk   storage.Chunk
	answers storage.OffsetAnswers
	queries [1]storage.OffsetQuery
	at      []message.Position
	frags   [][]byte
}

// New makes the behaviour and registers it.
func New(k *kernel.Kernel) *Query {
	q := &Query{k: k}
	q.pool.New = func() any { return &scratch{} }
	k.Handle(command.ReqQueryMessage, q.byKey)
	k.Handle(command.ReqViewMessageByID, q.byPosition)
	k.Handle(command.ReqSearchOffsetByTimestamp, q.search)
	k.Handle(command.ReqGetMaxOffset, q.end(true))
	k.Handle(command.ReqGetMinOffset, q.end(false))
	k.Handle(command.ReqGetEarliestMsgStoreTime, q.earliest)
	return q
}

func (q *Query) get() *scratch { return q.pool.Get().(*scratch) }

func (q *Query) put(s *scratch) {
	s.chunk.Reset()
	clear(s.frags)
	s.frags = s.frags[:0]
	q.pool.Put(s)
}

// Newest is the next offset of a queue, asked behind a barrier: what was
// acknowledged anywhere is counted.
func (q *Query) Newest(ctx context.Context, queue message.Queue) (int64, error) {
	if err := q.k.Barrier(ctx, "the newest offset is"); err != nil {
		return 0, err
	}
	a, err := q.Offset(ctx, storage.OffsetQuery{Queue: queue})
	return a.Max, err
}

// Offset answers one question about a queue, as it is known here.
func (q *Query) Offset(ctx context.Context, query storage.OffsetQuery) (storage.OffsetAnswer, error) {
	if message.IsInternal(query.Queue.Topic) {
		return storage.OffsetAnswer{}, hidden(query.Queue.Topic)
	}
	s := q.get()
	defer q.put(s)
	s.queries[0] = query
	if err := q.k.Store.Offsets(ctx, s.queries[:], &s.answers); err != nil {
		return storage.OffsetAnswer{}, err
	}
	if len(s.answers.Answers) != 1 {
		return storage.OffsetAnswer{}, fmt.Errorf("the store gave %d answers to one question about %v", len(s.answers.Answers), query.Queue)
	}
	return s.answers.Answers[0], nil
}

// Ends asks for the ends of the queues 0 to n-1 of a topic, as they are known here; of
// none when n is not positive.
func (q *Query) Ends(ctx context.Context, topic string, n int32) ([]storage.OffsetAnswer, error) {
	if message.IsInternal(topic) {
		return nil, hidden(topic)
	}
	if n <= 0 {
		return nil, nil // no query asks for all
	}
	queries := make([]storage.OffsetQuery, n)
	for i := range queries {
		queries[i].Queue = message.Queue{Topic: topic, ID: int32(i)}
	}
	var a storage.OffsetAnswers
	if err := q.k.Store.Offsets(ctx, queries, &a); err != nil {
		return nil, err
	}
	if len(a.Answers) != len(queries) {
		return nil, fmt.Errorf("the store gave %d answers to %d questions about topic %s", len(a.Answers), n, topic)
	}
	return a.Answers, nil
}

// StoreTime is when the record at an offset of a queue was stored, ms since epoch; 0
// when there is none or it cannot be read.
func (q *Query) StoreTime(ctx context.Context, queue message.Queue, offset int64) int64 {
	if offset < 0 || message.IsInternal(queue.Topic) {
		return 0
	}
	s := q.get()
	defer q.put(s)
	one := storage.Limit{Count: 1}
	if err := q.k.Store.Read(ctx, storage.ReadRequest{Queue: queue, Offset: offset, Hot: one, Cold: one}, &s.chunk); err != nil {
		return 0
	}
	if len(s.chunk.Units) == 0 || s.chunk.Units[0].Offset != offset {
		return 0
	}
	return s.chunk.Units[0].StoreTime
}

func hidden(topic string) error {
	return &api.Error{ID: api.TopicNotExist, Text: fmt.Sprintf("topic[%s] not exist", topic)}
}

func (q *Query) search(r *kernel.Request) {
	var h command.SearchOffsetRequest
	if err := h.Decode(r.Header); err != nil {
		r.Fail(err)
		return
	}
	query := storage.OffsetQuery{Queue: message.Queue{Topic: string(h.Topic), ID: h.QueueID}, Kind: storage.FirstAt, Time: h.Timestamp}
	if h.Upper {
		query.Kind = storage.LastAt
	}
	a, err := q.Offset(q.k.Serving(), query)
	answerOffset(r, a.Offset, err)
}

// end serves both ends of a queue.
func (q *Query) end(maximum bool) kernel.HandlerFunc {
	return func(r *kernel.Request) {
		var h command.QueueRequest
		if err := h.Decode(r.Header); err != nil {
			r.Fail(err)
			return
		}
		ctx, cancel := q.k.Waiting()
		defer cancel()
		queue := message.Queue{Topic: string(h.Topic), ID: h.QueueID}
		if maximum {
			n, err := q.Newest(ctx, queue)
			answerOffset(r, n, err)
			return
		}
		a, err := q.Offset(ctx, storage.OffsetQuery{Queue: queue})
		answerOffset(r, a.Min, err)
	}
}

func answerOffset(r *kernel.Request, n int64, err error) {
	if err != nil {
		r.Fail(err)
		return
	}
	w := r.Begin(command.RespSuccess)
	(&command.OffsetResponse{Offset: n}).Append(&w)
	r.Reply(w)
}

func (q *Query) earliest(r *kernel.Request) {
	var h command.QueueRequest
	if err := h.Decode(r.Header); err != nil {
		r.Fail(err)
		return
	}
	queue := message.Queue{Topic: string(h.Topic), ID: h.QueueID}
	ctx := q.k.Serving()
	a, err := q.Offset(ctx, storage.OffsetQuery{Queue: queue})
	if err != nil {
		r.Fail(err)
		return
	}
	s := q.get()
	defer q.put(s)
	at := int64(-1) // the reference's answer for a queue without messages
	if a.Min < a.Max {
		one := storage.Limit{Count: 1}
		if err := q.k.Store.Read(ctx, storage.ReadRequest{Queue: queue, Offset: a.Min, Hot: one, Cold: one}, &s.chunk); err != nil {
			r.Fail(err)
			return
		}
		if len(s.chunk.Units) > 0 {
			at = s.chunk.Units[0].StoreTime
		}
	}
	w := r.Begin(command.RespSuccess)
	(&command.TimestampResponse{Timestamp: at}).Append(&w)
	r.Reply(w)
}

func (q *Query) byPosition(r *kernel.Request) {
	var h command.ViewMessageRequest
	if err := h.Decode(r.Header); err != nil {
		r.Fail(err)
		return
	}
	s := q.get()
	defer q.put(s)
	s.at = append(s.at[:0], message.Position(h.Offset))
	if err := q.k.Store.Get(q.k.Serving(), s.at, &s.chunk); err != nil {
		r.Fail(err)
		return
	}
	if len(s.chunk.Units) == 0 || s.chunk.Units[0].Size == 0 || internalRecord(s.chunk.Frags) {
		r.Error(command.RespSystemError, fmt.Sprintf("can not find message by the offset, %d", h.Offset))
		return
	}
	r.Reply(r.Begin(command.RespSuccess), s.chunk.Frags...)
}

func internalRecord(frags [][]byte) bool {
	var v message.View
	return len(frags) == 0 || message.Parse(frags[0], &v) != nil || message.IsInternal(string(v.Topic))
}

func (q *Query) byKey(r *kernel.Request) {
	var h command.QueryMessageRequest
	if err := h.Decode(r.Header); err != nil {
		r.Fail(err)
		return
	}
	idx := q.k.Store.Capabilities().KeyIndex
	if idx == nil {
		r.Error(command.RespRequestCodeNotSupported, "the store of this broker has no key index (storage facet "+storage.FacetKeyIndex+")")
		return
	}
	topic, key := string(h.Topic), string(h.Key)
	if message.IsInternal(topic) {
		r.Fail(hidden(topic))
		return
	}
	limit := min(h.MaxNum, q.k.Config().MaxQueryBatch)
	if h.UniqueKey {
		limit = q.k.Config().QueryMax // as the reference does
	}
	s := q.get()
	defer q.put(s)
	if limit > 0 {
		if err := q.find(s, idx, storage.KeyQuery{Topic: topic, Key: key, From: h.BeginTimestamp, To: h.EndTimestamp, Max: limit}, h.UniqueKey); err != nil {
			r.Fail(err)
			return
		}
	}
	if len(s.frags) == 0 {
		r.Error(command.RespQueryNotFound, "can not find message, maybe time range not correct")
		return
	}
	st := q.k.Store.State()
	w := r.Begin(command.RespSuccess)
	(&command.QueryMessageResponse{IndexLastUpdateTimestamp: st.LastStoreTime, IndexLastUpdatePhyOffset: int64(st.Published)}).Append(&w)
	r.Reply(w, s.frags...)
}

// find reads candidates and keeps those that really have the key, each once.
func (q *Query) find(s *scratch, idx storage.KeyIndex, kq storage.KeyQuery, unique bool) error {
	ctx := q.k.Serving()
	want := int(kq.Max)
	kq.Max *= overscan
	at, err := idx.Find(ctx, kq, s.at[:0])
	s.at = at
	if err != nil {
		return err
	}
	seen := map[message.Position]struct{}{}
	s.at = slices.DeleteFunc(s.at, func(p message.Position) bool {
		_, dup := seen[p]
		seen[p] = struct{}{}
		return dup
	})
	if len(s.at) == 0 {
		return nil
	}
	if err := q.k.Store.Get(ctx, s.at, &s.chunk); err != nil {
		return err
	}
	var v message.View
	for _, rec := range s.chunk.Records {
		if len(s.frags) == want || message.Parse(rec, &v) != nil || string(v.Topic) != kq.Topic {
			continue
		}
		if v.StoreTime >= kq.From && v.StoreTime <= kq.To && hasKey(v.Properties, kq.Key, unique) {
			s.frags = append(s.frags, rec)
		}
	}
	slices.Reverse(s.frags) // the newest ones, oldest first as the reference answers
	return nil
}

// hasKey compares texts. A tool asks for a unique key as a plain key, too.
func hasKey(props []byte, key string, unique bool) bool {
	if v, ok := message.Property(props, message.PropUniqueKey); ok && string(v) == key {
		return true
	}
	if unique {
		return false
	}
	v, _ := message.Property(props, message.PropKeys)
	for part := range bytes.SplitSeq(v, []byte{' '}) {
		if string(part) == key && key != "" {
			return true
		}
	}
	return false
}
