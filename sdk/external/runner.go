package external

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	goplugin_runner "github.com/hashicorp/go-plugin/runner"

	"github.com/hardpointmq/hardpoint/sdk/wire"
)

var _ goplugin_runner.Runner = (*runner)(nil)

// runner starts the process for go-plugin. Of its output go-plugin sees only the
// line of the handshake.
type runner struct {
	cmd     *exec.Cmd
	out     *pump
	exited  chan struct{} // closed when the process has ended
	err     error         // of Wait, valid then
	started atomic.Bool

	hand  *io.PipeReader // the line of the handshake
	hands *io.PipeWriter
	pumps chan struct{} // closed when both outputs are read
}

func newRunner(c Command, out *pump) *runner {
	r := &runner{cmd: exec.Command(c.Path, c.Args...), out: out, exited: make(chan struct{}), pumps: make(chan struct{})}
	r.hand, r.hands = io.Pipe()
	return r
}

// inherited are the variables that a plugin gets from its host.
var inherited = []string{
	"PATH", "HOME", "TMPDIR", "TMP", "TEMP", "TZ", "LANG", "LC_ALL", "SystemRoot",
	"GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GODEBUG", "GOTRACEBACK", "GOCOVERDIR", "GORACE",
}

func environment(extra []string) []string {
	var env []string
	for _, k := range inherited {
		if v, ok := os.LookupEnv(k); ok {
			env = append(env, k+"="+v)
		}
	}
	return append(append(env, wire.ControlEnv+"=stdin"), extra...)
}

// outputGrace is how long output is read after the process has ended: somebody
// else may hold it open.
const outputGrace = 500 * time.Millisecond

// Start implements goplugin_runner.Runner.
func (r *runner) Start(context.Context) error {
	var ours, theirs [3]*os.File
	for i := range ours {
		rd, wr, err := os.Pipe()
		if err != nil {
			closeAll(ours[:])
			closeAll(theirs[:])
			return err
		}
		if ours[i], theirs[i] = rd, wr; i == 0 {
			ours[i], theirs[i] = wr, rd
		}
	}
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	r.cmd.SysProcAttr = dieWithHost()
	started := make(chan error)
	go func() {
		// The kernel ties "dies with its parent" to the thread that forks, so this
		// one is kept until the process ends; it only waits.
		runtime.LockOSThread()
		err := r.cmd.Start()
		if err == nil {
			r.started.Store(true)
		}
		started <- err
		if err != nil {
			runtime.UnlockOSThread()
			return
		}
		r.err = r.cmd.Wait()
		for _, f := range ours[1:] {
			_ = f.SetReadDeadline(time.Now().Add(outputGrace))
		}
		close(r.exited)
		_ = ours[0].Close()
		<-r.pumps
		runtime.UnlockOSThread()
	}()
	err := <-started
	closeAll(theirs[:])
	if err != nil {
		closeAll(ours[:])
		close(r.exited)
		close(r.pumps)
		_ = r.hands.Close()
		return err
	}
	go func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.out.read("stderr", ours[2], nil)
		}()
		r.out.read("stdout", ours[1], r.handshake())
		_ = r.hands.Close()
		<-done
		closeAll(ours[1:])
		close(r.pumps)
	}()
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// handshake picks the line "1|1|unix|/path|grpc|…"; whatever else is printed is
// noise.
func (r *runner) handshake() func(line string) bool {
	seen := false
	return func(line string) bool {
		if seen {
			return false
		}
		parts := strings.Split(line, "|")
		if len(parts) < 4 {
			return false
		}
		if _, err := strconv.Atoi(parts[0]); err != nil {
			return false
		}
		seen = true
		_, _ = io.WriteString(r.hands, line+"\n") // fails when go-plugin gave up
		return true
	}
}

func (r *runner) alive() bool {
	select {
	case <-r.exited:
		return false
	default:
		return r.started.Load()
	}
}

// wait returns when the process has ended and its output is read.
func (r *runner) wait() error {
	_ = r.hand.Close()
	if !r.started.Load() {
		return nil
	}
	<-r.exited
	<-r.pumps
	return r.err
}

// status says how the process ended, "" while it runs.
func (r *runner) status() string {
	if !r.started.Load() || r.alive() {
		return ""
	}
	if r.err != nil {
		return "it ended with " + r.err.Error()
	}
	return "it ended with exit status 0"
}

// Wait implements goplugin_runner.AttachedRunner.
func (r *runner) Wait(context.Context) error {
	<-r.exited
	return r.err
}

// Kill implements goplugin_runner.AttachedRunner.
func (r *runner) Kill(context.Context) error {
	if !r.started.Load() {
		return nil
	}
	if err := r.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill the process of a plugin: %w", err)
	}
	return nil
}

// Stdout implements goplugin_runner.Runner.
func (r *runner) Stdout() io.ReadCloser { return r.hand }

// Stderr implements goplugin_runner.Runner.
func (r *runner) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name implements goplugin_runner.Runner.
func (r *runner) Name() string { return r.cmd.Path }

// Diagnose implements goplugin_runner.Runner.
func (r *runner) Diagnose(context.Context) string {
	return "it ended or closed its standard output without the handshake of a Hardpoint plugin"
}

// ID implements goplugin_runner.AttachedRunner.
func (r *runner) ID() string {
	if !r.started.Load() {
		return ""
	}
	return strconv.Itoa(r.cmd.Process.Pid)
}

// PluginToHost implements goplugin_runner.AddrTranslator.
func (r *runner) PluginToHost(network, addr string) (string, string, error) {
	return network, addr, nil
}

// HostToPlugin implements goplugin_runner.AddrTranslator.
func (r *runner) HostToPlugin(network, addr string) (string, string, error) {
	return network, addr, nil
}
