// Package wire holds what both ends of every plugin process agree on: the
// handshake of go-plugin, the version of the protocol, and the names under which
// the kinds of plugins are served. The adapters of each kind are in the packages
// below: storagewire.
package wire

import (
	"context"
	"errors"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire"
	"github.com/hardpointmq/hardpoint/sdk/wire/storagewire/storagepb"
)

// Version is the protocol's; it changes when an old process could no longer be
// understood. Both ends must have the same.
const Version = 1

// Storage is the name under which storage plugins are served.
const Storage = "storage"

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

// Plugins is what one process serves; the host leaves the server nil.
func Plugins(storage *storagewire.Server) map[int]goplugin.PluginSet {
	return map[int]goplugin.PluginSet{Version: {Storage: &storagePlugin{server: storage}}}
}

type storagePlugin struct {
	goplugin.NetRPCUnsupportedPlugin
	server *storagewire.Server
}

// GRPCServer implements goplugin.GRPCPlugin.
func (p *storagePlugin) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	if p.server == nil {
		return errors.New("there is no server of storage plugins")
	}
	storagepb.RegisterStorageServer(s, p.server)
	return nil
}

// GRPCClient implements goplugin.GRPCPlugin.
func (p *storagePlugin) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, c *grpc.ClientConn) (any, error) {
	return storagepb.NewStorageClient(c), nil
}
