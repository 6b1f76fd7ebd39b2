package data

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/hardpointmq/hardpoint/sdk/wire"
	"github.com/hardpointmq/hardpoint/sdk/wire/pluginpb"
)

// PutFailure appends an error, which comes last in its body; nothing for nil.
func PutFailure(b []byte, err error) []byte {
	if err == nil {
		return b
	}
	out, _ := proto.MarshalOptions{}.MarshalAppend(b, wire.ToFailure(err)) // fails for text that is no UTF-8, which a Failure never has
	return out
}

// ReadFailure reads what PutFailure wrote: a nil error for no bytes. err is that of
// bytes which are none.
func ReadFailure(b []byte) (failure, err error) {
	if len(b) == 0 {
		return nil, nil
	}
	var f pluginpb.Failure
	if err := proto.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("%w: an error: %w", ErrFrame, err)
	}
	return wire.FromFailure(&f), nil
}
