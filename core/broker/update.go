package broker

import (
	"github.com/hardpointmq/hardpoint/core/command"
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
	permission := b.k.Config().Permission
	b.loaded = next
	if len(changes) > 0 {
		b.version.Counter++
		b.version.Timestamp = b.p.Clock.Now().UnixMilli()
	}
	b.k.SetConfig(kernelConfig(&next.Config))
	if b.k.Config().Permission != permission {
		b.k.Topics.Touch() // the routes that name servers give out change with it
		b.topicChanged("")
	}
	for _, c := range changes {
		b.p.Logger.Info("configuration changed by request", "key", c.Key, "old", c.Old, "new", c.New)
		if b.p.Changed != nil {
			b.p.Changed(c)
		}
	}
	return config.Describe(changes, "broker"), nil
}

// properties answers GET_BROKER_CONFIG.
func (b *Broker) properties() ([]byte, command.DataVersion) {
	b.umu.Lock()
	defer b.umu.Unlock()
	return b.loaded.Properties(), b.version
}

// OnChange is told of keys that a request changed, for what lies outside of the
// broker (logLevel). It must not block.
type OnChange func(config.Change)
