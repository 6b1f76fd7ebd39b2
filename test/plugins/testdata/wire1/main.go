// Command wire1 is an allocator written against version 1 of the wire alone: the
// protos as they were then, the handshake, and nothing of Hardpoint. It is never
// changed. Every later host that still says version 1 must host it.
package main

import (
	"context"
	"encoding/json"
	"fmt"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"example.com/wire1/allocatepb"
	"example.com/wire1/pluginpb"
)

const (
	kind     = "allocate"
	name     = "wire1"
	contract = "allocate/1"

	// Codes of failures, as in the page of the wire.
	errConfig  = 33
	errRequest = 96
)

func main() {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig:  goplugin.HandshakeConfig{ProtocolVersion: 1, MagicCookieKey: "HARDPOINT_PLUGIN", MagicCookieValue: "3f1b7c52-hardpoint"},
		VersionedPlugins: map[int]goplugin.PluginSet{1: {"hardpoint": &services{}}},
		GRPCServer:       goplugin.DefaultGRPCServer,
	})
}

type services struct {
	goplugin.NetRPCUnsupportedPlugin
}

func (*services) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	pluginpb.RegisterPluginServer(s, &about{})
	allocatepb.RegisterAllocateServer(s, &allocator{})
	return nil
}

func (*services) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, nil
}

// check refuses every field: there is none.
func check(config []byte) *pluginpb.Failure {
	var fields map[string]any
	if err := json.Unmarshal(config, &fields); len(config) > 0 && err != nil {
		return &pluginpb.Failure{Text: err.Error(), Codes: []uint32{errConfig}}
	}
	for f := range fields {
		return &pluginpb.Failure{Text: fmt.Sprintf("invalid plugin configuration of %q: unknown field %q", name, f), Codes: []uint32{errConfig}}
	}
	return nil
}

type about struct {
	pluginpb.UnimplementedPluginServer
}

func (*about) List(context.Context, *pluginpb.ListRequest) (*pluginpb.ListResponse, error) {
	return &pluginpb.ListResponse{Plugins: []*pluginpb.Served{{Kind: kind, Name: name}}}, nil
}

func (*about) Describe(_ context.Context, r *pluginpb.DescribeRequest) (*pluginpb.DescribeResponse, error) {
	if f := check(r.GetConfig()); f != nil {
		return &pluginpb.DescribeResponse{Failure: f}, nil
	}
	return &pluginpb.DescribeResponse{Description: &pluginpb.Description{Name: name, Version: "1.0.0", Contract: contract, Schema: []byte(`{"type":"object"}`)}}, nil
}

type allocator struct {
	allocatepb.UnimplementedAllocateServer
}

func (*allocator) Open(_ context.Context, r *allocatepb.OpenRequest) (*allocatepb.OpenResponse, error) {
	return &allocatepb.OpenResponse{Failure: check(r.GetConfig()), Instance: 1}, nil
}

func (*allocator) Close(context.Context, *allocatepb.CloseRequest) (*allocatepb.CloseResponse, error) {
	return &allocatepb.CloseResponse{}, nil
}

// Allocate deals the queues out in turn.
func (*allocator) Allocate(_ context.Context, r *allocatepb.AllocateRequest) (*allocatepb.AllocateResponse, error) {
	if f := refuse(r); f != "" {
		return &allocatepb.AllocateResponse{Failure: &pluginpb.Failure{Text: f, Codes: []uint32{errRequest}}}, nil
	}
	out := &allocatepb.AllocateResponse{Owner: make([]int32, len(r.GetId()))}
	for i := range out.Owner {
		out.Owner[i] = int32(i % len(r.GetMembers()))
	}
	return out, nil
}

func refuse(r *allocatepb.AllocateRequest) string {
	seen := map[string]bool{}
	for _, m := range r.GetMembers() {
		if seen[m.GetClientId()] {
			return fmt.Sprintf("client id %q is twice", m.GetClientId())
		}
		seen[m.GetClientId()] = true
		for _, q := range m.GetOwned() {
			if int(q) >= len(r.GetId()) {
				return fmt.Sprintf("member %q owns queue %d of %d", m.GetClientId(), q, len(r.GetId()))
			}
		}
	}
	if len(seen) == 0 {
		return "no members"
	}
	return ""
}
