package assign

import (
	"context"
	"fmt"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/internal/rpc"
)

// forward asks the owner. When it does not answer, what it said last holds.
func (a *Assign) forward(ctx context.Context, q *question, o host,
	nothing func(format string, args ...any) (command.QueryAssignmentResponse, string, error),
) (out command.QueryAssignmentResponse, note string, err error) {
	s := a.remembered(q.ConsumerGroup, q.Topic)
	known, _ := s.last()
	out, err = a.ask(ctx, q, o, known)
	if err == nil {
		if out.Group != nil && s != nil {
			s.learn(out.Group)
		}
		out.Group = nil
		return out, "", nil
	}
	a.routes.doubt(q.Topic)
	if q.Plan != nil {
		return out, "", err
	}
	if n := a.away.Due(a.k.Clock.Now()); n > 0 {
		a.k.Log.Warn("the broker that assigns the queues of a group does not answer; what it said last holds", "group", q.ConsumerGroup, "topic", q.Topic, "broker", o.name, "address", o.address, "error", err, "such_since_last_said", n)
	}
	if known == nil {
		return nothing("broker %s, which assigns the queues of group %s, does not answer, and this broker knows no assignment of it", o.name, q.ConsumerGroup)
	}
	out.Assignments = known.of(q.Topic, q.ClientID)
	return out, fmt.Sprintf("broker %s does not answer; this is its assignment of generation %d", o.name, known.Generation), nil
}

// ask sends the question to the owner.
func (a *Assign) ask(ctx context.Context, q *question, o host, known *table) (out command.QueryAssignmentResponse, err error) {
	body, err := command.EncodeBody(q.QueryAssignmentBody)
	if err != nil {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, forwardWait)
	defer cancel()
	resp, err := a.links.Call(ctx, o.address, rpc.Request(command.ReqQueryAssignment, func(w *command.Writer) {
		w.Ext(fieldForwarded, a.k.Config().BrokerName)
		if known != nil {
			w.Ext(fieldKnown, known.stamp)
		}
	}, body))
	if err == nil {
		err = resp.Err()
	}
	if err == nil {
		err = command.DecodeBody(resp.Body, &out)
	}
	switch {
	case err != nil:
		return command.QueryAssignmentResponse{}, &api.Error{ID: api.ServiceNotAvailable, Text: fmt.Sprintf("asking broker %s at %s", o.name, o.address), Err: err}
	case q.Plan != nil && out.Plan == nil:
		return out, &api.Error{ID: api.NotSupported, Text: fmt.Sprintf("broker %s at %s makes no plans; it is none of Hardpoint's", o.name, o.address)}
	}
	return out, nil
}
