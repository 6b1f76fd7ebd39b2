package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCounterparts: what is proposed for a command of mqadmin is there, and docs/cli.md
// names the same commands of it.
func TestCounterparts(t *testing.T) {
	root := (&program{}).commands()
	for name, commands := range ofMqadmin {
		for _, line := range commands {
			line, flags, _ := strings.Cut(line, " --")
			c, rest, err := root.Find(strings.Fields(line))
			require.NoError(t, err, name)
			require.Empty(t, rest, name)
			if flags != "" {
				require.NoError(t, c.ParseFlags(strings.Fields("--"+flags)), name)
			}
			require.Equal(t, "hardpoint "+line, c.CommandPath(), name)
		}
	}
	page, err := os.ReadFile("../../docs/cli.md")
	require.NoError(t, err)
	named := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, "|"); len(cells) == 5 {
			for _, name := range regexp.MustCompile(`[a-z]+[A-Z]\w+`).FindAllString(cells[3], -1) {
				named[name] = true
			}
		}
	}
	for _, name := range regexp.MustCompile(`queryMsgBy\w+|printMsg|consumeMessage|sendMessage`).FindAllString(string(page), -1) {
		named[name] = true
	}
	for name := range ofMqadmin {
		require.True(t, named[name], "docs/cli.md does not name %s", name)
		delete(named, name)
	}
	require.Empty(t, named, "docs/cli.md names them")
}
