package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/wiring"
	"github.com/hardpointmq/hardpoint/plugins/storage/commitlog"
)

// repairReport is what `store repair` prints as JSON.
type repairReport struct {
	Dir    string `json:"dir"`
	DryRun bool   `json:"dryRun"`
	*commitlog.Repaired

	todo bool
}

func (p *program) storeRepair() *cobra.Command {
	r := &storeRun{p: p}
	var dry, yes, without bool
	c := &cobra.Command{
		Use: "repair DIR", Short: "Make a store whole from its log",
		Long: `Does what verify does, and then makes queues, key index, checkpoint and metadata files again where they are damaged. A
torn end of the log is cut off. Damage in the middle of the log stays as it is: its bytes may help somebody, readers pass
over it, and what lies behind it is kept.

Without --yes it only shows what it would do. A store without damage is not touched. Everything that is removed or made
again is copied before, into a folder repair-TIME in DIR. When repair is killed, or the disk is full, run it again.

Segments that are missing can only be restored. --without-missing goes on without them: the records in them are lost
for good.

The exit code is 0 when nothing is damaged any more but what stays in the middle of the log; else 1, and without --yes
when there is something to do.`,
		RunE: func(c *cobra.Command, args []string) error {
			return r.repair(c.Context(), args[0], !yes, commitlog.Repairing{DryRun: !yes, WithoutLost: without, Now: time.Now()})
		},
	}
	f := c.Flags()
	f.BoolVar(&dry, "dry-run", false, "change nothing, as without --yes")
	f.BoolVar(&yes, "yes", false, "do it")
	f.BoolVar(&without, "without-missing", false, "go on without segments that are missing")
	c.MarkFlagsMutuallyExclusive("dry-run", "yes")
	r.register(c)
	return c
}

func (r *storeRun) repair(ctx context.Context, dir string, dry bool, how commitlog.Repairing) error {
	if err := r.prepare(dir); err != nil {
		return err
	}
	if r.kind == "pebble" {
		return fmt.Errorf("%s is a store pebble: the database mends itself when it is opened (store verify does that), and what it cannot mend has to be restored from a backup or another replica", r.dir)
	}
	r.exam.Log = r.log()
	out, err := commitlog.Repair(ctx, r.exam, how)
	if out == nil {
		return err
	}
	v := repairReport{Dir: r.dir, DryRun: dry, Repaired: out}
	if !dry && err == nil {
		err = r.mendMetadata(out, how.Now)
	}
	last := out.Before
	if out.After != nil {
		last = out.After
	}
	if out.After == nil || dry {
		out.Before.Findings = append(out.Before.Findings, r.meta.findings...)
	}
	v.todo = last.Mendable()+r.meta.mendable() > 0
	var printed error
	if r.out.json() {
		printed = r.p.printJSON(v)
	} else {
		printed = printRepair(r.p.stdout, &v)
	}
	switch {
	case errors.Is(err, commitlog.ErrLost):
		return fmt.Errorf("%w; restore them, or say --without-missing to go on without the records in them", err)
	case err != nil:
		return errors.Join(err, printed)
	case printed != nil:
		return printed
	case v.todo:
		return errReported
	}
	return nil
}

// mendMetadata makes metadata files again from their copies.
func (r *storeRun) mendMetadata(out *commitlog.Repaired, now time.Time) error {
	backup := out.Backup
	if backup == "" {
		backup = commitlog.BackupName(now)
	}
	done, err := r.meta.mend(r.dir, filepath.Join(r.dir, backup))
	if len(done) > 0 {
		out.Backup = backup
		out.Done = append(out.Done, done...)
		r.meta.findings = nil
		m, rErr := readMetadata(r.dir)
		if rErr != nil {
			return errors.Join(err, rErr)
		}
		r.meta = m
	}
	return err
}

// log is where the store says what it meets; a terminal's reader sees the steps in
// the end.
func (r *storeRun) log() *slog.Logger {
	level := new(slog.LevelVar)
	level.Set(slog.LevelWarn)
	return newLogger(r.p.stderr, level, "text")
}

// sealReport is what `store seal` prints as JSON.
type sealReport struct {
	Dir     string `json:"dir"`
	Kind    string `json:"kind"`
	Changed bool   `json:"changed"`
	Tail    int64  `json:"tail"`
	Cut     int64  `json:"cut"`
}

func (p *program) storeSeal() *cobra.Command {
	r := &storeRun{p: p}
	var how commitlog.Sealing
	c := &cobra.Command{
		Use: "seal DIR", Short: "Close a store in order, for another broker to open it",
		Long: `Leaves a store as a broker does that ends in order: queues, key index and checkpoint are complete and flushed, a
truncation that was interrupted is finished, the metadata files say what the log says, and there is no file abort. An
Apache broker then opens it without recovery and finds everything. Run it after a broker was killed and before another
one takes the directory over.

Where a Hardpoint broker has run on the directory, one is started for it and ended in order, on an address that nobody
knows. A store that was closed in order is not touched. One with damage is refused; repair it first. Damage in the middle
of the log stays, and an Apache broker may take it for the end and delete what lies behind: --with-damage says that you
know.

--to-published removes what was written and is not published: what a replicator had not decided yet when it ended.`,
		RunE: func(c *cobra.Command, args []string) error {
			v, err := r.seal(c.Context(), args[0], how)
			if err != nil {
				return err
			}
			if r.out.json() {
				return p.printJSON(v)
			}
			return printSeal(p.stdout, v)
		},
	}
	f := c.Flags()
	f.BoolVar(&how.ToPublished, "to-published", false, "cut the log to what is published")
	f.BoolVar(&how.WithDamage, "with-damage", false, "seal although there is damage in the middle of the log")
	r.register(c)
	return c
}

func (r *storeRun) seal(ctx context.Context, dir string, how commitlog.Sealing) (*sealReport, error) {
	if err := r.prepare(dir); err != nil {
		return nil, err
	}
	v := &sealReport{Dir: r.dir, Kind: r.kind}
	if r.kind == "pebble" {
		if how.ToPublished || how.WithDamage {
			return nil, misusef("a store pebble is sealed without --to-published and --with-damage")
		}
		v.Changed = true
		return v, r.openAndClose(ctx, nil)
	}
	r.exam.Log = r.log()
	// Where the engine was, the metadata files are behind the log, and only it can
	// bring them up to it. What was cut before is marked as open until then.
	engine := isFile(filepath.Join(r.dir, "hardpoint.store"))
	how.DryRun = engine && !how.ToPublished
	out, err := commitlog.Seal(ctx, r.exam, how)
	switch {
	case errors.Is(err, commitlog.ErrDamaged):
		return nil, fmt.Errorf("%w; see store verify and store repair", err)
	case err != nil:
		return nil, err
	}
	v.Changed, v.Tail, v.Cut = out.Changed, int64(out.Tail), out.Cut
	if !engine || !out.Changed {
		return v, nil
	}
	if !how.DryRun {
		if err := vfs.WriteFileAtomic(vfs.OS{}, filepath.Join(r.dir, "abort"), []byte(strconv.Itoa(os.Getpid()))); err != nil {
			return nil, err
		}
	}
	return v, r.openAndClose(ctx, out.Before)
}

// openAndClose starts a broker on the store and ends it, so that the metadata files
// say what the log says.
func (r *storeRun) openAndClose(ctx context.Context, found *commitlog.Report) (err error) {
	data, err := os.MkdirTemp("", "hardpoint-seal-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	l, err := r.sealing(data, found)
	if err != nil { // no fault of the command line
		return errors.New("no broker can be started on " + r.dir + ": " + err.Error())
	}
	n := newNode([]*config.Loaded{l}, io.Discard)
	n.log = r.log()
	app, err := wiring.New(n.options(), components(n)...)
	if err != nil {
		return err
	}
	if err := app.Start(ctx); err != nil {
		return err
	}
	return app.Stop(context.WithoutCancel(ctx))
}

// sealing is the configuration of the broker that openAndClose starts.
func (r *storeRun) sealing(data string, found *commitlog.Report) (*config.Loaded, error) {
	flags := pflag.NewFlagSet("seal", pflag.ContinueOnError)
	config.RegisterFlags(flags)
	args := []string{"--data", data, "--storage", r.kind, "--listen", "127.0.0.1:0", "--admin-listen", "off"}
	set := func(key, value string) { args = append(args, "--set", key+"="+value) }
	set("storePathRootDir", r.dir)
	set("messageDelayLevel", r.cfg.Store.MessageDelayLevel)
	// What is old, and a full disk, are the owner's to deal with, by his configuration.
	set("fileReservedTime", "87600")
	set("cleanFileForciblyEnable", "false")
	// Topics with these names are made.
	set("brokerName", r.cfg.Broker.Name)
	set("brokerClusterName", r.cfg.Broker.ClusterName)
	if found == nil {
		set("mappedFileSizeCommitLog", strconv.FormatInt(r.cfg.Store.SegmentSize, 10))
	} else {
		set("mappedFileSizeCommitLog", strconv.FormatInt(found.SegmentSize, 10))
		if path := r.exam.Config.StorePathCommitLog; path != "" {
			set("storePathCommitLog", path)
		}
		if found.QueueFileSize > 0 {
			set("mappedFileSizeConsumeQueue", strconv.FormatInt(found.QueueFileSize, 10))
		}
		slots, entries := found.IndexSlots, found.IndexEntries
		if slots == 0 {
			slots, entries = r.exam.Config.MaxHashSlotNum, r.exam.Config.MaxIndexNum
		}
		set("maxHashSlotNum", strconv.Itoa(int(slots)))
		set("maxIndexNum", strconv.Itoa(int(entries)))
	}
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	return config.Load(config.Options{Mode: config.Broker, Flags: flags})
}
