// Package filter reads tag expressions and matches messages against them.
//
// The codes that an index is searched with are computed here from the
// expression, never taken from a client: Go clients hash UTF-8 bytes where Java
// hashes UTF-16 units, so their code sets differ for tags beyond ASCII.
package filter

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/message"
)

// Tags is a compiled tag expression; immutable.
type Tags struct {
	// All lets everything through.
	All bool
	// Codes are the hashes of the tags, sorted, without repeats.
	Codes []int64
	tags  map[string]struct{}
}

// everything is the expression "*".
var everything = &Tags{All: true}

// maxExpression bounds an expression in bytes.
const maxExpression = 64 << 10

// Parse compiles an expression: "*" or empty for everything, otherwise tags
// separated by "||" with blanks around them dropped (FilterAPI). The error is an
// *api.Error of SubscriptionParseFailed.
func Parse(expression string) (*Tags, error) {
	if expression == "" || expression == "*" {
		return everything, nil
	}
	if len(expression) > maxExpression {
		return nil, &api.Error{ID: api.SubscriptionParseFailed, Text: fmt.Sprintf("the tag expression has %d bytes, at most %d are allowed", len(expression), maxExpression)}
	}
	t := &Tags{tags: map[string]struct{}{}}
	for part := range strings.SplitSeq(expression, "||") {
		if tag := strings.TrimSpace(part); tag != "" {
			t.tags[tag] = struct{}{}
			t.Codes = append(t.Codes, message.TagsCode([]byte(tag)))
		}
	}
	if len(t.tags) == 0 {
		return nil, &api.Error{ID: api.SubscriptionParseFailed, Text: fmt.Sprintf("the tag expression %.200q names no tag; use * for all messages", expression)}
	}
	slices.Sort(t.Codes)
	t.Codes = slices.Compact(t.Codes)
	return t, nil
}

// MatchCode reports whether a unit with this code may match.
func (t *Tags) MatchCode(code int64) bool {
	if t.All {
		return true
	}
	_, ok := slices.BinarySearch(t.Codes, code)
	return ok
}

// MatchProperties reports whether a message with these properties matches. It
// compares texts, since hashes collide.
func (t *Tags) MatchProperties(props []byte) bool {
	if t.All {
		return true
	}
	v, _ := message.Property(props, message.PropTags)
	_, ok := t.tags[string(v)]
	return ok
}

// Cache remembers compiled expressions. Safe for concurrent use; a hit takes a
// read lock and allocates nothing.
type Cache struct {
	mu sync.RWMutex
	m  map[string]*Tags
}

// maxCached and longestCached bound a Cache, also in bytes: real brokers have a few
// expressions per group, and they are short.
const (
	maxCached     = 4096
	longestCached = 4 << 10
)

// Get compiles an expression or finds it.
func (c *Cache) Get(expression []byte) (*Tags, error) {
	if len(expression) == 0 || len(expression) == 1 && expression[0] == '*' {
		return everything, nil
	}
	c.mu.RLock()
	t := c.m[string(expression)]
	c.mu.RUnlock()
	if t != nil {
		return t, nil
	}
	t, err := Parse(string(expression))
	if err != nil || len(expression) > longestCached {
		return t, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil || len(c.m) >= maxCached {
		c.m = map[string]*Tags{}
	}
	c.m[string(expression)] = t
	return t, nil
}

// CheckType returns nil for the expression types served: TAG, or none given.
func CheckType(expressionType string) error {
	if expressionType == "" || strings.EqualFold(expressionType, "TAG") {
		return nil
	}
	// A clone, so that callers with bytes need not allocate a string for each check.
	return &api.Error{ID: api.SystemError, Text: fmt.Sprintf("The broker does not support consumer to filter message by %s", strings.Clone(expressionType))}
}
