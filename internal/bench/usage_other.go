//go:build !linux

package bench

func usageOf(int) (usage, error) { return usage{}, errNoUsage }
