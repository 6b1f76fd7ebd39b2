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
func FreePort(t testing.TB) int {
	t.Helper()
	portMu.Lock()
	defer portMu.Unlock()
	for range portCount {
		port := portFirst + portNext
		portNext = (portNext + 1) % portCount
		l, err := net.Listen("tcp", fmt.Sprintf("0.0.0.0:%d", port))
		if err != nil {
			continue
		}
		_ = l.Close()
		return port
	}
	t.Fatalf("no free port from %d to %d", portFirst, portFirst+portCount-1)
	return 0
}
