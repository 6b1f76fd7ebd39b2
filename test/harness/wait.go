package harness

import (
	"testing"
	"time"
)

// pollEvery is the pause between two looks at the state of another process.
const pollEvery = 20 * time.Millisecond

// Until polls ok until it holds and fails the test after the deadline; what says
// what was waited for.
func Until(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	if !Poll(within, ok) {
		t.Fatalf("%s: not within %v", what, within)
	}
}

// Poll is Until for callers that report by themselves: it tells whether ok came
// to hold.
func Poll(within time.Duration, ok func() bool) bool {
	deadline := time.Now().Add(within)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if ok() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		<-tick.C
	}
}
