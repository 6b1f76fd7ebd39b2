package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The commands that docs/coming-from-rocketmq.md calls compared are those that interop
// compares.
func TestComparedCommands(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "coming-from-rocketmq.md"))
	require.NoError(t, err)
	_, part, ok := strings.Cut(string(page), "<!-- mqadmin: compared -->")
	require.True(t, ok)
	part, _, ok = strings.Cut(part, "<!-- mqadmin: others -->")
	require.True(t, ok)
	said := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z]\\w+)`").FindAllStringSubmatch(part, -1) {
		said[m[1]] = true
	}

	script, err := os.ReadFile(filepath.Join(root, "test", "interop", "mqadmin", "script"))
	require.NoError(t, err)
	compared := map[string]bool{}
	for line := range strings.Lines(string(script)) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] != "smoke" && words[0] != "full" {
			continue
		}
		switch strings.TrimRight(words[1], "45") {
		case "save", "consumer", "producer", "stop", "apache", "hardpoint":
			continue
		case "until":
			words = words[1:]
		}
		if name := words[2]; name != "nosuchcommand" {
			compared[name] = true
		}
	}
	require.Greater(t, len(compared), 40)
	require.Equal(t, compared, said)
}
