//go:build !linux

package external

import "syscall"

// dieWithHost: elsewhere the end of its standard input ends the process.
func dieWithHost() *syscall.SysProcAttr { return nil }
