package main

import (
	"io"

	"github.com/hardpointmq/hardpoint/plugins/storage/commitlog"
)

// printStore prints what inspect found.
func printStore(w io.Writer, v *storeReport) error {
	p, r := newPage(w), v.Report
	head(p, v)
	if v.Kind != "pebble" {
		c := r.Checkpoint
		switch {
		case !c.Present:
			p.line("checkpoint\tmissing")
		case c.IndexAt < 0:
			p.line("checkpoint\trecords %s, queues %s, keys %s", timeText(c.PhysicTime), timeText(c.LogicsTime), timeText(c.IndexTime))
		default:
			p.line("checkpoint\trecords %s, queues %s, keys %s; published up to %d, keys up to %d", timeText(c.PhysicTime), timeText(c.LogicsTime), timeText(c.IndexTime), c.Published, c.IndexAt)
		}
	}
	if len(r.Segments) > 0 {
		p.part()
		p.line("SEGMENT\tFROM\tTO\tRECORDS\tUSED\tFIRST STORED\tLAST STORED\tDAMAGED")
		for _, s := range r.Segments {
			p.line("%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s", s.File, s.From, s.To, s.Records, sizeText(int64(s.To-s.From)), timeText(s.FirstTime), timeText(s.LastTime), sizeText(s.Damaged))
		}
	}
	if len(r.Queues) > 0 {
		p.part()
		p.line("TOPIC\tQUEUE\tMIN\tMAX\tENTRIES\tFILES\tSIZE")
		for _, q := range r.Queues {
			p.line("%s\t%d\t%d\t%d\t%d\t%d\t%s", q.Topic, q.ID, q.Min, q.Max, q.Max-q.Min, q.Files, sizeText(q.Size))
		}
	}
	if len(r.Index) > 0 {
		p.part()
		p.line("INDEX FILE\tENTRIES\tFROM\tTO\tFIRST STORED\tLAST STORED\tSIZE")
		for _, x := range r.Index {
			p.line("%s\t%d\t%d\t%d\t%s\t%s\t%s", x.File, x.Entries, x.From, x.To, timeText(x.BeginTime), timeText(x.EndTime), sizeText(x.Size))
		}
	}
	if len(v.Config) > 0 {
		p.part()
		p.line("METADATA\tSIZE\tSTATE")
		for _, f := range v.Config {
			p.line("%s\t%s\t%s", f.File, sizeText(f.Size), f.State)
		}
	}
	printFindings(p, r, false)
	return p.end()
}

// head tells in a few lines what a store is.
func head(p *page, v *storeReport) {
	r := v.Report
	p.line("store\t%s", v.Dir)
	switch {
	case v.Kind != "commitlog":
		p.line("kind\t%s", v.Kind)
	case r.LogID == "":
		p.line("kind\tcommitlog, written by RocketMQ; Hardpoint has not opened it yet")
	default:
		p.line("kind\tcommitlog")
	}
	if r.LogID != "" {
		p.line("log id\t%s", r.LogID)
	}
	switch {
	case v.Open:
		p.line("state\topen: a broker holds its lock")
	case v.Kind != "commitlog": // opening it has closed it
	case r.Closed:
		p.line("state\tclosed in order")
	default:
		p.line("state\tnot closed in order (abort is there): the next start recovers, or store seal")
	}
	if v.Kind == "commitlog" {
		p.line("log\tpositions %d to %d, %s of %s, %s in %s", r.First, r.Tail, counted(len(r.Segments), "segment"), sizeText(r.SegmentSize), counted(int(r.Records), "record"), sizeText(r.Bytes))
	} else {
		p.line("log\tpositions %d to %d, %s in %s", r.First, r.Tail, counted(int(r.Records), "record"), sizeText(r.Bytes))
	}
	units := int64(0)
	topics := map[string]bool{}
	for i := range r.Queues {
		units += r.Queues[i].Max - r.Queues[i].Min
		topics[r.Queues[i].Topic] = true
	}
	p.line("queues\t%s of %s, %d entries", counted(len(r.Queues), "queue"), counted(len(topics), "topic"), units)
	if len(r.Index) > 0 && r.IndexSlots > 0 {
		p.line("key index\t%s of %d slots and %d entries", counted(len(r.Index), "file"), r.IndexSlots, r.IndexEntries)
	}
}

// printFindings prints what is wrong, a block each; with repair what repair does
// about it.
func printFindings(p *page, r *commitlog.Report, repair bool) {
	if len(r.Findings) == 0 {
		return
	}
	p.part()
	for i := range r.Findings {
		f := &r.Findings[i]
		p.line("%s: %s: byte %d: %s", f.Level, f.File, f.Offset, f.What)
		p.line("    %s", f.Means)
		if repair && f.Repair != "" {
			p.line("    repair: %s", f.Repair)
		}
	}
	if r.LeftOut > 0 {
		p.line("and %d more", r.LeftOut)
	}
}

// printVerdictOf prints what verify found.
func printVerdictOf(w io.Writer, v *storeReport) error {
	p := newPage(w)
	head(p, v)
	printFindings(p, v.Report, false)
	p.part()
	if v.Sound {
		p.line("nothing is damaged: %s", counted(len(v.Findings)+v.LeftOut, "note"))
	} else {
		p.line("damaged: %s", counted(v.Damaged(), "finding"))
	}
	return p.end()
}

// printRepair prints what a repair did, or would do.
func printRepair(w io.Writer, v *repairReport) error {
	p := newPage(w)
	r := v.Before
	p.line("store\t%s", v.Dir)
	printFindings(p, r, true)
	p.part()
	switch {
	case r.Damaged() == 0 && len(v.Done) == 0:
		p.line("nothing is damaged, nothing was changed")
	case v.DryRun && !v.todo:
		p.line("there is nothing that repair could mend; nothing was changed")
	case v.DryRun:
		p.line("nothing was changed; with --yes repair does what is said above")
	case v.After == nil && len(v.Done) == 0:
		p.line("nothing was changed")
	default:
		for _, d := range v.Done {
			p.line("%s", d)
		}
		p.line("what was removed or made again lies in %s, and can be deleted", v.Backup)
		if v.After != nil {
			if n := v.After.Damaged(); n > 0 {
				printFindings(p, v.After, false)
				p.part()
				p.line("left: %s", counted(n, "finding"))
			}
		}
	}
	return p.end()
}

// printSeal prints what seal did.
func printSeal(w io.Writer, v *sealReport) error {
	p := newPage(w)
	switch {
	case !v.Changed:
		p.line("%s was closed in order before; nothing was changed", v.Dir)
	case v.Cut > 0:
		p.line("%s is sealed; %d bytes were cut, the log ends at position %d", v.Dir, v.Cut, v.Tail)
	default:
		p.line("%s is sealed", v.Dir)
	}
	return p.end()
}
