package catalog

import (
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
)

// imager makes full images. It implements kernel.ImageSource.
type imager struct {
	c *Catalog
	// order is held by who changes tables, or notes a change in flight, until the
	// record is handed to the journal, by many at once; and by who writes an image at
	// the end of the log until that is handed over, alone: or else a change could be
	// ordered before the image and not be in it.
	order sync.RWMutex

	mu   sync.Mutex
	skip int64 // segments until the next image is due
	last uint64
	// newest is where a whole image begins that is known of; above the log's end
	// never. Valid with known.
	newest message.Position
	known  bool
	// sent are images of this office whose outcome is not known, or was not that they
	// are in the log: the table of ends has nothing of them. In the order of the log.
	sent []*sentImage
}

// sentImage is one of them. It, and all of the catalog queue that is ordered behind its
// ends, has offsets from From on.
type sentImage struct {
	from int64
	ends map[string]map[int32]int64 // nil: it failed
}

const (
	// maxPart bounds the body of one catalog record.
	maxPart = 256 << 10
	// maxGroup bounds what changes all or nothing.
	maxGroup = 512 << 10
	// share is the part of a segment an image may take before it is put into
	// every k-th segment only.
	share = 8
)

func (i *imager) segment() int64 { return i.c.k.Store.State().Segment }

// partSize is the size of one record's entries: small segments have small parts.
func (i *imager) partSize() int {
	return int(min(maxPart, max(i.segment()/(2*share), 1<<10)))
}

// groupSize is the size of the entries that are stored together, in several records, or
// not at all: an ordinary batch of the journal has room for them.
func (i *imager) groupSize() int {
	return int(min(maxGroup, max(i.segment()/8, 1<<10)))
}

// Image implements kernel.ImageSource.
func (i *imager) Image(ends func(yield func(q message.Queue, next int64) bool)) ([]*message.Record, func(stored bool)) {
	i.mu.Lock()
	if i.skip > 0 {
		i.skip--
		i.mu.Unlock()
		return nil, nil
	}
	i.mu.Unlock()
	recs, settled, err := i.records(ends, i.c.k.Clock.Now())
	if err != nil {
		i.c.k.Log.Error("the catalog image cannot be made", "error", err)
		return nil, nil
	}
	size := int64(0)
	for _, r := range recs {
		size += int64(r.Size())
	}
	seg := i.segment()
	i.mu.Lock()
	i.skip = size * share / seg // 0 while it is smaller than an eighth
	i.mu.Unlock()
	if size+message.BlankSize > seg {
		i.c.k.Log.Warn("the catalog image does not fit into a segment; raise mappedFileSizeCommitLog", "image_bytes", size, "segment_bytes", seg)
		settled(false)
		return nil, nil
	}
	return recs, settled
}

// records makes the parts of an image: tables, changes in flight, ends of queues. settled
// is to be called with what became of them.
func (i *imager) records(ends func(yield func(q message.Queue, next int64) bool), now time.Time) (recs []*message.Record, settled func(stored bool), err error) {
	w := &writer{}
	if err := i.c.dump(w); err != nil {
		return nil, nil, err
	}
	byTopic := map[string]map[int32]int64{}
	ends(func(q message.Queue, next int64) bool {
		if byTopic[q.Topic] == nil {
			byTopic[q.Topic] = map[int32]int64{}
		}
		byTopic[q.Topic][q.ID] = next
		return true
	})
	for topic, n := range byTopic {
		w.numbers(entryEnds, []string{topic}, n)
	}
	sent := &sentImage{from: byTopic[queue.Topic][queue.ID], ends: byTopic}
	i.mu.Lock()
	i.sent = append(i.sent, sent)
	i.last = max(i.last+1, uint64(now.UnixMilli()))
	id := i.last
	i.mu.Unlock()
	parts := split(w.buf, i.partSize())
	recs = make([]*message.Record, len(parts))
	for n, part := range parts {
		b := []byte{codecVersion, kindImage}
		b = binary.AppendUvarint(b, id)
		b = binary.AppendUvarint(b, uint64(n))
		b = binary.AppendUvarint(b, uint64(len(parts)))
		recs[n] = i.c.record(append(b, part...))
	}
	return recs, func(stored bool) { i.settle(sent, stored) }, nil
}

// settle takes the ends of an image over that is in the log, which a leader does not
// read. Not before: numbers that were ordered and lost with their records are given
// again, and an office that went on behind them would leave a hole in the queue.
func (i *imager) settle(s *sentImage, stored bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	at := slices.Index(i.sent, s)
	if at < 0 {
		return // the tables were made anew since, from the log
	}
	if stored {
		i.c.s.ends.set(s.ends)
		i.sent = slices.Delete(i.sent, 0, at+1)
		return
	}
	s.ends = nil
	if at > 0 && i.sent[at-1].ends == nil {
		i.sent = slices.Delete(i.sent, at, at+1) // the one before holds back as much
	}
}

// whole is how far the tables have everything of the catalog queue, when they have its
// records below next: an image that may be there, and whose ends they lack, is read again.
func (i *imager) whole(next int64) int64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.sent) > 0 {
		next = min(next, i.sent[0].from)
	}
	return next
}

// forget is for tables that are made anew from the log.
func (i *imager) forget() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.sent = nil
}
