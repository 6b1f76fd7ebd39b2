package catalog

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
)

// The body of a catalog record is
//
//	version  1 byte, 1
//	kind     1 byte, kindDelta or kindImage
//	         kindImage only: id uvarint, part uvarint, parts uvarint
//	entries  until the end: type 1 byte, length uvarint, payload
//
// Strings in payloads are length uvarint, bytes. Integers are varints. An entry
// of an unknown type is skipped, so that an older broker reads a newer log.

// ErrRecord: a catalog record that cannot be read. Test with errors.Is.
var ErrRecord = errors.New("unreadable catalog record")

const codecVersion = 1

const (
	kindDelta = 1
	kindImage = 2
)

const (
	entryTopic         = 1  // JSON of command.TopicConfig
	entryTopicRemoved  = 2  // name
	entryGroup         = 3  // JSON of command.SubscriptionGroupConfig
	entryGroupRemoved  = 4  // name, flag: progress, too
	entryOffsets       = 5  // group, topic, n, n × (queue id, offset)
	entryOffsetRemoved = 6  // group, topic
	entryEnds          = 7  // topic, n, n × (queue id, next offset); no topic: see endTable.dump
	entryLock          = 8  // group, topic, queue id, owner, expiry ms (0: the owner gave it up)
	entryVersions      = 9  // three data versions: topics, groups, offsets
	entryValue         = 10 // kind, group, topic, value; an empty value removes
)

// writer builds the entries of one body.
type writer struct{ buf []byte }

func (w *writer) entry(kind byte, payload []byte) {
	w.buf = append(w.buf, kind)
	w.buf = binary.AppendUvarint(w.buf, uint64(len(payload)))
	w.buf = append(w.buf, payload...)
}

func str(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

func (w *writer) json(kind byte, v any) error {
	b, err := command.EncodeBody(v)
	if err != nil {
		return err
	}
	w.entry(kind, b)
	return nil
}

func (w *writer) names(kind byte, names ...string) {
	var p []byte
	for _, n := range names {
		p = str(p, n)
	}
	w.entry(kind, p)
}

// numbers writes queue ids with numbers, for entryOffsets and entryEnds.
func (w *writer) numbers(kind byte, names []string, n map[int32]int64) {
	var p []byte
	for _, s := range names {
		p = str(p, s)
	}
	p = binary.AppendUvarint(p, uint64(len(n)))
	for id, v := range n {
		p = binary.AppendVarint(p, int64(id))
		p = binary.AppendVarint(p, v)
	}
	w.entry(kind, p)
}

func (w *writer) lock(l *lockEntry) {
	p := str(str(nil, l.group), l.topic)
	p = binary.AppendVarint(p, int64(l.queue))
	p = str(p, l.owner)
	w.entry(entryLock, binary.AppendVarint(p, l.expiry))
}

func (w *writer) versions(v ...command.DataVersion) {
	var p []byte
	for _, x := range v {
		p = binary.AppendVarint(p, x.StateVersion)
		p = binary.AppendVarint(p, x.Timestamp)
		p = binary.AppendVarint(p, x.Counter)
	}
	w.entry(entryVersions, p)
}

// deltaBody frames entries as the body of a delta record.
func deltaBody(entries []byte) []byte {
	return append([]byte{codecVersion, kindDelta}, entries...)
}

// header is what stands before the entries of a body.
type header struct {
	kind            byte
	id, part, parts uint64
}

func readHeader(b []byte) (header, []byte, error) {
	if len(b) < 2 {
		return header{}, nil, fmt.Errorf("%w: %d bytes", ErrRecord, len(b))
	}
	if b[0] != codecVersion {
		return header{}, nil, fmt.Errorf("%w: version %d, this broker reads version %d", ErrRecord, b[0], codecVersion)
	}
	h := header{kind: b[1]}
	r := reader{b: b[2:]}
	switch h.kind {
	case kindDelta:
	case kindImage:
		h.id, h.part, h.parts = r.uvarint(), r.uvarint(), r.uvarint()
		if r.err == nil && (h.parts == 0 || h.part >= h.parts) {
			return h, nil, fmt.Errorf("%w: part %d of %d", ErrRecord, h.part, h.parts)
		}
	default:
		return h, nil, fmt.Errorf("%w: kind %d", ErrRecord, h.kind)
	}
	return h, r.b, r.err
}

// reader takes payloads apart and keeps the first error.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s is cut short or out of range", ErrRecord, what)
	}
	r.b = nil
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail("a number")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail("a number")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.fail("a text")
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) str() string { return string(r.bytes()) }

func (r *reader) numbers() map[int32]int64 {
	n := r.uvarint()
	if n > uint64(len(r.b)) { // two bytes each at least
		r.fail("a list")
		return nil
	}
	m := make(map[int32]int64, n)
	for range n {
		id := r.varint()
		m[int32(id)] = r.varint()
	}
	return m
}

// entries calls f for each entry of a body. Errors match ErrRecord.
func entries(b []byte, f func(kind byte, p []byte) error) error {
	r := reader{b: b}
	for len(r.b) > 0 {
		kind := r.b[0]
		r.b = r.b[1:]
		p := r.bytes()
		if r.err != nil {
			return r.err
		}
		if err := f(kind, p); err != nil {
			return err
		}
	}
	return nil
}

func decodeTopic(p []byte) (t command.TopicConfig, err error) {
	if err = json.Unmarshal(p, &t); err != nil {
		return t, fmt.Errorf("%w: topic: %w", ErrRecord, err)
	}
	if t.TopicName == "" {
		return t, fmt.Errorf("%w: a topic without a name", ErrRecord)
	}
	return t, nil
}

// applyEntry changes the state by one entry.
func (s *state) applyEntry(kind byte, p []byte) error {
	r := reader{b: p}
	switch kind {
	case entryTopic:
		t, err := decodeTopic(p)
		if err != nil {
			return err
		}
		s.putTopic(t)
	case entryTopicRemoved:
		name := r.str()
		if r.err == nil {
			s.removeTopic(name)
		}
	case entryGroup:
		var g command.SubscriptionGroupConfig
		if err := json.Unmarshal(p, &g); err != nil {
			return fmt.Errorf("%w: group: %w", ErrRecord, err)
		}
		if g.GroupName == "" {
			return fmt.Errorf("%w: a group without a name", ErrRecord)
		}
		s.putGroup(g)
	case entryGroupRemoved:
		name := r.str()
		offsets := r.uvarint() != 0
		if r.err == nil {
			s.removeGroup(name, offsets)
		}
	case entryOffsets:
		group, topic := r.str(), r.str()
		n := r.numbers()
		if r.err == nil {
			for id, v := range n {
				s.offsets.set(group, message.Queue{Topic: topic, ID: id}, v, false)
			}
		}
	case entryOffsetRemoved:
		group, topic := r.str(), r.str()
		if r.err == nil {
			s.offsets.remove(group, topic)
		}
	case entryEnds:
		topic, n := r.str(), r.numbers()
		if r.err == nil {
			s.ends.put(topic, n)
		}
	case entryLock:
		l := lockEntry{group: r.str(), topic: r.str(), queue: int32(r.varint()), owner: r.str(), expiry: r.varint()}
		if r.err == nil {
			s.locks.set(&l)
		}
	case entryValue:
		k := kernel.ValueKey{Kind: r.str(), Group: r.str(), Topic: r.str()}
		v := r.bytes()
		if r.err == nil {
			s.values.put(k, bytes.Clone(v))
		}
	case entryVersions:
		var v [3]command.DataVersion
		for i := range v {
			v[i] = command.DataVersion{StateVersion: r.varint(), Timestamp: r.varint(), Counter: r.varint()}
		}
		if r.err == nil {
			s.setVersions(v)
		}
	}
	return r.err
}
