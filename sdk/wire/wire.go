// Package wire holds what both ends of every plugin process agree on: the
// handshake of go-plugin, the version of the protocol, how errors cross, and what
// a process serves whatever its kinds are. The adapters of each kind are in the
// packages below.
package wire

import (
	"context"
	"errors"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
)

// Version is the protocol's; it changes when an old process could no longer be
// understood. Both ends must have the same.
const Version = 1

// The kinds of plugins.
const (
	Storage     = "storage"
	Allocate    = "allocate"
	Replication = "replication"
	Transport   = "transport"
)

// ControlEnv is set for a plugin process whose standard input is a pipe that its
// host holds open: it ends when the host does.
const ControlEnv = "HARDPOINT_PLUGIN_CONTROL"

// MaxControl bounds a message of the control connection in bytes. Payload does
// not use it.
const MaxControl = 64 << 20

// Handshake is go-plugin's. The cookie is no secret: it only keeps a person from
// running a plugin by hand.
func Handshake() goplugin.HandshakeConfig {
	return goplugin.HandshakeConfig{
		ProtocolVersion: Version, MagicCookieKey: "HARDPOINT_PLUGIN", MagicCookieValue: "3f1b7c52-hardpoint",
	}
}

// Everything is the name under which go-plugin dispenses the connection to a
// process: the services of its kinds are all on it.
const Everything = "hardpoint"

// Plugins is what one process serves; the host leaves register nil and gets a
// *grpc.ClientConn when it dispenses [Everything].
func Plugins(register func(grpc.ServiceRegistrar)) map[int]goplugin.PluginSet {
	return map[int]goplugin.PluginSet{Version: {Everything: &everything{register: register}}}
}

type everything struct {
	goplugin.NetRPCUnsupportedPlugin
	register func(grpc.ServiceRegistrar)
}

// GRPCServer implements goplugin.GRPCPlugin.
func (p *everything) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	if p.register == nil {
		return errors.New("nothing is served")
	}
	p.register(s)
	return nil
}

// GRPCClient implements goplugin.GRPCPlugin.
func (p *everything) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, c *grpc.ClientConn) (any, error) {
	return c, nil
}
