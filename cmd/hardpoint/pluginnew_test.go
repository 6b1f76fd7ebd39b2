package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTemplatesAreSmall holds what the guide promises: blank lines and the package
// comment do not count.
func TestTemplatesAreSmall(t *testing.T) {
	for name, most := range map[string]int{"allocate": 60, "storage": 100} {
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

// A plugin asks for the Go that Hardpoint asks for.
func TestGoVersionOfNewPlugins(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	require.Contains(t, string(mod), "\ngo "+goVersion+"\n")
	require.True(t, isSources(mod))
	require.Contains(t, requires(string(mod)), "go.uber.org/fx v1.24.0")
}
