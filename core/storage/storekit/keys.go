package storekit

import (
	"encoding/binary"

	"github.com/hardpointmq/hardpoint/core/message"
)

const (
	keyIdentity = 'i'
	keyState    = 's'
	keyQueue    = 'q'
	keyRecord   = 'r'
	keyUnit     = 'u'
	keyHash     = 'k'

	formatVersion = 1
)

var be = binary.BigEndian

func recordKey(dst []byte, at message.Position) []byte {
	return be.AppendUint64(append(dst, keyRecord), uint64(at))
}

func recordAt(key []byte) message.Position { return message.Position(be.Uint64(key[1:])) }

func unitKey(dst []byte, number uint32, offset int64) []byte {
	return be.AppendUint64(be.AppendUint32(append(dst, keyUnit), number), uint64(offset))
}

func unitOffset(key []byte) int64 { return int64(be.Uint64(key[5:])) }

const unitValueSize = 28

func unitValue(dst []byte, u *message.Unit) []byte {
	dst = be.AppendUint64(dst, uint64(u.At))
	dst = be.AppendUint32(dst, uint32(u.Size))
	dst = be.AppendUint64(dst, uint64(u.TagsCode))
	return be.AppendUint64(dst, uint64(u.StoreTime))
}

func parseUnit(v []byte, u *message.Unit) {
	u.At = message.Position(be.Uint64(v))
	u.Size = int32(be.Uint32(v[8:]))
	u.TagsCode = int64(be.Uint64(v[12:]))
	u.StoreTime = int64(be.Uint64(v[20:]))
}

func hashKey(dst []byte, hash int32, at message.Position) []byte {
	return be.AppendUint64(be.AppendUint32(append(dst, keyHash), uint32(hash)), ^uint64(at))
}

func hashAt(key []byte) message.Position { return message.Position(^be.Uint64(key[5:])) }

func queueKey(dst []byte, q message.Queue) []byte {
	dst = append(append(dst, keyQueue), q.Topic...)
	return be.AppendUint32(append(dst, 0), uint32(q.ID))
}

func parseQueueKey(key []byte) (q message.Queue, ok bool) {
	n := len(key) - 5
	if n < 1 || key[n] != 0 {
		return q, false
	}
	return message.Queue{Topic: string(key[1:n]), ID: int32(be.Uint32(key[n+1:]))}, true
}

const queueValueSize = 20

func queueValue(dst []byte, number uint32, from, to int64) []byte {
	dst = be.AppendUint32(dst, number)
	dst = be.AppendUint64(dst, uint64(from))
	return be.AppendUint64(dst, uint64(to))
}

// wellFormed reports whether a pair of the backend is long enough to be taken apart.
func wellFormed(key, value []byte) bool {
	switch key[0] {
	case keyRecord:
		return len(key) == 9 && len(value) >= message.MinRecordSize
	case keyUnit:
		return len(key) == 13 && len(value) == unitValueSize
	case keyHash:
		return len(key) == 13 && len(value) == 8
	case keyQueue:
		_, ok := parseQueueKey(key)
		return ok && len(value) == queueValueSize
	}
	return true
}

// prefixEnd is the first key behind all that begin with the letter.
func prefixEnd(letter byte) []byte { return []byte{letter + 1} }

// arena holds the bytes of keys and values of one step, so that a step
// allocates nothing once it has grown. Slices handed out stay valid until reset.
type arena struct {
	block []byte
	ops   []Op
}

func (a *arena) reset() { a.block, a.ops = a.block[:0], a.ops[:0] }

// room makes sure that the next n bytes do not move the block; an old block
// stays alive through the slices that point into it.
func (a *arena) room(n int) {
	if cap(a.block)-len(a.block) < n {
		a.block = make([]byte, 0, max(2*cap(a.block), n, 16<<10))
	}
}

// take closes the bytes appended since from.
func (a *arena) take(from int) []byte { return a.block[from:len(a.block):len(a.block)] }

func (a *arena) set(key, value []byte) { a.ops = append(a.ops, Op{Key: key, Value: value}) }

func (a *arena) remove(from, until []byte) { a.ops = append(a.ops, Op{Key: from, Until: until}) }

func (a *arena) record(at message.Position, rec []byte) {
	a.room(9)
	n := len(a.block)
	a.block = recordKey(a.block, at)
	a.set(a.take(n), rec)
}

func (a *arena) unit(number uint32, u *message.Unit) {
	a.room(13 + unitValueSize)
	n := len(a.block)
	a.block = unitKey(a.block, number, u.Offset)
	key := a.take(n)
	n = len(a.block)
	a.block = unitValue(a.block, u)
	a.set(key, a.take(n))
}

func (a *arena) key(k *message.Key) {
	a.room(13 + 8)
	n := len(a.block)
	a.block = hashKey(a.block, k.Hash, k.At)
	key := a.take(n)
	n = len(a.block)
	a.block = be.AppendUint64(a.block, uint64(k.StoreTime))
	a.set(key, a.take(n))
}

// dropKey removes one entry of the key index.
func (a *arena) dropKey(k *message.Key) {
	a.room(13 + 14)
	n := len(a.block)
	a.block = hashKey(a.block, k.Hash, k.At)
	key := a.take(n)
	n = len(a.block)
	a.block = append(hashKey(a.block, k.Hash, k.At), 0)
	a.remove(key, a.take(n))
}

func (a *arena) queue(q message.Queue, number uint32, from, to int64) {
	a.room(6 + len(q.Topic) + queueValueSize)
	n := len(a.block)
	a.block = queueKey(a.block, q)
	key := a.take(n)
	n = len(a.block)
	a.block = queueValue(a.block, number, from, to)
	a.set(key, a.take(n))
}

func (a *arena) dropQueue(q message.Queue) {
	key := queueKey(nil, q)
	a.remove(key, append(queueKey(nil, q), 0))
}
