package suggest

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNearest(t *testing.T) {
	known := []string{"pebble", "memory", "commitlog", "sticky", "zone", "a", "b"}
	for name, want := range map[string]string{
		"peble": "pebble", "PEBBLE": "pebble", "comitlog": "commitlog", "stick": "sticky", "memroy": "memory", "zones": "zone",
		"": "", "c": "", "tape": "", "averagely": "", strings.Repeat("pebble", 100): "",
	} {
		require.Equal(t, want, Nearest(name, slices.Values(known)), name)
	}
	require.Equal(t, "cat", Nearest("bat", slices.Values([]string{"rat", "cat"})), "whatever the order")
	require.Equal(t, "; did you mean pebble?", DidYouMean("peble", slices.Values(known)))
	require.Empty(t, DidYouMean("tape", slices.Values(known)))
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"ab", "ba", 1}, {"abc", "abd", 1}, {"flush", "fush", 1}, {"kitten", "sitting", 3}} {
		require.Equal(t, c.want, distance(c.a, c.b), "%s %s", c.a, c.b)
		require.Equal(t, c.want, distance(c.b, c.a), "%s %s", c.b, c.a)
	}
}
