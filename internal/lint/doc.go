// Package lint holds the house rules that no linter knows: who may reach whom
// through any number of imports, the size of files, and what must not stand in
// the sources. The rules are plain functions so that each is tested against a
// small example that breaks it; the tests then apply them to the repository.
//
// golangci-lint's depguard checks direct imports (.golangci.yml); a dependency
// that arrives through a helper package is only seen here.
package lint
