// Package enginematrix holds the engine's tests on every store, in process and
// behind the wire, under every replicator: a cross-section of what the tests of
// the single behaviours show on the store in memory. The names are
// TestEngine/<store>/<form>/<replicator>/<test>.
package enginematrix
