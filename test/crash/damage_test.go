package crash

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/test/harness"
)

// TestDamage is BC-27: between kill -9 and the next start the end of the log or
// the indexes are damaged. Only what the damage touched may be lost, and it must
// be reported; everything before is at its place and found by its key.
func TestDamage(t *testing.T) {
	t.Parallel()
	rng := seed(t)
	n := startBroker(t, harness.Store{Name: "commitlog"}, "SYNC_FLUSH")
	l := newLedger()
	kinds := []string{"truncate", "zero", "flip", "empty-index", "no-index"}
	for round := range rounds() {
		// What is at the very end was not acknowledged under load, but is when
		// the load ended before.
		killUnderLoad(t, l, n, rng, round, round < len(kinds) || rng.IntN(2) == 0)
		kind := kinds[rng.IntN(len(kinds))]
		if round < len(kinds) {
			kind = kinds[round] // each at least once
		}
		from, err := damage(n.Data, kind, rng)
		if err != nil {
			t.Fatalf("round %d, %s: %v", round, kind, err)
		}
		began := time.Now()
		n.Start()
		took := time.Since(began)
		forgotten := 0
		if from >= 0 {
			forgotten = l.cut(from)
			if !strings.Contains(n.LastLog(), "damage in the log") {
				t.Errorf("round %d, %s: the damage is not reported", round, kind)
			}
		}
		if err := l.verify(n.Addr, true); err != nil {
			t.Fatalf("round %d, %s: %v", round, kind, err)
		}
		if err := l.findKeys(n.Addr, rng); err != nil {
			t.Fatalf("round %d, %s: %v", round, kind, err)
		}
		t.Logf("round %d, %s: damaged from %d, %d acknowledged may be lost, %d are there; started in %v", round, kind, from, forgotten, len(l.acked), took.Round(time.Millisecond))
	}
}

// damage does one of the things of BC-27 and returns the position from which on
// messages may be lost, or -1.
func damage(data, kind string, rng *rand.Rand) (message.Position, error) {
	store := filepath.Join(data, "store")
	switch kind {
	case "empty-index":
		dir := filepath.Join(store, "index")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return 0, err
		}
		f, err := os.Create(filepath.Join(dir, time.Now().Format("20060102150405")+"999"))
		if err != nil {
			return 0, err
		}
		return -1, f.Close()
	case "no-index":
		files, err := filepath.Glob(filepath.Join(store, "index", "*"))
		if err == nil && len(files) == 0 {
			err = errors.New("there is no index file to delete")
		}
		for _, f := range files {
			err = errors.Join(err, os.Remove(f))
		}
		return -1, err
	}
	path, base, b, err := lastSegment(filepath.Join(store, "commitlog"))
	if err != nil {
		return 0, err
	}
	end := len(bytes.TrimRight(b, "\x00"))
	switch kind {
	case "truncate":
		keep := inRecord(b, end-1-rng.IntN(min(end, 4096)))
		return base + message.Position(keep), os.Truncate(path, int64(keep))
	case "zero":
		from := inRecord(b, max(0, end-4096))
		clear(b[from:end])
		return base + message.Position(from), os.WriteFile(path, b, 0o600)
	case "flip":
		at, v := 0, message.View{}
		for {
			var next message.View
			if err := message.Parse(b[at:], &next); err != nil {
				break
			}
			v, at = next, at+int(next.Size)
		}
		if v.Size == 0 || len(v.Body) == 0 {
			return 0, errors.New("the last segment begins with no record")
		}
		v.Body[rng.IntN(len(v.Body))] ^= 1 << rng.IntN(8)
		return base + message.Position(at-int(v.Size)), os.WriteFile(path, b, 0o600)
	}
	return 0, fmt.Errorf("no damage named %q", kind)
}

// inRecord moves a cut that would fall on the first bytes of a record into it: a
// log that is cut between two records has nothing to report.
func inRecord(b []byte, cut int) int {
	for at := 0; at <= cut; {
		var v message.View
		if message.Parse(b[at:], &v) != nil {
			break
		}
		if cut-at < 4 {
			return at + 4
		}
		at += int(v.Size)
	}
	return cut
}

// lastSegment reads the last log file that holds anything.
func lastSegment(dir string) (path string, base message.Position, b []byte, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return "", 0, nil, err
	}
	slices.Sort(files)
	for _, f := range slices.Backward(files) {
		n, err := strconv.ParseInt(filepath.Base(f), 10, 64)
		if err != nil {
			continue
		}
		if b, err = os.ReadFile(f); err != nil {
			return "", 0, nil, err
		}
		if len(bytes.TrimRight(b, "\x00")) > 0 {
			return f, message.Position(n), b, nil
		}
	}
	return "", 0, nil, fmt.Errorf("%s holds no message", dir)
}

// findKeys asks for twenty random acknowledged messages by their keys.
func (l *ledger) findKeys(addr string, rng *rand.Rand) error {
	c, err := harness.Dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	ids := make([]uint64, 0, len(l.acked))
	for id := range l.acked {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for _, id := range ids[:min(20, len(ids))] {
		h := command.QueryMessageRequest{Topic: []byte(topic), Key: []byte(key(id)), MaxNum: 8, EndTimestamp: time.Now().UnixMilli() + 3_600_000}
		// The index follows the log after a moment.
		var last error
		if !harness.Poll(time.Minute, func() bool {
			a, err := c.Call(command.ReqQueryMessage, h.Append, nil)
			if err == nil {
				err = a.Err()
			}
			if err == nil {
				var v message.View
				if err = message.Parse(a.Body, &v); err == nil {
					var got uint64
					if got, err = l.check(&v); err == nil && (got != id || int(v.Size) != len(a.Body)) {
						err = fmt.Errorf("key of id %d found id %d in %d bytes of which %d are the first record", id, got, len(a.Body), v.Size)
					}
				}
			}
			last = err
			return err == nil
		}) {
			return fmt.Errorf("id %d (%+v) by its key: %w", id, l.acked[id], last)
		}
	}
	return nil
}

// TestSegmentEdge is BC-27 step 1: records that leave at the edge of a segment
// exactly the room of a blank, less than it, none, or that need the next one.
func TestSegmentEdge(t *testing.T) {
	t.Parallel()
	n := startBroker(t, harness.Store{Name: "commitlog"}, "SYNC_FLUSH")
	l := newLedger()
	left := []int64{message.BlankSize, message.BlankSize - 1, 4, 1, 0, message.BlankSize + 1, 100, -1}
	for i := range 3 * len(left) {
		if err := l.sendToEdge(n.Addr, left[i%len(left)]); err != nil {
			t.Fatal(err)
		}
		switch i % 3 {
		case 0:
			n.Kill()
			n.Start()
		case 1:
			n.Stop()
			n.Start()
		}
		if err := l.verify(n.Addr, true); err != nil {
			t.Fatalf("step %d, %d bytes left: %v", i, left[i%len(left)], err)
		}
	}
}

// sendToEdge fills the current segment until one record would leave left bytes,
// and sends one more behind it.
func (l *ledger) sendToEdge(addr string, left int64) error {
	c, err := harness.Dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	send := func(size int) (end int64, overhead int, err error) {
		id := l.nextID()
		r, err := c.Send(&harness.Send{Topic: topic, Queue: int32(id % queues), Props: props(id), Body: body(id, size)})
		if err != nil {
			return 0, 0, err
		}
		_, at, err := message.ParseOffsetID(string(r.MsgID))
		if err != nil {
			return 0, 0, err
		}
		l.acked[id] = ack{r.QueueID, r.QueueOffset, at}
		var rec int32
		_, _, err = c.Pull(harness.Pull{Topic: topic, Queue: r.QueueID, Offset: r.QueueOffset, Max: 1}, func(v *message.View) error {
			rec = v.Size
			return nil
		})
		return int64(at) + int64(rec), int(rec) - size, err
	}
	for {
		end, overhead, err := send(2000)
		if err != nil {
			return err
		}
		// The id's digits must not change the size of the last one: ids are
		// sent one after another, so only the next one matters.
		overhead += len(key(l.last+1)) - len(key(l.last))
		room := segment - end%segment
		if size := room - left - int64(overhead); size >= 8 && size <= 60_000 && room < 10_000 {
			if _, _, err := send(int(size)); err != nil {
				return err
			}
			_, _, err = send(50)
			return err
		}
	}
}
