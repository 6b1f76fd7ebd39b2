package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/internal/adminclient"
)

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
	p        *program
	out      output
	at       adminFlags
	members  string
	plan     command.PlanRequest
	dry, yes bool
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
	g.at.registerBroker(c, "ask this broker of the topic: its `name`, or its address, for which no name server is asked; without it a name server tells them")
	g.at.register(c)
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
	return g.at.with(ctx, func(ctx context.Context, c *adminclient.Client) error { return g.ask(ctx, c, group, topic) })
}

func (g *groupAssign) ask(ctx context.Context, c *adminclient.Client, group, topic string) error {
	at := ""
	if g.at.Broker != "" {
		brokers, err := c.Brokers(ctx, g.at.Selection)
		if err != nil {
			return err
		}
		at = brokers[0].Address
	}
	plan, err := c.PlanAssignment(ctx, at, group, topic, g.plan)
	if err != nil {
		return err
	}
	if g.dry {
		return g.p.show(&g.out, plan, func(t *page) { printPlan(t, plan) })
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
		if err := g.p.show(&g.out, plan, func(t *page) { printPlan(t, plan) }); err != nil {
			return err
		}
	}
	if plan.Unowned > 0 && len(plan.Members) > 0 {
		fmt.Fprintf(g.p.stderr, "hardpoint: with it nobody reads %d of the %s of topic %s\n", plan.Unowned, counted(len(plan.Queues), "queue"), topic)
	}
	failed := 0
	if g.yes {
		for i, err := range c.SetAssignment(ctx, plan, adminclient.AssignmentSetting{Allocator: g.plan.Allocator, Weights: g.plan.Weights, Unset: g.plan.Unset}) {
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

// told says what became of it, broker by broker.
func (g *groupAssign) told(done *assigned) error {
	if !g.yes && !g.out.json() {
		return nil
	}
	return g.p.show(&g.out, done, func(t *page) {
		t.line("\nset: %s", g.wanted())
		for _, b := range done.Brokers {
			says := "set"
			if !b.Set {
				says = "not set: " + b.Error
			}
			t.line("%s\t%s\t%s", b.BrokerName, b.Address, says)
		}
	})
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

func printPlan(t *page, a *command.AssignmentPlan) {
	t.line("group %s, topic %s: what allocator %s %s would do, by broker %s", a.Group, a.Topic, a.Allocator, a.Version, a.Broker)
	if a.Generation > 0 {
		t.line("present: %s, generation %d", a.Present, a.Generation)
	} else {
		t.line("present: this broker has assigned nothing; clients that share by themselves do not tell it")
	}
	t.part()
	if len(a.Members) == 0 {
		t.line("the group has no members now: nothing moves (--members FILE tries some)")
		return
	}
	t.row("MEMBER", "ZONE", "WEIGHT", "NOW", "THEN")
	for _, m := range a.Members {
		t.row(m.ClientID, m.Zone, m.Weight, m.Before, m.After)
	}
	t.part()
	t.row("QUEUE", "ZONE", "NOW", "THEN", "WHY")
	for _, q := range a.Queues {
		t.row(fmt.Sprintf("%s/%d", q.BrokerName, q.QueueID), q.Zone, q.From, q.To, q.Why)
	}
	t.part()
	t.line("moved: %d of %d queues; without an owner: %d", a.Moved, len(a.Queues), a.Unowned)
}
