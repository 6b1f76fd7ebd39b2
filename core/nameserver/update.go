package nameserver

import (
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/transport"
)

// OnChange is told of keys that a request changed, for what lies outside of the name
// server (logLevel). It must not block.
type OnChange func(config.Change)

// properties answers GET_NAMESRV_CONFIG.
func (s *Server) properties() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loaded.Properties()
}

// update applies UPDATE_NAMESRV_CONFIG: reloadable keys, all or none. The change lasts
// until the name server stops: the file is the operator's.
func (s *Server) update(text []byte) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, changes, err := s.loaded.Update(text)
	if err != nil {
		return "", err
	}
	cfg, err := FromConfig(&next.Config, transport.Limits{})
	if err == nil {
		err = s.engine.SetConfig(cfg.rules())
	}
	if err != nil {
		return "", err
	}
	s.loaded = next
	for _, c := range changes {
		s.settings.Logger.Info("configuration changed by request", "key", c.Key, "old", c.Old, "new", c.New)
		if s.changed != nil {
			s.changed(c)
		}
	}
	return config.Describe(changes, "name server"), nil
}
