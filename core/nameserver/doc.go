// Package nameserver is the public face of the name server: its [Config], the
// fx [Module] that wires it, and [New] for programs that do without fx. The
// name server itself is in core/internal/nameserver; which transport it serves
// through is the configuration's choice.
package nameserver
