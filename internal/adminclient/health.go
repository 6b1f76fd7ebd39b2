package adminclient

import (
	"context"
	"slices"

	"github.com/hardpointmq/hardpoint/core/command"
)

// All are all brokers that a name server knows, by cluster, name and id.
func All(info *command.ClusterInfo) []Broker {
	var out []Broker
	for _, d := range info.BrokerAddrTable {
		out = append(out, membersOf(&d, true)...)
	}
	slices.SortFunc(out, compare)
	return out
}

// RuntimeInfo asks a broker for its runtime info and, if it is one of Hardpoint's, for
// what it knows besides.
func (c *Client) RuntimeInfo(ctx context.Context, b Broker) (table command.StringMap, more command.RuntimeInfoResponse, err error) {
	r, err := c.Ask(ctx, b.Address, command.ReqGetBrokerRuntimeInfo, &command.RuntimeInfoRequest{Limits: true}, nil)
	if err != nil {
		return nil, more, err
	}
	var kv command.KVTable
	if err := decode(r, b.Address, command.ReqGetBrokerRuntimeInfo, &kv); err != nil {
		return nil, more, err
	}
	return kv.Table, more, more.Decode(&r.Header)
}
