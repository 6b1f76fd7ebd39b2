// Package nameserver is the public face of the name server: its configuration
// and, in module.go, the fx module that builds it. The name server itself is in
// core/internal/nameserver.
package nameserver

import "github.com/hardpointmq/hardpoint/core/internal/nameserver"

// Config is the configuration of a name server.
type Config = nameserver.Config

// NewDefaultConfig returns the defaults of RocketMQ's name server.
func NewDefaultConfig() Config { return nameserver.NewDefaultConfig() }
