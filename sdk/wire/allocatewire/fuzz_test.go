package allocatewire

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/sdk/wire/allocatewire/allocatepb"
)

// FuzzMessages: whatever the other side sends is an error or what it says.
func FuzzMessages(f *testing.F) {
	r := &allocate.Request{
		Group: "g", Generation: 7,
		Queues:  []allocate.Queue{{Topic: "t", Broker: "a", Zone: "z"}, {Topic: "t", Broker: "b", ID: 1}},
		Members: []allocate.Member{{ClientID: "1", Zone: "z", Weight: 3, Owned: []int{1}}, {ClientID: "2"}},
	}
	request, err := proto.Marshal(toRequest(r))
	require.NoError(f, err)
	answer, err := proto.Marshal(toAnswer(&allocate.Assignment{Owner: []int{1, -1}, Why: []string{"near", ""}}))
	require.NoError(f, err)
	f.Add(request, answer)
	f.Fuzz(func(t *testing.T, request, answer []byte) {
		var m allocatepb.AllocateRequest
		if proto.Unmarshal(request, &m) == nil {
			got, err := fromRequest(&m)
			if err != nil {
				require.ErrorIs(t, err, allocate.ErrRequest)
			} else if got.Check() == nil {
				again, err := fromRequest(toRequest(got))
				require.NoError(t, err)
				require.Equal(t, got, again)
			}
		}
		var a allocatepb.AllocateResponse
		if proto.Unmarshal(answer, &a) == nil {
			if got, err := fromAnswer(&a, r); err == nil {
				require.NoError(t, got.Check(r))
				again, err := fromAnswer(toAnswer(&got), r)
				require.NoError(t, err)
				require.Equal(t, got, again)
			}
		}
	})
}
