// Package plugin holds what every kind of plugin shares: the life cycle
// ([Component]), what the host hands to a plugin ([Settings]), how a plugin is
// declared ([Factory], made by [NewFactory]) and how it describes itself before
// anything opens ([Description]).
//
// # Life cycle
//
// A constructor does no I/O and starts no goroutine; Start does. The context
// of Start bounds starting only: background work has a context of its own that
// ends in Shutdown, which waits for it. Shutdown works without Start and
// twice. A Start that fails releases whatever it took, because nobody calls
// Shutdown for it.
//
// # Declaring a plugin
//
// One folder is one plugin: a Config with defaults and Validate, a factory, a
// constructor. Registration is a visible line in the program that uses the
// plugin; nothing registers itself in init.
//
//	func NewFactory() storage.Factory {
//		return storage.NewFactory("commitlog", describe, NewDefaultConfig, New)
//	}
//
// Configuration reaches a factory as raw JSON ([Raw]) and is decoded by the
// factory itself, strictly, in whichever process the plugin runs: there is no
// second schema.
package plugin
