package e2e

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/test/harness"
)

// sendKeys sends a message for each key and counts, by the name of the broker that
// took it, what was acknowledged.
func sendKeys(t *testing.T, p rocketmq.Producer, topic string, keys []string) map[string]int {
	t.Helper()
	took := map[string]int{}
	for _, k := range keys {
		r, err := p.SendSync(t.Context(), newMessage(topic, k, "body"))
		require.NoError(t, err, k)
		require.Equal(t, primitive.SendOK, r.Status)
		took[r.MessageQueue.BrokerName]++
	}
	return took
}

// TestSeveralGroups: the official client sends to two broker groups of one process and
// gets all from both, also after that was killed.
func TestSeveralGroups(t *testing.T) {
	t.Parallel()
	const topic = "two-groups"
	n := harness.New(t, harness.Options{Groups: []string{"broker-a", "broker-b"}, Race: true})
	for _, addr := range n.Brokers {
		createTopicAt(t, n.Namesrv, addr, topic, 4)
	}
	awaitBrokers(t, n.Namesrv, topic, 2)
	p := newProducer(t, n.Namesrv)
	first := numbered("first", 40)
	require.Equal(t, map[string]int{"broker-a": 20, "broker-b": 20}, sendKeys(t, p, topic, first))

	n.Kill()
	n.Start()
	awaitBrokers(t, n.Namesrv, topic, 2)
	second := numbered("second", 40)
	took := sendKeys(t, newProducer(t, n.Namesrv), topic, second)
	require.Len(t, took, 2)

	seen := newCollector()
	newPushConsumer(t, n.Namesrv, "two-groups", topic, "*", func(m *primitive.MessageExt) consumer.ConsumeResult {
		seen.add(m.GetKeys(), m.Queue.QueueId)
		return consumer.ConsumeSuccess
	})
	seen.await(t, time.Minute, append(first, second...))
}

// cluster is examples/cluster/run on ports of the test.
type cluster struct {
	cmd     *exec.Cmd
	namesrv []string

	mu   sync.Mutex
	pids map[string]int
	text strings.Builder
}

// freePorts are ports as the script takes them.
func freePorts(t *testing.T, n int) string {
	t.Helper()
	list := make([]string, n)
	for i := range list {
		list[i] = strconv.Itoa(harness.FreePort(t))
	}
	return strings.Join(list, " ")
}

// clusterEnv is the environment of the script, with these ports for name servers.
func clusterEnv(t *testing.T, namesrv string) []string {
	t.Helper()
	return append(os.Environ(), "BIN="+harness.Binary(t, true), "DATA="+t.TempDir(), "NAMESRV_PORTS="+namesrv, "BROKER_PORTS="+freePorts(t, 2), "ADMIN_PORTS="+freePorts(t, 4))
}

// startCluster runs the script and waits until it says that the cluster is ready.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	script, err := filepath.Abs("../../examples/cluster/run")
	require.NoError(t, err)
	c := &cluster{pids: map[string]int{}}
	ns := freePorts(t, 2)
	for port := range strings.FieldsSeq(ns) {
		c.namesrv = append(c.namesrv, "127.0.0.1:"+port)
	}
	c.cmd = exec.Command(script)
	c.cmd.Env = clusterEnv(t, ns)
	out, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	c.cmd.Stderr = os.Stderr
	require.NoError(t, c.cmd.Start())
	ready, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for in := bufio.NewScanner(out); in.Scan(); {
			c.line(in.Text())
			if strings.HasPrefix(in.Text(), "The cluster is ready") {
				close(ready)
			}
		}
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(time.Minute):
			_ = c.cmd.Process.Kill()
			for _, name := range []string{"namesrv-1", "namesrv-2", "broker-a", "broker-b"} {
				c.kill(name)
			}
			<-ended
			t.Errorf("the cluster did not stop: %s", c.said())
		}
		_ = c.cmd.Wait()
		require.Contains(t, c.said(), "stopped")
	})
	select {
	case <-ready:
	case <-ended:
		t.Fatalf("the cluster ended: %s", c.said())
	case <-time.After(90 * time.Second):
		t.Fatalf("the cluster is not ready: %s", c.said())
	}
	return c
}

// line takes one of the script's output.
func (c *cluster) line(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text.WriteString(text + "\n")
	words := strings.Fields(text)
	for i, w := range words {
		if w == "pid" && i+1 < len(words) {
			c.pids[words[0]], _ = strconv.Atoi(words[i+1])
		}
	}
}

func (c *cluster) said() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

// kill ends a member as a crash does.
func (c *cluster) kill(name string) {
	c.mu.Lock()
	pid := c.pids[name]
	c.mu.Unlock()
	if pid > 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// again runs a member as its user does after it was killed: by the command that the
// script printed, in a terminal that knows nothing of the script's variables.
func (c *cluster) again(t *testing.T, name string) {
	t.Helper()
	_, rest, found := strings.Cut(c.said(), name+" has ended; start it again with: ")
	require.True(t, found, c.said())
	command, _, _ := strings.Cut(rest, "\n")
	if name == "broker-b" {
		require.Equal(t, 1, strings.Count(c.said(), "\n    "+command+"\n"), "the hint at the start is another command: %s", c.said())
	}
	cmd := exec.Command("bash", "-c", "exec env "+command)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		done := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		done.Stop()
	})
}

// TestLocalCluster is what `make cluster` runs: the official client sends through it while a
// broker and a name server are killed, and gets all when the broker is there again.
func TestLocalCluster(t *testing.T) {
	t.Parallel()
	const topic = "cluster"
	c := startCluster(t)
	servers := producer.WithNameServer(primitive.NamesrvAddr(c.namesrv))
	for _, addr := range []string{"broker-a", "broker-b"} {
		createTopicAt(t, c.namesrv[0], c.address(t, addr), topic, 4)
	}
	for _, ns := range c.namesrv {
		awaitBrokers(t, ns, topic, 2)
	}
	p := newProducer(t, c.namesrv[0], servers, producer.WithRetry(4))
	before := numbered("before", 40)
	require.Len(t, sendKeys(t, p, topic, before), 2)

	c.kill("namesrv-1")
	c.kill("broker-b")
	harness.Until(t, 30*time.Second, "the script notices", func() bool {
		return strings.Contains(c.said(), "broker-b has ended") && strings.Contains(c.said(), "namesrv-1 has ended")
	})
	during := numbered("during", 40)
	require.Equal(t, map[string]int{"broker-a": 40}, sendKeys(t, p, topic, during))
	awaitBrokers(t, c.namesrv[1], topic, 1)

	c.again(t, "broker-b")
	awaitBrokers(t, c.namesrv[1], topic, 2)
	after := numbered("after", 40)
	require.Len(t, sendKeys(t, newProducer(t, c.namesrv[1]), topic, after), 2)
	seen := newCollector()
	newPushConsumer(t, c.namesrv[1], "cluster", topic, "*", func(m *primitive.MessageExt) consumer.ConsumeResult {
		seen.add(m.GetKeys(), m.Queue.QueueId)
		return consumer.ConsumeSuccess
	})
	seen.await(t, time.Minute, append(append(before, during...), after...))
}

// address is where a member listens.
func (c *cluster) address(t *testing.T, name string) string {
	t.Helper()
	for line := range strings.Lines(c.said()) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == name {
			return words[1]
		}
	}
	t.Fatalf("%s is not in what the script said: %s", name, c.said())
	return ""
}

// TestLocalClusterMember: a wrong name is refused with those that there are.
func TestLocalClusterMember(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("../../examples/cluster/run", "broker-c")
	cmd.Env = append(os.Environ(), "BIN="+harness.Binary(t, true))
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "there is no member broker-c; members are namesrv-1 namesrv-2 broker-a broker-b", fmt.Sprint(err))
}

// TestLocalClusterPortTaken: a cluster of which a member does not start is not called ready,
// although somebody else answers at that member's port.
func TestLocalClusterPortTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	cmd := exec.Command("../../examples/cluster/run")
	cmd.Env = clusterEnv(t, port+" "+freePorts(t, 1))
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	err = cmd.Wait()
	late.Stop()
	require.Error(t, err, out.String())
	require.Contains(t, out.String(), "namesrv-1 is not ready")
	require.Contains(t, out.String(), "another process has that port")
	require.NotContains(t, out.String(), "The cluster is ready")
}
