package message_test

import (
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
)

func pairs(s string) []string {
	var out []string
	p := message.NewProperties([]byte(s))
	for p.Next() {
		out = append(out, string(p.Name)+"="+string(p.Value))
	}
	return out
}

// TestProperties has all forms that clients were seen to send, and worse.
func TestProperties(t *testing.T) {
	for name, tc := range map[string]struct {
		in   string
		want []string
	}{
		"empty":                      {"", nil},
		"one":                        {"a\x01b\x02", []string{"a=b"}},
		"without the last separator": {"TAGS\x01TagA", []string{"TAGS=TagA"}},
		"two":                        {"a\x01b\x02c\x01d\x02", []string{"a=b", "c=d"}},
		"two, last one open":         {"a\x01b\x02c\x01d", []string{"a=b", "c=d"}},
		"doubled separators":         {"a\x01b\x02\x02\x02c\x01d\x02\x02", []string{"a=b", "c=d"}},
		"leading separator":          {"\x02a\x01b\x02", []string{"a=b"}},
		"only separators":            {"\x02\x02\x02", nil},
		"value with 0x01":            {"a\x01b\x01c\x02d\x01e\x02", []string{"a=b\x01c", "d=e"}},
		"doubled 0x01":               {"a\x01\x01b\x02", []string{"a=\x01b"}},
		"no name":                    {"\x01b\x02c\x01d\x02", []string{"c=d"}},
		"no value":                   {"a\x01\x02c\x01d\x02", []string{"c=d"}},
		"no value at the end":        {"c\x01d\x02a\x01", []string{"c=d"}},
		"no 0x01":                    {"ab\x02c\x01d\x02", []string{"c=d"}},
		"text beyond ASCII":          {"订单\x01😀\x02", []string{"订单=😀"}},
		"zero bytes":                 {"\x00a\x00bcdefgh\x00\x01\x00bcdefghi\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00", []string{"\x00a\x00bcdefgh\x00=\x00bcdefghi\x00"}},
		"eight and more":             {"12345678\x0112345678\x02123456789\x01123456789\x021234567\x011234567\x02", []string{"12345678=12345678", "123456789=123456789", "1234567=1234567"}},
		"invalid UTF-8":              {"a\x01\xff\xfe\x02", []string{"a=\xff\xfe"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, pairs(tc.in))
		})
	}
}

func TestPropertyLastCounts(t *testing.T) {
	s := []byte("a\x01one\x02b\x01x\x02a\x01two\x02")
	v, ok := message.Property(s, "a")
	require.True(t, ok)
	require.Equal(t, "two", string(v))
	_, ok = message.Property(s, "c")
	require.False(t, ok)
	var f message.Facts
	f.Scan([]byte("TAGS\x01one\x02TAGS\x01two\x02"))
	require.Equal(t, "two", string(f.Tags))
}

// TestAppendProperty: what a client left open is closed before something is
// added, so that a tag and the cluster are never glued together.
func TestAppendProperty(t *testing.T) {
	for _, tc := range []struct{ in, name, value, want string }{
		{"", "a", "b", "a\x01b\x02"},
		{"TAGS\x01TagA", "CLUSTER", "c", "TAGS\x01TagA\x02CLUSTER\x01c\x02"},
		{"TAGS\x01TagA\x02", "CLUSTER", "c", "TAGS\x01TagA\x02CLUSTER\x01c\x02"},
		{"x", "", "b", "x"},
		{"x", "a", "", "x"},
	} {
		require.Equal(t, tc.want, string(message.AppendProperty([]byte(tc.in), tc.name, tc.value)))
	}
}

func TestAppendWithout(t *testing.T) {
	in := "a\x01b\x02POP_CK\x01x y\x02c\x01d\x02POP_CK\x01again"
	require.Equal(t, "a\x01b\x02c\x01d\x02", string(message.AppendWithout(nil, []byte(in), "POP_CK")))
	require.Equal(t, "c\x01d\x02", string(message.AppendWithout(nil, []byte(in), "POP_CK", "a")))
	require.Equal(t, pairs(in), pairs(string(message.AppendWithout(nil, []byte(in)))))
	require.Equal(t, "pre", string(message.AppendWithout([]byte("pre"), nil, "a")))
}

func TestJavaHash(t *testing.T) {
	for s, want := range map[string]int32{
		"":                   0,
		"a":                  97,
		"*":                  42,
		"pay":                110760,
		"TagA":               2598919,
		"TagB":               2598920,
		"订单":                 1129459,
		"😀":                  1772899,
		"polygenelubricants": -2147483648,
		"Aa":                 2112,
		"BB":                 2112,
		"hello world":        1794106052,
		"\xff":               0xFFFD,
	} {
		require.Equal(t, want, message.JavaHash([]byte(s)), "%q", s)
	}
	require.Equal(t, int64(-2147483648), message.TagsCode([]byte("polygenelubricants")), "sign extended")
	require.Equal(t, int32(1613243268), message.KeyHash([]byte("Orders"), []byte("K1")))
	require.Equal(t, message.KeyHash([]byte("T"), []byte("Aa")), message.KeyHash([]byte("T"), []byte("BB")))
}

// FuzzJavaHash: by words it is what it is by UTF-16 units.
func FuzzJavaHash(f *testing.F) {
	f.Add("FD000000000000000000000000000002470A30946E09942BD8A90000")
	f.Add("1234567ä90123456😀12345678\xff\x7f\x00abcdefgh€")
	f.Fuzz(func(t *testing.T, s string) {
		want := int32(0)
		for _, u := range utf16.Encode([]rune(s)) {
			want = 31*want + int32(u)
		}
		require.Equal(t, want, message.JavaHash([]byte(s)), "%q", s)
	})
}

// TestKeyHashIsJavaHashOfJoined: hashing in two steps equals hashing at once.
func TestKeyHashIsJavaHashOfJoined(t *testing.T) {
	for _, topic := range []string{"T", "订单", "%RETRY%g", strings.Repeat("x", 200)} {
		for _, key := range []string{"k", "😀", "polygenelubricants", "", "a#b"} {
			want := message.JavaHash([]byte(topic + "#" + key))
			if want < 0 {
				want = -want
			}
			if want < 0 {
				want = 0
			}
			require.Equal(t, want, message.KeyHash([]byte(topic), []byte(key)), "%s#%s", topic, key)
		}
	}
}

func TestFacts(t *testing.T) {
	for in, want := range map[string]message.Facts{
		"": {},
		"TAGS\x01TagA\x02KEYS\x01a b\x02UNIQ_KEY\x01u\x02WAIT\x01false\x02DELAY\x013\x02TRAN_MSG\x01true\x02": {
			Tags: []byte("TagA"), Keys: []byte("a b"), UniqueKey: []byte("u"), UniqueAt: 28, NoWait: true, Delay: 3, Transaction: true,
		},
		"WAIT\x01true\x02TRAN_MSG\x01false\x02":        {},
		"WAIT\x01FALSE\x02":                            {},
		"DELAY\x01x\x02":                               {},
		"DELAY\x01-3\x02":                              {Delay: -3},
		"DELAY\x0199999999999\x02":                     {},
		"DELAY\x015\x02DELAY\x01x\x02":                 {},
		"tags\x01TagA\x02TAGSX\x01y\x02":               {},
		"TAGS\x01TagA":                                 {Tags: []byte("TagA")},
		"TAGS\x01a\x01b\x02":                           {Tags: []byte("a\x01b")},
		"TAGS\x01\x02KEYS\x01\x02UNIQ_KEY\x01\x02":     {},
		"TRAN_MSG\x01true\x02PGROUP\x01g\x02KEYS\x01k": {Transaction: true, Keys: []byte("k")},
	} {
		f := message.Facts{Delay: 77}
		f.Scan([]byte(in))
		require.Equal(t, want, f, "%q", in)
	}
}

func FuzzProperties(f *testing.F) {
	for _, s := range []string{"", "a\x01b\x02", "TAGS\x01TagA", "\x02\x02", "a\x01\x02", "\x01", "a\x01b\x01c\x02d\x01e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want := javaPairs(s)
		got := pairs(s)
		if strings.Join(got, "\x02") != strings.Join(want, "\x02") || len(got) != len(want) {
			t.Fatalf("%q: %q, want %q", s, got, want)
		}
		// Writing what was read gives the same pairs.
		again := pairs(string(message.AppendWithout(nil, []byte(s))))
		if strings.Join(again, "\x02") != strings.Join(want, "\x02") {
			t.Fatalf("%q: written and read again %q, want %q", s, again, want)
		}
		var facts message.Facts
		facts.Scan([]byte(s))
	})
}

// javaPairs follows the reading of Java step by step, without care for speed.
func javaPairs(s string) []string {
	var out []string
	for _, piece := range strings.Split(s, "\x02") {
		name, value, ok := strings.Cut(piece, "\x01")
		if ok && name != "" && value != "" {
			out = append(out, name+"="+value)
		}
	}
	return out
}
