package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/internal/adminclient"
)

// groupForbidding is what `group forbid` and `group allow` print as JSON.
type groupForbidding struct {
	Group    string         `json:"group"`
	Topic    string         `json:"topic"`
	Readable bool           `json:"readable"`
	Brokers  []brokerChange `json:"brokers"`
}

// groupReadable is `group forbid`, or `group allow`.
func (p *program) groupReadable(readable bool) *cobra.Command {
	var out output
	var at adminFlags
	var force bool
	c := &cobra.Command{
		Use: "forbid GROUP TOPIC", Short: "Keep a group from a topic",
		Long: "Keeps a group from reading a topic, on all brokers; group allow takes it back. Both have to be there, unless --force says\nthat they come later. Brokers of RocketMQ 4.x do not know it.",
		Args: exactly("GROUP", "TOPIC"), ValidArgsFunction: at.completeArgs(groupNames, topicNames),
		RunE: func(c *cobra.Command, args []string) error {
			return at.with(c.Context(), func(ctx context.Context, c *adminclient.Client) error {
				brokers, err := c.Brokers(ctx, at.Selection)
				if err != nil {
					return err
				}
				v := groupForbidding{args[0], args[1], readable, nil}
				before, err := v.before(ctx, c, brokers, force)
				if err != nil {
					return err
				}
				ask := command.GroupForbiddenRequest{Group: v.Group, Topic: v.Topic, Update: true, Readable: readable}
				results := adminclient.Each(ctx, brokers, func(ctx context.Context, b adminclient.Broker) (string, error) {
					switch was := before[b.Address]; {
					case was.err != nil:
						return "", was.err
					case was.forbidden != readable:
						return "unchanged", nil
					}
					_, err := c.Ask(ctx, b.Address, command.ReqUpdateAndGetGroupForbidden, &ask, nil)
					return "changed", err
				})
				v.Brokers = changesOf(results)
				return p.showPart(&out, v, func(g *page) { printChanges(g, v.Brokers) }, adminclient.Failed(results))
			})
		},
	}
	if readable {
		c.Use, c.Short = "allow GROUP TOPIC", "Let a group read a topic again"
		c.Long = "Takes back what group forbid said, on all brokers."
	} else {
		c.Flags().BoolVar(&force, "force", false, "also a group or a topic that is not there yet")
	}
	at.registerWith(c, &out)
	return c
}

// readability is what a broker says of a group and a topic before a change.
type readability struct {
	group, topic, forbidden bool
	err                     error
}

// before asks the brokers, and refuses names that none of them has: most likely one was
// meant as another. What is forbidden already may be of names that are gone.
func (v *groupForbidding) before(ctx context.Context, c *adminclient.Client, brokers []adminclient.Broker, force bool) (map[string]readability, error) {
	results := adminclient.Each(ctx, brokers, func(ctx context.Context, b adminclient.Broker) (r readability, err error) {
		cfg, forbidden, err := groupAndForbidden(ctx, c, b, v.Group)
		if err != nil {
			return r, err
		}
		topic, err := topicConfig(ctx, c, b, v.Topic)
		return readability{group: cfg != nil, topic: topic != nil, forbidden: forbidden[v.Topic]&command.PermRead != 0}, err
	})
	out := map[string]readability{}
	var all readability
	for _, r := range results {
		r.Value.err = r.Err
		out[r.Broker.Address] = r.Value
		all.group, all.topic, all.forbidden = all.group || r.Value.group, all.topic || r.Value.topic, all.forbidden || r.Value.forbidden
	}
	if force || all.forbidden || all.group && all.topic {
		return out, nil
	}
	if err := adminclient.Failed(results); err != nil { // one of them may have it
		return nil, err
	}
	err := topicEntity().missing(ctx, c, v.Topic, len(brokers))
	if !all.group {
		err = groupEntity().missing(ctx, c, v.Group, len(brokers))
	}
	if !v.Readable {
		err = fmt.Errorf("%w; --force forbids what comes later", err)
	}
	return nil, err
}
