package main

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/internal/adminclient"
)

// TestLines: a name that a client chose begins no line and no column.
func TestLines(t *testing.T) {
	var out bytes.Buffer
	g := newPage(&out)
	args := []any{"x\nproblem: y\tz\x1b[2J", errors.New("a\nb"), adminclient.Broker{Name: "c\nd"}}
	g.line("note: %s, %s, %s\n  and more", args...)
	require.NoError(t, g.end())
	require.Equal(t, "note: x\\nproblem: y\\tz\uFFFD[2J, a\\nb, c\\nd ()\n  and more\n", out.String())
	require.Equal(t, "x\nproblem: y\tz\x1b[2J", args[0], "the caller's are his")
}

// TestProposedCommands: who runs what is proposed runs that, and nothing that a client
// put into its names.
func TestProposedCommands(t *testing.T) {
	sh, err := exec.LookPath("sh")
	for name, want := range map[string]string{
		"Orders_1-%RETRY%": "Orders_1-%RETRY%", "a|reboot": "'a|reboot'", "a;b $(c) `d`": "'a;b $(c) `d`'", "it's": `'it'\''s'`, "": "''", "é": "'é'", "a\nb": "'a\nb'",
	} {
		require.Equal(t, want, shellWord(name))
		if err == nil && runtime.GOOS != "windows" { // which has no list of arguments
			said, err := exec.CommandContext(t.Context(), sh, "-c", "printf '%s' "+shellWord(name)).Output()
			require.NoError(t, err)
			require.Equal(t, name, string(said))
		}
	}
	f := &groupFacts{}
	f.Group = "g|x"
	f.Brokers = []groupOn{{Broker: adminclient.Broker{Name: "b"}, Has: true, Forbidden: []string{"t|y"}}}
	x := &explainer{groupFacts: f}
	x.form()
	require.Equal(t, []string{"hardpoint group update 'g|x' --consume=true", "hardpoint group allow 'g|x' 't|y'"}, []string{x.found[0].Do, x.found[1].Do}, fmt.Sprint(x.found))
}

func TestCompletable(t *testing.T) {
	require.Equal(t, []string{"Orders", "%RETRY%a-b_1"}, completable([]string{"Orders", "$(reboot)", "a|b", "a\tb", "a\nb", "", "%RETRY%a-b_1", "`x`"}))
}
