package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/internal/apachetest"
	"github.com/hardpointmq/hardpoint/internal/hosttest"
	"github.com/hardpointmq/hardpoint/test/harness"
)

// TestReplaceBroker goes the way of docs/coming-from-rocketmq.md with a store that an
// Apache broker left and the file that it wrote out, of which only addresses and paths
// are others: the files are checked, the store is served and continued in place, and
// left as a broker leaves it that ended in order. What an Apache broker does with it
// then is in test/interop.
func TestReplaceBroker(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, port := filepath.Join(dir, "store"), harness.FreePortWithVIP(t)
	apachetest.Unpack(t, filepath.Join(apacheStores, "5.3.3-clean.tar.gz"), store)
	names := harness.New(t, harness.Options{Role: "namesrv"})
	conf := filepath.Join(dir, "broker.conf")
	theirs, err := os.ReadFile("../../core/config/testdata/broker-5.3.3.conf")
	require.NoError(t, err)
	text := string(theirs)
	for key, value := range map[string]string{
		"bindAddress": "127.0.0.1", "listenPort": fmt.Sprint(port), "namesrvAddr": names.Addr, "storePathRootDir": store, "storePathCommitLog": filepath.Join(store, "commitlog"),
	} {
		at := strings.Index("\n"+text, "\n"+key+"=")
		require.GreaterOrEqual(t, at, 0, key)
		_, rest, _ := strings.Cut(text[at:], "\n")
		text = text[:at] + key + "=" + filepath.ToSlash(value) + "\n" + rest
	}
	require.NoError(t, os.WriteFile(conf, []byte(text), 0o600))

	binary := harness.Binary(t, true)
	tool := func(args ...string) {
		t.Helper()
		out, err := exec.Command(binary, args...).CombinedOutput()
		require.NoError(t, err, "%v\n%s", args, out)
	}
	tool("config", "check", "--mode", "broker", conf)
	tool("store", "verify", store)

	sent := 0
	for range 2 { // as it came, and as it was left
		var log bytes.Buffer
		admin := fmt.Sprintf("127.0.0.1:%d", harness.FreePort(t))
		broker := exec.Command(binary, "broker", "--config", conf, "--admin-listen", admin)
		broker.Stdout, broker.Stderr = &log, &log
		broker.Env = append(os.Environ(), hosttest.AnyDisk()...)
		require.NoError(t, broker.Start())
		ended := make(chan error, 1)
		go func() {
			ended <- broker.Wait()
			close(ended)
		}()
		t.Cleanup(func() { _ = broker.Process.Kill() })
		t.Cleanup(func() {
			if t.Failed() {
				_ = broker.Process.Kill()
				err := <-ended
				t.Logf("the broker ended: %v; its log:\n%s", err, log.String())
			}
		})
		harness.Until(t, 3*time.Minute, "the broker is ready", func() bool {
			require.Empty(t, ended, "the broker ended before it was ready")
			return exec.Command(binary, "health", "--admin-listen", admin).Run() == nil
		})
		awaitRoute(t, names.Addr, "golden_plain")

		c, err := harness.Dial(fmt.Sprintf("127.0.0.1:%d", port))
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		found := 0
		end, err := c.ReadQueue("golden_plain", 0, 0, func(v *message.View) error {
			if string(v.Body) == "ours" {
				found++
			}
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, sent, found)
		require.Greater(t, end, int64(100), "Apache's messages")
		r, err := c.Send(&harness.Send{Topic: "golden_plain", Queue: 0, Body: []byte("ours")})
		require.NoError(t, err)
		require.Equal(t, end, r.QueueOffset)
		sent++

		require.NoError(t, broker.Process.Signal(syscall.SIGTERM))
		select {
		case err := <-ended:
			require.NoError(t, err, "%s", log.String())
		case <-time.After(time.Minute):
			t.Fatal("the broker does not end")
		}
		require.NoFileExists(t, filepath.Join(store, "abort"))
		tool("store", "verify", store)
	}
}
