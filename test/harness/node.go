package harness

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hardpointmq/hardpoint/internal/hosttest"
)

// Store is one way to keep messages: a storage plugin, in the broker's process or
// in one of its own.
type Store struct {
	Name    string // of the plugin
	Process bool
}

// String names a store as sub-tests do.
func (s Store) String() string {
	if s.Process {
		return s.Name + "-process"
	}
	return s.Name
}

// Durable are the stores that must not lose what they acknowledged when the
// broker's process is killed.
func Durable() []Store {
	return []Store{{Name: "commitlog"}, {Name: "pebble"}, {Name: "pebble", Process: true}}
}

// Options of a node. A broker does not drain unless drainTimeout is Set. The zero value of a field means the default in brackets.
type Options struct {
	Role    string   // standalone, broker or namesrv [standalone]
	Store   Store    // [commitlog]
	Broker  string   // name of the broker [broker-a]
	Host    string   // address to listen on and to advertise [127.0.0.1]
	Listen  string   // host to listen on, if another one than Host
	Namesrv string   // name server of a broker that is not standalone
	Data    string   // directory [a temporary one]
	Set     []string // key=value
	// Groups are the names of several broker groups of a standalone node, in place of
	// Broker; Set holds for all of them.
	Groups  []string
	Race    bool // the binary has the race detector
	ReadyIn time.Duration
}

// Node is one hardpoint process that can be started again and again on the same
// ports and data. Not for concurrent use, but for its addresses.
type Node struct {
	Addr    string // for clients: the advertised address of the broker, or of the name server
	Namesrv string // address of the name server that knows it
	Data    string
	LogPath string
	// Brokers are the addresses of several groups by name; Addr is that of the first.
	Brokers map[string]string

	t      testing.TB
	o      Options
	binary string
	args   []string
	admin  string
	http   http.Client
	log    *os.File
	cmd    *exec.Cmd
	done   chan struct{} // closed when cmd has ended
	err    error         // of cmd.Wait, valid when done is closed
}

// New prepares a node and starts it. Its log is printed when the test fails, and
// a report of the race detector in it makes the test fail.
func New(t testing.TB, o Options) *Node {
	t.Helper()
	n := Prepare(t, o)
	n.Start()
	return n
}

// Prepare is New without the start.
func Prepare(t testing.TB, o Options) *Node {
	t.Helper()
	if o.Role == "" {
		o.Role = "standalone"
	}
	if o.Store.Name == "" {
		o.Store.Name = "commitlog"
	}
	if o.Broker == "" {
		o.Broker = "broker-a"
	}
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	if o.Listen == "" {
		o.Listen = o.Host
	}
	if o.Data == "" {
		o.Data = t.TempDir()
	}
	if o.ReadyIn == 0 {
		o.ReadyIn = 2 * time.Minute
	}
	n := &Node{t: t, o: o, Data: o.Data, Namesrv: o.Namesrv, binary: Binary(t, o.Race)}
	n.http.Timeout = 2 * time.Second
	n.admin = fmt.Sprintf("127.0.0.1:%d", FreePort(t))
	n.args = []string{o.Role, "--admin-listen", n.admin}
	port := FreePort(t)
	n.Addr = fmt.Sprintf("%s:%d", o.Host, port)
	switch o.Role {
	case "namesrv":
		n.Namesrv = n.Addr
		n.args = append(n.args, "--data", o.Data, "--namesrv-listen", fmt.Sprintf("%s:%d", o.Listen, port))
	case "standalone":
		n.Namesrv = fmt.Sprintf("%s:%d", o.Host, FreePort(t))
		n.args = append(n.args, "--namesrv-listen", n.Namesrv)
		if len(o.Groups) > 0 {
			n.groups(port)
			break
		}
		fallthrough
	case "broker":
		n.args = append(n.args, "--data", o.Data, "--dev", "--listen", fmt.Sprintf("%s:%d", o.Listen, port),
			"--advertise", n.Addr, "--storage", o.Store.Name, "--set", "vipChannel=false", "--set", "brokerName="+o.Broker)
		if o.Role == "broker" {
			n.args = append(n.args, "--namesrv-addr", o.Namesrv)
		}
		if o.Store.Process {
			n.args = append(n.args, "--storage-process")
		}
	default:
		t.Fatalf("harness: unknown role %q", o.Role)
	}
	if o.Role != "namesrv" && !slices.ContainsFunc(o.Set, func(s string) bool { return strings.HasPrefix(s, "drainTimeout=") }) {
		n.args = append(n.args, "--set", "drainTimeout=0") // another broker would be a reason to wait for half a minute
	}
	for _, s := range o.Set {
		n.args = append(n.args, "--set", s)
	}
	// Not a TempDir of the test: it must still be there when the log is printed.
	f, err := os.CreateTemp("", "hardpoint-log-")
	if err != nil {
		t.Fatal(err)
	}
	n.log, n.LogPath = f, f.Name()
	t.Cleanup(n.close)
	return n
}

// groups writes a configuration file for each broker group; the first one's port is
// given.
func (n *Node) groups(port int) {
	n.t.Helper()
	n.Brokers = map[string]string{}
	for i, name := range n.o.Groups {
		if i > 0 {
			port = FreePort(n.t)
		}
		n.Brokers[name] = fmt.Sprintf("%s:%d", n.o.Host, port)
		file := filepath.Join(n.o.Data, name+".yaml")
		text := fmt.Sprintf("brokerName: %s\nlisten: %s:%d\nadvertise: %s\ndata: %s\nstorage: %s\nvipChannel: false\n",
			name, n.o.Listen, port, n.Brokers[name], filepath.Join(n.o.Data, name), n.o.Store.Name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			n.t.Fatal(err)
		}
		n.args = append(n.args, "--config", file)
	}
}

// Start starts the process and waits until it is ready.
func (n *Node) Start() {
	n.t.Helper()
	if err := n.TryStart(); err != nil {
		n.t.Fatal(err)
	}
}

// TryStart is Start for a start that may fail; then the process is gone.
func (n *Node) TryStart() error {
	if n.Running() {
		return fmt.Errorf("%s is running already", n.o.Role)
	}
	fmt.Fprintf(n.log, startMark+"%s %s %s\n", time.Now().Format("15:04:05.000"), n.binary, strings.Join(n.args, " "))
	cmd := exec.Command(n.binary, n.args...)
	cmd.Stdout, cmd.Stderr = n.log, n.log
	// What tests read of the environment is not the broker's configuration.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "HARDPOINT_") })
	cmd.Env = append(cmd.Env, "GORACE=halt_on_error=0 exitcode=66")
	cmd.Env = append(cmd.Env, hosttest.AnyDisk()...)
	// Its own group, so that a storage process dies with the broker under Kill.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	n.cmd, n.done = cmd, make(chan struct{})
	go func(done chan struct{}) {
		n.err = cmd.Wait()
		close(done)
	}(n.done)
	if !Poll(n.o.ReadyIn, func() bool { return n.Ready() || !n.Running() }) {
		n.kill()
		return fmt.Errorf("%s not ready within %v", n.o.Role, n.o.ReadyIn)
	}
	if !n.Running() {
		return fmt.Errorf("%s ended before it was ready: %w", n.o.Role, n.err)
	}
	return nil
}

// Running tells whether the process is there.
func (n *Node) Running() bool {
	if n.cmd == nil {
		return false
	}
	select {
	case <-n.done:
		return false
	default:
		return true
	}
}

// Pid is the process id of a running node.
func (n *Node) Pid() int { return n.cmd.Process.Pid }

// Ready asks the admin port.
func (n *Node) Ready() bool {
	_, code, err := n.get("/readyz")
	return err == nil && code == http.StatusOK
}

// Admin fetches a page of the admin port.
func (n *Node) Admin(path string) (string, error) { return page(path)(n.get(path)) }

// AdminWithin is Admin for a page that may take longer than a moment.
func (n *Node) AdminWithin(within time.Duration, path string) (string, error) {
	c := http.Client{Timeout: within, Transport: &http.Transport{DisableKeepAlives: true}}
	return page(path)(n.getBy(&c, path))
}

// page makes an error of a status that says one.
func page(path string) func(body string, code int, err error) (string, error) {
	return func(body string, code int, err error) (string, error) {
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%s: status %d: %s", path, code, body)
		}
		return body, err
	}
}

func (n *Node) get(path string) (string, int, error) { return n.getBy(&n.http, path) }

func (n *Node) getBy(c *http.Client, path string) (string, int, error) {
	resp, err := c.Get("http://" + n.admin + path)
	if err != nil {
		return "", 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), resp.StatusCode, err
}

// Kill ends the process, and a storage process of it, with SIGKILL.
func (n *Node) Kill() {
	n.t.Helper()
	if !n.Running() {
		n.t.Fatalf("%s to be killed is not running: %v", n.o.Role, n.err)
	}
	n.kill()
}

func (n *Node) kill() {
	if n.cmd == nil {
		return
	}
	group := -n.cmd.Process.Pid
	_ = syscall.Kill(group, syscall.SIGKILL)
	<-n.done
	// A storage process may take longer to die; what it holds is locked until then.
	Poll(time.Minute, func() bool { return syscall.Kill(group, 0) != nil })
	n.http.CloseIdleConnections()
}

// Stop asks the process to end with SIGTERM and fails the test when it does not
// within a minute or ends with an error.
func (n *Node) Stop() {
	n.t.Helper()
	if !n.Running() {
		n.t.Fatalf("%s to be stopped is not running: %v", n.o.Role, n.err)
	}
	_ = n.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-n.done:
	case <-time.After(time.Minute):
		_ = n.cmd.Process.Signal(syscall.SIGQUIT) // the stacks go to the log
		select {
		case <-n.done:
		case <-time.After(5 * time.Second):
			n.kill()
		}
		n.t.Fatalf("%s did not end within a minute after SIGTERM", n.o.Role)
	}
	n.http.CloseIdleConnections()
	if n.err != nil {
		n.t.Fatalf("%s after SIGTERM: %v", n.o.Role, n.err)
	}
}

// Pause stops the process with SIGSTOP, Continue lets it go on.
func (n *Node) Pause() { _ = n.cmd.Process.Signal(syscall.SIGSTOP) }

// Continue undoes Pause.
func (n *Node) Continue() { _ = n.cmd.Process.Signal(syscall.SIGCONT) }

// Log returns what the node has written so far, over all its starts.
func (n *Node) Log() string {
	b, err := os.ReadFile(n.LogPath)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// LastLog returns what the node has written since its last start.
func (n *Node) LastLog() string {
	s := n.Log()
	if i := strings.LastIndex(s, startMark); i >= 0 {
		return s[i:]
	}
	return s
}

// startMark begins the line that the harness writes into the log before a start.
const startMark = "--- start "

const logTail = 16 << 10 // bytes of a log that are printed for a failed test

func (n *Node) close() {
	if n.Running() {
		n.Continue()
		_ = n.cmd.Process.Signal(os.Interrupt) // without a drain
		select {
		case <-n.done:
		case <-time.After(time.Minute):
			n.kill()
			n.t.Errorf("%s had to be killed at the end of the test", n.o.Role)
		}
	}
	n.http.CloseIdleConnections()
	_ = n.log.Close()
	b, _ := os.ReadFile(n.LogPath)
	_ = os.Remove(n.LogPath)
	for _, bad := range []string{"WARNING: DATA RACE", "\npanic: ", "fatal error: "} {
		if i := bytes.Index(b, []byte(bad)); i >= 0 {
			n.t.Errorf("%s wrote:\n%s", n.o.Role, b[i:min(len(b), i+logTail)])
			break
		}
	}
	if n.t.Failed() {
		if dir := os.Getenv("HARDPOINT_TEST_KEEP"); dir != "" {
			name := strings.ReplaceAll(n.t.Name(), "/", "_") + "-" + n.o.Role + ".log"
			_ = os.WriteFile(filepath.Join(dir, name), b, 0o600)
		}
		if len(b) > logTail {
			b = append([]byte("…"), b[len(b)-logTail:]...)
		}
		n.t.Logf("log of %s (%s):\n%s", n.o.Role, n.Addr, b)
	}
}

// Lines is a writer that hands on whole lines, for the output of processes that
// tests run.
type Lines struct {
	mu   sync.Mutex
	rest []byte
	each func(line string)
}

// NewLines makes a Lines that calls each, one line at a time.
func NewLines(each func(line string)) *Lines { return &Lines{each: each} }

// Write implements io.Writer.
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 {
			return len(p), nil
		}
		line := string(l.rest[:i])
		l.rest = l.rest[i+1:]
		l.each(line)
	}
}
