// Package hostlimits tells how near a process is to the limits that its system sets.
package hostlimits

// Limits are numbers of this process and what its system allows at most. -1: the system
// does not tell.
type Limits struct {
	OpenFiles, OpenFilesMax   int64 // sockets are files, too
	MemoryMaps, MemoryMapsMax int64
}

// Read looks now. It reads lists of the kernel, which takes milliseconds for a process
// with tens of thousands of maps.
func Read() Limits {
	l := Limits{-1, -1, -1, -1}
	l.read()
	return l
}
