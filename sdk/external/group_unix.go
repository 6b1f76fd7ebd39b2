//go:build unix

package external

import (
	"errors"
	"os"
	"syscall"
)

// endGroup ends a process that leads a group, and all that it started and did not
// give a group of their own.
func endGroup(p *os.Process) error {
	if err := syscall.Kill(-p.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}
