package message_test

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
)

// The batch of two messages as a Java client sends it.
const goldenBatch = `
	0000002c 00000000 00000000 00000000 00000002 6869 0014 57414954017472756502544147530154616741 02
	00000022 00000000 00000000 00000000 00000002 796f 000a 57414954017472756502`

func TestGoldenBatch(t *testing.T) {
	in := unhex(t, goldenBatch)
	want := []message.BatchItem{
		{Body: []byte("hi"), Properties: []byte("WAIT\x01true\x02TAGS\x01TagA\x02")},
		{Body: []byte("yo"), Properties: []byte("WAIT\x01true\x02")},
	}
	var it message.BatchItem
	rest := in
	for i := range want {
		var err error
		rest, err = message.NextBatchItem(rest, &it)
		require.NoError(t, err)
		require.Equal(t, want[i], it)
	}
	require.Empty(t, rest)
	require.Equal(t, in, message.AppendBatchItem(message.AppendBatchItem(nil, want[0]), want[1]))
}

func TestBatchRefuses(t *testing.T) {
	good := message.AppendBatchItem(nil, message.BatchItem{Flag: 9, Body: []byte("body"), Properties: []byte("a\x01b\x02")})
	change := func(at int, b ...byte) []byte {
		out := bytes.Clone(good)
		copy(out[at:], b)
		return out
	}
	for name, in := range map[string][]byte{
		"nothing":              nil,
		"short":                good[:21],
		"cut":                  good[:len(good)-1],
		"total too small":      change(0, 0, 0, 0, 21),
		"total negative":       change(0, 0xff),
		"total too large":      change(0, 0, 0, 0, 200),
		"body negative":        change(16, 0xff),
		"body too long":        change(16, 0, 0, 0, 200),
		"body longer":          change(16, 0, 0, 0, 5),
		"properties too long":  change(24, 0, 5),
		"properties too short": change(24, 0, 3),
		"properties negative":  change(24, 0xff),
	} {
		t.Run(name, func(t *testing.T) {
			var it message.BatchItem
			_, err := message.NextBatchItem(in, &it)
			require.ErrorIs(t, err, message.ErrBatch)
		})
	}
	var it message.BatchItem
	rest, err := message.NextBatchItem(append(change(4, 1, 2, 3, 4, 5, 6, 7, 8), 7), &it)
	require.NoError(t, err, "magic and CRC of an entry are ignored")
	require.Equal(t, []byte{7}, rest)
	require.Equal(t, int32(9), it.Flag)
}

func FuzzNextBatchItem(f *testing.F) {
	f.Add(unhex(f, goldenBatch))
	f.Add(message.AppendBatchItem(nil, message.BatchItem{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var it message.BatchItem
		for rest := b; len(rest) > 0; {
			next, err := message.NextBatchItem(rest, &it)
			if err != nil {
				return
			}
			if len(next) >= len(rest) {
				t.Fatal("an entry takes no bytes")
			}
			if n := len(it.Body) + len(it.Properties) + 22; n != len(rest)-len(next) {
				t.Fatalf("parts of %d bytes in an entry of %d", n, len(rest)-len(next))
			}
			rest = next
		}
	})
}

func TestAppendHex(t *testing.T) {
	var all []byte
	for i := range 256 {
		all = append(all, byte(i), byte(255-i), byte(i*7))
	}
	for n := range 13 {
		for i := 0; i+n <= len(all); i += 5 {
			want := "x" + strings.ToUpper(hex.EncodeToString(all[i:i+n]))
			if got := string(message.AppendHex([]byte("x"), all[i:i+n])); got != want {
				t.Fatalf("%x became %s", all[i:i+n], got)
			}
		}
	}
}

func TestParseOffsetIDRefuses(t *testing.T) {
	good := "0A00000100002A9F0000000000001000"
	for _, id := range []string{"", good[:31], good + "00", strings.Repeat("0", 56) + "0", "G" + good[1:], "0A000001FFFFFFFF0000000000001000", good[:16] + "8000000000000000"} {
		_, _, err := message.ParseOffsetID(id)
		require.ErrorIs(t, err, message.ErrID, "%q", id)
	}
	host, at, err := message.ParseOffsetID(strings.ToLower(good))
	require.NoError(t, err, "lower case is read, too")
	require.Equal(t, netip.MustParseAddrPort("10.0.0.1:10911"), host)
	require.Equal(t, message.Position(4096), at)
}

func FuzzParseOffsetID(f *testing.F) {
	f.Add("0A00000100002A9F0000000000001000")
	f.Add("FD00000000000000000000000000000100002A9F0000000000000400")
	f.Fuzz(func(t *testing.T, id string) {
		host, at, err := message.ParseOffsetID(id)
		if err != nil {
			return
		}
		h := message.HostOf(host)
		if len(id) == 56 && !h.Is6() {
			return // an IPv4 address in IPv6 clothes is written shorter
		}
		if got := string(message.AppendOffsetID(nil, h.Bytes(), at)); !strings.EqualFold(got, id) {
			t.Fatalf("%q became %q", id, got)
		}
	})
}

func parsed(t testing.TB, r message.Record, store int64) *message.View {
	t.Helper()
	buf := make([]byte, r.Size())
	r.Encode(buf, nil)
	message.Stamp(buf, 640, 5, store)
	v := &message.View{}
	require.NoError(t, message.Parse(buf, v))
	return v
}

func TestDeriver(t *testing.T) {
	const store = 1_700_000_000_000
	rules := message.IndexRules{DelayLevels: []int64{1000, 5000, 10_000}}
	for name, tc := range map[string]struct {
		rec   message.Record
		rules message.IndexRules
		tags  int64
		unit  bool
		keys  []string
	}{
		"plain":              {message.Record{Topic: "T"}, rules, 0, true, nil},
		"tags":               {message.Record{Topic: "T", Properties: []byte("TAGS\x01TagA")}, rules, 2598919, true, nil},
		"tags are not split": {message.Record{Topic: "T", Properties: []byte("TAGS\x01a||b\x02")}, rules, message.TagsCode([]byte("a||b")), true, nil},
		"tags and cluster": {
			message.Record{Topic: "T", Properties: []byte("TAGS\x01TagA"), BrokerProperties: []byte("CLUSTER\x01c\x02")}, rules, 2598919, true, nil,
		},
		"keys": {
			message.Record{Topic: "T", Properties: []byte("KEYS\x01 a  b c \x02UNIQ_KEY\x01u\x02")}, rules, 0, true, []string{"u", "a", "b", "c"},
		},
		"prepared":                 {message.Record{Topic: "T", SysFlag: message.SysTxPrepared, Properties: []byte("KEYS\x01k\x02")}, rules, 0, false, []string{"k"}},
		"rollback":                 {message.Record{Topic: "T", SysFlag: message.SysTxRollback, Properties: []byte("KEYS\x01k\x02UNIQ_KEY\x01u\x02")}, rules, 0, false, nil},
		"commit":                   {message.Record{Topic: "T", SysFlag: message.SysTxCommit, Properties: []byte("KEYS\x01k\x02")}, rules, 0, true, []string{"k"}},
		"other flags":              {message.Record{Topic: "T", SysFlag: message.SysCompressed | message.SysMultiTags}, rules, 0, true, nil},
		"delayed, level 2":         {message.Record{Topic: message.ScheduleTopic, Properties: []byte("DELAY\x012\x02TAGS\x01x\x02")}, rules, store + 5000, true, nil},
		"delayed, level too high":  {message.Record{Topic: message.ScheduleTopic, Properties: []byte("DELAY\x0118\x02")}, rules, store + 10_000, true, nil},
		"delayed, no levels":       {message.Record{Topic: message.ScheduleTopic, Properties: []byte("DELAY\x012\x02")}, message.IndexRules{}, store + 1000, true, nil},
		"schedule without DELAY":   {message.Record{Topic: message.ScheduleTopic, Properties: []byte("TAGS\x01TagA\x02")}, rules, 2598919, true, nil},
		"schedule, level 0":        {message.Record{Topic: message.ScheduleTopic, Properties: []byte("DELAY\x010\x02")}, rules, 0, true, nil},
		"DELAY in another topic":   {message.Record{Topic: "T", Properties: []byte("DELAY\x012\x02TAGS\x01TagA\x02")}, rules, 2598919, true, nil},
		"long topic":               {message.Record{Topic: "%RETRY%" + strings.Repeat("g", 140), Properties: []byte("TAGS\x01TagA\x02")}, rules, 2598919, true, nil},
		"hash without an absolute": {message.Record{Topic: "T", Properties: []byte("TAGS\x01polygenelubricants\x02")}, rules, -2147483648, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			v := parsed(t, tc.rec, store)
			d := message.NewDeriver(tc.rules)
			units, keys := d.Derive(v, nil, nil, nil)
			if tc.unit {
				require.Equal(t, []message.Unit{{
					Queue: message.Queue{Topic: tc.rec.Topic}, At: 640, Size: v.Size, Offset: 5, TagsCode: tc.tags, StoreTime: store,
				}}, units)
			} else {
				require.Empty(t, units)
			}
			var want []message.Key
			for _, k := range tc.keys {
				want = append(want, message.Key{Hash: message.KeyHash([]byte(tc.rec.Topic), []byte(k)), At: 640, StoreTime: store})
			}
			require.Equal(t, want, keys)

			// Facts that are known already give the same, behind what was there.
			var f message.Facts
			f.Scan(v.Properties)
			again, _ := d.Derive(v, &f, units, nil)
			require.Equal(t, append(units, units...), again)
		})
	}
}

func TestDeriverAllocatesNothing(t *testing.T) {
	v := parsed(t, message.Record{Topic: "T", Properties: []byte("TAGS\x01TagA\x02KEYS\x01a b\x02")}, 1)
	d := message.NewDeriver(message.IndexRules{})
	units, keys := d.Derive(v, nil, nil, nil)
	require.Zero(t, testing.AllocsPerRun(100, func() { units, keys = d.Derive(v, nil, units[:0], keys[:0]) }))
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"T": "", "%RETRY%group": "", "a|b": "", "A-Z_09": "", strings.Repeat("x", 127): "",
		"%RETRY%" + strings.Repeat("x", 248): "", "%DLQ%" + strings.Repeat("x", 250): "",
		"":                                   "empty",
		strings.Repeat("x", 128):             "at most 127",
		"%RETRY%" + strings.Repeat("x", 249): "at most 255",
		"a b":                                "allowed are",
		"a/b":                                "allowed are",
		"ü":                                  "allowed are",
		"a\x00":                              "allowed are",
	} {
		err := message.CheckTopic(name)
		if want == "" {
			require.NoError(t, err, "%q", name)
		} else {
			require.ErrorContains(t, err, want, "%q", name)
		}
	}
	require.NoError(t, message.CheckGroup(strings.Repeat("g", 120)))
	require.ErrorContains(t, message.CheckGroup(strings.Repeat("g", 121)), "at most 120")

	require.True(t, message.IsInternal(message.CatalogTopic))
	require.True(t, message.IsInternal(message.RaftTopic))
	require.False(t, message.IsInternal(message.TimerTopic))
	for _, topic := range []string{message.AutoCreateTopic, message.ScheduleTopic, message.TimerTopic, message.CatalogTopic} {
		require.True(t, message.IsSystem(topic), topic)
	}
	require.False(t, message.IsSystem("Orders"))
	for topic, want := range map[string]bool{
		"Orders": true, "%RETRY%g": true, message.AutoCreateTopic: true, message.TraceTopic: true,
		message.ScheduleTopic: false, message.HalfTopic: false, message.OpHalfTopic: false, message.CatalogTopic: false, message.RaftTopic: false,
	} {
		require.Equal(t, want, message.MaySend(topic), topic)
	}
	require.Equal(t, "T/3", message.Queue{Topic: "T", ID: 3}.String())
}

func TestDefaultDelayLevels(t *testing.T) {
	levels := message.DefaultDelayLevels()
	require.Len(t, levels, 18)
	require.Equal(t, int64(1000), levels[0])
	require.Equal(t, int64(2*3_600_000), levels[17])
}

func BenchmarkDerive(b *testing.B) {
	v := parsed(b, message.Record{Topic: "T", Properties: []byte("TAGS\x01TagA\x02UNIQ_KEY\x010123456789ABCDEF0123456789ABCDEF\x02WAIT\x01true\x02")}, 1)
	d := message.NewDeriver(message.IndexRules{})
	var units []message.Unit
	var keys []message.Key
	b.ReportAllocs()
	for b.Loop() {
		units, keys = d.Derive(v, nil, units[:0], keys[:0])
	}
}
