package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"testing"
	"time"

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

// TestProposedFlags: a name is taken for no flag, whoever proposes it.
func TestProposedFlags(t *testing.T) {
	require.Equal(t, "hardpoint group update app --consume=true", proposal("group update", []string{"app"}, "--consume=true"))
	require.Equal(t, "hardpoint group update --consume=true -- -app", proposal("group update", []string{"-app"}, "--consume=true"))
	require.Equal(t, "hardpoint group allow -- app '-a|b'", proposal("group allow", []string{"app", "-a|b"}))
	flags := []string{"--to", "latest"}
	require.Equal(t, "hardpoint group reset --to latest -- -g t", proposal("group reset", []string{"-g", "t"}, flags...))
	require.Equal(t, []string{"--to", "latest"}, flags)
	// The program takes it as it is meant.
	var errs bytes.Buffer
	run(t.Context(), []string{"group", "update", "--consume=true", "--namesrv", "127.0.0.1:1", "--", "-app"}, nil, io.Discard, &errs)
	require.Contains(t, errs.String(), "no name server answers")
}

// TestEmptyTables: what failed everywhere prints no table, and everything else does.
func TestEmptyTables(t *testing.T) {
	failed := errors.New("nobody answers")
	titles := func(g *page) {
		g.row("A", "B")
		g.part()
		g.row("C", "D")
	}
	line := func(g *page) {
		titles(g)
		g.row("c", "d")
	}
	for _, x := range []struct {
		text   func(*page)
		err    error
		json   bool
		prints bool
	}{{titles, failed, false, false}, {titles, failed, true, true}, {titles, nil, false, true}, {line, failed, false, true}} {
		var out bytes.Buffer
		o := &output{}
		if x.json {
			o.word = "json"
		}
		require.Equal(t, x.err, (&program{stdout: &out}).showPart(o, []int{}, x.text, x.err))
		require.Equal(t, x.prints, out.Len() > 0, out.String())
	}
}

// TestCompletionTime: a name server that hangs leaves time for the next one.
func TestCompletionTime(t *testing.T) {
	require.Less(t, completionPatience, time.Second, "somebody waits")
	require.Equal(t, completionPatience, completionTime(1))
	require.Equal(t, completionPatience/2, completionTime(2))
	require.Equal(t, completionShare, completionTime(100))
}

func TestCompletable(t *testing.T) {
	require.Equal(t, []string{"Orders", "%RETRY%a-b_1"}, completable([]string{"Orders", "-x", "$(reboot)", "a|b", "a\tb", "a\nb", "", "%RETRY%a-b_1", "`x`"}))
}
