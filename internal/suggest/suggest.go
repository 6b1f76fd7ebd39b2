// Package suggest finds what somebody meant who mistyped a name.
package suggest

import (
	"iter"
	"strings"
)

// longest is the length in bytes up to which a name is compared.
const longest = 200

// Nearest returns the known name closest to name, in whatever letter case, empty when
// none is close: then it is another word, not a typing error. Of two that are as close
// the first of the alphabet counts.
func Nearest(name string, known iter.Seq[string]) string {
	if len(name) > longest {
		return ""
	}
	best, bestDist := "", min(len(name)/3+2, len(name))
	low := strings.ToLower(name)
	for n := range known {
		if d := len(n) - len(name); d >= bestDist || -d >= bestDist {
			continue
		}
		d := distance(low, strings.ToLower(n))
		if d < bestDist || d == bestDist && best != "" && n < best {
			best, bestDist = n, d
		}
	}
	return best
}

// DidYouMean is the end of an error that says that name is not known:
// "; did you mean NEAREST?", empty when no known name is close.
func DidYouMean(name string, known iter.Seq[string]) string {
	if n := Nearest(name, known); n != "" {
		return "; did you mean " + n + "?"
	}
	return ""
}

// distance counts insertions, deletions, replacements and exchanges of neighbours
// that turn a into b.
func distance(a, b string) int {
	prev2 := make([]int, len(b)+1)
	prev := make([]int, len(b)+1)
	cur := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
