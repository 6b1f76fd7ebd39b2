package storagewire

import "github.com/hardpointmq/hardpoint/sdk/wire/internal/data"

// Kinds of frames. Requests go to the plugin, the others to the host.
const (
	kindAppend data.Kind = iota + 1
	kindPublish
	kindTruncate
	kindReset
	kindExpire
	kindDrop
	kindSync
	kindRead
	kindGet
	kindReadLog
	kindOffsets
	kindCancel // of the request with the same id, on the connection that the time names; on the read connection
	kindDone   // answer without an error
	kindFailed // answer: a Failure
	kindEvent
)

// Where the call is that a kindCancel is about: its head has it in place of the time.
const (
	cancelRead  = 0
	cancelLog   = 1
	cancelCalls = 2 // the first call connection, and so on
)

// due says what the plugin owes that has a call of the kind k; 0: nothing.
func due(k data.Kind) string {
	if k == 0 {
		return ""
	}
	return "answer " + names[k]
}

// names are those of the calls.
var names = [...]string{
	kindAppend: "Append", kindPublish: "Publish", kindTruncate: "Truncate", kindReset: "Reset", kindExpire: "Expire", kindDrop: "Drop",
	kindSync: "Sync", kindRead: "Read", kindGet: "Get", kindReadLog: "ReadLog", kindOffsets: "Offsets",
}
