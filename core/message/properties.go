package message

import (
	"bytes"
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
)

// Properties walks a property string as Java's string2messageProperties reads
// it: pieces end at 0x02, the name ends at the first 0x01, pieces without a
// name, a value or a separator are skipped, and the last separator may be
// missing. Use it as
//
//	for p := message.NewProperties(s); p.Next(); { … p.Name, p.Value … }
//
// It allocates nothing; Name and Value alias the string.
type Properties struct {
	rest        []byte
	Name, Value []byte
}

// NewProperties starts a walk over s.
func NewProperties(s []byte) Properties { return Properties{rest: s} }

// Next moves to the next pair; false at the end.
func (p *Properties) Next() bool {
	for len(p.rest) > 0 {
		piece := p.rest
		if i := bytes.IndexByte(piece, propEnd); i >= 0 {
			piece, p.rest = piece[:i], piece[i+1:]
		} else {
			p.rest = nil
		}
		if i := bytes.IndexByte(piece, propMid); i > 0 && i < len(piece)-1 {
			p.Name, p.Value = piece[:i], piece[i+1:]
			return true
		}
	}
	return false
}

// Property returns the value of the last pair with that name, as a Java map
// would hold it, and whether there is one.
func Property(s []byte, name string) (value []byte, ok bool) {
	for p := NewProperties(s); p.Next(); {
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
pairs:
	for p := NewProperties(s); p.Next(); {
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
func JavaHash(s []byte) int32 { return javaHash(0, s) }

func javaHash(h int32, s []byte) int32 {
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			h = 31*h + int32(c)
			i++
			continue
		}
		r, n := utf8.DecodeRune(s[i:])
		i += n
		if r >= 0x10000 {
			r -= 0x10000
			h = 31*h + int32(0xD800+r>>10)
			r = 0xDC00 + r&0x3FF
		}
		h = 31*h + int32(r)
	}
	return h
}

// TagsCode is what an index keeps of a TAGS value: its Java hash, sign
// extended; 0 without tags.
func TagsCode(tags []byte) int64 { return int64(JavaHash(tags)) }

// KeyHash is the hash under which the key index keeps a key of a topic: the
// absolute Java hash of "topic#key", 0 when that has no absolute value.
func KeyHash(topic, key []byte) int32 {
	h := javaHash(31*JavaHash(topic)+'#', key)
	if h < 0 {
		if h = -h; h < 0 {
			return 0
		}
	}
	return h
}
