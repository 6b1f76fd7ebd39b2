//go:build !linux

package commitlog

import "time"

func threadCPU() time.Duration { return 0 }
