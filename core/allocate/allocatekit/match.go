package allocatekit

import (
	"fmt"
	"path"
	"strings"
)

// Match reports whether a client id or another name is one that a pattern means: that
// of path.Match, but that "*" and "?" stand for any character, "/" too, which client
// ids may hold. A name is always meant by itself, even if it has brackets. A pattern
// that [CheckPattern] refuses matches no other name.
func Match(pattern, name string) bool {
	ok, _ := path.Match(plain(pattern), plain(name))
	return ok || pattern == name
}

// CheckPattern refuses what is no pattern.
func CheckPattern(pattern string) error {
	if _, err := path.Match(plain(pattern), ""); err != nil || pattern == "" {
		return fmt.Errorf("%.120q is no pattern such as big-*", pattern)
	}
	return nil
}

// plain hides what is special to path.Match beside patterns.
func plain(s string) string { return strings.ReplaceAll(s, "/", "\x00") }
