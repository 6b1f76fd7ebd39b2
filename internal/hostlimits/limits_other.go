//go:build !linux

package hostlimits

func (l *Limits) read() {}
