package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/internal/adminclient"
	"github.com/hardpointmq/hardpoint/plugins/transport/remoting"
)

// defaultNameServer is asked when nobody says which.
const defaultNameServer = "127.0.0.1:9876"

// adminFlags are the flags of the commands that ask running servers.
type adminFlags struct {
	servers addressesFlag
	timeout time.Duration
	tls     tlsFlags
	// Of the commands that go to some brokers only.
	adminclient.Selection
}

// register adds what all such commands have.
func (a *adminFlags) register(c *cobra.Command) {
	f := c.Flags()
	f.Var(&a.servers, "namesrv", "`addresses` of name servers, of which the first that answers is asked; else those of NAMESRV_ADDR, or of the configuration (HARDPOINT_CONFIG, HARDPOINT_NAMESRV_ADDR), or "+defaultNameServer)
	a.timeout = adminclient.DefaultTimeout
	f.Var(limitFlag{durationFlag{&a.timeout}}, "timeout", "how long a server may take for an answer")
	_ = c.RegisterFlagCompletionFunc("namesrv", cobra.NoFileCompletions)
	a.tls.register(c)
}

// registerWith adds what commands have that go to some brokers only: whom to ask, which
// of them, and the form of the output.
func (a *adminFlags) registerWith(c *cobra.Command, out *output) {
	a.register(c)
	f := c.Flags()
	f.StringVar(&a.Cluster, "cluster", "", "only the brokers of this cluster, by its `name`")
	_ = c.RegisterFlagCompletionFunc("cluster", a.complete(clusterNames))
	a.registerBroker(c, "only this broker: its `name`, or its address, for which no name server is asked")
	out.register(c)
}

func (a *adminFlags) registerBroker(c *cobra.Command, usage string) {
	c.Flags().Var(addressFlag{to: &a.Broker, names: true}, "broker", usage)
	_ = c.RegisterFlagCompletionFunc("broker", a.complete(brokerNames))
}

// addressesFlag are addresses of name servers.
type addressesFlag struct{ list []string }

func (a *addressesFlag) String() string { return strings.Join(a.list, ";") }
func (a *addressesFlag) Type() string   { return "addresses" }
func (a *addressesFlag) Set(text string) (err error) {
	a.list, err = adminclient.ParseAddresses(text)
	return err
}

// addressFlag is the address of one server; with names, or a name, which holds no colon.
type addressFlag struct {
	to    *string
	names bool
}

func (a addressFlag) String() string {
	if a.to == nil { // cobra asks a zero value
		return ""
	}
	return *a.to
}
func (a addressFlag) Type() string { return "address" }
func (a addressFlag) Set(text string) error {
	if !a.names || strings.Contains(text, ":") {
		if err := adminclient.CheckAddress(text); err != nil {
			return err
		}
	}
	*a.to = text
	return nil
}

// nameServers are those to ask; guessed: nobody said so.
func (a *adminFlags) nameServers() (list []string, guessed bool, err error) {
	if len(a.servers.list) > 0 {
		return a.servers.list, false, nil
	}
	if text := os.Getenv("NAMESRV_ADDR"); text != "" {
		list, err = adminclient.ParseAddresses(text)
		if err != nil {
			err = fmt.Errorf("NAMESRV_ADDR: %w", err)
		}
		return list, false, err
	}
	if os.Getenv("HARDPOINT_CONFIG") != "" || os.Getenv("HARDPOINT_NAMESRV_ADDR") != "" {
		l, err := config.Load(config.Options{Mode: config.Broker, Env: os.Environ(), NoStore: true})
		if err != nil {
			return nil, false, err
		}
		if len(l.Config.Broker.NamesrvAddrs) > 0 {
			return l.Config.Broker.NamesrvAddrs, false, nil
		}
	}
	return []string{defaultNameServer}, true, nil
}

// with calls do with a client, which is closed then.
func (a *adminFlags) with(ctx context.Context, do func(context.Context, *adminclient.Client) error) (err error) {
	servers, guessed, err := a.nameServers()
	if err != nil {
		return err
	}
	// A transport that lives as long as the questions.
	t, err := remoting.New(ctx, transport.Params{}, a.tls.config())
	if err != nil {
		return err
	}
	if err := t.Start(ctx); err != nil {
		return err
	}
	c := adminclient.New(adminclient.Options{Dialer: t.Capabilities().Dialer, NameServers: servers, Timeout: a.timeout})
	defer func() {
		c.Close()
		err = errors.Join(err, t.Shutdown(context.WithoutCancel(ctx)))
	}()
	err = do(ctx, c)
	if guessed && errors.Is(err, adminclient.ErrNoNameServer) {
		err = fmt.Errorf("%w\nno name server was named: say --namesrv, or set NAMESRV_ADDR", err)
	}
	if unheard(err) {
		if do := whyTLS(err); do != "" {
			err = fmt.Errorf("%w\n%s", err, do)
		}
	}
	return err
}

// completionPatience is how long somebody waits who presses the tab key. Each server has
// a share of it, of completionShare at least, so that one that hangs leaves time for the
// next.
const (
	completionPatience = 900 * time.Millisecond
	completionShare    = 200 * time.Millisecond
)

// completionTime is how long one of so many name servers has.
func completionTime(servers int) time.Duration {
	return max(completionPatience/time.Duration(servers), completionShare)
}

// complete completes with names that servers know; nothing when none answers soon.
func (a *adminFlags) complete(names func(context.Context, *adminclient.Client) ([]string, error)) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), completionPatience)
		defer cancel()
		soon := *a
		if servers, _, err := a.nameServers(); err == nil {
			soon.timeout = min(a.timeout, completionTime(len(servers)))
		}
		var out []string
		_ = soon.with(ctx, func(ctx context.Context, c *adminclient.Client) (err error) { // no names, no completion
			out, err = names(ctx, c)
			return err
		})
		return completable(out), cobra.ShellCompDirectiveNoFileComp
	}
}

// completable are the names that are one word of every shell, and no flag. Others may be
// meant to be more: servers do not choose them.
func completable(names []string) []string {
	return slices.DeleteFunc(names, func(n string) bool { return shellWord(n) != n || strings.HasPrefix(n, "-") })
}

// completeArgs completes one argument after the other.
func (a *adminFlags) completeArgs(names ...func(context.Context, *adminclient.Client) ([]string, error)) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(names) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.complete(names[len(args)])(c, args, word)
	}
}

// topicNames are those of applications.
func topicNames(ctx context.Context, c *adminclient.Client) ([]string, error) {
	all, err := c.TopicNames(ctx)
	if err != nil {
		return nil, err
	}
	info, err := c.Clusters(ctx)
	var brokers []adminclient.Broker
	for _, d := range info.BrokerAddrTable {
		brokers = append(brokers, adminclient.Broker{Cluster: d.Cluster, Name: d.BrokerName})
	}
	return slices.DeleteFunc(all, func(t string) bool { return topicKind(t, brokers) != kindNormal }), err
}

// groupNames are those of applications, on all brokers.
func groupNames(ctx context.Context, c *adminclient.Client) ([]string, error) {
	brokers, err := c.Brokers(ctx, adminclient.Selection{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, r := range adminclient.GetEach[command.SubscriptionGroupWrapper](ctx, c, brokers, command.ReqGetAllSubscriptionGroupConfig, nil, nil) {
		for name := range r.Value.SubscriptionGroupTable {
			if !message.IsSystemGroup(name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func clusterNames(ctx context.Context, c *adminclient.Client) ([]string, error) {
	info, err := c.Clusters(ctx)
	names := make([]string, 0, len(info.ClusterAddrTable))
	for name := range info.ClusterAddrTable {
		names = append(names, name)
	}
	return names, err
}

func brokerNames(ctx context.Context, c *adminclient.Client) ([]string, error) {
	info, err := c.Clusters(ctx)
	names := make([]string, 0, len(info.BrokerAddrTable))
	for name := range info.BrokerAddrTable {
		names = append(names, name)
	}
	return names, err
}
