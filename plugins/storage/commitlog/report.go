package commitlog

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/hardpointmq/hardpoint/core/message"
)

// Report is what [Examine] saw of a directory. Times are Unix milliseconds, sizes
// bytes, positions those of the log. Its JSON is that of `hardpoint store`.
type Report struct {
	// LogID is empty where only RocketMQ has written so far.
	LogID string `json:"logId,omitempty"`
	// Closed tells that the last end was in order: there is no file abort.
	Closed bool `json:"closed"`
	// SegmentSize, QueueFileSize, IndexSlots and IndexEntries are what the files
	// were made with; 0 where there is none to tell.
	SegmentSize   int64 `json:"segmentSize"`
	QueueFileSize int64 `json:"queueFileSize"`
	IndexSlots    int32 `json:"indexSlots"`
	IndexEntries  int32 `json:"indexEntries"`
	// First and Tail bound the log; Records and Bytes count what is good in it.
	First   message.Position `json:"first"`
	Tail    message.Position `json:"tail"`
	Records int64            `json:"records"`
	Bytes   int64            `json:"bytes"`

	Segments   []SegmentReport  `json:"segments"`
	Queues     []QueueReport    `json:"queues"`
	Index      []IndexReport    `json:"index"`
	Checkpoint CheckpointReport `json:"checkpoint"`

	// Findings are in the order of files and offsets; of more than a thousand notes, and
	// of more than a thousand others, only LeftOut tells how many there were.
	Findings []Finding `json:"findings"`
	LeftOut  int       `json:"findingsLeftOut"`

	tally tally
}

// tally is what all findings come to, also those that are left out.
type tally struct {
	levels   map[Level]int
	parts    [ofOther + 1]bool // with damage
	damaged  int               // left out
	mendable int               // of them
}

// SegmentReport is one file of the log.
type SegmentReport struct {
	File string `json:"file"`
	// From is the position of its first byte, To is behind its last one that is
	// used.
	From    message.Position `json:"from"`
	To      message.Position `json:"to"`
	Size    int64            `json:"size"`
	Records int64            `json:"records"`
	// FirstTime and LastTime are the store times of its first and last record, 0
	// when it has none.
	FirstTime int64 `json:"firstTime"`
	LastTime  int64 `json:"lastTime"`
	// Damaged is how many of its bytes are damaged.
	Damaged int64 `json:"damaged"`
}

// QueueReport is one ConsumeQueue.
type QueueReport struct {
	Topic string `json:"topic"`
	ID    int32  `json:"queue"`
	// Min and Max are its first offset and the one behind its last.
	Min   int64 `json:"min"`
	Max   int64 `json:"max"`
	Files int   `json:"files"`
	Size  int64 `json:"size"`
}

// IndexReport is one file of the key index.
type IndexReport struct {
	File    string           `json:"file"`
	Entries int32            `json:"entries"`
	From    message.Position `json:"from"`
	To      message.Position `json:"to"`
	// BeginTime and EndTime are the store times of its first and last entry.
	BeginTime int64 `json:"beginTime"`
	EndTime   int64 `json:"endTime"`
	Size      int64 `json:"size"`
}

// CheckpointReport is what the checkpoint says.
type CheckpointReport struct {
	Present    bool  `json:"present"`
	PhysicTime int64 `json:"physicTime"`
	LogicsTime int64 `json:"logicsTime"`
	IndexTime  int64 `json:"indexTime"`
	Published  int64 `json:"published"`
	// IndexAt is the position below which keys are flushed, −1 where only RocketMQ
	// wrote.
	IndexAt int64 `json:"indexAt"`
}

// Level tells how bad a finding is.
type Level string

// Levels of findings.
const (
	// Note: nothing is lost, and nobody has to do anything.
	Note Level = "note"
	// Damage: something is not as it was written.
	Damage Level = "damage"
)

// Finding is one thing that is not as it should be.
type Finding struct {
	Level Level `json:"level"`
	// File is relative to the store's directory, with slashes. Offset is the byte
	// in it, and Bytes how many are meant; 0 where that is not a range.
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes,omitempty"`
	// What is wrong, what it means to who uses the store, and what repair does.
	What   string `json:"what"`
	Means  string `json:"means"`
	Repair string `json:"repair,omitempty"`

	part part
	// lost: it can be brought back only from elsewhere, and repair goes on without
	// it only when told to.
	lost bool
	// kept: repair leaves it as it is.
	kept bool
}

// String is the finding on one line.
func (f *Finding) String() string {
	return fmt.Sprintf("%s: %s at byte %d: %s: %s", f.Level, f.File, f.Offset, f.What, f.Means)
}

// part is what a finding is about.
type part int

const (
	ofLog part = iota
	ofQueue
	ofIndex
	ofCheckpoint
	ofOther
)

// Damaged counts the findings that are damage.
func (r *Report) Damaged() int {
	n := r.tally.damaged
	for i := range r.Findings {
		if r.Findings[i].Level == Damage {
			n++
		}
	}
	return n
}

// Mendable counts the damage that a repair does not leave as it is.
func (r *Report) Mendable() int {
	n := r.tally.mendable
	for i := range r.Findings {
		if r.Findings[i].mendable() {
			n++
		}
	}
	return n
}

func (f *Finding) mendable() bool { return f.Level == Damage && !f.kept }

// Lost are findings without whose files repair goes on only when told to.
func (r *Report) Lost() []Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return !f.lost })
}

// damaged tells whether there is damage of a part.
func (r *Report) damaged(p part) bool { return r.tally.parts[p] }

// Add keeps a finding, of too many only that there was one more: the notes of many
// queues neither hide damage nor count as some. What is lost is always kept.
func (r *Report) Add(f Finding) {
	t := &r.tally
	if t.levels == nil {
		t.levels = map[Level]int{}
	}
	if f.Level == Damage {
		t.parts[f.part] = true
	}
	if t.levels[f.Level]++; t.levels[f.Level] <= maxDamage || f.lost {
		r.Findings = append(r.Findings, f)
		return
	}
	r.LeftOut++
	if f.Level == Damage {
		t.damaged++
	}
	if f.mendable() {
		t.mendable++
	}
}

func (r *Report) sort() {
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.part, b.part), cmp.Compare(a.File, b.File), cmp.Compare(a.Offset, b.Offset))
	})
	slices.SortFunc(r.Queues, func(a, b QueueReport) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.ID, b.ID))
	})
}

// rel is a path for a finding.
func (x *examiner) rel(path string) string {
	r, err := filepath.Rel(x.path.root, path)
	if err != nil { // a log elsewhere
		r = path
	}
	return filepath.ToSlash(r)
}
