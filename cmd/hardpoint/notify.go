package main

import (
	"os"

	"github.com/coreos/go-systemd/v22/daemon"
)

// managed reports whether a service manager started this process and waits to be
// told that it is ready (systemd: Type=notify).
func managed() bool { return os.Getenv("NOTIFY_SOCKET") != "" }

// tell tells the service manager a state; without one it does nothing. The process
// goes on when that fails: the manager's own time-out says the rest.
func (n *node) tell(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		n.log.Warn("the service manager was not told", "state", state, "error", err)
	}
}
