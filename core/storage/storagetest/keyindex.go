package storagetest

import (
	"slices"
	"strconv"
	"testing"

	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/storage"
)

var keyIndexCases = []testCase{
	{"newest_first", testKeysNewest},
	{"time_range", testKeysTime},
	{"collisions", testKeysCollide},
	{"published_only", testKeysPublished},
	{"many", testKeysMany},
}

func keyed(topic, key string) []Message {
	return []Message{{Queue: queue(topic, 0), Keys: key, Body: []byte("b")}}
}

func forever(topic, key string, most int32) storage.KeyQuery {
	return storage.KeyQuery{Topic: topic, Key: key, From: 0, To: 1 << 62, Max: most}
}

func testKeysNewest(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	for range 10 {
		w.append(keyed("T", "order"), keyed("T", "other"), keyed("U", "order"))
		w.clock.Add(10)
	}
	w.append([]Message{{Queue: queue("T", 0), Keys: "several keys order", UniqueKey: "unique"}})
	w.verify()
	got := w.findKey(forever("T", "order", 64))
	if len(got) != 11 {
		t.Fatalf("%d candidates, want 11", len(got))
	}
	if again := w.findKey(forever("T", "order", 4)); !slices.Equal(again, got[:4]) {
		t.Fatalf("the newest four are %v, want %v", again, got[:4])
	}
	for _, k := range []string{"several", "keys", "unique"} {
		if n := len(w.findKey(forever("T", k, 64))); n != 1 {
			t.Errorf("key %q: %d candidates, want 1", k, n)
		}
	}
	if n := len(w.findKey(forever("T", "several keys order", 64))); n != 0 {
		t.Errorf("the whole KEYS text is no key, but has %d candidates", n)
	}
	// The slice given is used, its content is not kept.
	buf := make([]message.Position, 3, 32)
	res, err := w.caps.KeyIndex.Find(t.Context(), forever("T", "several", 64), buf)
	must(t, err, "Find")
	if len(res) != 1 {
		t.Fatalf("Find into a used slice gives %d candidates, want 1", len(res))
	}
	if !h.Lacks.Reopen {
		w.reopen()
		w.verify()
	}
}

func testKeysTime(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	for range 10 {
		w.append(keyed("T", "k"))
		w.clock.Add(10_000)
	}
	at := func(i int64) int64 { return epoch + i*10_000 }
	for _, tc := range []struct {
		from, to int64
		want     int
	}{
		{at(0), at(9), 10},
		{at(3), at(5), 3},
		{at(3) - 5000, at(5) + 5000, 3},
		{at(9), at(9), 1},
		{at(0), at(0), 1},
		{at(4) + 4000, at(5) - 4000, 0},
		{0, at(0) - 5000, 0},
		{at(9) + 5000, 1 << 62, 0},
		{at(5), at(4), 0},
	} {
		got := w.findKey(storage.KeyQuery{Topic: "T", Key: "k", From: tc.from, To: tc.to, Max: 64})
		if len(got) != tc.want {
			t.Errorf("from %d to %d: %d candidates, want %d", tc.from-epoch, tc.to-epoch, len(got), tc.want)
		}
	}
}

// testKeysCollide: "Aa" and "BB" have one Java hash; the caller tells them apart.
func testKeysCollide(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	w.append(keyed("T", "Aa"))
	w.append(keyed("T", "BB"))
	w.append(keyed("T", "Aa"))
	for _, k := range []string{"Aa", "BB"} {
		got := w.findKey(forever("T", k, 64))
		c := &w.chunk
		c.Reset()
		must(t, w.store.Get(t.Context(), got, c), "Get")
		found := 0
		buf := join(c.Frags)
		for i := range c.Units {
			var v message.View
			must(t, message.Parse(buf, &v), "Parse")
			if keys, _ := message.Property(v.Properties, message.PropKeys); string(keys) == k {
				found++
			}
			buf = buf[c.Units[i].Size:]
		}
		if want := map[string]int{"Aa": 2, "BB": 1}[k]; found != want {
			t.Errorf("key %q: %d records among %d candidates, want %d", k, found, len(got), want)
		}
	}
}

func testKeysPublished(t *testing.T, h Harness) {
	needsRawLog(t, h)
	w := newWorld(t, h, storage.Explicit)
	w.append(keyed("T", "k"))
	mark := w.model.tail
	w.append(keyed("T", "k"))
	if got := w.findKey(forever("T", "k", 64)); len(got) != 0 {
		t.Fatalf("nothing is published, but candidates are %v", got)
	}
	w.publish(mark)
	if got := w.findKey(forever("T", "k", 64)); !slices.Equal(got, []message.Position{0}) {
		t.Fatalf("candidates %v, want the one at 0", got)
	}
	w.publish(w.model.tail)
	w.truncate(mark)
	if got := w.findKey(forever("T", "k", 64)); !slices.Equal(got, []message.Position{0}) {
		t.Fatalf("after Truncate candidates %v, want the one at 0", got)
	}
	w.verify()
}

// testKeysMany puts more keys in than one index file of small size holds.
func testKeysMany(t *testing.T, h Harness) {
	w := newWorld(t, h, storage.Immediate)
	for i := range 60 {
		var groups [][]Message
		for j := range 20 {
			n := i*20 + j
			groups = append(groups, keyed("T", "key"+strconv.Itoa(n)+" shared"+strconv.Itoa(n%7)))
		}
		w.append(groups...)
		w.clock.Add(1000)
	}
	for n := 0; n < 1200; n += 13 {
		if got := w.findKey(forever("T", "key"+strconv.Itoa(n), 64)); len(got) == 0 {
			t.Fatalf("key%d has no candidate", n)
		}
	}
	for i := range 7 {
		w.findKey(forever("T", "shared"+strconv.Itoa(i), 1000))
		w.findKey(forever("T", "shared"+strconv.Itoa(i), 32))
	}
}
