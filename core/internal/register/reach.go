package register

import (
	"context"
	"crypto/tls"
	"fmt"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// CheckReachable connects to the address under which the broker is announced,
// after it listens there. The error says what follows and what to do; it is a
// warning only, for there are networks in which a machine does not reach itself
// under the address that others use. ctx bounds the attempt.
func CheckReachable(ctx context.Context, d transport.Dialer, address string, conf *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, defaultConnectTimeout)
	defer cancel()
	p, err := d.Dial(ctx, address, transport.Limits{}, conf, deaf{})
	if err != nil {
		return fmt.Errorf("this broker does not reach itself under %s, the address that name servers give to clients (%w): "+
			"if clients cannot connect, set advertise to an address of this machine that they reach, or open the port", address, err)
	}
	_ = p.Close() // an error says that it is closed already
	return nil
}

// deaf is a handler and session that looks at nothing.
type deaf struct{}

func (deaf) Opened(transport.Peer) transport.Session { return deaf{} }
func (deaf) Settle()                                 {}
func (deaf) Arrived([]command.Frame)                 {}
func (deaf) Closed(error)                            {}
