package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/internal/hosttest"
	"github.com/hardpointmq/hardpoint/test/harness"
)

// TestNoSpace fills a small file system: sends are refused with
// SERVICE_NOT_AVAILABLE, which clients retry elsewhere, reads are served, and
// sends are accepted again when there is room, without a restart.
func TestNoSpace(t *testing.T) {
	t.Parallel()
	for _, s := range harness.Durable() {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			noSpace(t, s)
		})
	}
}

func noSpace(t *testing.T, s harness.Store) {
	const mib = 1 << 20
	dir := hosttest.Tmpfs(t, "size=48m")
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 16*mib), 0o600); err != nil {
		t.Fatal(err)
	}
	set := []string{"mappedFileSizeCommitLog=1048576", "flushDiskType=SYNC_FLUSH", "maxTransferCountOnMessageInMemory=1024", "maxTransferBytesOnMessageInMemory=1MiB"}
	if s.Name == "pebble" {
		// The reserve is what a start needs to turn its WAL into tables.
		set = append(set, "plugins.storage.pebble.reserveBytes=12582912", "plugins.storage.pebble.memTableBytes=4194304")
	}
	n := harness.New(t, harness.Options{Store: s, Data: filepath.Join(dir, "data"), Set: append(set, storeSettings(s)...)})
	createTopic(t, n)
	c, err := harness.Dial(n.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l := newLedger()
	send := func() (int32, error) {
		id := l.nextID()
		h := harness.Send{Topic: topic, Queue: int32(id % queues), Props: props(id), Body: body(id, 8000)}
		a, err := c.CallSend(&h)
		if err != nil {
			return 0, err
		}
		if a.Header.Code != command.RespSuccess {
			return a.Header.Code, nil
		}
		var r command.SendResponse
		if err := r.Decode(&a.Header); err != nil {
			return 0, err
		}
		_, at, err := message.ParseOffsetID(string(r.MsgID))
		l.acked[id] = ack{r.QueueID, r.QueueOffset, at}
		return 0, err
	}
	// untilRefused sends until twenty in a row are refused.
	untilRefused := func() {
		t.Helper()
		for refused := 0; refused < 20; {
			code, err := send()
			switch {
			case err != nil:
				t.Fatalf("after %d acknowledged messages: %v", len(l.acked), err)
			case code == 0 && len(l.acked) > 60*mib/8000:
				t.Fatal("more was acknowledged than the file system holds")
			case code == 0:
				refused = 0
			case code == command.RespServiceNotAvailable:
				refused++
			default:
				t.Fatalf("a full file system is answered with code %d %s, not %d", code, command.ResponseName(code), command.RespServiceNotAvailable)
			}
		}
		if err := l.verify(n.Addr, true); err != nil {
			t.Fatalf("reads while the file system is full: %v", err)
		}
	}
	untilRefused()
	t.Logf("full after %d messages", len(l.acked))
	if !n.Running() {
		t.Fatal("the broker ended because the file system is full")
	}
	// The process that refused takes sends again, as soon as there is room.
	pid := n.Pid()
	roomAgain := func(file string) {
		t.Helper()
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		var last string
		if !harness.Poll(30*time.Second, func() bool {
			code, err := send()
			last = fmt.Sprint(code, err)
			return err == nil && code == 0
		}) {
			t.Fatalf("no send is accepted 30 s after there is room again: %s", last)
		}
		for range 100 {
			if code, err := send(); err != nil || code != 0 {
				t.Fatalf("a send after there is room again: %d, %v", code, err)
			}
		}
		if err := l.verify(n.Addr, true); err != nil {
			t.Fatal(err)
		}
	}
	roomAgain(ballast)
	if n.Pid() != pid {
		t.Fatal("the broker was started anew")
	}
	if s.Name == "commitlog" {
		// Started on a file system that is full to the last byte, after a clean
		// end and after a kill.
		rest := filepath.Join(dir, "rest")
		fillUp(t, rest)
		for _, stop := range []func(){n.Stop, n.Kill} {
			stop()
			n.Start()
			if c, err = harness.Dial(n.Addr); err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := l.verify(n.Addr, true); err != nil {
				t.Fatalf("reads after a start on a full file system: %v", err)
			}
			untilRefused() // what is reserved may be used
		}
		roomAgain(rest)
	}
	n.Kill()
	n.Start()
	if err := l.verify(n.Addr, true); err != nil {
		t.Fatalf("after kill -9: %v", err)
	}
	if !strings.Contains(n.Log(), "space") {
		t.Error("the log does not say that space was missing")
	}
}

// fillUp writes a file until nothing fits any more.
func fillUp(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
