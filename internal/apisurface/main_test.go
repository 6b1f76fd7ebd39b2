package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRender(t *testing.T) {
	root := tree(t, map[string]string{
		"core/message/a.go": `// Package message is a test.
package message

import "context"

const (
	First Kind = iota
	Second
	third
)

const Limit = 4

var ErrFull, errOther = error(nil), error(nil)

// Kind has a comment.
type Kind int

type Store interface {
	context.Context
	Read(ctx context.Context, at int64) (n int,
		err error)
	sealed()
}

type Pair[K comparable, V any] struct {
	Key   K
	Value V ` + "`json:\"v\"`" + `
	hidden int
	_ struct{}
	Kind
}

type Alias = Kind

type hidden struct{}

func (*Pair[K, V]) Get(k K) V { panic(k) }
func (hidden) Get() {}
func Make() (x, y int) { return 1, 2 }
func unexported() {}
`,
		"core/message/a_windows.go": "package message\nfunc OnlyWindows() {}\n",
		"core/message/a_test.go":    "package message\nfunc Helper() {}\n",
	})
	got, err := surfaces(root)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"core.message.txt": strings.TrimPrefix(`
package core/message
const First Kind = iota (iota 0)
const Limit = 4
const Second Kind (iota 1)
func (*Pair[K, V]) Get(k K) V
func Make() (x, y int)
type Alias = Kind
type Kind int
type Pair struct, Key K
type Pair struct, Value V `+"`json:\"v\"`"+`
type Pair struct, _ struct{}
type Pair struct, embedded Kind
type Pair[K comparable, V any] struct
type Store interface
type Store interface, Read(ctx context.Context, at int64) (n int, err error)
type Store interface, context.Context
type Store interface, sealed()
var ErrFull
`, "\n")}, got)
}

func TestStablePackages(t *testing.T) {
	root := tree(t, map[string]string{
		"core/api/a.go":                   "package api\n",
		"core/api/below/a.go":             "package below\n",
		"core/storage/storagetest/a.go":   "package storagetest\n",
		"core/storage/internal/x/a.go":    "package x\n",
		"sdk/serve/a.go":                  "package serve\n",
		"sdk/tool/main.go":                "package main\n",
		"plugins/storage/commitlog/a.go":  "package commitlog\n",
		"core/storage/testdata/fake/a.go": "package fake\n",
	})
	got, err := surfaces(root)
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"core.api.txt":                 "package core/api\n",
		"core.storage.storagetest.txt": "package core/storage/storagetest\n",
		"sdk.serve.txt":                "package sdk/serve\n",
	}, got)
}

func TestWriteThenCheck(t *testing.T) {
	root := tree(t, map[string]string{"core/api/a.go": "package api\nfunc A() {}\n"})
	require.ErrorContains(t, check(root), "+ func A()")
	require.NoError(t, write(root))
	require.NoError(t, check(root))

	put(t, root, "core/api/a.go", "package api\nfunc A(int) {}\n")
	err := check(root)
	require.ErrorContains(t, err, "- func A()")
	require.ErrorContains(t, err, "+ func A(int)")
	require.ErrorContains(t, err, "make apidiff-accept")

	require.NoError(t, os.RemoveAll(filepath.Join(root, "core/api")))
	require.NoError(t, write(root))
	require.NoError(t, check(root))
	require.NoFileExists(t, filepath.Join(root, "docs/api/core.api.txt"))
}

func TestDescribed(t *testing.T) {
	grown := []change{{pkg: "core/storage", added: []string{"func New()"}}}
	broken := []change{{pkg: "core/storage", removed: []string{"func Old()"}}}
	fr := func(pkg, adr string) []fragment { return []fragment{{packages: []string{pkg}, adr: adr}} }
	for name, tc := range map[string]struct {
		changes   []change
		fragments []fragment
		want      string
	}{
		"nothing changed":              {nil, nil, ""},
		"grown, no fragment":           {grown, nil, "add a fragment"},
		"grown, another's fragment":    {grown, fr("core/api", ""), "add a fragment"},
		"grown, fragment":              {grown, fr("core/storage", ""), ""},
		"grown, fragment for all":      {grown, fr("core/...", ""), ""},
		"broken, fragment without ADR": {broken, fr("core/storage", ""), "name an ADR"},
		"broken, fragment with ADR":    {broken, fr("core/storage", "0002-x.md"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := described(tc.changes, tc.fragments)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestParseFragment(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"whole":        {"Kind: added\nPackages: core/api, sdk/...\nADR: 0001-x.md\n\nA thing.\n", ""},
		"unknown kind": {"Kind: add\n\nA thing.\n", `Kind is "add"`},
		"unknown key":  {"Kind: added\nPackage: core/api\n\nA thing.\n", "none of Kind, Packages, ADR"},
		"no text":      {"Kind: added\n\n\n", "says nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			fr, err := parseFragment("changes/x.md", tc.text)
			if tc.want != "" {
				require.ErrorContains(t, err, tc.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, fragment{name: "changes/x.md", kind: "added", packages: []string{"core/api", "sdk/..."}, adr: "0001-x.md"}, fr)
		})
	}
}

// TestFragmentsOfTheRepository reads the fragments that are there.
func TestFragmentsOfTheRepository(t *testing.T) {
	_, err := readFragments("../..")
	require.NoError(t, err)
}

func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		put(t, root, name, text)
	}
	return root
}

func put(t *testing.T, root, name, text string) {
	t.Helper()
	p := filepath.Join(root, filepath.FromSlash(name))
	require.NoError(t, os.MkdirAll(filepath.Dir(p), 0o755))
	require.NoError(t, os.WriteFile(p, []byte(text), 0o644))
}
