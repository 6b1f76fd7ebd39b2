package message

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
)

// Magic words of what stands in the log.
const (
	MagicV1    uint32 = 0xDAA320A7
	MagicV2    uint32 = 0xDAA320AB // topic length is two bytes
	MagicBlank uint32 = 0xCBD43194 // the rest of the segment holds nothing
)

// Sizes and limits of the layout, in bytes.
const (
	// BlankSize is the size of a blank's head, and what must remain in a
	// segment after any record: a record of n bytes needs n+BlankSize.
	BlankSize = 8
	// FixedSize is the size of a V1 record with IPv4 hosts but for body, topic
	// and properties.
	FixedSize = 91
	// MinRecordSize is the smallest record there can be.
	MinRecordSize = FixedSize
	// MaxProperties is the limit of an encoded property string.
	MaxProperties = 1<<15 - 1
	// maxTopicV1 is the longest topic whose length fits a signed byte.
	maxTopicV1 = 127
)

// Bits of SysFlag (MessageSysFlag).
const (
	SysCompressed  int32 = 0x1
	SysMultiTags   int32 = 0x2
	SysTxMask      int32 = 0xC
	SysTxPrepared  int32 = 0x4
	SysTxCommit    int32 = 0x8
	SysTxRollback  int32 = 0xC
	SysBornHostV6  int32 = 0x10
	SysStoreHostV6 int32 = 0x20
	SysNeedUnwrap  int32 = 0x40
	SysInnerBatch  int32 = 0x80
)

// Faults of bytes that should be a record. Test with errors.Is.
var (
	// ErrShort: the bytes end before the record does.
	ErrShort = errors.New("record is cut short")
	// ErrMagic: the magic word is none of ours; zeros in never-written space
	// give this, too.
	ErrMagic = errors.New("record has an unknown magic word")
	// ErrBlank: not a record but the blank that ends a segment.
	ErrBlank = errors.New("blank at the end of a segment")
	// ErrLength: the lengths inside the record disagree.
	ErrLength = errors.New("record has lengths that disagree")
	// ErrCRC: the body is not what was written.
	ErrCRC = errors.New("record's body does not match its CRC")
)

// Host is an address as it stands in a record: 4 or 16 address bytes and the
// port as int32.
type Host struct {
	b [20]byte
	n uint8
}

// HostOf encodes an address. The zero AddrPort becomes 0.0.0.0:0.
func HostOf(a netip.AddrPort) Host {
	var h Host
	ip := a.Addr().Unmap()
	if ip.Is6() {
		b := ip.As16()
		copy(h.b[:], b[:])
		h.n = 20
	} else {
		if ip.IsValid() {
			b := ip.As4()
			copy(h.b[:], b[:])
		}
		h.n = 8
	}
	binary.BigEndian.PutUint32(h.b[h.n-4:], uint32(a.Port()))
	return h
}

// Bytes returns the 8 or 20 encoded bytes, aliasing h.
func (h *Host) Bytes() []byte { return h.b[:h.n] }

// Is6 reports whether the address is IPv6.
func (h *Host) Is6() bool { return h.n == 20 }

// HostAddr decodes 8 or 20 bytes; the zero value when they are neither.
func HostAddr(b []byte) netip.AddrPort {
	if len(b) != 8 && len(b) != 20 {
		return netip.AddrPort{}
	}
	ip, _ := netip.AddrFromSlice(b[:len(b)-4])
	return netip.AddrPortFrom(ip, uint16(binary.BigEndian.Uint32(b[len(b)-4:])))
}

// Record is a message before it is encoded. Position, queue offset and store
// time are left zero: the Sequencer stamps them ([Stamp]).
type Record struct {
	Topic          string
	QueueID        int32
	Flag           int32
	SysFlag        int32 // host bits are set by Encode
	BornTime       int64
	BornHost       Host
	StoreHost      Host
	ReconsumeTimes int32
	PreparedOffset int64
	Body           []byte
	// Properties is the property string as the client sent it; Encode adds the
	// separator that it may lack before it appends BrokerProperties.
	Properties       []byte
	BrokerProperties []byte
}

func (r *Record) separator() int {
	if n := len(r.Properties); n > 0 && r.Properties[n-1] != propEnd {
		return 1
	}
	return 0
}

// PropertiesSize is the size of the encoded property string; a record is legal
// when it is at most MaxProperties.
func (r *Record) PropertiesSize() int {
	return len(r.Properties) + r.separator() + len(r.BrokerProperties)
}

// Size is the size of the encoded record.
func (r *Record) Size() int {
	n := FixedSize + len(r.Body) + len(r.Topic) + r.PropertiesSize()
	if len(r.Topic) > maxTopicV1 {
		n++
	}
	if r.BornHost.Is6() {
		n += 12
	}
	if r.StoreHost.Is6() {
		n += 12
	}
	return n
}

// Encode writes the record into dst, which is exactly Size bytes long, and
// fills v (when not nil) with a view of it, so that nobody parses it again.
func (r *Record) Encode(dst []byte, v *View) {
	be := binary.BigEndian
	sys := r.SysFlag &^ (SysBornHostV6 | SysStoreHostV6)
	if r.BornHost.Is6() {
		sys |= SysBornHostV6
	}
	if r.StoreHost.Is6() {
		sys |= SysStoreHostV6
	}
	magic := MagicV1
	if len(r.Topic) > maxTopicV1 {
		magic = MagicV2
	}
	crc := BodyCRC(r.Body)
	_ = dst[FixedSize-1]
	be.PutUint32(dst, uint32(len(dst)))
	be.PutUint32(dst[4:], magic)
	be.PutUint32(dst[8:], crc)
	be.PutUint32(dst[12:], uint32(r.QueueID))
	be.PutUint32(dst[16:], uint32(r.Flag))
	be.PutUint64(dst[20:], 0)
	be.PutUint64(dst[28:], 0)
	be.PutUint32(dst[36:], uint32(sys))
	be.PutUint64(dst[40:], uint64(r.BornTime))
	born := 48
	n := born + copy(dst[born:], emptyHost(&r.BornHost))
	be.PutUint64(dst[n:], 0) // store time
	n += 8
	store := n
	n += copy(dst[n:], emptyHost(&r.StoreHost))
	be.PutUint32(dst[n:], uint32(r.ReconsumeTimes))
	be.PutUint64(dst[n+4:], uint64(r.PreparedOffset))
	be.PutUint32(dst[n+12:], uint32(len(r.Body)))
	n += 16
	body := n
	n += copy(dst[n:], r.Body)
	if magic == MagicV2 {
		be.PutUint16(dst[n:], uint16(len(r.Topic)))
		n += 2
	} else {
		dst[n] = byte(len(r.Topic))
		n++
	}
	topic := n
	n += copy(dst[n:], r.Topic)
	be.PutUint16(dst[n:], uint16(r.PropertiesSize()))
	n += 2
	props := n
	n += copy(dst[n:], r.Properties)
	if r.separator() == 1 {
		dst[n] = propEnd
		n++
	}
	n += copy(dst[n:], r.BrokerProperties)
	if n != len(dst) {
		panic(fmt.Sprintf("message: buffer of %d bytes for a record of %d", len(dst), n))
	}
	if v != nil {
		*v = View{
			Raw: dst, Size: int32(n), Magic: magic, BodyCRC: crc,
			QueueID: r.QueueID, Flag: r.Flag, SysFlag: sys, BornTime: r.BornTime,
			BornHost: dst[born : store-8], StoreHost: dst[store : body-16],
			ReconsumeTimes: r.ReconsumeTimes, PreparedOffset: r.PreparedOffset,
			Body: dst[body : body+len(r.Body)], Topic: dst[topic : topic+len(r.Topic)],
			TopicName: r.Topic, Properties: dst[props:n],
		}
	}
}

// emptyHost gives a zero Host the size of an IPv4 one.
func emptyHost(h *Host) []byte {
	if h.n == 0 {
		return h.b[:8]
	}
	return h.b[:h.n]
}

// BodyCRC is the CRC-32 (IEEE) of a body with the top bit cleared.
func BodyCRC(body []byte) uint32 { return crc32.ChecksumIEEE(body) & 0x7FFFFFFF }

// View is a parsed record; its slices alias Raw.
type View struct {
	Raw            []byte
	Size           int32
	Magic, BodyCRC uint32
	QueueID        int32
	Flag           int32
	QueueOffset    int64
	Position       Position
	SysFlag        int32
	BornTime       int64
	BornHost       []byte // 8 or 20 bytes, see HostAddr
	StoreTime      int64
	StoreHost      []byte
	ReconsumeTimes int32
	PreparedOffset int64
	Body           []byte
	Topic          []byte
	// TopicName is Topic as a string where somebody already has one; empty
	// after Parse.
	TopicName  string
	Properties []byte
}

// Parse reads the record at the start of b, which may be longer, into v. It
// checks lengths but not the CRC ([View.CheckBody]). For a blank it returns
// ErrBlank with v.Size set to what remains of the segment, blank included.
// Errors match ErrShort, ErrMagic, ErrBlank, ErrLength.
func Parse(b []byte, v *View) error {
	if len(b) < BlankSize {
		return ErrShort
	}
	be := binary.BigEndian
	size, magic := int32(be.Uint32(b)), be.Uint32(b[4:])
	v.Size, v.Magic = size, magic
	switch magic {
	case MagicV1, MagicV2:
	case MagicBlank:
		if size < BlankSize {
			return fmt.Errorf("%w: blank of %d bytes", ErrLength, size)
		}
		return ErrBlank
	default:
		return ErrMagic
	}
	if size < MinRecordSize {
		return fmt.Errorf("%w: total size %d", ErrLength, size)
	}
	if int(size) > len(b) {
		return ErrShort
	}
	b = b[:size:size]
	v.Raw = b
	v.BodyCRC = be.Uint32(b[8:])
	v.QueueID = int32(be.Uint32(b[12:]))
	v.Flag = int32(be.Uint32(b[16:]))
	v.QueueOffset = int64(be.Uint64(b[20:]))
	v.Position = Position(be.Uint64(b[28:]))
	v.SysFlag = int32(be.Uint32(b[36:]))
	v.BornTime = int64(be.Uint64(b[40:]))
	n, bh, sh := 48, 8, 8
	if v.SysFlag&SysBornHostV6 != 0 {
		bh = 20
	}
	if v.SysFlag&SysStoreHostV6 != 0 {
		sh = 20
	}
	tl := 1
	if magic == MagicV2 {
		tl = 2
	}
	if int(size) < 48+bh+8+sh+16+tl+2 {
		return fmt.Errorf("%w: total size %d", ErrLength, size)
	}
	v.BornHost = b[n : n+bh]
	n += bh
	v.StoreTime = int64(be.Uint64(b[n:]))
	n += 8
	v.StoreHost = b[n : n+sh]
	n += sh
	v.ReconsumeTimes = int32(be.Uint32(b[n:]))
	v.PreparedOffset = int64(be.Uint64(b[n+4:]))
	bl := int(int32(be.Uint32(b[n+12:])))
	n += 16
	if bl < 0 || bl > len(b)-n-tl-2 {
		return fmt.Errorf("%w: body of %d bytes in a record of %d", ErrLength, bl, size)
	}
	v.Body = b[n : n+bl]
	n += bl
	t := int(int8(b[n]))
	if tl == 2 {
		t = int(int16(be.Uint16(b[n:])))
	}
	n += tl
	if t < 0 || t > len(b)-n-2 {
		return fmt.Errorf("%w: topic of %d bytes in a record of %d", ErrLength, t, size)
	}
	v.Topic, v.TopicName = b[n:n+t], ""
	n += t
	pl := int(int16(be.Uint16(b[n:])))
	n += 2
	if pl != len(b)-n {
		return fmt.Errorf("%w: properties of %d bytes where %d remain", ErrLength, pl, len(b)-n)
	}
	v.Properties = b[n:]
	return nil
}

// CheckBody compares the body with its CRC: nil or ErrCRC.
func (v *View) CheckBody() error {
	if BodyCRC(v.Body) != v.BodyCRC {
		return ErrCRC
	}
	return nil
}

// Stamp writes what only the order of the log can tell into an encoded record.
func Stamp(rec []byte, at Position, queueOffset, storeTime int64) {
	be := binary.BigEndian
	_ = rec[FixedSize-1]
	be.PutUint64(rec[20:], uint64(queueOffset))
	be.PutUint64(rec[28:], uint64(at))
	be.PutUint64(rec[storeTimeAt(rec):], uint64(storeTime))
}

// storeTimeAt is where the store time stands; an IPv6 born host moves it.
func storeTimeAt(rec []byte) int {
	if int32(binary.BigEndian.Uint32(rec[36:]))&SysBornHostV6 != 0 {
		return 68
	}
	return 56
}

// Size reads the total size of the record or blank at the start of b, which
// holds at least four bytes.
func Size(b []byte) int32 { return int32(binary.BigEndian.Uint32(b)) }

// StoreTime reads the store time of an encoded record of at least MinRecordSize
// bytes.
func StoreTime(rec []byte) int64 {
	return int64(binary.BigEndian.Uint64(rec[storeTimeAt(rec):]))
}

// PutBlank writes the head of a blank that fills the remaining bytes of a
// segment; dst holds at least BlankSize bytes.
func PutBlank(dst []byte, remaining int32) {
	binary.BigEndian.PutUint32(dst, uint32(remaining))
	binary.BigEndian.PutUint32(dst[4:], MagicBlank)
}
