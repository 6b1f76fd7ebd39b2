package filter_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/internal/filter"
	"github.com/hardpointmq/hardpoint/core/message"
)

func props(tag string) []byte { return message.AppendProperty(nil, message.PropTags, tag) }

func TestParse(t *testing.T) {
	for expr, want := range map[string][]string{
		"a": {"a"}, "a||b": {"a", "b"}, "  a || b ||": {"a", "b"}, "a||a": {"a"}, "||x": {"x"}, "a | b": {"a | b"}, "ü": {"ü"},
	} {
		f, err := filter.Parse(expr)
		require.NoError(t, err, expr)
		require.False(t, f.All)
		require.True(t, slices.IsSorted(f.Codes))
		require.Len(t, f.Codes, len(want), expr)
		for _, tag := range want {
			require.True(t, f.MatchCode(message.TagsCode([]byte(tag))), expr)
			require.True(t, f.MatchProperties(props(tag)), expr)
		}
		require.False(t, f.MatchProperties(props("other")))
		require.False(t, f.MatchProperties(nil), "no tag at all")
	}
	for _, expr := range []string{"", "*"} {
		f, err := filter.Parse(expr)
		require.NoError(t, err)
		require.True(t, f.All)
		require.True(t, f.MatchCode(1))
		require.True(t, f.MatchProperties(nil))
	}
	for _, expr := range []string{"||", "  ", " || || ", strings.Repeat("x", 65<<10)} {
		_, err := filter.Parse(expr)
		require.Equal(t, api.SubscriptionParseFailed, api.IDOf(err), "%.20q", expr)
	}
}

// "Aa" and "BB" have one hash: the code passes for both, the text does not.
func TestCollision(t *testing.T) {
	f, err := filter.Parse("Aa")
	require.NoError(t, err)
	require.True(t, f.MatchCode(message.TagsCode([]byte("BB"))))
	require.False(t, f.MatchProperties(props("BB")))
	both, err := filter.Parse("Aa||BB")
	require.NoError(t, err)
	require.Len(t, both.Codes, 1)
	require.True(t, both.MatchProperties(props("BB")))
}

func TestCheckType(t *testing.T) {
	for _, ok := range []string{"", "TAG", "tag"} {
		require.NoError(t, filter.CheckType(ok))
	}
	err := filter.CheckType("SQL92")
	require.Equal(t, api.SystemError, api.IDOf(err))
	require.ErrorContains(t, err, "SQL92")
}

func TestCache(t *testing.T) {
	var c filter.Cache
	a, err := c.Get([]byte("a||b"))
	require.NoError(t, err)
	b, err := c.Get([]byte("a||b"))
	require.NoError(t, err)
	require.Same(t, a, b)
	_, err = c.Get([]byte("||"))
	require.Error(t, err)
	long := []byte("a||" + strings.Repeat("x", 5000))
	a, err = c.Get(long)
	require.NoError(t, err)
	require.True(t, a.MatchProperties(props("a")))
	b, err = c.Get(long)
	require.NoError(t, err)
	require.NotSame(t, a, b, "long ones are not kept: thousands of them would be much memory")
	var wg sync.WaitGroup
	for p := range 4 {
		wg.Go(func() {
			for i := range 3000 {
				f, err := c.Get(fmt.Appendf(nil, "tag-%d", i*4+p))
				if err != nil || !f.MatchProperties(props(fmt.Sprint("tag-", i*4+p))) {
					t.Error("the cache gives another expression's filter")
				}
			}
		})
	}
	wg.Wait()
	key := []byte("a||b")
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = c.Get(key) }), "a hit allocates nothing")
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "*", "a||b", "||", "a || \x00", "Aa||BB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tags, err := filter.Parse(s)
		if err != nil || tags.All {
			return
		}
		for part := range strings.SplitSeq(s, "||") {
			tag := strings.TrimSpace(part)
			if tag != "" && !strings.ContainsAny(tag, "\x01\x02") && !tags.MatchProperties(props(tag)) {
				t.Errorf("%q does not let %q through", s, tag)
			}
		}
	})
}
