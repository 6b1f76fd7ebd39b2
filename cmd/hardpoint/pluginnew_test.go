package main

import (
	"go/format"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTemplatesAreSmall holds what the guide promises: blank lines and the package
// comment do not count.
func TestTemplatesAreSmall(t *testing.T) {
	for name, most := range map[string]int{"allocate": 60, "storage": 100, "replication": 370, "transport": 370} {
		text, err := templates.ReadFile("templates/go/" + name + "/plugin.go.tmpl")
		require.NoError(t, err)
		_, text2, _ := strings.Cut(string(text), "\npackage ")
		lines := 0
		for line := range strings.Lines(text2) {
			if strings.TrimSpace(line) != "" {
				lines++
			}
		}
		require.LessOrEqual(t, lines, most, name)
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
			}
		}
	}
	require.Equal(t, []string{"allocate", "replication", "storage", "transport"}, scaffoldKinds("go"), "all kinds are equal")
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
