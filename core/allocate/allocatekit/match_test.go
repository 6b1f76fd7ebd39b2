package allocatekit_test

import (
	"testing"

	"github.com/hardpointmq/hardpoint/core/allocate/allocatekit"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "", true},
		{"*", "10.0.0.1@pod/7", true},
		{"10.0.0.1@*", "10.0.0.1@pod/7", true},
		{"10.0.0.1@pod?7", "10.0.0.1@pod/7", true},
		{"10.0.0.1@*", "10.0.0.11@x", false},
		{"[ab]*", "b1", true},
		{"[ab]", "[ab]", true},
		{"größe-*", "größe-7", true},
		{"?", "ö", true},
		{"[", "[", true},
		{"[", "x", false},
	} {
		if got := allocatekit.Match(c.pattern, c.name); got != c.want {
			t.Errorf("Match(%q, %q) = %v", c.pattern, c.name, got)
		}
	}
	for pattern, good := range map[string]bool{"*": true, "a/b": true, "": false, "[": false, `\`: false} {
		if err := allocatekit.CheckPattern(pattern); (err == nil) != good {
			t.Errorf("CheckPattern(%q): %v", pattern, err)
		}
	}
}
