package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/internal/bench"
	"github.com/hardpointmq/hardpoint/plugins/standard"
)

// misuse is the error of a command line that is wrong, whatever the machine and its
// files are like; cobra's own are others that are no [failure].
type misuse struct{ error }

func (m misuse) Unwrap() error { return m.error }

func misusef(format string, args ...any) error { return misuse{fmt.Errorf(format, args...)} }

// calledWrongly is the one rule of the exit code 2: the command line has to be
// changed. What is wrong with a file or the environment is a failure.
func calledWrongly(err error) bool {
	var all *config.Errors
	if errors.As(err, &all) {
		return slices.ContainsFunc(all.List, func(e *config.Error) bool { return e.Source.Kind == config.FromFlag })
	}
	var of *config.PluginError
	if errors.As(err, &of) { // a program that does not run may be named rightly
		return of.Source.Kind == config.FromFlag && !errors.Is(err, plugin.ErrUnavailable)
	}
	var m misuse
	var f failure
	return errors.As(err, &m) || errors.Is(err, bench.ErrOptions) || !errors.As(err, &f)
}

// noArgs refuses arguments. For a command that has others below it an argument is a
// command that it does not have.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !c.HasSubCommands() {
		return fmt.Errorf("takes no arguments; %q was given", args[0])
	}
	said := fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath())
	if of := counterparts(args); of != "" {
		return fmt.Errorf("%s; %s", said, of)
	}
	c.SuggestionsMinimumDistance = 2
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		said += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return errors.New(said)
}

// unknownCommand refuses a command that is not there, of the one it should be below.
// Cobra looks at flags first, and would complain about those of the unknown command, or
// show the other one's help.
func unknownCommand(root *cobra.Command, args []string) (*cobra.Command, error) {
	c, rest, err := root.Find(args)
	switch {
	case err != nil:
		return c, err
	case len(rest) == 0 || strings.HasPrefix(rest[0], "-") || !c.HasSubCommands():
		return c, nil
	case c == root && (rest[0] == cobra.ShellCompRequestCmd || rest[0] == cobra.ShellCompNoDescRequestCmd): // which cobra adds when it runs
		return c, nil
	}
	return c, noArgs(c, rest)
}

// sizeFlag is a number of bytes, written as in the configuration.
type sizeFlag struct{ bytes *int }

func (s sizeFlag) String() string {
	if s.bytes == nil {
		return ""
	}
	return fmt.Sprint(*s.bytes)
}
func (s sizeFlag) Type() string { return "size" }
func (s sizeFlag) Set(text string) error {
	n, err := config.ParseSize(text)
	if err != nil || int64(int(n)) != n {
		return errors.New("allowed is a size, plain bytes or with a unit as in 64KiB, 4MiB, 1GiB")
	}
	*s.bytes = int(n)
	return nil
}

// durationFlag is a time, written as in the configuration, and always with its unit.
type durationFlag struct{ d *time.Duration }

func (d durationFlag) String() string {
	if d.d == nil || *d.d == 0 {
		return ""
	}
	return d.d.String()
}
func (d durationFlag) Type() string { return "duration" }
func (d durationFlag) Set(text string) error {
	v, err := config.ParseDuration(text)
	if err != nil {
		return err
	}
	*d.d = v
	return nil
}

// limitFlag is a time that has to be more than nothing.
type limitFlag struct{ durationFlag }

// Set implements [pflag.Value].
func (l limitFlag) Set(text string) error {
	v, err := config.ParseDuration(text)
	if err == nil && v <= 0 {
		err = errors.New("write a time above zero, such as 5s")
	}
	if err == nil {
		*l.d = v
	}
	return err
}

// noDefaults hides what flags hold that were not given, of commands to which that means
// nothing.
func noDefaults(f *pflag.FlagSet, names ...string) {
	for _, name := range names {
		of := f.Lookup(name)
		switch of.Value.Type() { // what pflag takes for no default
		case "bool":
			of.DefValue = "false"
		case "int32", "int64":
			of.DefValue = "0"
		default:
			of.DefValue = ""
		}
	}
}

// choice is one of some words.
type choice struct {
	word  string
	words []string
}

func (c *choice) String() string { return c.word }
func (c *choice) Type() string   { return "word" }
func (c *choice) Set(text string) error {
	if !slices.Contains(c.words, text) {
		return fmt.Errorf("must be %s", oneOf(c.words))
	}
	c.word = text
	return nil
}

// register adds the flag with its completion; short may be empty, usage is followed by
// the words.
func (c *choice) register(to *cobra.Command, name, short, usage string) {
	to.Flags().VarP(c, name, short, usage+": "+oneOf(c.words))
	_ = to.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(c.words, cobra.ShellCompDirectiveNoFileComp))
}

// oneOf lists words for a person.
func oneOf(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// completeConfigFlags completes the flags of a configuration that have some words
// only, or name a plugin.
func completeConfigFlags(c *cobra.Command) {
	for _, k := range config.Keys() {
		if k.Flag == "" || c.Flags().Lookup(k.Flag) == nil {
			continue
		}
		switch {
		case k.Name == "storage":
			_ = c.RegisterFlagCompletionFunc(k.Flag, completeNames("storage"))
		case k.Type == config.Enum:
			_ = c.RegisterFlagCompletionFunc(k.Flag, cobra.FixedCompletions(k.Words, cobra.ShellCompDirectiveNoFileComp))
		}
	}
}

// completeNames completes the name of a plugin of one of the kinds, as the only
// argument or a flag.
func completeNames(kinds ...string) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return func(_ *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		var names []string
		if all, err := standard.Plugins(); err == nil {
			for _, k := range pluginKinds() {
				if slices.Contains(kinds, k.name) {
					names = append(names, k.names(all)...)
				}
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// helpCommand is cobra's, but that it refuses what it has no help for.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about any command",
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if of, rest, err := c.Root().Find(args); err == nil && len(rest) == 0 {
				for _, sub := range of.Commands() {
					if sub.IsAvailableCommand() {
						names = append(names, sub.Name())
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			of, rest, err := c.Root().Find(args)
			if err == nil {
				err = noArgs(of, rest)
			}
			if err != nil {
				return misuse{err}
			}
			of.InitDefaultHelpFlag()
			return of.Help()
		},
	}
}
