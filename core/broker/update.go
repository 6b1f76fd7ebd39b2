package broker

import (
	"fmt"
	"strings"

	"github.com/hardpointmq/hardpoint/core/config"
)

// update applies UPDATE_BROKER_CONFIG: reloadable keys, all or none.
func (b *Broker) update(text []byte) (string, error) {
	b.umu.Lock()
	defer b.umu.Unlock()
	next, changes, err := b.loaded.Update(text)
	if err != nil {
		return "", err
	}
	if len(changes) == 0 {
		return "nothing changed", nil
	}
	permission := b.k.Config().Permission
	b.loaded = next
	b.k.SetConfig(kernelConfig(&next.Config))
	if b.k.Config().Permission != permission {
		b.k.Topics.Touch() // the routes that name servers give out change with it
		b.topicChanged("")
	}
	said := make([]string, len(changes))
	for i, c := range changes {
		said[i] = fmt.Sprintf("%s: %s -> %s", c.Key, c.Old, c.New)
		b.p.Logger.Info("configuration changed by request", "key", c.Key, "old", c.Old, "new", c.New)
		if b.p.Changed != nil {
			b.p.Changed(c)
		}
	}
	return strings.Join(said, "; ") + " (until the broker stops; write it into its configuration to keep it)", nil
}

// OnChange is told of keys that a request changed, for what lies outside of the
// broker (logLevel). It must not block.
type OnChange func(config.Change)
