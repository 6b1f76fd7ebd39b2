package main

import (
	"go/format"
	"os"
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
