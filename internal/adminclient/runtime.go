package adminclient

import (
	"context"

	"github.com/hardpointmq/hardpoint/core/command"
)

// Runtime is what a broker says of itself as it runs.
type Runtime struct {
	// Table is by RocketMQ's names.
	Table command.StringMap
	// RuntimeInfoResponse is what Hardpoint's brokers know besides.
	command.RuntimeInfoResponse
}

// Ours reports whether the broker is one of Hardpoint's.
func (r *Runtime) Ours() bool { return r.Software == command.SoftwareHardpoint }

// Runtime asks a broker what it says of itself; limits: also how near it is to the
// limits of its system, which costs it a look at all its files.
func (c *Client) Runtime(ctx context.Context, b Broker, limits bool) (*Runtime, error) {
	r, err := c.Ask(ctx, b.Address, command.ReqGetBrokerRuntimeInfo, &command.RuntimeInfoRequest{Limits: limits}, nil)
	if err != nil {
		return nil, err
	}
	var kv command.KVTable
	if err := decode(r, b.Address, command.ReqGetBrokerRuntimeInfo, &kv); err != nil {
		return nil, err
	}
	out := &Runtime{Table: kv.Table}
	return out, out.Decode(&r.Header)
}
