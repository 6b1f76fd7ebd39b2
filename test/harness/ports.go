package harness

import (
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
)

// Ports are taken below the range from which systems choose the ports of
// outgoing connections, so that a node that is down for a moment finds its port
// free again. Where to begin depends on the process id, because several test
// processes run at a time.
const (
	portFirst = 21000
	portCount = 11000
)

var (
	portMu   sync.Mutex
	portNext = os.Getpid() * 61 % portCount
)

// FreePort returns a TCP port nobody listens on, and not the same one twice.
func FreePort(t testing.TB) int { return lastOfFree(t, 1) }

// FreePortWithVIP returns one whose VIP channel, two below it, is free, too, and belongs
// to no other caller.
func FreePortWithVIP(t testing.TB) int { return lastOfFree(t, 3) }

// lastOfFree returns the last of n ports in a row that are free.
func lastOfFree(t testing.TB, n int) int {
	t.Helper()
	portMu.Lock()
	defer portMu.Unlock()
	inARow := 0
	for range portCount {
		port := portFirst + portNext
		if portNext = (portNext + 1) % portCount; portNext == 1 {
			inARow = 0 // the one before was the last of the range
		}
		l, err := net.Listen("tcp", fmt.Sprintf("0.0.0.0:%d", port))
		if err != nil {
			inARow = 0
			continue
		}
		_ = l.Close()
		if inARow++; inARow == n {
			return port
		}
	}
	t.Fatalf("no %d free ports in a row from %d to %d", n, portFirst, portFirst+portCount-1)
	return 0
}
