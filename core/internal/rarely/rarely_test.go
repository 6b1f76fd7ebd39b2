package rarely_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/internal/rarely"
)

func TestLine(t *testing.T) {
	var l rarely.Line
	at := time.Unix(1_700_000_000, 0)
	require.EqualValues(t, 1, l.Due(at))
	for range 5 {
		require.Zero(t, l.Due(at.Add(time.Millisecond)))
	}
	require.EqualValues(t, 6, l.Due(at.Add(time.Second)))
	require.EqualValues(t, 1, l.Due(at.Add(2*time.Second)))
}
