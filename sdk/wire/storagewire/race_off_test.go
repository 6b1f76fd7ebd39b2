//go:build !race

package storagewire_test

const raceEnabled = false
