package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

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

// assigned is what `group assign` prints as JSON when it sets something.
type assigned struct {
	Plan    *command.AssignmentPlan `json:"plan"`
	Brokers []assignedBroker        `json:"brokers"`
}

type assignedBroker struct {
	command.PlanBroker
	Set   bool   `json:"set"`
	Error string `json:"error,omitempty"`
}

// groupAssign is one run of `group assign`.
type groupAssign struct {
	p                           *program
	out                         output
	server, nameServer, members string
	plan                        command.PlanRequest
	dry, yes                    bool
}

func (p *program) groupAssign() *cobra.Command {
	g := &groupAssign{p: p}
	c := &cobra.Command{
		Use: "assign GROUP TOPIC", Short: "Choose who shares the queues of a topic, or show what would move",
		Long: `Chooses the allocator of a group in a topic. It shows who would own which queue, what moves against the present assignment,
and why; with --yes it then sets the allocator on all brokers of the topic. They keep it in their logs, and tell the
group's members, who take over at once. With --dry-run nothing changes.

The running broker that computes for the group answers, with its own plugins and configuration. It is about clients that
let the broker share their queues (docs/allocators.md says which). What is set here is what SET_MESSAGE_REQUEST_MODE sets,
and counts before the group's attributes "allocator" and "allocator.weights". The group must be there: a member has been,
or it was created.

--members FILE takes, instead of the members that are there, those of a JSON file:

    [{"clientId": "10.0.0.1@1", "zone": "east", "weight": 2}, {"clientId": "10.0.0.2@1"}]

The exit code is 0 when it is set on all brokers, 1 when it is not: the output says for each broker, and the command can be
repeated.`,
		Example: `  hardpoint group assign orders-app Orders --allocator sticky --dry-run
  hardpoint group assign orders-app Orders --allocator zone --weights 'big-*=4' --namesrv 127.0.0.1:9876 --yes
  hardpoint group assign orders-app Orders --unset --yes`,
		Args: exactly("GROUP", "TOPIC"),
		PreRunE: func(*cobra.Command, []string) error {
			if !g.dry && g.plan.Allocator == "" && g.plan.Weights == "" && !g.plan.Unset {
				return errors.New("there is nothing to set: name an --allocator or --weights, or say --unset; --dry-run shows what the present setting does")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return g.run(c.Context(), args[0], args[1]) },
	}
	f := c.Flags()
	f.BoolVar(&g.dry, "dry-run", false, "change nothing")
	f.BoolVar(&g.yes, "yes", false, "set it; without it only what would move is shown, and the command fails")
	f.StringVar(&g.plan.Allocator, "allocator", "", "allocator `name`; without it the one that the group has")
	f.StringVar(&g.plan.Weights, "weights", "", "weights by client id, `rules` such as big-*=4;10.0.0.1@*=2; without it those that the group has")
	f.BoolVar(&g.plan.Unset, "unset", false, "take back what was set for the group in the topic")
	f.StringVar(&g.members, "members", liveMembers, "live, or a `file` with members")
	f.StringVar(&g.server, "broker", "127.0.0.1:10911", "`address` of a broker of the topic")
	f.StringVar(&g.nameServer, "namesrv", "", "`address` of a name server, which tells a broker of the topic")
	c.MarkFlagsMutuallyExclusive("broker", "namesrv")
	c.MarkFlagsMutuallyExclusive("dry-run", "yes")
	c.MarkFlagsMutuallyExclusive("unset", "allocator")
	c.MarkFlagsMutuallyExclusive("unset", "weights")
	_ = c.RegisterFlagCompletionFunc("allocator", completeNames("allocate"))
	g.out.register(c)
	return c
}

func (g *groupAssign) run(ctx context.Context, group, topic string) (err error) {
	if g.members != liveMembers {
		if g.plan.Members, err = readMembers(g.members); err != nil {
			return err
		}
	}
	// A transport that lives as long as the questions.
	t, err := remoting.New(ctx, transport.Params{}, remoting.NewDefaultConfig())
	if err != nil {
		return err
	}
	if err := t.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Shutdown(context.WithoutCancel(ctx))) }()
	d := t.Capabilities().Dialer
	plan, err := broker.PlanAssignment(ctx, d, cmp.Or(g.nameServer, g.server), g.nameServer != "", group, topic, g.plan)
	if err != nil {
		return err
	}
	if g.dry {
		return g.shown(plan)
	}
	if len(plan.Brokers) == 0 {
		return fmt.Errorf("broker %s does not tell which brokers have topic %s; it is of an earlier version: set the mode with SET_MESSAGE_REQUEST_MODE", plan.Broker, topic)
	}
	done := assigned{Plan: plan, Brokers: make([]assignedBroker, len(plan.Brokers))}
	names := make([]string, len(plan.Brokers))
	for i, b := range plan.Brokers {
		done.Brokers[i].PlanBroker, names[i] = b, b.BrokerName
	}
	if !g.out.json() {
		if err := printPlan(g.p.stdout, plan); err != nil {
			return err
		}
	}
	if plan.Unowned > 0 && len(plan.Members) > 0 {
		fmt.Fprintf(g.p.stderr, "hardpoint: with it nobody reads %d of the %s of topic %s\n", plan.Unowned, counted(len(plan.Queues), "queue"), topic)
	}
	failed := 0
	if g.yes {
		for i, err := range broker.SetAssignment(ctx, d, plan, broker.AssignmentSetting{Allocator: g.plan.Allocator, Weights: g.plan.Weights, Unset: g.plan.Unset}) {
			if b := &done.Brokers[i]; err != nil {
				b.Error = err.Error()
				failed++
			} else {
				b.Set = true
			}
		}
	}
	if err := g.told(&done); err != nil {
		return err
	}
	switch {
	case !g.yes:
		return fmt.Errorf("nothing was changed; say --yes to set %s for group %s in topic %s on %s", g.wanted(), group, topic, strings.Join(names, ", "))
	case failed > 0:
		return fmt.Errorf("%s is not set on %d of %s; say it again when that is put right, since the broker that computes for a group goes by its own setting", g.wanted(), failed, counted(len(names), "broker"))
	}
	return nil
}

// wanted is the setting in words.
func (g *groupAssign) wanted() string {
	var parts []string
	if g.plan.Unset {
		parts = append(parts, "no allocator of its own")
	}
	if g.plan.Allocator != "" {
		parts = append(parts, "allocator "+g.plan.Allocator)
	}
	if g.plan.Weights != "" {
		parts = append(parts, "weights "+g.plan.Weights)
	}
	return strings.Join(parts, ", ")
}

// shown is the output of a dry run.
func (g *groupAssign) shown(plan *command.AssignmentPlan) error {
	if len(plan.Members) == 0 {
		return fmt.Errorf("group %s has no member that broker %s knows, so there is nothing to share; --members FILE tries some", plan.Group, plan.Broker)
	}
	if g.out.json() {
		return g.p.printJSON(plan)
	}
	return printPlan(g.p.stdout, plan)
}

// told says what became of it, broker by broker.
func (g *groupAssign) told(done *assigned) error {
	if g.out.json() {
		return g.p.printJSON(done)
	}
	if !g.yes {
		return nil
	}
	t := tabwriter.NewWriter(g.p.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\nset: %s\n", g.wanted())
	for _, b := range done.Brokers {
		says := "set"
		if !b.Set {
			says = "not set: " + b.Error
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", b.BrokerName, b.Address, says)
	}
	return t.Flush()
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

func printPlan(w io.Writer, a *command.AssignmentPlan) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "group %s, topic %s: what allocator %s %s would do, by broker %s\n", a.Group, a.Topic, a.Allocator, a.Version, a.Broker)
	if a.Generation > 0 {
		fmt.Fprintf(t, "present: %s, generation %d\n\n", a.Present, a.Generation)
	} else {
		fmt.Fprintf(t, "present: this broker has assigned nothing; clients that share by themselves do not tell it\n\n")
	}
	if len(a.Members) == 0 {
		fmt.Fprintf(t, "the group has no members now: nothing moves\n")
		return t.Flush()
	}
	fmt.Fprintln(t, "MEMBER\tZONE\tWEIGHT\tNOW\tTHEN")
	for _, m := range a.Members {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\n", orDash(m.ClientID), orDash(m.Zone), m.Weight, m.Before, m.After)
	}
	fmt.Fprintln(t, "\nQUEUE\tZONE\tNOW\tTHEN\tWHY")
	for _, q := range a.Queues {
		fmt.Fprintf(t, "%s/%d\t%s\t%s\t%s\t%s\n", q.BrokerName, q.QueueID, orDash(q.Zone), orDash(q.From), orDash(q.To), q.Why)
	}
	fmt.Fprintf(t, "\nmoved: %d of %d queues; without an owner: %d\n", a.Moved, len(a.Queues), a.Unowned)
	return t.Flush()
}

// orDash is a name of others in a table. What a terminal would not show as it is, is
// quoted.
func orDash(s string) string {
	switch {
	case s == "":
		return "-"
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return strconv.Quote(s)
	}
	return s
}
