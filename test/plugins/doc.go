// Package plugins has the tests of plugins that are made outside of this
// repository: by the guide, by `hardpoint plugin new`, in a module that imports the
// conformance suites, and against the wire alone.
package plugins
