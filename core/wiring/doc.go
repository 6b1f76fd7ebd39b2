// Package wiring joins plugins and engine with fx: value groups of factories,
// registries by name, life cycle with a share of time for each component, and
// one readable error in place of a chain of constructors.
//
// A group carries factories, never instances: fx runs every producer of a
// group, and a store that is not chosen must not open. Registration is a
// visible line:
//
//	wiring.Run(ctx, opts, standard.Module, wiring.Storage(mystore.NewFactory()), broker.Module)
//
// # What is designed around (fx 1.24)
//
// fx does not run the stop hook of the hook that failed to start: a component
// whose Start fails releases what it took, and [Lifecycle] shuts down those that
// run. fx leaves Start when its context ends although a hook still runs; here
// Start waits for it. All stop hooks share one deadline in fx; here each gets a
// share of its own, so that a transport that hangs cannot take the store's time.
// The bounds of start and stop come from the options, since recovery can take
// longer than fx's 15 s. Stop returns only when every component has.
package wiring
