package transportwire

import (
	"io"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/internal/wiretest"
)

// TestNoRoom: a connection that the new process may not have open, because of its
// limit of open files, is closed and said why; those after it come.
func TestNoRoom(t *testing.T) {
	i, conn := receiving(t, wiretest.NewClock(peerTime))
	old := handover{to: conn}
	var theirs, ours [3]*os.File
	var err error
	for n := range theirs {
		theirs[n], ours[n], err = os.Pipe()
		require.NoError(t, err)
		defer theirs[n].Close()
	}
	come := func(ticket uint64) {
		require.NoError(t, old.pass(ticket, ours[ticket]))
		f, err := i.hand.take(t.Context(), ticket)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	come(0)

	var was syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was))
	none := was
	none.Cur = 3 // there are more
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
	restored := false
	restore := func() {
		if !restored {
			restored = true
			require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was))
		}
	}
	defer restore()
	require.NoError(t, old.pass(1, ours[1]))
	_, err = i.hand.take(t.Context(), 1)
	require.ErrorIs(t, err, errNoRoom)
	restore()
	come(2)
	for _, end := range theirs {
		_, err = end.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF, "nobody has the other end any more")
	}
}
