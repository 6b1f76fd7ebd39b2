package nameserver

import (
	"context"
	"path/filepath"

	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/transport"
	"github.com/hardpointmq/hardpoint/core/wiring"
)

// CheckPlugins asks the transport that a name server with this configuration
// would use what it says to it, without opening anything, as a start does.
func CheckPlugins(ctx context.Context, c *config.Config, p *wiring.Plugins) error {
	const kind = "transport"
	name := c.Network.Transport
	f, err := p.Transport.Lookup(name)
	if err == nil {
		var raw plugin.Raw
		if raw, err = c.PluginRaw(kind, name); err == nil {
			_, err = f.Describe(ctx, raw)
		}
	}
	return c.PluginError(kind, name, err)
}

// FromConfig picks what a name server needs of a process's configuration. lim
// bounds what its peers cost.
func FromConfig(c *config.Config, lim transport.Limits) (Config, error) {
	n := NewDefaultConfig()
	n.Dir = filepath.Join(c.Node.Data, "namesrv")
	n.Transport = c.Network.Transport
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
