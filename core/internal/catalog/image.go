package catalog

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/message"
)

// imager makes full images. It implements kernel.ImageSource.
type imager struct {
	c    *Catalog
	mu   sync.Mutex
	skip int64 // segments until the next image is due
	last uint64
	// newest is where a whole image begins that is known of; above the log's end
	// never. Valid with known.
	newest message.Position
	known  bool
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
func (i *imager) Image(ends func(yield func(q message.Queue, next int64) bool)) []*message.Record {
	i.mu.Lock()
	if i.skip > 0 {
		i.skip--
		i.mu.Unlock()
		return nil
	}
	i.mu.Unlock()
	recs, err := i.records(ends, i.c.k.Clock.Now())
	if err != nil {
		i.c.k.Log.Error("the catalog image cannot be made", "error", err)
		return nil
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
		return nil
	}
	return recs
}

// records makes the parts of an image: tables, changes in flight, ends of queues.
func (i *imager) records(ends func(yield func(q message.Queue, next int64) bool), now time.Time) ([]*message.Record, error) {
	w := &writer{}
	if err := i.c.dump(w); err != nil {
		return nil, err
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
	i.c.s.ends.set(byTopic) // a leader does not read its own images
	i.mu.Lock()
	i.last = max(i.last+1, uint64(now.UnixMilli()))
	id := i.last
	i.mu.Unlock()
	parts := split(w.buf, i.partSize())
	recs := make([]*message.Record, len(parts))
	for n, part := range parts {
		b := []byte{codecVersion, kindImage}
		b = binary.AppendUvarint(b, id)
		b = binary.AppendUvarint(b, uint64(n))
		b = binary.AppendUvarint(b, uint64(len(parts)))
		recs[n] = i.c.record(append(b, part...))
	}
	return recs, nil
}
