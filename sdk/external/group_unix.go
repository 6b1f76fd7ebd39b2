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
	err := syscall.Kill(-p.Pid, syscall.SIGKILL)
	if err == nil || errors.Is(err, syscall.ESRCH) {
		return nil
	}
	// macOS refuses a group of which all have ended and nobody was collected.
	if one := p.Kill(); one != nil && !errors.Is(one, os.ErrProcessDone) {
		return err
	}
	return nil
}
