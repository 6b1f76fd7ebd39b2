//go:build unix && !linux

package external

import "syscall"

// ownGroup gives the process a group of its own. When the host ends, the end of its
// standard input ends the process.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
