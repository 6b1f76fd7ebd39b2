package external

import "syscall"

// dieWithHost makes the kernel kill the process when the host ends in any way.
func dieWithHost() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
