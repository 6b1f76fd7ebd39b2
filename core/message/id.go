package message

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
)

// ErrID marks text that is no offset message id. Test with errors.Is.
var ErrID = errors.New("not an offset message id")

const hexDigits = "0123456789ABCDEF"

// AppendHex appends b as upper-case hex.
func AppendHex(dst, b []byte) []byte {
	for ; len(b) >= 4; b = b[4:] {
		dst = binary.LittleEndian.AppendUint64(dst, hexOf(binary.LittleEndian.Uint32(b)))
	}
	for _, c := range b {
		dst = append(dst, hexDigits[c>>4], hexDigits[c&15])
	}
	return dst
}

// hexOf is the hex of four bytes, the lowest first: each half byte is moved to a
// byte of its own, and those above nine are moved on from the digits to the letters.
func hexOf(u uint32) uint64 {
	const low, six, one = 0x000f000f000f000f, 0x0606060606060606, 0x0101010101010101
	x := uint64(u)
	x = (x | x<<16) & 0x0000ffff0000ffff
	x = (x | x<<8) & 0x00ff00ff00ff00ff
	x = x>>4&low | x&low<<8
	return x + '0'*one + (x+six)>>4&one*('A'-'9'-1)
}

// AppendOffsetID appends the offset message id of a record: upper-case hex of
// the store host (8 or 20 bytes) and the position, 32 or 56 characters
// (MessageDecoder.createMessageId). Clients parse it and connect to the host.
func AppendOffsetID(dst, storeHost []byte, at Position) []byte {
	dst = AppendHex(dst, storeHost)
	dst = binary.LittleEndian.AppendUint64(dst, hexOf(bits.ReverseBytes32(uint32(at>>32))))
	return binary.LittleEndian.AppendUint64(dst, hexOf(bits.ReverseBytes32(uint32(at))))
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
