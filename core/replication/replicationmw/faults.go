package replicationmw

import (
	"context"

	"github.com/hardpointmq/hardpoint/core/replication"
)

// Op names a call of a replicator or of its facet.
type Op string

// Calls that a Hook meets.
const (
	OpStart      Op = "Start"
	OpAppend     Op = "Append"
	OpBarrier    Op = "Barrier"
	OpAddLearner Op = "AddLearner"
	OpPromote    Op = "Promote"
	OpRemove     Op = "Remove"
	OpTransfer   Op = "Transfer"
	OpResign     Op = "Resign"
)

// Hook decides about calls before the replicator sees them: it may block to make
// one slow, and return an error to make it fail. Nothing is ordered by an Append
// that it fails. It is called by many goroutines.
type Hook func(ctx context.Context, op Op) error

// Faults makes a Middleware that asks hook about every call but Role, Status,
// Capabilities and Shutdown.
func Faults(hook Hook) Middleware {
	return func(_ replication.Params, next replication.Replicator) replication.Replicator {
		f := &faults{Base: Base{next}, hook: hook}
		if m := next.Capabilities().Members; m != nil {
			f.caps.Members = &memberFaults{next: m, hook: hook}
		}
		return f
	}
}

type faults struct {
	Base
	hook Hook
	caps replication.Capabilities
}

func (f *faults) Capabilities() replication.Capabilities { return f.caps }

func (f *faults) Start(ctx context.Context) error {
	if err := f.hook(ctx, OpStart); err != nil {
		return err
	}
	return f.Replicator.Start(ctx)
}

func (f *faults) Append(ctx context.Context, p *replication.Pending, s replication.Sink) error {
	if err := f.hook(ctx, OpAppend); err != nil {
		return err
	}
	return f.Replicator.Append(ctx, p, s)
}

func (f *faults) Barrier(ctx context.Context) error {
	if err := f.hook(ctx, OpBarrier); err != nil {
		return err
	}
	return f.Replicator.Barrier(ctx)
}

type memberFaults struct {
	next replication.Members
	hook Hook
}

func (m *memberFaults) AddLearner(ctx context.Context, id, addr string) error {
	if err := m.hook(ctx, OpAddLearner); err != nil {
		return err
	}
	return m.next.AddLearner(ctx, id, addr)
}

func (m *memberFaults) Promote(ctx context.Context, id string) error {
	if err := m.hook(ctx, OpPromote); err != nil {
		return err
	}
	return m.next.Promote(ctx, id)
}

func (m *memberFaults) Remove(ctx context.Context, id string) error {
	if err := m.hook(ctx, OpRemove); err != nil {
		return err
	}
	return m.next.Remove(ctx, id)
}

func (m *memberFaults) Transfer(ctx context.Context, id string) error {
	if err := m.hook(ctx, OpTransfer); err != nil {
		return err
	}
	return m.next.Transfer(ctx, id)
}

func (m *memberFaults) Resign(ctx context.Context) error {
	if err := m.hook(ctx, OpResign); err != nil {
		return err
	}
	return m.next.Resign(ctx)
}
