package external

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownGroup gives the process a group of its own, and makes the kernel kill the process,
// though not its children, when the host ends in any way.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// collect waits for the end of the process and ends what is left of its group. That is
// done before the process is collected, since the number of the group is its own until
// then.
func (r *runner) collect() {
	for errors.Is(unix.Waitid(unix.P_PID, r.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
	r.group.Lock()
	defer r.group.Unlock()
	_ = endGroup(r.cmd.Process)
	r.err = r.cmd.Wait()
	r.collected = true
}
