package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hardpointmq/hardpoint/core/broker"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
)

func (p *program) groupCommand() *cobra.Command {
	c := &cobra.Command{Use: "group", Short: "Consumer groups of a running broker"}
	c.AddCommand(p.groupAssign())
	return c
}

// liveMembers is the --members that asks for those who are there.
const liveMembers = "live"

func (p *program) groupAssign() *cobra.Command {
	var out output
	var server, nameServer, members string
	var plan command.PlanRequest
	var dry bool
	c := &cobra.Command{
		Use: "assign --dry-run GROUP TOPIC", Short: "Show who would get which queues of a topic",
		Long: `Asks a running broker what an allocator would do: who owns which queue, what moves against the present assignment,
and why. The broker's own plugins answer, with its configuration. Nothing changes.

It is about clients that let the broker share their queues (docs/allocators.md says which). To choose an allocator for
a group, set the group's attribute "allocator", or SET_MESSAGE_REQUEST_MODE.

--members FILE takes, instead of the members that are there, those of a JSON file:

    [{"clientId": "10.0.0.1@1", "zone": "east", "weight": 2}, {"clientId": "10.0.0.2@1"}]`,
		Args: exactly("GROUP", "TOPIC"),
		PreRunE: func(*cobra.Command, []string) error {
			if !dry {
				return errors.New("this only shows what would be: say --dry-run")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if members != liveMembers {
				var err error
				if plan.Members, err = readMembers(members); err != nil {
					return err
				}
			}
			at := server
			if nameServer != "" {
				at = nameServer
			}
			a, err := askPlan(c.Context(), at, nameServer != "", args[0], args[1], plan)
			if err != nil {
				return err
			}
			if out.json() {
				return p.printJSON(a)
			}
			return printPlan(p.stdout, a)
		},
	}
	f := c.Flags()
	f.BoolVar(&dry, "dry-run", false, "change nothing")
	f.StringVar(&plan.Allocator, "allocator", "", "allocator `name`; without it the one that the group has")
	f.StringVar(&members, "members", liveMembers, "live, or a `file` with members")
	f.StringVar(&server, "broker", "127.0.0.1:10911", "`address` of a broker of the topic")
	f.StringVar(&nameServer, "namesrv", "", "`address` of a name server, which tells a broker of the topic")
	c.MarkFlagsMutuallyExclusive("broker", "namesrv")
	out.register(c)
	return c
}

func readMembers(file string) ([]command.PlanMember, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--members: %w", err)
	}
	var m []command.PlanMember
	if err := command.DecodeBody(b, &m); err != nil {
		return nil, fmt.Errorf("--members %s: %w; it must be a list such as [{\"clientId\": \"10.0.0.1@1\", \"zone\": \"east\", \"weight\": 2}]", file, err)
	}
	if len(m) == 0 {
		return nil, fmt.Errorf("--members %s: the list is empty", file)
	}
	for i := range m {
		if m[i].ClientID == "" {
			return nil, fmt.Errorf("--members %s: member %d has no clientId", file, i+1)
		}
	}
	return m, nil
}

// askPlan asks over a transport that lives as long as the question.
func askPlan(ctx context.Context, server string, isNameServer bool, group, topic string, plan command.PlanRequest) (_ *command.AssignmentPlan, err error) {
	t, err := remoting.New(ctx, transport.Params{}, remoting.NewDefaultConfig())
	if err != nil {
		return nil, err
	}
	if err := t.Start(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Shutdown(context.WithoutCancel(ctx))) }()
	return broker.PlanAssignment(ctx, t.Capabilities().Dialer, server, isNameServer, group, topic, plan)
}

func printPlan(w io.Writer, a *command.AssignmentPlan) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "group %s, topic %s: what allocator %s %s would do, by broker %s\n", a.Group, a.Topic, a.Allocator, a.Version, a.Broker)
	if a.Generation > 0 {
		fmt.Fprintf(t, "present: %s, generation %d\n\n", a.Present, a.Generation)
	} else {
		fmt.Fprintf(t, "present: this broker has assigned nothing; clients that share by themselves do not tell it\n\n")
	}
	fmt.Fprintln(t, "MEMBER\tZONE\tWEIGHT\tNOW\tTHEN")
	for _, m := range a.Members {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\n", m.ClientID, orDash(m.Zone), m.Weight, m.Before, m.After)
	}
	fmt.Fprintln(t, "\nQUEUE\tZONE\tNOW\tTHEN\tWHY")
	for _, q := range a.Queues {
		fmt.Fprintf(t, "%s/%d\t%s\t%s\t%s\t%s\n", q.BrokerName, q.QueueID, orDash(q.Zone), orDash(q.From), orDash(q.To), strings.TrimSpace(q.Why))
	}
	fmt.Fprintf(t, "\nmoved: %d of %d queues; without an owner: %d\n", a.Moved, len(a.Queues), a.Unowned)
	return t.Flush()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
