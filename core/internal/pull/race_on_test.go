//go:build race

package pull_test

const raceEnabled = true
