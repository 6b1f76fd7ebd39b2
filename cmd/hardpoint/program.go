package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/hardpointmq/hardpoint/core/config"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	exitWarned  = 3
	exitUnknown = 4
)

// version and revision, the commit, are set by the linker for releases.
var version, revision string

// errReported: what went wrong was said already.
var errReported = errors.New("reported")

// errWarned: nothing failed, and there are warnings, which were said already.
var errWarned = errors.New("warned")

// errUnknown: what was asked could not be found out, and why was said already.
var errUnknown = errors.New("unknown")

// program is what the commands share.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
}

// failure marks the errors of a command that ran; all others are of usage.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// run is the whole program; it returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := &program{stdin, stdout, stderr}
	root := p.commands()
	root.SetArgs(args)
	c, err := unknownCommand(root, args)
	if err == nil {
		c, err = root.ExecuteContextC(ctx)
	}
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errReported):
		return exitFailure
	case errors.Is(err, errWarned):
		return exitWarned
	case errors.Is(err, errUnknown):
		return exitUnknown
	case calledWrongly(err):
		fmt.Fprintf(stderr, "hardpoint: %s\nRun '%s --help' for usage.\n", harmless(err.Error()), c.CommandPath())
		return exitUsage
	default:
		fmt.Fprintf(stderr, "hardpoint: %s\n", harmless(err.Error()))
		return exitFailure
	}
}

// harmless is a text that may be of others, a broker or a plugin, for a terminal.
func harmless(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
			return utf8.RuneError
		}
		return r
	}, s)
}

func (p *program) commands() *cobra.Command {
	var tell bool
	root := &cobra.Command{
		Use: "hardpoint", Short: "A RocketMQ-compatible message broker",
		Long: `hardpoint is a message broker that official RocketMQ clients use unchanged.

Exit codes: 0 all went well, 1 it failed, 2 it was called wrongly: the command line has to be changed,
3 doctor has warnings only, 4 plugin check could not find out.`,
		SilenceUsage: true, SilenceErrors: true,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if tell {
				return p.printVersion()
			}
			return c.Help()
		},
	}
	root.Flags().BoolVar(&tell, "version", false, "print the version")
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.AddGroup(&cobra.Group{ID: "serve", Title: "Serving:"}, &cobra.Group{ID: "tools", Title: "Tools:"})
	serving := []*cobra.Command{
		nodeCommand(p, config.Standalone, "Name server and broker in one process",
			"Runs a name server and a broker in one process. The broker registers with the name server beside it.\n\nSIGTERM drains, when another broker takes messages of the same topics (drainTimeout), and stops. SIGINT, or a second\nsignal, skips the drain; one more stops at once. SIGHUP reads the files of\ncertificates and starts plugins that are processes (plugins.KIND.NAME.path, or process: true) anew, by what is on disk then."),
		nodeCommand(p, config.Broker, "A broker alone",
			"Runs a broker. It registers with the name servers of --namesrv-addr.\n\nSIGTERM drains, when another broker takes messages of the same topics (drainTimeout), and stops. SIGINT, or a second\nsignal, skips the drain; one more stops at once. SIGHUP reads the files of\ncertificates and starts plugins that are processes (plugins.KIND.NAME.path, or process: true) anew, by what is on disk then."),
		nodeCommand(p, config.Namesrv, "A name server alone",
			"Runs a name server.\n\nSIGINT or SIGTERM stops; a third signal (a second SIGINT) stops at once. SIGHUP reads the files of certificates and\nstarts a transport that is a process anew, by what is on disk then."),
	}
	for _, c := range serving {
		c.GroupID = "serve"
	}
	serving[1].AddGroup(&cobra.Group{ID: "running", Title: "Brokers that run:"})
	serving[1].AddCommand(p.brokerTools()...)
	tools := []*cobra.Command{p.configCommand(), p.pluginCommand(), p.clusterCommand(), p.topicCommand(), p.groupCommand(), p.offsetCommand(), p.messageCommand(), p.doctorCommand(), p.storeCommand(), p.benchCommand(), p.healthCommand(), manCommand(), p.versionCommand()}
	for _, c := range tools {
		c.GroupID = "tools"
	}
	root.AddCommand(serving...)
	root.AddCommand(tools...)
	root.SetHelpCommand(helpCommand())
	root.SetHelpCommandGroupID("tools")
	root.SetCompletionCommandGroupID("tools")
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	markFailures(root)
	return root
}

// markFailures tells apart what a command reports and what cobra does.
func markFailures(c *cobra.Command) {
	if runE := c.RunE; runE != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			if err := runE(c, args); err != nil {
				return failure{err}
			}
			return nil
		}
	} else if c.Run == nil && c.HasSubCommands() {
		// A group: without a subcommand it shows them, an unknown one is refused.
		c.Args = noArgs
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	}
	for _, sub := range c.Commands() {
		markFailures(sub)
	}
}

// exactly asks for the named arguments and no others.
func exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return fmt.Errorf("needs exactly %s; %s given", strings.Join(names, " and "), counted(len(args), "argument"))
		}
		return nil
	}
}

// atMostOne allows one argument.
func atMostOne(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return fmt.Errorf("takes one %s at most; %d arguments given", name, len(args))
		}
		return nil
	}
}

// counted is a number with its noun.
func counted(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// build is what `version` tells.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readBuild() build {
	b := build{Version: version, Revision: revision, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "devel"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && b.Revision == "" {
			b.Revision = s.Value
		}
	}
	return b
}

func (p *program) versionCommand() *cobra.Command {
	var out output
	c := &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if out.json() {
				return p.printJSON(readBuild())
			}
			return p.printVersion()
		},
	}
	out.register(c)
	return c
}

func (p *program) printVersion() error {
	b := readBuild()
	words := slices.DeleteFunc([]string{"hardpoint", b.Version, b.Revision, b.Go, b.Platform}, func(w string) bool { return w == "" })
	_, err := fmt.Fprintln(p.stdout, strings.Join(words, " "))
	return err
}
