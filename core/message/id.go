package message

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
)

// ErrID marks text that is no offset message id. Test with errors.Is.
var ErrID = errors.New("not an offset message id")

const hexDigits = "0123456789ABCDEF"

// AppendHex appends b as upper-case hex.
func AppendHex(dst, b []byte) []byte {
	n := len(dst)
	dst = append(dst, make([]byte, 2*len(b))...) // grows in place, makes nothing
	for i, c := range b {
		dst[n+2*i], dst[n+2*i+1] = hexDigits[c>>4], hexDigits[c&15]
	}
	return dst
}

// AppendOffsetID appends the offset message id of a record: upper-case hex of
// the store host (8 or 20 bytes) and the position, 32 or 56 characters
// (MessageDecoder.createMessageId). Clients parse it and connect to the host.
func AppendOffsetID(dst, storeHost []byte, at Position) []byte {
	var p [8]byte
	binary.BigEndian.PutUint64(p[:], uint64(at))
	return AppendHex(AppendHex(dst, storeHost), p[:])
}

// ParseOffsetID takes an offset message id apart. Errors match ErrID.
func ParseOffsetID(id string) (netip.AddrPort, Position, error) {
	if len(id) != 32 && len(id) != 56 {
		return netip.AddrPort{}, 0, fmt.Errorf("%w: %q has %d characters, not 32 (IPv4) or 56 (IPv6)", ErrID, id, len(id))
	}
	b, err := hex.DecodeString(id)
	if err != nil {
		return netip.AddrPort{}, 0, fmt.Errorf("%w: %q: %w", ErrID, id, err)
	}
	n := len(b) - 8
	at := Position(binary.BigEndian.Uint64(b[n:]))
	if port := binary.BigEndian.Uint32(b[n-4 : n]); port > 65535 || at < 0 {
		return netip.AddrPort{}, 0, fmt.Errorf("%w: %q has port %d, position %d", ErrID, id, port, at)
	}
	return HostAddr(b[:n]), at, nil
}
