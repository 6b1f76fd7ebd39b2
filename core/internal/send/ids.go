package send

import (
	"encoding/binary"
	"os"
	"sync/atomic"

	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/message"
)

// idMaker makes unique keys for messages that come without one, in the shape of
// MessageClientIDSetter: address, process, a discriminator, time, counter.
type idMaker struct {
	k       *kernel.Kernel
	pid     uint16
	counter atomic.Uint32
}

func newIDMaker(k *kernel.Kernel) *idMaker { return &idMaker{k: k, pid: uint16(os.Getpid())} }

// next is 32 characters (56 with an IPv6 address).
func (m *idMaker) next() string {
	host := m.k.StoreHost.Bytes()
	b := append(make([]byte, 0, 32), host[:len(host)-4]...) // the address without the port
	n := m.counter.Add(1)
	b = binary.BigEndian.AppendUint16(b, m.pid)
	// The reference has the hash of a class loader here; the high half of the
	// counter keeps ids apart when more than 65,535 are made in a millisecond.
	b = binary.BigEndian.AppendUint32(b, n>>16)
	b = binary.BigEndian.AppendUint32(b, uint32(m.k.Clock.Now().UnixMilli()))
	b = binary.BigEndian.AppendUint16(b, uint16(n))
	return string(message.AppendHex(nil, b))
}
