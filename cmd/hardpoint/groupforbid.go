package main

import (
	"context"

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
	c := &cobra.Command{
		Use: "forbid GROUP TOPIC", Short: "Keep a group from a topic",
		Long: "Keeps a group from reading a topic, on all brokers; group allow takes it back. Neither has to be there yet. Brokers of\nRocketMQ 4.x do not know it.",
		Args: exactly("GROUP", "TOPIC"), ValidArgsFunction: at.completeArgs(groupNames, topicNames),
		RunE: func(c *cobra.Command, args []string) error {
			return at.with(c.Context(), func(ctx context.Context, c *adminclient.Client) error {
				brokers, err := c.Brokers(ctx, at.Selection)
				if err != nil {
					return err
				}
				ask := command.GroupForbiddenRequest{Group: args[0], Topic: args[1], Update: true, Readable: readable}
				results := adminclient.Each(ctx, brokers, func(ctx context.Context, b adminclient.Broker) (string, error) {
					_, before, err := groupAndForbidden(ctx, c, b, args[0])
					if err != nil {
						return "", err
					}
					if (before[args[1]]&command.PermRead == 0) == readable {
						return "unchanged", nil
					}
					_, err = c.Ask(ctx, b.Address, command.ReqUpdateAndGetGroupForbidden, &ask, nil)
					return "changed", err
				})
				v := groupForbidding{args[0], args[1], readable, changesOf(results)}
				if shown := p.show(&out, v, func(g *page) { printChanges(g, v.Brokers) }); shown != nil {
					return shown
				}
				return adminclient.Failed(results)
			})
		},
	}
	if readable {
		c.Use, c.Short = "allow GROUP TOPIC", "Let a group read a topic again"
		c.Long = "Takes back what group forbid said, on all brokers."
	}
	at.register(c)
	at.registerSelection(c)
	out.register(c)
	return c
}
