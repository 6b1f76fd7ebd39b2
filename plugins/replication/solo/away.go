package solo

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// watcher is what watches the store.
type watcher struct {
	life context.Context // ends with Shutdown
	end  context.CancelFunc
	task sync.WaitGroup
}

// goneAway tells a store that went away, and will be opened again by its host,
// from one that failed.
func (s *Solo) goneAway(err error) bool {
	return s.p.Store.Capabilities().Reopener != nil && errors.Is(err, plugin.ErrUnavailable) && !errors.Is(err, storage.ErrFailed)
}

// watchStore ends the office when the store goes away, and takes the next one
// when it is back.
func (s *Solo) watchStore(r storage.Reopener) {
	for {
		why := r.Gone(s.away.life)
		if !errors.Is(why, plugin.ErrUnavailable) {
			return // Shutdown
		}
		s.readOnly(why)
		if !s.goneAway(s.failure()) {
			return // it failed before, and nobody writes to it again
		}
		s.p.Logger.Warn("the store is away, this broker is read-only until it is back", "error", why)
		s.explain(why)
		s.endOffice()
		if !s.comeBack(r) {
			return
		}
		s.p.Logger.Info("the store is back, this broker takes writes again", "term", s.Role().Term, "tail", s.p.Store.State().Tail)
	}
}

// officePause is the time between attempts to take office over a store that is
// back. They fail when it goes away again, or on what only time or a person
// helps against, as a full disk.
const officePause = time.Second

// comeBack waits for the store and takes office. false: it will not come back, or
// the replicator shuts down.
func (s *Solo) comeBack(r storage.Reopener) bool {
	pause := s.p.Clock.NewTimer(officePause)
	defer pause.Stop()
	for {
		err := r.Reopened(s.away.life)
		back := err == nil
		if back {
			if err = s.takeOffice(s.away.life); err == nil {
				return true
			}
			if first := s.failure(); first != nil {
				err = first // OnRole may say it in words of its own
				back = false
			}
			s.fail(err) // nothing is appended until the next attempt
			s.endOffice()
		}
		switch {
		case s.away.life.Err() != nil:
			return false
		case s.goneAway(err):
			s.explain(err)
		case back: // the log is well
			s.p.Logger.Error("the store is back, but the engine cannot take office over it; trying again", "error", err)
			s.explain(err)
			pause.Reset(officePause)
			select {
			case <-pause.C():
			case <-s.away.life.Done():
			}
		default: // another log, a shorter one, or one that failed
			s.mu.Lock()
			s.role.ReadOnly = "the log takes no writes until the broker is restarted: " + err.Error()
			s.mu.Unlock()
			s.p.Logger.Error("this broker stays read-only", "error", err)
			s.tellReadOnly()
			return false
		}
	}
}

func awayText(why error) string { return "the store is away and is being opened again: " + why.Error() }

// explain makes the role say why there is no office, and tells the engine.
func (s *Solo) explain(why error) {
	s.mu.Lock()
	s.role.ReadOnly = awayText(why)
	s.mu.Unlock()
	s.tellReadOnly()
}

func (s *Solo) tellReadOnly() {
	if err := s.tellRole(context.Background()); err != nil {
		s.p.Logger.Error("telling the engine that this broker is read-only", "error", err)
	}
}
