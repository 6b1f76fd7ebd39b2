package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/hardpointmq/hardpoint/core/broker"
	"github.com/hardpointmq/hardpoint/core/config"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/plugins/storage/commitlog"
)

// storeRun is one run of a command of `store`.
type storeRun struct {
	p    *program
	out  output
	file string // --config
	kind string
	dir  string
	cfg  *config.Config
	exam commitlog.Examination
	meta *metadata
}

// storeReport is what `store inspect` and `store verify` print as JSON.
type storeReport struct {
	Dir  string `json:"dir"`
	Kind string `json:"kind"`
	// Open: a broker has the store open.
	Open bool `json:"open"`
	// Sound: nothing is damaged.
	Sound bool `json:"sound"`
	*commitlog.Report
	Config []configFile `json:"config"`
}

func (p *program) storeCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "store", Short: "Look into a store's directory, check it and repair it, without a broker",
		Long: `Works on the directory of a store (storePathRootDir; the folder store in the data directory), without a broker: RocketMQ's
file store, whether an Apache broker or Hardpoint wrote it, and Hardpoint's store pebble. Other stores are refused by name.

docs/store-tools.md says what is looked at, what each kind of damage means, and what repair does.`,
	}
	c.AddCommand(p.storeInspect(), p.storeVerify(), p.storeRepair(), p.storeSeal())
	return c
}

func (r *storeRun) register(c *cobra.Command) {
	c.Args = exactly("DIR")
	c.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	c.Flags().StringVar(&r.file, "config", "", "the broker's configuration `file`; needed where messageDelayLevel or storePathCommitLog are set in it")
	r.out.register(c)
}

func (p *program) storeInspect() *cobra.Command {
	r := &storeRun{p: p}
	c := &cobra.Command{
		Use: "inspect DIR", Short: "Show what is in a store",
		Long: `Shows the segments of the log with their bounds, records, times and damage, the queues, the files of the key index,
checkpoint, abort, lock and metadata. It reads all of the log, changes nothing, and works beside a broker that has the
store open: what that is about to write is left out then. (A store pebble has to be closed.)

The exit code is 0 when the store could be read, damaged or not: verify judges.`,
		RunE: func(c *cobra.Command, args []string) error {
			v, err := r.examine(c.Context(), args[0], false)
			if err != nil {
				return err
			}
			if r.out.json() {
				return p.printJSON(v)
			}
			return printStore(p.stdout, v)
		},
	}
	r.register(c)
	return c
}

func (p *program) storeVerify() *cobra.Command {
	r := &storeRun{p: p}
	c := &cobra.Command{
		Use: "verify DIR", Short: "Check every byte of a store",
		Long: `Checks every record's checksum and position, every queue entry against its record and every record against its entry, the
key index, the checkpoint and the metadata files. Each damage is told with file, offset and what it means. Nothing is
changed; no broker may have the store open.

The exit code is 0 when nothing is damaged, 1 when something is, or when the store could not be read. A store whose broker
was killed is not damaged by that: what the next start makes good by itself is told as a note.`,
		RunE: func(c *cobra.Command, args []string) error {
			v, err := r.examine(c.Context(), args[0], true)
			if err != nil {
				return err
			}
			if r.out.json() {
				err = p.printJSON(v)
			} else {
				err = printVerdictOf(p.stdout, v)
			}
			if err == nil && !v.Sound {
				err = errReported
			}
			return err
		},
	}
	r.register(c)
	return c
}

// prepare finds out what DIR is and how it is to be read.
func (r *storeRun) prepare(dir string) (err error) {
	r.dir = filepath.Clean(dir)
	of, err := storeKind(r.dir)
	if err != nil {
		return err
	}
	r.kind = of.Store
	l, err := config.Load(config.Options{Mode: config.Broker, File: r.file})
	if err != nil {
		return err
	}
	r.cfg = &l.Config
	r.exam = commitlog.Examination{FS: vfs.OS{}, Dir: r.dir, Config: commitlog.NewDefaultConfig(), Rules: broker.IndexRules(r.cfg), Progress: r.progress()}
	if l.Origin("mappedFileSizeCommitLog") != (config.Source{}) {
		r.exam.Segment = r.cfg.Store.SegmentSize
	}
	raw, err := r.cfg.PluginRaw("storage", "commitlog")
	if err == nil && raw != nil {
		err = json.Unmarshal(raw, &r.exam.Config)
	}
	if err == nil {
		err = r.exam.Config.Validate()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", r.file, err)
	}
	if r.meta, err = readMetadata(r.dir); err != nil {
		return err
	}
	for i, name := range of.Damaged {
		what := "it is damaged: it does not say which store this is"
		if of.Differ {
			what = fmt.Sprintf("it and %s name different stores", of.Damaged[1-i])
		}
		r.meta.findings = append(r.meta.findings, commitlog.Finding{Level: commitlog.Note, File: name,
			What: what, Means: "the rest of the directory says that it is " + r.kind + "; the next start of a broker writes the file again"})
	}
	if r.meta.topics != nil {
		r.exam.HasTopic = func(topic string) bool { return r.meta.topics[topic] }
	}
	return nil
}

// progressAfter and progressEvery are when the first and each further line about a
// long scan comes.
const (
	progressAfter = 3 * time.Second
	progressEvery = 5 * time.Second
)

// progress tells on stderr how far a scan is that takes long.
func (r *storeRun) progress() func(done, total int64) {
	next := time.Now().Add(progressAfter)
	told := false
	return func(done, total int64) {
		if now := time.Now(); now.After(next) && done < total || told && done == total {
			next, told = now.Add(progressEvery), true
			fmt.Fprintf(r.p.stderr, "read %s of %s, %d %%\n", sizeText(done), sizeText(total), done*100/max(total, 1))
		}
	}
}

// examine reads the store; deep for verify.
func (r *storeRun) examine(ctx context.Context, dir string, deep bool) (*storeReport, error) {
	if err := r.prepare(dir); err != nil {
		return nil, err
	}
	v := &storeReport{Dir: r.dir, Kind: r.kind, Config: r.meta.files}
	if r.kind == "pebble" {
		report, err := r.viaStore(ctx, deep)
		if err != nil {
			return nil, err
		}
		v.Report = report
	} else {
		unlock, err := commitlog.LockToRead(vfs.OS{}, r.dir)
		if v.Open = errors.Is(err, vfs.ErrLocked); v.Open && deep {
			return nil, fmt.Errorf("%w; store inspect reads beside it", err)
		}
		if err != nil && !v.Open {
			return nil, err
		}
		if unlock != nil {
			defer unlock.Close()
		}
		r.exam.Deep, r.exam.Live = deep, v.Open
		if v.Report, err = commitlog.Examine(ctx, r.exam); err != nil {
			return nil, err
		}
	}
	if !v.Open && v.Closed {
		r.meta.compare(v.Report)
	}
	v.Findings = append(v.Findings, r.meta.findings...)
	v.Sound = v.Damaged() == 0
	return v, nil
}
