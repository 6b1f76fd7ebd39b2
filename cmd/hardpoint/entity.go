package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/internal/adminclient"
)

// entity is what brokers have by names, each broker in a form C of its own: topics, or
// groups. It is what the commands about them have in common.
type entity[C any] struct {
	word  string                                                       // topic
	names func(context.Context, *adminclient.Client) ([]string, error) // all
	// completed are those of applications.
	completed func(context.Context, *adminclient.Client) ([]string, error)
	// config asks a broker for one; nil: it has none of that name.
	config func(ctx context.Context, c *adminclient.Client, b adminclient.Broker, name string) (*C, error)
	// put makes it what cfg says, but for its attributes, of which changes are told.
	put        func(ctx context.Context, c *adminclient.Client, b adminclient.Broker, cfg *C, changes command.StringMap) error
	attributes func(cfg *C) command.StringMap
	// differs tells where one is other than wanted, in words that go on a sentence;
	// empty: nowhere.
	differs func(is, want *C) string
	// told says to others what has changed; nil: nobody else need know.
	told func(ctx context.Context, c *adminclient.Client, name string) error
	// changed is what is printed as JSON.
	changed func(name string, brokers []brokerChange) any
}

// entityFlags are what flags say of one.
type entityFlags[C any] interface {
	register(c *cobra.Command, update bool)
	// flags are their names.
	flags() []string
	// apply changes cfg by the flags that were given. made: it is a new one, and flags
	// that were not given count as well.
	apply(f *pflag.FlagSet, cfg C, made bool) C
	// changes are those of its attributes, as requests have them.
	changes(old command.StringMap) command.StringMap
}

// missing says that none of n brokers has one of a name.
func (e *entity[C]) missing(ctx context.Context, c *adminclient.Client, name string, n int) error {
	known, _ := e.names(ctx, c) // for the suggestion only
	return &adminclient.NotFoundError{Kind: e.word, Name: name, Known: known, Where: "on " + counted(n, "broker")}
}

// create completes the command that makes one, on the brokers that are selected, from
// what empty returns.
func (e *entity[C]) create(p *program, c *cobra.Command, form entityFlags[C], check func(name string) error, empty func(name string) C) *cobra.Command {
	var out output
	var at adminFlags
	c.Long = fmt.Sprintf(`Creates a %s on all brokers of the cluster, on those of --cluster, or on --broker. Where it is there already in the same
form nothing is changed; where it has another form the command fails: update changes it.`, e.word)
	c.Args, c.ValidArgsFunction = exactly(strings.ToUpper(e.word)), cobra.NoFileCompletions
	c.PreRunE = func(_ *cobra.Command, args []string) error { return check(args[0]) }
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return at.with(cmd.Context(), func(ctx context.Context, c *adminclient.Client) error {
			brokers, err := places(ctx, c, at.Selection)
			if err != nil {
				return err
			}
			return e.change(ctx, p, c, &out, args[0], brokers, func(ctx context.Context, b adminclient.Broker, old *C) (string, error) {
				want := form.apply(cmd.Flags(), empty(args[0]), true)
				if old == nil {
					return "created", e.put(ctx, c, b, &want, form.changes(nil))
				}
				if how := e.differs(old, &want); how != "" {
					return "", fmt.Errorf("the %s is there already%s; %s update changes it", e.word, how, e.word)
				}
				return "unchanged", nil
			})
		})
	}
	form.register(c, false)
	at.registerWith(c, &out)
	return c
}

// update completes the command that changes one on all brokers that have it.
func (e *entity[C]) update(p *program, c *cobra.Command, form entityFlags[C]) *cobra.Command {
	var out output
	var at adminFlags
	c.Args, c.ValidArgsFunction = exactly(strings.ToUpper(e.word)), at.completeArgs(e.completed)
	c.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if !slices.ContainsFunc(form.flags(), cmd.Flags().Changed) {
			return fmt.Errorf("there is nothing to change: say one of --%s", strings.Join(form.flags(), ", --"))
		}
		return nil
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return at.with(cmd.Context(), func(ctx context.Context, c *adminclient.Client) error {
			brokers, err := c.Brokers(ctx, at.Selection)
			if err != nil {
				return err
			}
			return e.change(ctx, p, c, &out, args[0], brokers, func(ctx context.Context, b adminclient.Broker, old *C) (string, error) {
				if old == nil {
					return "", nil // not here
				}
				want := form.apply(cmd.Flags(), *old, false)
				if e.differs(old, &want) == "" {
					return "unchanged", nil
				}
				return "changed", e.put(ctx, c, b, &want, form.changes(e.attributes(old)))
			})
		})
	}
	form.register(c, true)
	at.registerWith(c, &out)
	return c
}

// change asks each broker for one and has do change it; do says what it did, nothing
// where it is not and shall not be.
func (e *entity[C]) change(ctx context.Context, p *program, c *adminclient.Client, out *output, name string, brokers []adminclient.Broker,
	do func(context.Context, adminclient.Broker, *C) (string, error),
) error {
	results := adminclient.Each(ctx, brokers, func(ctx context.Context, b adminclient.Broker) (string, error) {
		old, err := e.config(ctx, c, b, name)
		if err != nil {
			return "", err
		}
		return do(ctx, b, old)
	})
	results = slices.DeleteFunc(results, func(r adminclient.Result[string]) bool { return r.Err == nil && r.Value == "" })
	if len(results) == 0 {
		return e.missing(ctx, c, name, len(brokers))
	}
	err := adminclient.Failed(results)
	if e.told != nil {
		if told := e.told(ctx, c, name); told != nil {
			err = errors.Join(err, told)
		}
	}
	changes := changesOf(results)
	return p.showPart(out, e.changed(name, changes), func(g *page) { printChanges(g, changes) }, err)
}

// listing completes a command that lists what brokers say to one request. table makes of
// it what is printed.
func listing[V any, T interface{ print(g *page) }](p *program, c *cobra.Command, code int32, table func([]adminclient.Result[V], []adminclient.Failure) T) *cobra.Command {
	var out output
	var at adminFlags
	c.Args = noArgs
	c.RunE = func(c *cobra.Command, _ []string) error {
		return at.with(c.Context(), func(ctx context.Context, c *adminclient.Client) error {
			brokers, err := c.Brokers(ctx, at.Selection)
			if err != nil {
				return err
			}
			results := adminclient.GetEach[V](ctx, c, brokers, code, nil, nil)
			err = adminclient.Failed(results)
			t := table(results, adminclient.FailuresOf(err))
			return p.showPart(&out, t, t.print, err)
		})
	}
	at.registerWith(c, &out)
	return c
}

// formOn is a form in which some brokers of a cluster have something.
type formOn[F any] struct {
	name, cluster string
	brokers       []string
	form          F
}

// formsOf joins what brokers say, by name: those of a cluster that have something in the
// same form.
func formsOf[V, F any](results []adminclient.Result[V], forms func(V) map[string]F, same func(a, b F) bool) []formOn[F] {
	var out []formOn[F]
	at := map[string][]int{} // indexes by name
	for _, r := range results {
		found := forms(r.Value)
		for _, name := range slices.Sorted(maps.Keys(found)) {
			i := slices.IndexFunc(at[name], func(i int) bool { return out[i].cluster == r.Broker.Cluster && same(out[i].form, found[name]) })
			if i >= 0 {
				known := &out[at[name][i]]
				known.brokers = append(known.brokers, r.Broker.Name)
				continue
			}
			at[name] = append(at[name], len(out))
			out = append(out, formOn[F]{name, r.Broker.Cluster, []string{r.Broker.Name}, found[name]})
		}
	}
	slices.SortStableFunc(out, func(a, b formOn[F]) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.cluster, b.cluster))
	})
	return out
}
