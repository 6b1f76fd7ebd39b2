//go:build !unix

package external

import (
	"errors"
	"os"
	"syscall"
)

// ownGroup: there are no groups. When the host ends, the end of its standard input ends
// the process.
func ownGroup() *syscall.SysProcAttr { return nil }

// endGroup ends the process alone.
func endGroup(p *os.Process) error {
	if err := p.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
