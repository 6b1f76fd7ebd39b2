package nameserver

import (
	"path/filepath"

	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// FromConfig picks what a name server needs of a process's configuration. lim
// bounds what its peers cost.
func FromConfig(c *config.Config, lim transport.Limits) (Config, error) {
	n := NewDefaultConfig()
	n.Dir = filepath.Join(c.Node.Data, "namesrv")
	n.Listen.Address = c.Namesrv.Listen
	n.Listen.Limits = lim
	n.ScanInterval = c.Namesrv.ScanNotActiveBrokerInterval
	n.BrokerExpiry = c.Namesrv.BrokerExpiredTimeout
	n.OrderMessageEnable = c.Namesrv.OrderMessageEnable
	n.EnableAllTopicList = c.Namesrv.EnableAllTopicList
	n.EnableTopicList = c.Namesrv.EnableTopicList
	raw, err := c.PluginRaw("transport", n.Transport)
	n.TransportConfig = raw
	return n, err
}
