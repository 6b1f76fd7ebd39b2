package adminclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/hardpointmq/hardpoint/core/command"
)

// PlanAssignment asks a running broker what an allocator would do to a group, and
// changes nothing. at is a broker's address; empty: a name server tells the brokers of
// the topic. The broker asks the one that computes for the group. Only Hardpoint's
// brokers make plans.
func (c *Client) PlanAssignment(ctx context.Context, at, group, topic string, plan command.PlanRequest) (*command.AssignmentPlan, error) {
	if at != "" {
		return c.planAt(ctx, at, group, topic, plan)
	}
	route, err := c.Route(ctx, topic)
	if err != nil {
		return nil, err
	}
	brokers := BrokersOf(&route)
	if len(brokers) == 0 {
		return nil, fmt.Errorf("the name server knows no broker of topic %s", topic)
	}
	// Each of Hardpoint's answers for all. One that is gone is known to name servers
	// for a while, and others may be Apache's.
	var errs []error
	for _, b := range brokers {
		p, err := c.planAt(ctx, b.Address, group, topic, plan)
		if err == nil || ctx.Err() != nil || !errors.Is(err, ErrUnheard) && !errors.Is(err, ErrForeignBroker) {
			return p, err
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// planAt asks one broker.
func (c *Client) planAt(ctx context.Context, server, group, topic string, plan command.PlanRequest) (*command.AssignmentPlan, error) {
	body, err := command.EncodeBody(command.QueryAssignmentBody{
		ConsumerGroup: group, Topic: topic, MessageModel: command.Clustering, StrategyName: "AVG", Plan: &plan,
	})
	if err != nil {
		return nil, err
	}
	out, err := Get[command.QueryAssignmentResponse](ctx, c, server, command.ReqQueryAssignment, nil, body)
	if err = foreign(server, err); err != nil {
		return nil, err
	}
	if out.Plan == nil {
		return nil, fmt.Errorf("broker at %s: %w", server, ErrForeignBroker)
	}
	return out.Plan, nil
}

// AssignmentSetting is who shares the queues of a topic for a group, as
// SET_MESSAGE_REQUEST_MODE says it. Empty fields stay as they are.
type AssignmentSetting struct {
	Allocator, Weights string
	// Unset takes back what was said before: the group's attributes hold, or the
	// strategy of its members.
	Unset bool

	_ struct{}
}

// ErrForeignBroker: a broker makes no plans, or took a setting and does not keep it; it
// is none of Hardpoint's. Test with errors.Is.
var ErrForeignBroker = errors.New("it keeps no allocator for a group; it is none of Hardpoint's: clients share by themselves, or it does by its own strategies")

// foreign is ErrForeignBroker in place of an answer that says that the request is not
// known, as brokers before RocketMQ 5 give it.
func foreign(server string, err error) error {
	if code, ok := CodeOf(err); ok && code == command.RespRequestCodeNotSupported {
		return fmt.Errorf("broker at %s: %w (%w)", server, ErrForeignBroker, err)
	}
	return err
}

// SetAssignment makes a setting for the group and the topic of a plan at each of its
// brokers, the one that computes for the group last. The other fields of the
// group's request mode stay, but that the mode is PULL then. It returns an error for
// each of p.Brokers, nil where the setting holds.
func (c *Client) SetAssignment(ctx context.Context, p *command.AssignmentPlan, s AssignmentSetting) []error {
	errs := make([]error, len(p.Brokers))
	last := -1
	for i, b := range p.Brokers {
		if b.BrokerName == p.Broker {
			last = i
			continue
		}
		errs[i] = c.setAt(ctx, b.Address, p, s)
	}
	if last >= 0 {
		errs[last] = c.setAt(ctx, p.Brokers[last].Address, p, s)
	}
	return errs
}

func (c *Client) setAt(ctx context.Context, address string, p *command.AssignmentPlan, s AssignmentSetting) error {
	now, err := c.modeAt(ctx, address, p)
	if err != nil {
		return err
	}
	want := now
	want.ConsumerGroup, want.Topic, want.Mode = p.Group, p.Topic, command.ModePull
	if s.Unset {
		want.Allocator, want.Weights = "", ""
	}
	want.Allocator, want.Weights = cmp.Or(s.Allocator, want.Allocator), cmp.Or(s.Weights, want.Weights)
	if want == now {
		return nil
	}
	body, err := command.EncodeBody(want)
	if err != nil {
		return err
	}
	if _, err := c.Ask(ctx, address, command.ReqSetMessageRequestMode, nil, body); err != nil {
		return foreign(address, err)
	}
	if now, err = c.modeAt(ctx, address, p); err == nil && now != want {
		err = fmt.Errorf("broker at %s: %w", address, ErrForeignBroker)
	}
	return err
}

// modeAt is the request mode that a broker has of the group in the topic; the zero
// value: none.
func (c *Client) modeAt(ctx context.Context, address string, p *command.AssignmentPlan) (m command.SetMessageRequestModeBody, err error) {
	all, err := Get[command.MessageRequestModes](ctx, c, address, command.ReqGetAllMessageRequestMode, nil, nil)
	return all.Modes[p.Topic][p.Group], foreign(address, err)
}
