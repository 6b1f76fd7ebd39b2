package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/internal/adminclient"
	"github.com/hardpointmq/hardpoint/internal/suggest"
)

// brokerTools are the commands below `broker`, which without one of them runs a broker.
func (p *program) brokerTools() []*cobra.Command {
	tools := []*cobra.Command{p.brokerStatus(), p.brokerConfig(), p.brokerWrites(false), p.brokerWrites(true)}
	for _, c := range tools {
		c.GroupID = "running"
	}
	return tools
}

// brokerReport is what a running broker says of itself.
type brokerReport struct {
	brokerLine
	Replicas *command.HAStatus `json:"replicas"` // nil: it does not say
	// Table is all that it tells, in RocketMQ's names.
	Table command.StringMap `json:"runtime"`
}

type brokerReports struct {
	AsOf     instant               `json:"asOf"`
	Brokers  []brokerReport        `json:"brokers"`
	Failures []adminclient.Failure `json:"failures,omitempty"`
}

func (p *program) brokerStatus() *cobra.Command {
	var out output
	at := adminFlags{}
	at.Slaves = true
	c := &cobra.Command{
		Use: "status", Short: "What running brokers say of themselves",
		Long: "Shows what running brokers say of themselves: what they are, what goes through them, their log, disk and replicas. All\nthat a broker tells is in the JSON.\n\n" + adminHelp,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return at.with(c.Context(), func(ctx context.Context, c *adminclient.Client) error {
				brokers, err := c.Brokers(ctx, at.Selection)
				if err != nil {
					return err
				}
				results := adminclient.Each(ctx, brokers, func(ctx context.Context, b adminclient.Broker) (r brokerReport, err error) {
					if r.brokerLine, r.Table, err = askBroker(ctx, c, b); err != nil {
						return r, err
					}
					if ha, err := adminclient.Get[command.HAStatus](ctx, c, b.Address, command.ReqGetBrokerHAStatus, nil, nil); err == nil {
						r.Replicas = &ha // brokers of 4.9 do not know the request
					}
					return r, nil
				})
				err = adminclient.Failed(results)
				t := brokerReports{AsOf: now(), Brokers: []brokerReport{}, Failures: adminclient.FailuresOf(err)}
				for _, r := range results {
					if r.Err == nil {
						r.Value.Broker = r.Broker
						t.Brokers = append(t.Brokers, r.Value)
					}
				}
				return p.showPart(&out, t, t.print, err)
			})
		},
	}
	at.registerWith(c, &out)
	return c
}

func (t brokerReports) print(g *page) {
	for i, r := range t.Brokers {
		if i > 0 {
			g.part()
		}
		r.print(g, t.AsOf)
	}
}

func (r *brokerReport) print(g *page, asOf instant) {
	g.line("broker\t%s, id %d, at %s", r.Name, r.ID, r.Address)
	g.line("cluster\t%s", r.Cluster)
	g.line("software\t%s %s", r.Software, r.Version)
	g.line("state\t%s", r.State)
	if r.Started > 0 {
		g.line("started\t%s, %s ago", r.Started, durationText(time.Duration(asOf-r.Started)*time.Millisecond))
	}
	through := func(what, rates, total string) {
		of := func(day string) string {
			from, to := whole(r.Table["msg"+total+"TotalTodayMorning"]), whole(r.Table["msg"+total+"TotalTodayNow"])
			if day == "yesterday" {
				from, to = whole(r.Table["msg"+total+"TotalYesterdayMorning"]), from
			}
			if from == nil || to == nil {
				return "unknown " + day
			}
			return fmt.Sprintf("%d %s", *to-*from, day)
		}
		g.line("%s\t%s a second; %s, %s", what, rateText(lately(r.Table[rates])), of("today"), of("yesterday"))
	}
	through("messages in", "putTps", "Put")
	through("messages out", "getTransferredTps", "Get")
	g.line("log\t%s, from position %s to %s", knownText(r.LogBytes, sizeText), orDash(r.Table["commitLogMinOffset"]), orDash(r.Table["commitLogMaxOffset"]))
	g.line("oldest message\t%s", r.OldestTime)
	g.line("not yet on disk\t%s", orDash(r.Table["remainHowManyDataToFlush"]))
	g.line("disk\t%s used; %s", knownText(r.DiskUsed, percentText), diskSize(r.Table))
	g.line("sends that wait\t%s, the first for %s ms", orDash(r.Table["sendThreadPoolQueueSize"]), orDash(r.Table["sendThreadPoolQueueHeadWaitTimeMills"]))
	switch {
	case r.Replicas == nil:
		g.line("replicas\tunknown")
	case !r.Replicas.Master:
		g.line("replica of\t%s", orDash(r.Replicas.Client.MasterAddr))
	default:
		g.line("replicas\t%d, %d in sync", len(r.Replicas.Connections), r.Replicas.InSyncSlaveNums)
		for _, c := range r.Replicas.Connections {
			g.line("\t%s: %s behind", c.Addr, sizeText(c.Diff))
		}
	}
}

func (p *program) brokerConfig() *cobra.Command {
	c := &cobra.Command{
		Use: "config", Short: "Configuration of running brokers",
		Long: "Shows and changes the configuration of running brokers. `hardpoint config` is about files.\n\n" + adminHelp,
	}
	c.AddCommand(p.brokerConfigGet(), p.brokerConfigSet())
	return c
}

// brokerValues is the configuration of a broker.
type brokerValues struct {
	adminclient.Broker
	Config map[string]string `json:"config"`
}

type configTable struct {
	Brokers  []brokerValues        `json:"brokers"`
	Failures []adminclient.Failure `json:"failures,omitempty"`
}

func (p *program) brokerConfigGet() *cobra.Command {
	var out output
	at := adminFlags{}
	at.Slaves = true
	c := &cobra.Command{
		Use: "get [KEY...]", Short: "Show the configuration of running brokers",
		Long: "Shows the configuration with which brokers run: all keys, or those named. A value that is not the same on all brokers is shown\nfor each.",
		RunE: func(c *cobra.Command, keys []string) error {
			return at.with(c.Context(), func(ctx context.Context, c *adminclient.Client) error {
				brokers, err := c.Brokers(ctx, at.Selection)
				if err != nil {
					return err
				}
				results := adminclient.Each(ctx, brokers, c.Config)
				err = adminclient.Failed(results)
				t := configTable{Failures: adminclient.FailuresOf(err)}
				known := map[string]bool{}
				for _, r := range results {
					if r.Err == nil {
						t.Brokers = append(t.Brokers, brokerValues{r.Broker, r.Value})
						for k := range r.Value {
							known[k] = true
						}
					}
				}
				for _, key := range keys {
					if !known[key] && len(t.Brokers) > 0 {
						return fmt.Errorf("no broker shows a key %q%s", key, suggest.DidYouMean(key, maps.Keys(known)))
					}
				}
				for i := range t.Brokers {
					maps.DeleteFunc(t.Brokers[i].Config, func(k, _ string) bool { return len(keys) > 0 && !slices.Contains(keys, k) })
				}
				return p.showPart(&out, t, t.print, err)
			})
		},
		ValidArgsFunction: at.complete(func(ctx context.Context, c *adminclient.Client) ([]string, error) {
			brokers, err := c.Brokers(ctx, at.Selection)
			if err != nil {
				return nil, err
			}
			config, err := c.Config(ctx, brokers[0])
			return slices.Sorted(maps.Keys(config)), err
		}),
	}
	at.registerWith(c, &out)
	return c
}

func (t configTable) print(g *page) {
	g.row("KEY", "VALUE", "BROKERS")
	keys := map[string]bool{}
	for _, b := range t.Brokers {
		for k := range b.Config {
			keys[k] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		by := map[string][]string{} // brokers by value
		for _, b := range t.Brokers {
			if v, ok := b.Config[key]; ok {
				name := b.Name
				if b.ID != 0 {
					name = fmt.Sprintf("%s:%d", b.Name, b.ID)
				}
				by[v] = append(by[v], name)
			}
		}
		for _, v := range slices.Sorted(maps.Keys(by)) {
			who := "all"
			if len(by[v]) < len(t.Brokers) {
				who = strings.Join(by[v], ",")
			}
			g.row(key, v, who)
		}
	}
}

// changedBroker is what became of one broker.
type changedBroker struct {
	adminclient.Broker
	adminclient.ConfigUpdate
}

type changedTable struct {
	Brokers  []changedBroker       `json:"brokers"`
	Failures []adminclient.Failure `json:"failures,omitempty"`
}

func (p *program) brokerConfigSet() *cobra.Command {
	var out output
	at := adminFlags{}
	at.Slaves = true
	c := &cobra.Command{
		Use: "set KEY=VALUE...", Short: "Change the configuration of running brokers",
		Long: `Changes keys of running brokers and says what changed. A broker takes all of them or none; it refuses a key that it does not
know, a value that it may not have, and what needs a restart. Apache's brokers refuse nothing by themselves: a key that
they do not show is refused here, and what they really go on with is read back.

Hardpoint's brokers keep a change until they stop, Apache's write it into their file.`,
		Example: "  hardpoint broker config set autoCreateTopicEnable=false --cluster DefaultCluster\n  hardpoint broker config set brokerPermission=4 --broker broker-a",
		Args: func(_ *cobra.Command, args []string) error {
			_, err := readPairs(args)
			return err
		},
		PreRunE: func(*cobra.Command, []string) error {
			if at.Broker == "" && at.Cluster == "" {
				return errors.New("say whose configuration it is: --broker or --cluster")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			set, _ := readPairs(args)
			return at.with(c.Context(), func(ctx context.Context, c *adminclient.Client) error {
				brokers, err := c.Brokers(ctx, at.Selection)
				if err != nil {
					return err
				}
				results := adminclient.Each(ctx, brokers, func(ctx context.Context, b adminclient.Broker) (adminclient.ConfigUpdate, error) {
					return c.SetConfig(ctx, b, set)
				})
				err = adminclient.Failed(results)
				t := changedTable{Brokers: []changedBroker{}, Failures: adminclient.FailuresOf(err)}
				for _, r := range results {
					if r.Err == nil || len(r.Value.Changes) > 0 {
						t.Brokers = append(t.Brokers, changedBroker{r.Broker, r.Value})
					}
				}
				return p.showPart(&out, t, t.print, err)
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	at.registerWith(c, &out)
	return c
}

func (t changedTable) print(g *page) {
	kept := false
	for _, b := range t.Brokers {
		// Apache's brokers tell nothing, and write changes into their files.
		kept = kept || len(b.Changes) > 0 && b.Said != ""
		if len(b.Changes) == 0 {
			g.line("%s\tnothing changed", b.Broker)
		}
		for _, c := range b.Changes {
			g.line("%s\t%s: %s -> %s", b.Broker, c.Key, orDash(c.Old), orDash(c.New))
		}
	}
	if kept {
		g.line("")
		g.line("that holds until the broker stops: write it into its configuration, too")
	}
}

// readPairs reads KEY=VALUE arguments.
func readPairs(args []string) (map[string]string, error) {
	if len(args) == 0 {
		return nil, errors.New("needs at least one KEY=VALUE")
	}
	set := map[string]string{}
	for _, a := range args {
		key, value, ok := strings.Cut(a, "=")
		key = strings.TrimSpace(key)
		switch _, twice := set[key]; {
		case !ok || key == "":
			return nil, fmt.Errorf("%q is not KEY=VALUE", a)
		case twice:
			return nil, fmt.Errorf("%s is given twice", key)
		case strings.ContainsAny(a, "\r\n"):
			return nil, fmt.Errorf("the value of %s has several lines", key)
		}
		set[key] = value
	}
	return set, nil
}

// permTable is what became of the permission of a broker at each name server.
type permTable struct {
	Broker      string       `json:"broker"`
	NameServers []permServer `json:"nameServers"`
}

type permServer struct {
	Address string `json:"address"`
	Topics  int64  `json:"topics"` // whose permission is another one now
	Error   string `json:"error,omitempty"`
}

// brokerWrites takes a broker out of the sends of all topics, or back into them.
func (p *program) brokerWrites(add bool) *cobra.Command {
	var out output
	var at adminFlags
	use, short, code, field := "wipe-write-perm", "Have clients send to other brokers", command.ReqWipeWritePermOfBroker, "wipeTopicCount"
	long := `Takes write permission from all topics of a broker in the routes that name servers give out. Clients notice at their next
look at the routes (30 s) and send to the other brokers; the broker itself still takes what comes. It lasts until
add-write-perm, or until the broker changes a topic or restarts.`
	if add {
		use, short, code, field = "add-write-perm", "Undo wipe-write-perm", command.ReqAddWritePermOfBroker, "addTopicCount"
		long = "Gives all topics of a broker read and write permission in the routes that name servers give out: also those that an\noperator had made read-only, until the broker registers them again."
	}
	c := &cobra.Command{
		Use: use + " BROKER", Short: short, Long: long + "\n\nAll name servers are told; the command fails when one is not reached.",
		Args: exactly("BROKER"),
		RunE: func(c *cobra.Command, args []string) error {
			return at.with(c.Context(), func(ctx context.Context, c *adminclient.Client) error {
				info, err := c.Clusters(ctx)
				if err != nil {
					return err
				}
				if _, ok := info.BrokerAddrTable[args[0]]; !ok {
					return &adminclient.NotFoundError{Kind: "broker", Name: args[0], Known: slices.Collect(maps.Keys(info.BrokerAddrTable))}
				}
				t := permTable{Broker: args[0]}
				failed := 0
				for _, server := range c.NameServers() {
					s := permServer{Address: server}
					r, err := c.Ask(ctx, server, code, adminclient.FieldFunc(func(w *command.Writer) { w.Ext("brokerName", args[0]) }), nil)
					if err == nil {
						s.Topics, _, _ = r.Header.ExtInt64(field)
					} else {
						s.Error = err.Error()
						failed++
					}
					t.NameServers = append(t.NameServers, s)
				}
				if err := p.show(&out, t, t.print); err != nil {
					return err
				}
				if failed > 0 {
					return fmt.Errorf("%d of %s failed: clients that ask them see no change", failed, counted(len(t.NameServers), "name server"))
				}
				return nil
			})
		},
		ValidArgsFunction: at.completeArgs(brokerNames),
	}
	at.register(c)
	out.register(c)
	return c
}

func (t permTable) print(g *page) {
	g.row("NAME SERVER", "TOPICS CHANGED", "ERROR")
	for _, s := range t.NameServers {
		g.row(s.Address, s.Topics, s.Error)
	}
}
