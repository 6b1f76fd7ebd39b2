package main

import (
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTemplatesAreSmall holds what the guide promises, and what can be read in a few
// minutes: blank lines and what is before the package's name do not count.
func TestTemplatesAreSmall(t *testing.T) {
	most := map[string]int{
		"allocate/plugin": 60, "storage/plugin": 100,
		"replication/plugin": 215, "replication/office": 165, "transport/plugin": 205, "transport/peer": 175,
	}
	for _, kind := range scaffoldKinds("go") {
		files, err := templates.ReadDir("templates/go/" + kind)
		require.NoError(t, err)
		for _, f := range files {
			name := kind + "/" + strings.TrimSuffix(f.Name(), ".go.tmpl")
			if strings.HasSuffix(name, "_test") {
				continue
			}
			text, err := templates.ReadFile("templates/go/" + kind + "/" + f.Name())
			require.NoError(t, err)
			_, code, _ := strings.Cut("\n"+string(text), "\npackage ")
			lines := 0
			for line := range strings.Lines(code) {
				if strings.TrimSpace(line) != "" {
					lines++
				}
			}
			require.NotZero(t, most[name], name)
			require.LessOrEqual(t, lines, most[name], name)
		}
	}
}

// What the templates make is formatted as gofmt does.
func TestTemplatesAreFormatted(t *testing.T) {
	for _, kind := range scaffoldKinds("go") {
		s := scaffold{Kind: kind, Name: "my_own", Package: "myown", Lang: "go", Module: "example.com/my_own", Env: "MY_OWN"}
		files := map[string][]byte{}
		for _, folder := range []string{"common", kind} {
			require.NoError(t, s.render("templates/go/"+folder, files))
		}
		for name, text := range files {
			if strings.HasSuffix(name, ".go") {
				formatted, err := format.Source(text)
				require.NoError(t, err, "%s/%s", kind, name)
				require.Equal(t, string(formatted), string(text), "%s/%s", kind, name)
				require.Empty(t, unusedImports(t, text, s.Module), "%s/%s", kind, name)
			}
		}
	}
	require.Equal(t, []string{"allocate", "replication", "storage", "transport"}, scaffoldKinds("go"), "all kinds are equal")
}

// unusedImports are those of a file but own, whose package has another name than its
// folder. (Module test/ builds all of it, which takes longer.)
func unusedImports(t *testing.T, text []byte, own string) (out []string) {
	f, err := parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution)
	require.NoError(t, err)
	used := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok {
				used[x.Name] = true
			}
		}
		return true
	})
	for _, i := range f.Imports {
		at, err := strconv.Unquote(i.Path.Value)
		require.NoError(t, err)
		if at != own && !used[path.Base(at)] {
			out = append(out, at)
		}
	}
	return out
}

// A plugin asks for the Go that Hardpoint asks for.
func TestGoVersionOfNewPlugins(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	require.Contains(t, string(mod), "\ngo "+goVersion+"\n")
	require.True(t, isSources(mod))
	require.Contains(t, requires(string(mod)), "go.uber.org/fx v1.24.0")
}

// A name that makes a plugin which does not compile is refused before anything is
// written.
func TestNamesOfNewPlugins(t *testing.T) {
	for _, c := range []struct {
		lang, kind, name, module, want string
	}{
		{"go", "storage", "init", "", "a Go package cannot be called init here"},
		{"go", "storage", "main", "", "a Go package cannot be called main here"},
		{"go", "storage", "fu_nc", "", "a Go package cannot be called func here"},
		{"go", "storage", "string", "", "a Go package cannot be called string here"},
		{"go", "storage", "testing", "", "a Go package cannot be called testing here"},
		{"go", "storage", "storekit", "", "a Go package cannot be called storekit here"},
		{"go", "allocate", "allocatetest", "", "a Go package cannot be called allocatetest here"},
		{"go", "transport", "net", "", "a Go package cannot be called net here"},
		{"go", "replication", "re_plication", "", "a Go package cannot be called replication here"},
		{"python", "storage", "none", "", "a Python class cannot be called None"},
		{"python", "allocate", "true", "", "a Python class cannot be called True"},
		{"python", "storage", "string", "", ""}, // its files have no Go package of the name
		{"go", "storage", "mine", "bad module", `"bad module" is not the path of a Go module`},
		{"go", "storage", "mine", "example.com/a//b", "is not the path of a Go module"},
		{"go", "storage", "mine", "example.com/a/", "is not the path of a Go module"},
		{"go", "storage", "mine", `example.com/"x`, "is not the path of a Go module"},
		{"go", "storage", "net", "", ""}, // no file of a store's imports it
		{"go", "storage", "mine", "mine", ""},
		{"python", "storage", "list", "", ""},
	} {
		dir := filepath.Join(t.TempDir(), "new")
		s := scaffold{Kind: c.kind, Name: c.name, Lang: c.lang, Module: c.module, Dir: dir, Sources: "../.."}
		files, err := s.make()
		if c.want == "" {
			require.NoError(t, err, c.name)
			require.NotEmpty(t, files, c.name)
			continue
		}
		require.ErrorContains(t, err, c.want, "%s %s", c.name, c.module)
		var m misuse
		require.ErrorAs(t, err, &m)
		require.NoDirExists(t, dir)
	}
}
