package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/internal/adminclient"
)

// confirm are the flags of commands that destroy something: without --yes they only
// show what they would do, and fail.
type confirm struct{ dry, yes bool }

func (d *confirm) register(c *cobra.Command) {
	c.Flags().BoolVar(&d.dry, "dry-run", false, "show what would be done, and change nothing")
	c.Flags().BoolVar(&d.yes, "yes", false, "do it; without it only what would be done is shown, and the command fails")
	c.MarkFlagsMutuallyExclusive("dry-run", "yes")
}

// unsaid is the end of a command that was not told to do it; nil for a dry run.
func (d *confirm) unsaid(format string, args ...any) error {
	if d.dry {
		return nil
	}
	return fmt.Errorf("nothing was changed; say --yes to %s", fmt.Sprintf(format, args...))
}

// brokerChange is what became of a change at one broker.
type brokerChange struct {
	adminclient.Broker
	Result string `json:"result"` // created, changed, unchanged, deleted or failed
	Error  string `json:"error,omitempty"`
}

func changesOf(results []adminclient.Result[string]) []brokerChange {
	out := make([]brokerChange, len(results))
	for i, r := range results {
		out[i] = brokerChange{Broker: r.Broker, Result: r.Value}
		if r.Err != nil {
			out[i].Result, out[i].Error = "failed", r.Err.Error()
		}
	}
	return out
}

func printChanges(g *page, changes []brokerChange) {
	g.row("BROKER", "ADDRESS", "RESULT")
	for _, c := range changes {
		g.row(c.Name, c.Address, c.Result)
	}
}

// attributeFlags change the attributes of a topic or a group.
type attributeFlags struct {
	set    map[string]string
	remove []string
}

func (a *attributeFlags) register(c *cobra.Command, update bool) {
	c.Flags().StringToStringVar(&a.set, "attribute", nil, "set attributes, `key=value`; the broker says which it knows")
	noDefaults(c.Flags(), "attribute")
	if update {
		c.Flags().StringSliceVar(&a.remove, "remove-attribute", nil, "take attributes away, by `key`")
	}
}

// apply gives the attributes that were, changed.
func (a *attributeFlags) apply(old command.StringMap) command.StringMap {
	out := command.StringMap{}
	maps.Copy(out, old)
	maps.Copy(out, a.set)
	for _, k := range a.remove {
		delete(out, k)
	}
	return out
}

// changes are those of a request: +key with its value, -key without; of what is not
// there nothing is removed.
func (a *attributeFlags) changes(old command.StringMap) command.StringMap {
	out := command.StringMap{}
	for k, v := range a.set {
		if was, ok := old[k]; !ok || was != v {
			out["+"+k] = v
		}
	}
	for _, k := range a.remove {
		if _, ok := old[k]; ok {
			out["-"+k] = ""
		}
	}
	return out
}

// changesText is changes as UPDATE_AND_CREATE_TOPIC takes them: +key=value,-key.
func changesText(changes command.StringMap) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(changes)) {
		if k[0] == '+' {
			k += "=" + changes[k]
		}
		out = append(out, k)
	}
	return strings.Join(out, ",")
}

// places are the brokers on which something is made: those that are selected. All of
// several clusters have to be meant.
func places(ctx context.Context, c *adminclient.Client, s adminclient.Selection) ([]adminclient.Broker, error) {
	brokers, err := c.Brokers(ctx, s)
	if err != nil {
		return nil, err
	}
	var clusters []string
	for _, b := range brokers {
		if !slices.Contains(clusters, b.Cluster) {
			clusters = append(clusters, b.Cluster)
		}
	}
	if len(clusters) > 1 {
		return nil, fmt.Errorf("the name server knows clusters %s: say which one with --cluster, or a broker with --broker", strings.Join(clusters, ", "))
	}
	return brokers, nil
}
