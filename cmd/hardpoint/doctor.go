package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/internal/adminclient"
)

// Verdicts of a check, from good to bad; unknown says nothing.
const (
	verdictUnknown = "unknown"
	verdictOK      = "ok"
	verdictWarning = "warning"
	verdictFailure = "failure"
)

// check is one thing that was looked at.
type check struct {
	// Check is what kind of thing: the names do not change.
	Check   string `json:"check"`
	Subject string `json:"subject"` // an address, a broker, a topic
	Verdict string `json:"verdict"`
	Says    string `json:"says"`
	Do      string `json:"do,omitempty"` // what is to be done
}

// diagnosis is what `doctor` prints as JSON.
type diagnosis struct {
	AsOf        instant  `json:"asOf"`
	NameServers []string `json:"nameServers"`
	Checks      []check  `json:"checks"`
	Warnings    int      `json:"warnings"`
	Failures    int      `json:"failures"`
	Unknown     int      `json:"unknown"`
	// Left is what the check leaves behind.
	Left []string `json:"left"`
}

// doctor is one run of `doctor`.
type doctor struct {
	p      *program
	out    output
	at     adminFlags
	topic  string
	noSend bool

	c *adminclient.Client
	d diagnosis
}

func (p *program) doctorCommand() *cobra.Command {
	d := &doctor{p: p}
	c := &cobra.Command{
		Use: "doctor", Short: "Check from here whether clients can work with a cluster, and why not",
		Long: `Does what a client does, from where it is run, and says of each step whether it went well, and what to do when not:
name servers are reached and tell the same; each address that a broker advertises is reached and is that broker; brokers take
messages and give them back; disks, clocks, limits and versions are as they should be. It works with Hardpoint and with
Apache RocketMQ (4.9, 5.x), and says what a broker cannot answer. Run it where clients run.

A message is sent to each broker and read back. Without --topic that is in a topic of its own, which is made and deleted
again; one record stays in the log of each broker until it expires. With --topic the route of that topic is looked at, too,
and the message goes there and stays there: groups that read the topic get it (tag hardpoint-doctor). --no-send leaves this
out and changes nothing.

The exit code is 0 when all is well, 1 when something fails, 3 when there are only warnings. What is unknown does not count.`,
		Example: "  hardpoint doctor --namesrv '10.0.0.1:9876;10.0.0.2:9876'\n  hardpoint doctor --topic Orders --no-send --output json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return d.at.with(ctx, d.run)
		},
	}
	f := c.Flags()
	f.StringVar(&d.topic, "topic", "", "also look at this `topic`, and send the message to it")
	f.BoolVar(&d.noSend, "no-send", false, "send no message: change nothing")
	d.at.register(c)
	d.out.register(c)
	_ = c.RegisterFlagCompletionFunc("topic", d.at.complete(topicNames))
	return c
}

func (d *doctor) run(ctx context.Context, c *adminclient.Client) error {
	d.c = c
	d.d = diagnosis{AsOf: now(), NameServers: c.NameServers(), Checks: []check{}, Left: []string{}}
	info, here := d.nameServers(ctx)
	if len(here) > 0 {
		d.brokers(ctx, info, here)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("interrupted: %w", err)
	}
	for _, x := range d.d.Checks {
		switch x.Verdict {
		case verdictWarning:
			d.d.Warnings++
		case verdictFailure:
			d.d.Failures++
		case verdictUnknown:
			d.d.Unknown++
		}
	}
	if err := d.p.show(&d.out, d.d, d.d.write); err != nil {
		return err
	}
	switch {
	case d.d.Failures > 0:
		return errReported
	case d.d.Warnings > 0:
		return errWarned
	}
	return nil
}

func (d *diagnosis) write(g *page) {
	for _, x := range d.Checks {
		g.line("%s\t%s\t%s\t%s", x.Verdict, x.Check, orDash(x.Subject), strings.ReplaceAll(x.Says, "\n", "; "))
		if x.Do != "" {
			g.line("\t\t\t-> %s", x.Do)
		}
	}
	g.part()
	for _, l := range d.Left {
		g.line("left behind: %s", l)
	}
	g.line("%s: %s, %s, %d unknown", counted(len(d.Checks), "check"), counted(d.Failures, "failure"), counted(d.Warnings, "warning"), d.Unknown)
}

func (d *doctor) say(verdict, of, subject, do, format string, args ...any) {
	d.d.Checks = append(d.d.Checks, check{Check: of, Subject: subject, Verdict: verdict, Says: fmt.Sprintf(format, args...), Do: do})
}

// failed notes an error; a *adminclient.Error says whose by itself.
func (d *doctor) failed(of, subject, do string, err error) {
	d.say(verdictFailure, of, subject, do, "%s", err)
}

// timed asks for something and tells how long it took.
func timed[T any](ask func() (T, error)) (v T, took time.Duration, err error) {
	began := time.Now()
	v, err = ask()
	return v, time.Since(began), err
}

// shortText is how long an answer took.
func shortText(d time.Duration) string {
	if d < time.Millisecond {
		return "less than 1ms"
	}
	return durationText(d)
}

// nameServers asks each for what it knows. here are those that answered.
func (d *doctor) nameServers(ctx context.Context) (info command.ClusterInfo, here []string) {
	const of = "name server"
	var first command.ClusterInfo
	for _, server := range d.c.NameServers() {
		found, took, err := timed(func() (command.ClusterInfo, error) {
			return adminclient.Get[command.ClusterInfo](ctx, d.c, server, command.ReqGetBrokerClusterInfo, nil, nil)
		})
		if code, refused := adminclient.CodeOf(err); refused && code == command.RespRequestCodeNotSupported {
			d.failed(of, server, "this is no name server (a broker?): name servers listen on 9876 unless told otherwise", err)
			continue
		}
		if err != nil {
			d.failed(of, server, cmp.Or(whyTLS(err), "start it, let its port through, or take it off the list: clients lose time with it"), err)
			continue
		}
		brokers := 0
		for _, b := range found.BrokerAddrTable {
			brokers += len(b.BrokerAddrs)
		}
		d.say(verdictOK, of, server, "", "answers in %s and knows %s", shortText(took), counted(brokers, "broker"))
		here = append(here, server)
		if len(here) == 1 {
			info, first = found, found
			continue
		}
		for _, line := range disagreements(here[0], first, server, found) {
			d.say(verdictFailure, "same answers", server, "wait for half a minute and look again: brokers register every 30 s; if it stays, name all name servers to the broker (namesrvAddr), and see whether it reaches them", "%s", line)
		}
		merge(&info, found)
	}
	if len(here) > 1 && !d.has("same answers") {
		d.say(verdictOK, "same answers", "", "", "%s tell the same", counted(len(here), "name server"))
	}
	return info, here
}

func (d *doctor) has(of string) bool {
	return slices.ContainsFunc(d.d.Checks, func(c check) bool { return c.Check == of })
}

// merge adds what one name server knows and the others do not.
func merge(to *command.ClusterInfo, from command.ClusterInfo) {
	for name, b := range from.BrokerAddrTable {
		known, ok := to.BrokerAddrTable[name]
		if !ok {
			if to.BrokerAddrTable == nil {
				to.BrokerAddrTable = map[string]command.BrokerData{}
			}
			to.BrokerAddrTable[name] = b
			continue
		}
		for id, addr := range b.BrokerAddrs {
			if _, ok := known.BrokerAddrs[id]; !ok && known.BrokerAddrs != nil {
				known.BrokerAddrs[id] = addr
			}
		}
	}
}

// disagreements says what two name servers tell differently, a line for each.
func disagreements(one string, a command.ClusterInfo, other string, b command.ClusterInfo) (out []string) {
	type member struct {
		name string
		id   int64
	}
	flat := func(i command.ClusterInfo) map[member]string {
		m := map[member]string{}
		for name, d := range i.BrokerAddrTable {
			for id, addr := range d.BrokerAddrs {
				m[member{name, id}] = addr
			}
		}
		return m
	}
	x, y := flat(a), flat(b)
	for m, addr := range x {
		switch there, ok := y[m]; {
		case !ok:
			out = append(out, fmt.Sprintf("%s knows broker %s (id %d) at %s, %s does not", one, m.name, m.id, addr, other))
		case there != addr:
			out = append(out, fmt.Sprintf("%s has broker %s (id %d) at %s, %s at %s", one, m.name, m.id, addr, other, there))
		}
	}
	for m, addr := range y {
		if _, ok := x[m]; !ok {
			out = append(out, fmt.Sprintf("%s knows broker %s (id %d) at %s, %s does not", other, m.name, m.id, addr, one))
		}
	}
	slices.Sort(out)
	return out
}

// brokers looks at all brokers of which a name server knows.
func (d *doctor) brokers(ctx context.Context, info command.ClusterInfo, here []string) {
	brokers := adminclient.All(&info)
	if len(brokers) == 0 {
		d.say(verdictFailure, "broker", "", "start a broker with these name servers (namesrvAddr), or look into its log: it says why it does not reach them", "no broker is registered")
		return
	}
	owners := map[string]string{}
	for _, b := range brokers {
		if other := owners[b.Address]; other != "" {
			d.say(verdictFailure, "address", b.String(), "give each its own address (brokerIP1 and listenPort, or advertise)", "brokers %s and %s advertise the same address", other, b.Name)
		}
		owners[b.Address] = b.Name
	}
	results := adminclient.Each(ctx, brokers, func(ctx context.Context, b adminclient.Broker) (*patient, error) {
		return d.examine(ctx, b, here), nil
	})
	var fit []*patient
	for _, r := range results {
		d.d.Checks = append(d.d.Checks, r.Value.checks...)
		if r.Value.up {
			fit = append(fit, r.Value)
		}
	}
	d.compare(fit)
	var route []adminclient.Broker
	if d.topic != "" {
		route = d.route(ctx, here)
	}
	if !d.noSend {
		d.probe(ctx, fit, route)
	}
}

// compare looks at what should be the same on all brokers.
func (d *doctor) compare(fit []*patient) {
	sizes, versions := map[string][]string{}, map[string][]string{}
	for _, p := range fit {
		name := p.b.Name
		if p.b.ID != 0 {
			name = fmt.Sprintf("%s:%d", p.b.Name, p.b.ID)
		}
		versions[p.version] = append(versions[p.version], name)
		if size := p.config["maxMessageSize"]; size != "" {
			sizes[size] = append(sizes[size], name)
		}
	}
	text := func(m map[string][]string) string {
		var out []string
		for v, names := range m {
			slices.Sort(names)
			out = append(out, v+" on "+strings.Join(names, ", "))
		}
		slices.Sort(out)
		return strings.Join(out, "; ")
	}
	if len(versions) > 0 {
		d.say(verdictOK, "version", "", "", "%s", text(versions))
	}
	if len(sizes) > 1 {
		d.say(verdictWarning, "message size", "", "make maxMessageSize the same on all brokers: which one a message goes to is chance", "brokers take messages of different sizes: %s", text(sizes))
	}
}

// route looks at the route of the topic, at each name server, and gives its brokers.
func (d *doctor) route(ctx context.Context, here []string) (brokers []adminclient.Broker) {
	const of = "route"
	for _, server := range here {
		r, err := adminclient.Get[command.TopicRouteData](ctx, d.c, server, command.ReqGetRouteInfoByTopic, &command.RouteRequest{Topic: d.topic, AcceptStandardJSONOnly: true}, nil)
		if code, _ := adminclient.CodeOf(err); code == command.RespTopicNotExist {
			d.say(verdictFailure, of, d.topic, "create it (hardpoint topic create), or see whether its brokers are registered at this name server", "name server %s has no route of topic %s", server, d.topic)
			continue
		}
		if err != nil {
			d.failed(of, d.topic, "", err)
			continue
		}
		var read, write int32
		var closed []string
		for _, q := range r.QueueDatas {
			if q.Perm&command.PermRead != 0 {
				read += q.ReadQueueNums
			}
			if q.Perm&command.PermWrite != 0 {
				write += q.WriteQueueNums
			} else {
				closed = append(closed, q.BrokerName)
			}
		}
		of := brokersText(&r)
		switch {
		case write == 0:
			d.say(verdictFailure, "route", d.topic, "give it write permission (hardpoint topic update --perm), or its brokers theirs (hardpoint broker add-write-perm)", "by %s no queue of it takes messages", server)
		case read == 0:
			d.say(verdictFailure, "route", d.topic, "give it read permission (hardpoint topic update --perm)", "by %s no queue of it can be read", server)
		case len(closed) > 0:
			d.say(verdictWarning, "route", d.topic, "if that is not meant: hardpoint broker add-write-perm", "by %s it takes no messages on %s", server, strings.Join(closed, ", "))
		default:
			d.say(verdictOK, "route", d.topic, "", "by %s on %s: %s to write, %d to read", server, of, counted(int(write), "queue"), read)
		}
		if brokers == nil {
			brokers = adminclient.BrokersOf(&r)
			const both = command.PermRead | command.PermWrite
			brokers = slices.DeleteFunc(brokers, func(b adminclient.Broker) bool {
				return !slices.ContainsFunc(r.QueueDatas, func(q command.QueueData) bool { return q.BrokerName == b.Name && q.Perm&both == both })
			})
		}
	}
	return brokers
}

func brokersText(r *command.TopicRouteData) string {
	var names []string
	for _, b := range adminclient.BrokersOf(r) {
		names = append(names, b.Name)
	}
	return strings.Join(names, ", ")
}

// unheard tells an error of nobody's from a refusal.
func unheard(err error) bool { return errors.Is(err, adminclient.ErrUnheard) }
