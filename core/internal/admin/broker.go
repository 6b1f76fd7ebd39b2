package admin

import (
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
)

// broker registers what is about the broker as a whole.
func (a *Admin) broker() {
	a.k.Handle(command.ReqUpdateBrokerConfig, a.updateConfig)
}

// updateConfig changes reloadable keys, all or none. The change lasts until the
// broker stops: the file is the operator's.
func (a *Admin) updateConfig(r *kernel.Request) {
	if a.k.Update == nil {
		r.Error(command.RespRequestCodeNotSupported, "the configuration of this broker is fixed by the program that embeds it")
		return
	}
	changed, err := a.k.Update(r.Frame.Body)
	if err != nil {
		r.Error(command.RespSystemError, err.Error())
		return
	}
	w := r.Begin(command.RespSuccess)
	w.Remark(changed)
	r.Reply(w)
}
