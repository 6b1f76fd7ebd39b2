package message

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

const (
	propMid = 1 // between name and value
	propEnd = 2 // after a value
)

// Names of properties with a meaning for the broker (MessageConst).
const (
	PropTags              = "TAGS"
	PropKeys              = "KEYS"
	PropUniqueKey         = "UNIQ_KEY"
	PropWait              = "WAIT"
	PropDelay             = "DELAY"
	PropRetryTopic        = "RETRY_TOPIC"
	PropRealTopic         = "REAL_TOPIC"
	PropRealQueueID       = "REAL_QID"
	PropTransaction       = "TRAN_MSG"
	PropProducerGroup     = "PGROUP"
	PropOriginMessageID   = "ORIGIN_MESSAGE_ID"
	PropMaxReconsumeTimes = "MAX_RECONSUME_TIMES"
	PropReconsumeTime     = "RECONSUME_TIME"
	PropRegion            = "MSG_REGION"
	PropTraceOn           = "TRACE_ON"
	PropCluster           = "CLUSTER"
	PropPopCheckPoint     = "POP_CK"
	PropTimerDelaySec     = "TIMER_DELAY_SEC"
	PropTimerDelayMs      = "TIMER_DELAY_MS"
	PropTimerDeliverMs    = "TIMER_DELIVER_MS"
	PropShardingKey       = "__SHARDINGKEY"
	PropTraceParent       = "traceparent" // W3C Trace Context, in user properties
)

// Properties walks a property string as Java's string2messageProperties reads
// it: pieces end at 0x02, the name ends at the first 0x01, pieces without a
// name, a value or a separator are skipped, and the last separator may be
// missing. Use it as
//
//	p := message.NewProperties(s)
//	for p.Next() { … p.Name, p.Value … }
//
// It allocates nothing; Name and Value alias the string.
type Properties struct {
	s           []byte
	at          int
	Name, Value []byte
}

// NewProperties starts a walk over s.
func NewProperties(s []byte) Properties { return Properties{s: s} }

// Next moves to the next pair; false at the end.
func (p *Properties) Next() bool {
	from, mid, end := pair(p.s, p.at)
	p.at = end + 1
	if mid < 0 {
		return false
	}
	p.Name, p.Value = p.s[from:mid], p.s[mid+1:end]
	return true
}

const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// pair finds the first pair from at on: the name s[from:mid] and the value
// s[mid+1:end]. mid is negative if there is none.
func pair(s []byte, at int) (from, mid, end int) {
	for at < len(s) {
		mid = at
		// Eight bytes at a time: what is below 3 gets a mark, the lowest is right.
		for mid+8 <= len(s) {
			x := binary.LittleEndian.Uint64(s[mid : mid+8 : mid+8])
			m := (x - 3*lowBits) &^ x & highBits
			if m == 0 {
				mid += 8
				continue
			}
			mid += bits.TrailingZeros64(m) >> 3
			break
		}
		for mid < len(s) && s[mid] != propMid && s[mid] != propEnd {
			mid++
		}
		if mid == len(s) {
			break
		}
		end = mid
		if s[mid] == propMid {
			end = valueEnd(s, mid+1)
		}
		if mid > at && end > mid+1 {
			return at, mid, end
		}
		at = end + 1
	}
	return len(s), -1, len(s)
}

// valueEnd is the index of the first 0x02 from i on, len(s) if there is none.
func valueEnd(s []byte, i int) int {
	for ; i+8 <= len(s); i += 8 {
		x := binary.LittleEndian.Uint64(s[i:i+8:i+8]) ^ propEnd*lowBits
		if m := (x - lowBits) &^ x & highBits; m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	for i < len(s) && s[i] != propEnd {
		i++
	}
	return i
}

// Property returns the value of the last pair with that name, as a Java map
// would hold it, and whether there is one.
func Property(s []byte, name string) (value []byte, ok bool) {
	p := NewProperties(s)
	for p.Next() {
		if string(p.Name) == name {
			value, ok = p.Value, true
		}
	}
	return value, ok
}

// AppendProperty appends a pair to a property string, after the separator that
// s may lack. Empty names and values are not written: readers drop them.
func AppendProperty(s []byte, name, value string) []byte {
	if name == "" || value == "" {
		return s
	}
	if n := len(s); n > 0 && s[n-1] != propEnd {
		s = append(s, propEnd)
	}
	s = append(s, name...)
	s = append(s, propMid)
	s = append(s, value...)
	return append(s, propEnd)
}

// AppendWithout appends s to dst but for the pairs named.
func AppendWithout(dst, s []byte, names ...string) []byte {
	p := NewProperties(s)
pairs:
	for p.Next() {
		for _, n := range names {
			if string(p.Name) == n {
				continue pairs
			}
		}
		dst = append(dst, p.Name...)
		dst = append(dst, propMid)
		dst = append(dst, p.Value...)
		dst = append(dst, propEnd)
	}
	return dst
}

// JavaHash is Java's String.hashCode of UTF-8 text: over UTF-16 code units,
// wrapping at 32 bits. Invalid UTF-8 counts as U+FFFD, as Java decodes it.
func JavaHash(s []byte) int32 { return int32(javaHash(0, s)) }

func javaHash(h uint32, s []byte) uint32 {
	const pow8 = 31 * 31 * 31 * 31 * 31 * 31 * 31 * 31 & (1<<32 - 1)
	for len(s) >= 8 { // eight letters of ASCII are one step: their sum does not wait for h
		x := binary.LittleEndian.Uint64(s)
		if x&0x8080808080808080 != 0 {
			break
		}
		h = h*pow8 + hash8(x)
		s = s[8:]
	}
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			h = 31*h + uint32(c)
			i++
			continue
		}
		r, n := utf8.DecodeRune(s[i:])
		i += n
		if r >= 0x10000 {
			r -= 0x10000
			h = 31*h + uint32(0xD800+r>>10)
			r = 0xDC00 + r&0x3FF
		}
		h = 31*h + uint32(r)
	}
	return h
}

// hash8 is the hash of eight bytes, the lowest first: pairs of them, pairs of
// pairs, and both halves, the lanes wide enough for each sum.
func hash8(x uint64) uint32 {
	const bytes, pairs = 0x00ff00ff00ff00ff, 0x0000ffff0000ffff
	x = x&bytes*31 + x>>8&bytes
	x = x&pairs*(31*31) + x>>16&pairs
	return uint32(x)*(31*31*31*31) + uint32(x>>32)
}

// TagsCode is what an index keeps of a TAGS value: its Java hash, sign
// extended; 0 without tags.
func TagsCode(tags []byte) int64 { return int64(JavaHash(tags)) }

// KeyHash is the hash under which the key index keeps a key of a topic: the
// absolute Java hash of "topic#key", 0 when that has no absolute value.
func KeyHash(topic, key []byte) int32 {
	h := int32(javaHash(31*javaHash(0, topic)+'#', key))
	if h < 0 {
		if h = -h; h < 0 {
			return 0
		}
	}
	return h
}
