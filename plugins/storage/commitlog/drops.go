package commitlog

import (
	"encoding/json"
	"log/slog"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

const droppedFile = "hardpoint.dropped"

// dropped remembers up to where the records of dropped queues lie in the log,
// so that recovery does not bring them back.
type dropped struct {
	Queues []droppedQueue `json:"dropped"`
}

type droppedQueue struct {
	Topic string           `json:"topic"`
	ID    int32            `json:"queue"`
	Below message.Position `json:"below"`
}

func (d *dropped) load(fsys vfs.FS, name string, log *slog.Logger) error {
	_, err := readCopied(fsys, name, log, d.parse, "it should list dropped queues; remove it and its copy if none of them matters")
	return err
}

func (d *dropped) parse(b []byte) error {
	*d = dropped{}
	return json.Unmarshal(b, d)
}

// covers reports whether the record at pos belongs to a queue that was dropped
// after it.
func (d *dropped) covers(q message.Queue, pos message.Position) bool {
	for i := range d.Queues {
		if x := &d.Queues[i]; x.ID == q.ID && x.Topic == q.Topic && pos < x.Below {
			return true
		}
	}
	return false
}

// cut is told that the log was cut at pos: what comes to stand there is new. It
// reports whether the list changed.
func (d *dropped) cut(pos message.Position) bool {
	changed := false
	for i := range d.Queues {
		if x := &d.Queues[i]; x.Below > pos {
			x.Below, changed = pos, true
		}
	}
	return changed
}

// save writes the list, without what lies below first.
func (d *dropped) save(fsys vfs.FS, name string, first message.Position) error {
	keep := d.Queues[:0]
	for _, x := range d.Queues {
		if x.Below > first {
			keep = append(keep, x)
		}
	}
	d.Queues = keep
	b, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return writeCopied(fsys, name, append(b, '\n'))
}
