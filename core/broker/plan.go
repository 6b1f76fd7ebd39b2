package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/rpc"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// planWait bounds each of the two questions of PlanAssignment.
const planWait = 5 * time.Second

// PlanAssignment asks a running broker what an allocator would do to a group, and
// changes nothing. server is the address of a broker, or of a name server, which
// then tells a broker of the topic. The broker asks the one that computes for the
// group.
func PlanAssignment(ctx context.Context, d transport.Dialer, server string, isNameServer bool, group, topic string, plan command.PlanRequest) (*command.AssignmentPlan, error) {
	if isNameServer {
		q := command.RouteRequest{Topic: topic, AcceptStandardJSONOnly: true}
		body, err := ask(ctx, d, server, command.ReqGetRouteInfoByTopic, q.Append, nil)
		if err != nil {
			return nil, err
		}
		var route command.TopicRouteData
		if err := command.DecodeBody(body, &route); err != nil {
			return nil, fmt.Errorf("the answer of %s: %w", server, err)
		}
		var servers []string
		for _, b := range route.BrokerDatas {
			ids := make([]int64, 0, len(b.BrokerAddrs))
			for id := range b.BrokerAddrs {
				ids = append(ids, id)
			}
			if len(ids) > 0 {
				servers = append(servers, b.BrokerAddrs[slices.Min(ids)])
			}
		}
		if len(servers) == 0 {
			return nil, fmt.Errorf("name server %s knows no broker of topic %s", server, topic)
		}
		// Each answers for all. One that is gone is known to name servers for a while.
		var errs []error
		for _, s := range servers {
			p, err := planAt(ctx, d, s, group, topic, plan)
			if err == nil || ctx.Err() != nil || !errors.Is(err, errUnheard) {
				return p, err
			}
			errs = append(errs, err)
		}
		return nil, errors.Join(errs...)
	}
	return planAt(ctx, d, server, group, topic, plan)
}

// planAt asks one broker.
func planAt(ctx context.Context, d transport.Dialer, server, group, topic string, plan command.PlanRequest) (*command.AssignmentPlan, error) {
	body, err := command.EncodeBody(command.QueryAssignmentBody{
		ConsumerGroup: group, Topic: topic, MessageModel: command.Clustering, StrategyName: "AVG", Plan: &plan,
	})
	if err != nil {
		return nil, err
	}
	if body, err = ask(ctx, d, server, command.ReqQueryAssignment, nil, body); err != nil {
		return nil, err
	}
	var out command.QueryAssignmentResponse
	if err := command.DecodeBody(body, &out); err != nil {
		return nil, fmt.Errorf("the answer of %s: %w", server, err)
	}
	if out.Plan == nil {
		return nil, fmt.Errorf("broker %s makes no plans; it is none of Hardpoint's", server)
	}
	return out.Plan, nil
}

// errUnheard: a server did not answer at all.
var errUnheard = errors.New("it does not answer")

// ask sends one request over a connection of its own. An error without an answer
// matches errUnheard.
func ask(ctx context.Context, d transport.Dialer, server string, code int32, fill func(*command.Writer), body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, planWait)
	defer cancel()
	c, err := rpc.Dial(ctx, d, server, rpc.Options{})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w: %w", server, errUnheard, err)
	}
	defer func() {
		_ = c.Close() // an error says that it is closed already
		<-c.Done()
	}()
	r, err := c.Call(ctx, rpc.Request(code, fill, body))
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w: %w", server, errUnheard, err)
	}
	if err = r.Err(); err != nil {
		return nil, fmt.Errorf("asking %s: %w", server, err)
	}
	return r.Body, nil
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

// ErrForeignBroker: a broker took a setting and does not keep it; it is none of
// Hardpoint's. Test with errors.Is.
var ErrForeignBroker = errors.New("it keeps no allocator for a group; it is none of Hardpoint's, and shares by its own strategies")

// SetAssignment makes a setting for the group and the topic of a plan at each of its
// brokers, the one that computes for the group last. The other fields of the
// group's request mode stay, but that the mode is PULL then. It returns an error for
// each of p.Brokers, nil where the setting holds. It waits for 5 s at most for each
// request.
func SetAssignment(ctx context.Context, d transport.Dialer, p *command.AssignmentPlan, s AssignmentSetting) []error {
	errs := make([]error, len(p.Brokers))
	last := -1
	for i, b := range p.Brokers {
		if b.BrokerName == p.Broker {
			last = i
			continue
		}
		errs[i] = setAt(ctx, d, b.Address, p, s)
	}
	if last >= 0 {
		errs[last] = setAt(ctx, d, p.Brokers[last].Address, p, s)
	}
	return errs
}

func setAt(ctx context.Context, d transport.Dialer, address string, p *command.AssignmentPlan, s AssignmentSetting) error {
	now, err := modeAt(ctx, d, address, p)
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
	if _, err := ask(ctx, d, address, command.ReqSetMessageRequestMode, nil, body); err != nil {
		return err
	}
	if now, err = modeAt(ctx, d, address, p); err == nil && now != want {
		err = fmt.Errorf("broker at %s: %w", address, ErrForeignBroker)
	}
	return err
}

// modeAt is the request mode that a broker has of the group in the topic; the zero
// value: none.
func modeAt(ctx context.Context, d transport.Dialer, address string, p *command.AssignmentPlan) (m command.SetMessageRequestModeBody, err error) {
	body, err := ask(ctx, d, address, command.ReqGetAllMessageRequestMode, nil, nil)
	if err != nil {
		return m, err
	}
	var all command.MessageRequestModes
	if err := command.DecodeBody(body, &all); err != nil {
		return m, fmt.Errorf("the answer of %s: %w", address, err)
	}
	return all.Modes[p.Topic][p.Group], nil
}
