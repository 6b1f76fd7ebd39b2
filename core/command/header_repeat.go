package command

import (
	"math/bits"
)

// A peer's JSON headers are much alike: a producer's differ in opaque, queue, time
// and properties, and the rest is the same text in the same places. A Header
// remembers the last one and compares the next with it, word by word; it reads
// only the values that differ. Whatever differs outside of a value is decoded in
// full, so that the outcome never depends on what came before (FuzzHeaderRepeat).

const (
	// repeatLimit is the longest header, in bytes, that is remembered: each
	// connection has one.
	repeatLimit  = 2 << 10
	repeatFields = 64 // as many as repeat.changed has bits
	// patience is how many headers in turn may be unlike their predecessors until
	// only one in unlikely is remembered: Go clients shuffle their fields.
	patience, unlikely = 8, 64

	allChanged = ^uint64(0)
)

// repeat is what a Header knows of the one it decoded last.
type repeat struct {
	text     []byte // empty: nothing to compare with. As long as not, fields and slots belong to it
	places   []place
	held     int    // the one place whose text has escapes, len(places) if none has
	changed  uint64 // the fields, by index, that are not as in the header before
	seq      uint64 // counts the headers
	misses   int
	opaqueAt span // of the digits, null if not usual

	language            Language
	code, version, flag int32
}

// place is where a value stands in the text, without quotes.
type place struct {
	from, to int32
	field    int32 // -1: the opaque
}

// sameUpTo is the length of the common beginning of a and b.
func sameUpTo(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for ; i+8 <= n; i += 8 {
		if x := word(a, i) ^ word(b, i); x != 0 {
			return i + bits.TrailingZeros64(x)>>3
		}
	}
	if n >= 8 && i < n { // once more the bytes before n; those before i are the same
		if x := word(a, n-8) ^ word(b, n-8); x != 0 {
			return n - 8 + bits.TrailingZeros64(x)>>3
		}
		return n
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// decodeRepeat decodes a JSON header that is like the last one; false if it is
// not, and then the state is void.
func (h *Header) decodeRepeat(b []byte) bool {
	l := &h.last
	l.changed = 0
	t, i, d, next := l.text, 0, 0, 0 // i is in t, i+d in b
	for {
		end := len(t)
		if next <= l.held && l.held < len(l.places) {
			end = int(l.places[l.held].from)
		}
		i += sameUpTo(t[i:end], b[i+d:])
		for next < len(l.places) && int(l.places[next].to) < i {
			if d != 0 {
				h.movePlace(&l.places[next], int32(d))
			}
			next++
		}
		if next == len(l.places) {
			if i < len(t) || i+d < len(b) {
				return false
			}
			break
		}
		p := &l.places[next]
		if i < int(p.from) {
			return false
		}
		old, ok := int(p.to), false
		if p.field < 0 {
			from := int(p.from) + d
			to := 0
			h.Opaque, to = smallNumber(b, from)
			p.from, p.to, ok = int32(from), int32(to), to > 0
		} else {
			ok = h.changedPlace(p, b, d, next == l.held)
		}
		if !ok {
			return false
		}
		i, d = old, int(p.to)-old
		next++
	}
	h.Language, h.Code, h.Version, h.Flag = l.language, l.code, l.version, l.flag
	h.raw = b
	if len(b) > repeatLimit {
		l.text = l.text[:0]
	} else {
		l.text = append(l.text[:0], b...)
	}
	return true
}

// movePlace moves a value, as it was, by d bytes.
func (h *Header) movePlace(p *place, d int32) {
	p.from += d
	p.to += d
	if p.field >= 0 {
		f := &h.fields[p.field]
		f.key.from += d
		f.key.to += d
		if f.value.from > 0 {
			f.value.from += d
			f.value.to += d
		}
	}
}

// changedPlace reads a field's new value, which stands d bytes further.
func (h *Header) changedPlace(p *place, b []byte, d int, held bool) bool {
	from := int(p.from) + d
	f := &h.fields[p.field]
	f.key.from += int32(d)
	f.key.to += int32(d)
	end := textEnd(b, from)
	if end >= len(b) {
		return false
	}
	if b[end] == '"' {
		f.value = span{int32(from), int32(end)}
	} else {
		if !held {
			return false
		}
		v, next := h.escapedText(b, from, end)
		if next == 0 {
			return false
		}
		f.value, end = v, next-1
	}
	p.from, p.to = int32(from), int32(end)
	h.last.changed |= 1 << uint(p.field)
	return true
}

// remember keeps a header that was decoded in full, if the next may be like it.
func (h *Header) remember(b []byte) {
	l := &h.last
	if l.misses++; l.misses > patience && l.misses%unlikely != 0 {
		return
	}
	if len(b) > repeatLimit || len(h.fields) > repeatFields || !h.remark.null() {
		return
	}
	l.places = l.places[:0]
	l.held = -1
	for i := range h.fields {
		f := &h.fields[i]
		if i == 0 && !l.opaqueAt.null() && l.opaqueAt.from < f.key.from {
			l.places = append(l.places, place{l.opaqueAt.from, l.opaqueAt.to, -1})
		}
		p := place{f.key.to + 3, f.value.to, int32(i)}
		if f.key.from <= 0 || int(p.from) >= len(b) || string(b[f.key.to:p.from]) != `":"` {
			return // spelled unusually
		}
		if f.value.from < 0 {
			if l.held >= 0 {
				return
			}
			l.held = len(l.places)
			p.to = int32(stringEnd(b, int(p.from)))
		}
		l.places = append(l.places, p)
	}
	if n := len(l.places); !l.opaqueAt.null() && (n == 0 || l.places[n-1].to < l.opaqueAt.from) {
		l.places = append(l.places, place{l.opaqueAt.from, l.opaqueAt.to, -1})
	}
	if l.held < 0 {
		l.held = len(l.places)
	}
	l.language, l.code, l.version, l.flag = h.Language, h.Code, h.Version, h.Flag
	l.text = append(l.text[:0], b...)
}

// SendDecoder decodes the requests of one connection one after the other: of a
// header that is like the one before it only the fields that changed. The zero
// value is ready. Not for concurrent use.
type SendDecoder struct {
	SendRequest

	of      *Header
	seq     uint64
	at      [len(sendNames)]int16 // the index of each field, -1 if missing
	name    [repeatFields]uint8   // the number of a field's name, by its index
	numbers uint64                // the fields that are more than text, by index
}

// Decode is that of SendRequest.
func (d *SendDecoder) Decode(h *Header) error {
	if d.of != h || d.seq+1 != h.last.seq || h.last.changed == allChanged {
		return d.first(h)
	}
	d.seq++
	text := func(i int) []byte {
		if n := d.at[i]; n >= 0 {
			return h.text(h.fields[n].value)
		}
		return nil
	}
	d.ProducerGroup, d.Topic, d.DefaultTopic, d.Properties, d.BrokerName = text(0), text(1), text(2), text(8), text(13)
	for m := h.last.changed & d.numbers; m != 0; m &= m - 1 {
		n := bits.TrailingZeros64(m)
		v := h.text(h.fields[n].value)
		x, why := int64(0), ""
		switch i := d.name[n]; i {
		case 3:
			d.DefaultTopicQueueNums, why = parseInt32(v)
		case 4:
			d.QueueID, why = parseInt32(v)
		case 5:
			d.SysFlag, why = parseInt32(v)
		case 6:
			x, why = parseInt(v, 64)
			d.BornTimestamp = x
		case 7:
			d.Flag, why = parseInt32(v)
		case 9:
			d.ReconsumeTimes, why = parseInt32(v)
		case 10:
			d.UnitMode = isTrue(v)
		case 11:
			d.MaxReconsumeTimes, why = parseInt32(v)
		case 12:
			d.Batch = isTrue(v)
		}
		if why != "" {
			return d.first(h) // for the error
		}
	}
	return nil
}

// first decodes all fields.
func (d *SendDecoder) first(h *Header) error {
	d.of = nil
	if err := d.SendRequest.Decode(h); err != nil {
		return err
	}
	if len(h.last.text) == 0 || sendLongNames(h.Code) {
		return nil
	}
	d.of, d.seq, d.numbers = h, h.last.seq, 0
	for i := range d.at {
		n := int16(h.slots[i]) - 1
		if d.at[i] = n; n < 0 {
			continue
		}
		d.name[n] = uint8(i)
		switch i {
		case 0, 1, 2, 8, 13:
		default:
			d.numbers |= 1 << n
		}
	}
	return nil
}
