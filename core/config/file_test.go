package config

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Syntax errors name the line.
func TestSyntaxErrors(t *testing.T) {
	for _, r := range []struct {
		name, text string
		line       int
		kind       error
		say        string
	}{
		{"a.yaml", "listen: :1\nbroker Name: {\n", 0, ErrSyntax, "not YAML"},
		{"b.yaml", "- a\n- b\n", 1, ErrSyntax, "KEY: VALUE"},
		{"c.yaml", "just text\n", 1, ErrSyntax, "KEY: VALUE"},
		{"d.yaml", "listen: &a ':1'\nadvertise: *a\n", 2, ErrSyntax, "anchors"},
		{"e.yaml", "regionId: x\n<<: {brokerName: y}\n", 2, ErrSyntax, "merges"},
		{"f.yaml", "regionId: a\n---\nregionId: b\n", 2, ErrSyntax, "second document"},
		{"g.yaml", "regionId: !custom a\n", 1, ErrSyntax, "tag"},
		{"h.yaml", "x: 1\nregionId: [a, b]\n", 2, ErrBadValue, "list"},
		{"i.yaml", "namesrvAddr: [{a: 1}]\n", 1, ErrSyntax, "plain values"},
		{"j.yaml", "regionId: {}\n", 1, ErrBadValue, "table"},
		{"k.yaml", "regionId:\n", 1, ErrBadValue, "missing"},
		{"l.yaml", "regionId: \"a\\u0007b\"\n", 1, ErrBadValue, "control character"},
		{"a.toml", "regionId = 'a'\nlisten = \n", 2, ErrSyntax, "not TOML"},
		{"b.toml", "regionId = 'a'\nlisten\n", 2, ErrSyntax, "not TOML"},
		{"c.toml", "regionId = 'a'\n[[x]]\n", 2, ErrSyntax, "lists of tables"},
		{"d.toml", "[plugins.storage.x]\na=1\n[plugins.storage.x]\nb=2\n", 0, ErrSyntax, "not TOML"},
		{"e.toml", "defaultTopicQueueNums = 0o20\nregionId = [1]\n", 2, ErrBadValue, "list"},
		{"f.toml", "defaultTopicQueueNums = 007\n", 0, ErrSyntax, "not TOML"},
		{"a.conf", "regionId=a\n=b\n", 2, ErrSyntax, "KEY=VALUE"},
		{"b.conf", "regionId=\\u12\n", 1, ErrSyntax, "unicode"},
		{"c.conf", "regionId=a\x00\n", 1, ErrSyntax, "NUL"},
	} {
		_, err := loadText(t, Broker, r.name, r.text)
		list := faults(t, err)
		e := list[len(list)-1]
		require.ErrorIs(t, e, r.kind, "%s: %v", r.name, err)
		require.ErrorContains(t, e, r.say, r.name)
		require.ErrorContains(t, e, r.name)
		if r.line > 0 {
			require.Equal(t, r.line, e.Source.Line, "%s: %v", r.name, err)
		}
	}
}

func TestEmptyFiles(t *testing.T) {
	for _, name := range []string{"a.yaml", "a.toml", "a.conf"} {
		for _, text := range []string{"", "\n\n", "# nothing\n", "\xEF\xBB\xBF# nothing", "\r\n"} {
			_, err := loadText(t, Broker, name, text)
			require.NoError(t, err, "%s %q", name, text)
		}
	}
}

// Java properties: comments, separators, continued lines, escapes, and no
// expansion of ${…}.
func TestProperties(t *testing.T) {
	src := Source{Kind: FromFile, Name: "p.conf"}
	got, errs := readProperties([]byte("# c\n! c\n\n  a = 1\nb:2\nc 3\nd=one\\\n   two\ne=x\\\\\nf=${user.home}/x\ng=a=b # not a comment\nh=\ni\nj=\\u0041\\tB\r\nk=last"), src)
	require.Empty(t, errs)
	var text []string
	for _, e := range got {
		text = append(text, fmt.Sprintf("%d %s=%v", e.src.Line, e.name, e.value))
	}
	require.Equal(t, []string{"4 a=1", "5 b=2", "6 c=3", "7 d=onetwo", "9 e=x\\", "10 f=${user.home}/x", "11 g=a=b # not a comment", "12 h=", "13 i=", "14 j=A\tB", "15 k=last"}, text)
}

// A hostile or broken file is an error, not the end of the process.
func TestDeepNesting(t *testing.T) {
	deep := strings.Repeat("[", 100_000)
	tables := strings.Repeat("{a=", 50_000)
	for name, text := range map[string]string{
		"a.yaml": "plugins.storage.x.a: " + deep, "b.yaml": "plugins.storage.x.a: " + deep + strings.Repeat("]", 100_000), "c.yaml": strings.Repeat("a: {", 50_000),
		"a.toml": "plugins.storage.x.a = " + deep, "b.toml": "plugins.storage.x.a = " + deep + strings.Repeat("]", 100_000), "c.toml": "a = " + tables,
		"a.conf": strings.Repeat("a.", 50_000) + "=1", "b.conf": "plugins.storage.x." + strings.Repeat("a.", 50_000) + "b=1", "d.yaml": "plugins.storage.x." + strings.Repeat("a.", 50_000) + "b: 1", "e.yaml": strings.Repeat("- ", 50_000),
	} {
		_, err := loadText(t, Broker, name, text)
		require.NotEmpty(t, faults(t, err), name)
	}
}

func TestNestedNames(t *testing.T) {
	for name, text := range map[string]string{
		"a.yaml": "tls:\n  server:\n    mode: disabled\n",
		"b.yaml": "tls.server.mode: disabled\n",
		"a.toml": "[tls.server]\nmode = 'disabled'\n",
		"b.toml": "tls = {server.mode = 'disabled'}\n",
		"c.toml": "\"tls.server.mode\" = 'disabled'\n",
	} {
		l, err := loadText(t, Broker, name, text)
		require.NoError(t, err, name)
		require.Equal(t, FromFile, l.Origin("tls.server.mode").Kind, name)
	}
}

func TestParseValues(t *testing.T) {
	for _, r := range []struct {
		key  Key
		text string
		want any // nil: refused
	}{
		{Key{Type: Size}, "65536", int64(65536)}, {Key{Type: Size}, "64KiB", int64(65536)}, {Key{Type: Size}, "1 gib", int64(1 << 30)}, {Key{Type: Size}, "7B", int64(7)},
		{Key{Type: Size}, "1MB", nil}, {Key{Type: Size}, "KiB", nil}, {Key{Type: Size}, "1.5MiB", nil}, {Key{Type: Size}, "9223372036854775807KiB", nil},
		{Key{Type: Duration, Unit: "ms"}, "500", 500 * time.Millisecond}, {Key{Type: Duration, Unit: "ms"}, "2s", 2 * time.Second}, {Key{Type: Duration, Unit: "s"}, "2m", 2 * time.Minute},
		{Key{Type: Duration, Unit: "s"}, "1500ms", nil}, {Key{Type: Duration, Unit: "h"}, "72", 72 * time.Hour}, {Key{Type: Duration, Unit: "h"}, "3d", 72 * time.Hour},
		{Key{Type: Duration, Unit: "ms"}, "1us", nil}, {Key{Type: Duration, Unit: "ms"}, "soon", nil}, {Key{Type: Duration, Unit: "h"}, "9223372036854775807", nil}, {Key{Type: Duration, Unit: "ms"}, "-1d", nil},
		{Key{Type: Int, Min: -1, Max: 5}, "-1", int64(-1)}, {Key{Type: Int}, "0x10", nil}, {Key{Type: Int}, "1_000", nil},
		{Key{Type: Float}, "0.8", 0.8}, {Key{Type: Float}, "NaN", nil}, {Key{Type: Float}, "1e999", nil},
		{Key{Type: Addresses}, "a:1; b:2 ;", []string{"a:1", "b:2"}}, {Key{Type: Addresses}, "a:1;a:1", nil}, {Key{Type: Addresses}, "http://x:1", nil}, {Key{Type: Addresses}, "a", nil}, {Key{Type: Addresses}, ";", nil},
		{Key{Type: Addresses}, "a:1,b:2", nil},
		{Key{Type: Listeners}, "acme://sub.ject; b_2://:1;", []string{"acme://sub.ject", "b_2://:1"}}, {Key{Type: Listeners}, "a://:1;a://:1", nil}, {Key{Type: Listeners}, "a", nil},
		{Key{Type: Listeners}, "a://", nil}, {Key{Type: Listeners}, "://:1", nil}, {Key{Type: Listeners}, "A://:1", nil}, {Key{Type: Listeners}, "a:1", nil},
		{Key{Type: Delays}, "1s  5m\t2h 1d", "1s 5m 2h 1d"}, {Key{Type: Delays}, "0s", nil}, {Key{Type: Delays}, "5", nil}, {Key{Type: Delays}, "1s,2s", nil},
		{Key{Type: Address}, "[::1]:80", "[::1]:80"}, {Key{Type: Address}, "::1:80", nil}, {Key{Type: Address}, "a:080", nil}, {Key{Type: Address}, "a b:80", nil}, {Key{Type: Address}, "off", nil},
		{Key{Type: Address, Words: []string{wordOff}}, "OFF", "off"}, {Key{Type: Address, Words: []string{wordHost}}, "fd00::1", "fd00::1"}, {Key{Type: Address, Words: []string{wordHost}}, ":80", nil},
	} {
		v, err := r.key.parse(r.text)
		if r.want == nil {
			require.Error(t, err, "%s %q gives %v", r.key.Type, r.text, v)
			continue
		}
		require.NoError(t, err, "%s %q", r.key.Type, r.text)
		require.Equal(t, r.want, v, "%s %q", r.key.Type, r.text)
		again, err := r.key.parse(r.key.format(v))
		require.NoError(t, err)
		require.Equal(t, v, again, "format and parse agree")
	}
	require.Equal(t, "9223372036854775807", formatSize(math.MaxInt64))
}

func FuzzReadEntries(f *testing.F) {
	for _, s := range []string{"a=b\n", "listen: ':1'\nplugins: {storage: {x: {a: [1, {b: c}]}}}\n", "[plugins.storage.x]\na = {b = [1, 2.5, 'c']}\n", "\xEF\xBB\xBFa\\\n b=\\u0041\r\n",
		"a: &b [*b]\n", "a = 1979-05-27T07:32:00Z\n", "plugins.storage.x.a=1\nplugins.storage.x.a.b=2\n", "%YAML 1.2\n---\n? [a]\n: b\n", "a.b.c = 0x10\n[[a]]\n"} {
		for i := range 3 {
			f.Add(uint8(i), []byte(s))
		}
	}
	base, err := Load(Options{Mode: Standalone, Hostname: "h"})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, form uint8, b []byte) {
		format := []Format{FormatYAML, FormatTOML, FormatProperties}[int(form)%3]
		src := Source{Kind: FromFile, Name: "fuzz"}
		entries, errs := readEntries(format, b, src)
		for _, e := range entries {
			if e.src.Line < 1 {
				t.Fatalf("%q has no line", e.name)
			}
		}
		for _, e := range errs {
			if e.Error() == "" || e.Kind == nil {
				t.Fatalf("an empty error: %#v", e)
			}
		}
		if n, _, err := base.Update(b); err == nil { // what is accepted can be shown and is a fixed point
			if _, changes, err := n.Update(n.Properties()); err != nil || len(changes) > 0 {
				t.Fatalf("%v %v", changes, err)
			}
			n.Show()
		}
		l := newLoader(Standalone, nil)
		l.k = base.k.Copy()
		l.merge(l.accept(entries))
		l.finish()
	})
}
