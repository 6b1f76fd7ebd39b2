//go:build !race

package pull_test

const raceEnabled = false
