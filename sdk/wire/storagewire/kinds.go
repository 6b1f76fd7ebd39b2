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
	kindCancel // of the request with the same id; on the read connection
	kindDone   // answer without an error
	kindFailed // answer: a Failure
	kindEvent
)
