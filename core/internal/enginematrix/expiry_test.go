package enginematrix_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
)

// testKeyQueries is BC-20: keys with the same hash, longer ones, doubled ones and
// those of another topic are told apart, as soon as their message is acknowledged;
// the bounds of the time belong to the range; of more than are asked for the newest come
// in the order of the log; what expired is not there.
func testKeyQueries(t *testing.T, w *world) {
	w.topic("T", 1)
	w.topic("other", 1)
	var times []int64
	for i, keys := range []string{"Aa", "BB", "order1", "order10", "k1 k1", "a b c", "Aa"} {
		m := enginetest.Message{Topic: "T", Body: fmt.Sprint(i, ":", keys), Properties: enginetest.Props("KEYS", keys, "UNIQ_KEY", fmt.Sprint("U", i))}
		w.send(m)
		last := strings.Split(keys, " ")
		require.Contains(t, w.find("T", last[len(last)-1], false), m.Body, "a message that is 0 ms old")
		times = append(times, w.e.Store.State().LastStoreTime)
	}
	w.send(enginetest.Message{Topic: "other", Body: "elsewhere", Properties: enginetest.Props("KEYS", "Aa", "UNIQ_KEY", "U0")})
	check := func() {
		t.Helper()
		for key, want := range map[string][]string{
			"Aa": {"0:Aa", "6:Aa"}, "BB": {"1:BB"}, "order1": {"2:order1"}, "order10": {"3:order10"}, "k1": {"4:k1 k1"},
			"a": {"5:a b c"}, "b": {"5:a b c"}, "c": {"5:a b c"}, "order": {}, "a b c": {}, "k1 k1": {}, "C#": {},
		} {
			require.Equal(t, want, w.find("T", key, false), "key %q", key)
		}
		require.Equal(t, []string{"elsewhere"}, w.find("other", "Aa", false))
		for i, want := range []string{"0:Aa", "1:BB", "2:order1"} {
			require.Equal(t, []string{want}, w.find("T", fmt.Sprint("U", i), true))
		}
		require.Empty(t, w.find("T", "Aa", true), "a key is no unique key")
		require.Equal(t, []string{"elsewhere"}, w.find("other", "U0", true))
		one := command.QueryMessageRequest{Topic: []byte("T"), Key: []byte("Aa"), MaxNum: 1, EndTimestamp: 1 << 60}
		require.Equal(t, []string{"6:Aa"}, w.query(one), "the newest one")
		at := times[2]
		for _, x := range []struct {
			from, to int64
			found    bool
		}{{at, at, true}, {at - 1, at, true}, {at, at + 1, true}, {0, at - 1, false}, {at + 1, 1 << 60, false}} {
			got := w.query(command.QueryMessageRequest{Topic: []byte("T"), Key: []byte("order1"), MaxNum: 64, BeginTimestamp: x.from, EndTimestamp: x.to})
			require.Equal(t, x.found, len(got) == 1, "stored at %d, asked from %d to %d: %q", at, x.from, x.to, got)
		}
	}
	// Of more than are asked for the newest come, the oldest of them first.
	for i := range 5 {
		w.send(enginetest.Message{Topic: "T", Body: fmt.Sprint("many ", i), Properties: enginetest.Props("KEYS", "many")})
	}
	newest := func() {
		t.Helper()
		r := w.c.Do(command.ReqQueryMessage, (&command.QueryMessageRequest{Topic: []byte("T"), Key: []byte("many"), MaxNum: 3, EndTimestamp: 1 << 60}).Append, nil)
		require.Zero(t, r.Code, r.Remark)
		var got []string
		for _, v := range r.Records() {
			got = append(got, string(v.Body))
		}
		require.Equal(t, []string{"many 2", "many 3", "many 4"}, got)
	}
	check()
	newest()
	w.kill(memfs.KeepAll)
	check()
	newest()

	w.fill("other", 2*segment)
	w.send(enginetest.Message{Topic: "T", Body: "new", Properties: enginetest.Props("KEYS", "Aa order1", "UNIQ_KEY", "U9")})
	w.expire()
	gone := func() {
		t.Helper()
		require.Equal(t, []string{"new"}, w.find("T", "Aa", false))
		require.Equal(t, []string{"new"}, w.find("T", "order1", false))
		require.Equal(t, []string{"new"}, w.find("T", "U9", true))
		for _, key := range []string{"BB", "order10", "k1", "a", "b", "c"} {
			require.Empty(t, w.find("T", key, false), "key %q", key)
		}
		require.Empty(t, w.find("T", "U6", true))
		require.Empty(t, w.find("other", "Aa", false))
	}
	gone()
	w.restart()
	gone()
}

// fill sends to a topic until the log is so long.
func (w *world) fill(topic string, length message.Position) {
	w.t.Helper()
	for w.e.Store.State().Tail < length {
		w.send(enginetest.Message{Topic: topic, Body: strings.Repeat("x", 6000)})
	}
}

// testBounds is BC-28, steps 1 and 2: three topics are written one after the other and
// all but the last segment goes. The first offset of each is the first that can be
// read, or the next one to be given, and numbers go on from there, after a restart and
// a crash, too.
func testBounds(t *testing.T, w *world) {
	topics := []string{"A", "B", "C"}
	const count = 30
	for _, name := range topics {
		w.topic(name, 1)
		for i := range count {
			w.send(enginetest.Message{Topic: name, Body: fmt.Sprint(i, strings.Repeat("x", 6000))})
		}
	}
	w.expire()
	next := map[string]int64{"A": count, "B": count, "C": count}
	check := func() {
		t.Helper()
		for _, name := range topics {
			first, end := w.status(name)
			require.Equal(t, next[name], end, "end of %s", name)
			require.LessOrEqual(t, first, end, name)
			r := w.c.Pull(enginetest.Pull("reader", name, 0, first))
			if first == end {
				require.Equal(t, command.RespPullNotFound, r.Code, "%s: %s", name, r.Remark)
			} else {
				require.Zero(t, r.Code, "%s: %s", name, r.Remark)
				require.Equal(t, first, r.Records()[0].QueueOffset, name)
			}
			r = w.c.Pull(enginetest.Pull("reader", name, 0, 0))
			require.Equal(t, command.RespPullOffsetMoved, r.Code, "%s: %s", name, r.Remark)
			require.Equal(t, first, r.Int("nextBeginOffset"), name)
		}
	}
	check()
	first, _ := w.status("A")
	require.Equal(t, int64(count), first, "nothing of it is left")
	first, _ = w.status("C")
	require.Positive(t, first)
	require.Less(t, first, int64(count), "the newest are left")
	for _, again := range []func(){w.restart, func() { w.kill(memfs.KeepAll) }} {
		again()
		check()
		r := w.c.Send(enginetest.Message{Topic: "A", Body: "more"})
		require.Zero(t, r.Code, r.Remark)
		require.Equal(t, next["A"], r.Int("queueOffset"), "numbers go on")
		next["A"]++
		check()
	}
	// The store does not know any more that A and B had messages: the log has none of
	// them. The catalog remembers.
	for _, kill := range []bool{false, true} {
		w.fill("C", w.e.Store.State().Tail+segment)
		w.expire()
		if !w.lose(kill) {
			return
		}
		for _, name := range topics[:2] {
			for range 2 {
				r := w.c.Send(enginetest.Message{Topic: name, Body: "more"})
				require.Zero(t, r.Code, r.Remark)
				require.Equal(t, next[name], r.Int("queueOffset"), "numbers of %s go on", name)
				next[name]++
			}
		}
	}
}

// status is what a tool is told of the one queue of a topic.
func (w *world) status(topic string) (first, end int64) {
	w.t.Helper()
	r := w.c.Do(command.ReqGetTopicStatsInfo, (&command.TopicRequest{Topic: topic}).Append, nil)
	require.Zero(w.t, r.Code, r.Remark)
	var s command.TopicStatsTable
	require.NoError(w.t, command.DecodeBody(r.Body, &s))
	require.Len(w.t, s.OffsetTable, 1)
	for _, o := range s.OffsetTable {
		first, end = o.MinOffset, o.MaxOffset
	}
	return first, end
}
