package external

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	goplugin_runner "github.com/hashicorp/go-plugin/runner"

	"github.com/hardpointmq/hardpoint/sdk/wire"
)

var _ goplugin_runner.Runner = (*runner)(nil)

// runner starts the process for go-plugin. Of its output go-plugin sees only the
// line of the handshake.
type runner struct {
	cmd      *exec.Cmd
	out      *pump
	exited   chan struct{} // closed when the process has ended
	err      error         // of Wait, valid then
	started  atomic.Bool
	startErr error       // why it could not be started
	killed   atomic.Bool // by the host, while it ran

	group     sync.Mutex // held while the group is ended
	collected bool       // the group's number may be another's

	shake struct {
		sync.Mutex
		line  string // of the handshake
		fault error  // what is wrong with it
	}

	hand  *io.PipeReader // the line of the handshake
	hands *io.PipeWriter
	pumps chan struct{} // closed when both outputs are read
}

func newRunner(prog *program, args []string, out *pump) *runner {
	r := &runner{cmd: exec.Command(prog.path, args...), out: out, exited: make(chan struct{}), pumps: make(chan struct{})}
	prog.arm(r.cmd)
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
	r.startErr = r.start()
	return r.startErr
}

func (r *runner) start() error {
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
	r.cmd.SysProcAttr = ownGroup()
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
		r.collect()
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
		if hand, _ := r.shaken(); hand == "" {
			r.lastMoment() // go-plugin kills it then, and its exit status would be lost
		}
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

// expectedHandshake is what a plugin prints, but for the parts in capitals.
var expectedHandshake = fmt.Sprintf("%d|%d|unix|SOCKET|grpc|CERTIFICATE", goplugin.CoreProtocolVersion, wire.Version)

// handshake picks the line "1|1|unix|/path|grpc|…"; whatever else is printed is
// noise. One that this host does not understand ends the start.
func (r *runner) handshake() func(line string) bool {
	seen := false
	return func(line string) bool {
		parts := splitHandshake(line)
		if seen || !likeHandshake(parts) {
			return false
		}
		seen = true
		fault := understood(parts)
		r.shake.Lock()
		r.shake.line, r.shake.fault = line, fault
		r.shake.Unlock()
		if fault != nil {
			_ = r.hands.Close()
			return true
		}
		_, _ = io.WriteString(r.hands, line+"\n") // fails when go-plugin gave up
		return true
	}
}

func splitHandshake(line string) []string { return strings.Split(line, "|") }

// likeHandshake tells a handshake of any version from noise.
func likeHandshake(parts []string) bool {
	if len(parts) < 4 || parts[2] != "unix" && parts[2] != "tcp" {
		return false
	}
	for _, p := range parts[:2] {
		if _, err := strconv.Atoi(p); err != nil {
			return false
		}
	}
	return true
}

// understood says what of a handshake this host does not speak.
func understood(parts []string) error {
	const advice = "take a build of the plugin for this host, or build it with the SDK of this host's version"
	if v := strconv.Itoa(goplugin.CoreProtocolVersion); parts[0] != v {
		return fmt.Errorf("it speaks version %s of go-plugin's protocol, this host version %s: %s", parts[0], v, advice)
	}
	if v := strconv.Itoa(wire.Version); parts[1] != v {
		return fmt.Errorf("it speaks version %s of Hardpoint's plugin protocol, this host version %s: %s", parts[1], v, advice)
	}
	if len(parts) < 5 || parts[4] != string(goplugin.ProtocolGRPC) {
		return fmt.Errorf("it does not speak gRPC: found the handshake %q, expected is one like %q", shown(strings.Join(parts, "|")), expectedHandshake)
	}
	return nil
}

// lastMoment waits a while for the end of the process, which comes a moment after
// that of its output.
func (r *runner) lastMoment() {
	t := time.NewTimer(outputGrace)
	defer t.Stop()
	select {
	case <-r.exited:
	case <-t.C:
	}
}

// shaken gives the line of the handshake, "" when none came, and what is wrong
// with it.
func (r *runner) shaken() (string, error) {
	r.shake.Lock()
	defer r.shake.Unlock()
	return r.shake.line, r.shake.fault
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
		by := ""
		if r.killed.Load() && strings.Contains(r.err.Error(), "killed") {
			by = ", by this host"
		}
		return "it ended with " + r.err.Error() + by
	}
	return "it ended with exit status 0"
}

// Wait implements goplugin_runner.AttachedRunner.
func (r *runner) Wait(context.Context) error {
	<-r.exited
	return r.err
}

// Kill implements goplugin_runner.AttachedRunner. It ends the children of the process,
// too.
func (r *runner) Kill(context.Context) error {
	if !r.started.Load() {
		return nil
	}
	r.group.Lock()
	defer r.group.Unlock()
	if r.collected {
		return nil
	}
	if r.alive() {
		r.killed.Store(true)
	}
	if err := endGroup(r.cmd.Process); err != nil {
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
	return "" // launcher.whyNot does
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
