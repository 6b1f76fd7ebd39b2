// Package storagemw holds decorators of stores: [Metrics] counts and times what
// goes through, [Faults] lets tests make any call slow or fail.
//
// Tracing is in the package tracing below, which alone links OpenTelemetry.
//
// A decorator embeds [Base] and nothing else: Base forwards the mandatory
// methods and offers no facet, so that a facet never reaches the caller past the
// decorator. Each facet is wrapped by name; a test counts the fields of
// storage.Capabilities and fails when one was added and not thought of here.
package storagemw
