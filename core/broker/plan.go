package broker

import (
	"context"
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
		name := server
		server = ""
		for _, b := range route.BrokerDatas {
			ids := make([]int64, 0, len(b.BrokerAddrs))
			for id := range b.BrokerAddrs {
				ids = append(ids, id)
			}
			if len(ids) > 0 && server == "" {
				server = b.BrokerAddrs[slices.Min(ids)]
			}
		}
		if server == "" {
			return nil, fmt.Errorf("name server %s knows no broker of topic %s", name, topic)
		}
	}
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

// ask sends one request over a connection of its own.
func ask(ctx context.Context, d transport.Dialer, server string, code int32, fill func(*command.Writer), body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, planWait)
	defer cancel()
	c, err := rpc.Dial(ctx, d, server, rpc.Options{})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", server, err)
	}
	defer func() {
		_ = c.Close() // an error says that it is closed already
		<-c.Done()
	}()
	r, err := c.Call(ctx, rpc.Request(code, fill, body))
	if err == nil {
		err = r.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", server, err)
	}
	return r.Body, nil
}
