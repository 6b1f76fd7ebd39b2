package message

import (
	"bytes"
	"strconv"
)

// IndexRules are the settings that decide how a record is indexed. They are
// data, so that they cross to plugin processes and every store derives alike.
type IndexRules struct {
	// DelayLevels are the delays in ms of the levels 1, 2, …
	// (messageDelayLevel).
	DelayLevels []int64
}

// DefaultDelayLevels are RocketMQ's: 1s 5s 10s 30s 1m 2m … 10m 20m 30m 1h 2h.
func DefaultDelayLevels() []int64 {
	const s, m, h = 1000, 60_000, 3_600_000
	return []int64{1 * s, 5 * s, 10 * s, 30 * s, 1 * m, 2 * m, 3 * m, 4 * m, 5 * m, 6 * m, 7 * m, 8 * m, 9 * m, 10 * m, 20 * m, 30 * m, 1 * h, 2 * h}
}

// Deriver turns records into index units and keys. It is the only place that
// does. It remembers topic names, so that deriving allocates nothing for topics
// seen before; it is not safe for concurrent use.
type Deriver struct {
	rules  IndexRules
	topics map[string]string
}

// maxNames bounds the memory for topic names; real brokers stay far below.
const maxNames = 1 << 20

// NewDeriver makes a Deriver for the rules.
func NewDeriver(rules IndexRules) *Deriver {
	return &Deriver{rules: rules, topics: map[string]string{}}
}

func (d *Deriver) topic(v *View) string {
	if v.TopicName != "" {
		return v.TopicName
	}
	if s, ok := d.topics[string(v.Topic)]; ok {
		return s
	}
	if len(d.topics) >= maxNames {
		clear(d.topics)
	}
	s := string(v.Topic)
	d.topics[s] = s
	return s
}

// Facts are what the send path needs to know of a record besides its index
// entries. The slices alias the record's properties.
type Facts struct {
	Tags      []byte
	UniqueKey []byte
	Keys      []byte
	// UniqueAt is where UniqueKey begins in the record's properties.
	UniqueAt int32
	// Delay is the delay level, 0 when there is none or it is no number.
	Delay int32
	// NoWait is true when WAIT is "false".
	NoWait bool
	// Transaction is true when TRAN_MSG is "true".
	Transaction bool
	// Timer is true when one of the TIMER_… properties asks for a due time.
	Timer bool
	// PopCheckPoint is true when POP_CK is there; a send drops it.
	PopCheckPoint bool
	// Sharded is true when __SHARDINGKEY is there: the message is of the type FIFO.
	Sharded bool
	// TraceParent is the value of traceparent (W3C Trace Context), as it was sent.
	TraceParent []byte
}

// Scan reads the facts of a property string. Of equal names the last counts.
func (f *Facts) Scan(props []byte) {
	*f = Facts{}
	for at := 0; ; {
		from, mid, end := pair(props, at)
		if mid < 0 {
			return
		}
		f.take(props[from:mid], props[mid+1:end], mid+1)
		at = end + 1
	}
}

func (f *Facts) take(name, value []byte, at int) {
	switch len(name) {
	case 4:
		switch string(name) {
		case PropTags:
			f.Tags = value
		case PropKeys:
			f.Keys = value
		case PropWait:
			f.NoWait = string(value) == "false"
		}
	case 5:
		if string(name) == PropDelay {
			n, err := strconv.ParseInt(string(value), 10, 32)
			if err != nil {
				n = 0
			}
			f.Delay = int32(n)
		}
	case 6:
		if string(name) == PropPopCheckPoint {
			f.PopCheckPoint = true
		}
	case 8:
		switch string(name) {
		case PropUniqueKey:
			f.UniqueKey, f.UniqueAt = value, int32(at)
		case PropTransaction:
			f.Transaction = string(value) == "true"
		}
	case 11:
		if string(name) == PropTraceParent {
			f.TraceParent = value
		}
	case 13:
		if string(name) == PropShardingKey {
			f.Sharded = true
		}
	case 14, 15, 16:
		switch string(name) {
		case PropTimerDelayMs, PropTimerDelaySec, PropTimerDeliverMs:
			f.Timer = true
		}
	}
}

// Derive appends the units and keys of a record to the two slices. f holds the
// facts of v.Properties when they are known already, nil otherwise. Positions,
// offsets and store times are those of v; for a record not yet stamped they are
// zero, and the Sequencer fills them in.
//
// A record of transaction type PREPARED or ROLLBACK has no unit; ROLLBACK has
// no keys either (CommitLogDispatcherBuildConsumeQueue, IndexService).
func (d *Deriver) Derive(v *View, f *Facts, units []Unit, keys []Key) ([]Unit, []Key) {
	var own Facts
	if f == nil {
		own.Scan(v.Properties)
		f = &own
	}
	tx := v.SysFlag & SysTxMask
	if tx == 0 || tx == SysTxCommit {
		u := Unit{
			Queue: Queue{d.topic(v), v.QueueID}, At: v.Position, Size: v.Size,
			Offset: v.QueueOffset, StoreTime: v.StoreTime,
		}
		switch {
		case f.Delay > 0 && string(v.Topic) == ScheduleTopic:
			u.TagsCode = v.StoreTime + d.delay(f.Delay)
		case len(f.Tags) > 0:
			u.TagsCode = TagsCode(f.Tags)
		}
		units = append(units, u)
	}
	if tx != SysTxRollback {
		if len(f.UniqueKey) > 0 {
			keys = append(keys, Key{KeyHash(v.Topic, f.UniqueKey), v.Position, v.StoreTime})
		}
		for rest := f.Keys; len(rest) > 0; {
			k := rest
			if i := bytes.IndexByte(rest, ' '); i >= 0 {
				k, rest = rest[:i], rest[i+1:]
			} else {
				rest = nil
			}
			if len(k) > 0 {
				keys = append(keys, Key{KeyHash(v.Topic, k), v.Position, v.StoreTime})
			}
		}
	}
	return units, keys
}

// delay is the delay in ms of a level: the highest for levels above it, one
// second when there are no levels at all (ScheduleMessageService).
func (d *Deriver) delay(level int32) int64 {
	n := int32(len(d.rules.DelayLevels))
	if n == 0 {
		return 1000
	}
	return d.rules.DelayLevels[min(level, n)-1]
}
