package assign

import "github.com/hardpointmq/hardpoint/core/command"

// Stamp is the stamp of an assignment.
func Stamp(g command.GroupAssignment) string { return newTable(g).stamp }
