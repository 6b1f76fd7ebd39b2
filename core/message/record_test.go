package message_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/message"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	require.NoError(t, err)
	return b
}

// golden are records as Apache's broker lays them out.
var golden = map[string]struct {
	rec         message.Record
	at          message.Position
	offset      int64
	store       int64
	bytes, id   string
	key         string
	hash        int32
	units, keys int
	tags        int64
}{
	"orders": {
		rec: message.Record{
			Topic: "Orders", QueueID: 3, BornTime: 1_700_000_000_000, Body: []byte("hi"),
			BornHost:   message.HostOf(netip.MustParseAddrPort("10.0.0.1:5555")),
			StoreHost:  message.HostOf(netip.MustParseAddrPort("10.0.0.1:10911")),
			Properties: []byte("TAGS\x01TagA\x02UNIQ_KEY\x01K1\x02"),
		},
		at: 4096, offset: 7, store: 1_700_000_000_005,
		bytes: `00000079 daa320a7 58932aac 00000003
			00000000 00000000 00000007 00000000
			00001000 00000000 0000018b cfe56800
			0a000001 000015b3 0000018b cfe56805
			0a000001 00002a9f 00000000 00000000
			00000000 00000002 6869 06 4f72646572
			73 0016 54414753 01 54616741 02 554e4951 5f4b4559 01 4b31 02`,
		id: "0A00000100002A9F0000000000001000", key: "K1", hash: 1613243268, units: 1, keys: 1, tags: 2598919,
	},
	"hello": {
		rec: message.Record{
			Topic: "T1", QueueID: 3, BornTime: 1_700_000_000_000, Body: []byte("hello"),
			BornHost:   message.HostOf(netip.MustParseAddrPort("10.0.0.9:50000")),
			StoreHost:  message.HostOf(netip.MustParseAddrPort("10.0.0.1:10911")),
			Properties: []byte("u\x011\x02KEYS\x01k1\x02TAGS\x01TagA\x02"),
		},
		at: 1024, offset: 7, store: 1_700_000_000_001,
		bytes: `00000078 daa320a7 3610a686 00000003 00000000 0000000000000007 0000000000000400 00000000
			0000018bcfe56800 0a0000090000c350 0000018bcfe56801 0a00000100002a9f 00000000 0000000000000000
			00000005 68656c6c6f 02 5431 0016 750131024b455953016b310254414753015461674102`,
		id: "0A00000100002A9F0000000000000400", key: "k1", hash: -1, units: 1, keys: 1, tags: 2598919,
	},
	"hello over IPv6": {
		rec: message.Record{
			Topic: "T1", QueueID: 3, BornTime: 1_700_000_000_000, Body: []byte("hello"),
			BornHost:   message.HostOf(netip.MustParseAddrPort("[fd00::9]:50000")),
			StoreHost:  message.HostOf(netip.MustParseAddrPort("[fd00::1]:10911")),
			Properties: []byte("u\x011\x02KEYS\x01k1\x02TAGS\x01TagA\x02"),
		},
		at: 1024, offset: 7, store: 1_700_000_000_001,
		bytes: `00000090 daa320a7 3610a686 00000003 00000000 0000000000000007 0000000000000400 00000030
			0000018bcfe56800 fd000000000000000000000000000009 0000c350
			0000018bcfe56801 fd000000000000000000000000000001 00002a9f 00000000 0000000000000000
			00000005 68656c6c6f 02 5431 0016 750131024b455953016b310254414753015461674102`,
		id: "FD00000000000000000000000000000100002A9F0000000000000400", key: "k1", hash: -1, units: 1, keys: 1, tags: 2598919,
	},
}

func TestGoldenRecords(t *testing.T) {
	for name, g := range golden {
		t.Run(name, func(t *testing.T) {
			want := unhex(t, g.bytes)
			require.Equal(t, len(want), g.rec.Size())
			got := make([]byte, g.rec.Size())
			var encoded message.View
			g.rec.Encode(got, &encoded)
			message.Stamp(got, g.at, g.offset, g.store)
			require.Equal(t, hex.EncodeToString(want), hex.EncodeToString(got))

			var v message.View
			require.NoError(t, message.Parse(append(want, "what follows"...), &v))
			require.Equal(t, want, v.Raw)
			require.Equal(t, g.at, v.Position)
			require.Equal(t, g.offset, v.QueueOffset)
			require.Equal(t, g.store, v.StoreTime)
			require.Equal(t, g.store, message.StoreTime(want))
			require.Equal(t, int32(len(want)), message.Size(want))
			require.Equal(t, g.rec.Topic, string(v.Topic))
			require.Equal(t, g.rec.Body, v.Body)
			require.Equal(t, g.rec.Properties, v.Properties)
			require.Equal(t, g.rec.BornTime, v.BornTime)
			require.NoError(t, v.CheckBody())

			// The view that Encode fills is that of Parse, but for what is stamped.
			encoded.TopicName = ""
			encoded.Position, encoded.QueueOffset, encoded.StoreTime = g.at, g.offset, g.store
			require.Equal(t, v, encoded)

			id := string(message.AppendOffsetID(nil, v.StoreHost, v.Position))
			require.Equal(t, g.id, id)
			host, at, err := message.ParseOffsetID(id)
			require.NoError(t, err)
			require.Equal(t, message.HostAddr(v.StoreHost), host)
			require.Equal(t, g.at, at)

			units, keys := message.NewDeriver(message.IndexRules{}).Derive(&v, nil, nil, nil)
			require.Equal(t, []message.Unit{{
				Queue: message.Queue{Topic: g.rec.Topic, ID: 3}, At: g.at, Size: int32(len(want)),
				Offset: g.offset, TagsCode: g.tags, StoreTime: g.store,
			}}, units)
			require.Len(t, keys, g.keys)
			if g.hash >= 0 {
				require.Equal(t, message.Key{Hash: g.hash, At: g.at, StoreTime: g.store}, keys[0])
			}
		})
	}
}

func TestFixedSize(t *testing.T) {
	var r message.Record
	require.Equal(t, message.FixedSize, r.Size())
	buf := make([]byte, r.Size())
	var v message.View
	r.Encode(buf, &v)
	require.NoError(t, message.Parse(buf, &v))
	require.NoError(t, v.CheckBody())
	require.Zero(t, v.BodyCRC, "an empty body has CRC 0")
	require.Equal(t, netip.MustParseAddrPort("0.0.0.0:0"), message.HostAddr(v.BornHost))
}

// TestBodyCRC clears the top bit: with it half of all records would be corrupt
// for other readers.
func TestBodyCRC(t *testing.T) {
	require.Equal(t, uint32(0x58932aac), message.BodyCRC([]byte("hi")))
	require.Equal(t, uint32(0x3610a686), message.BodyCRC([]byte("hello")))
}

// TestLongTopics: from 128 bytes on the length takes two.
func TestLongTopics(t *testing.T) {
	for _, n := range []int{0, 1, 126, 127, 128, 129, 255, 300} {
		r := message.Record{Topic: strings.Repeat("x", n), Body: []byte("b"), Properties: []byte("a\x01b")}
		buf := make([]byte, r.Size())
		r.Encode(buf, nil)
		message.Stamp(buf, 5, 6, 7)
		var v message.View
		require.NoError(t, message.Parse(buf, &v))
		require.Equal(t, r.Topic, string(v.Topic))
		require.Equal(t, "a\x01b\x02", string(v.Properties), "the separator that was missing")
		if want := map[bool]uint32{false: message.MagicV1, true: message.MagicV2}[n > 127]; v.Magic != want {
			t.Fatalf("a topic of %d bytes has magic %#x, want %#x", n, v.Magic, want)
		}
	}
}

func TestBrokerProperties(t *testing.T) {
	for _, tc := range []struct{ client, broker, want string }{
		{"", "", ""},
		{"", "CLUSTER\x01c\x02", "CLUSTER\x01c\x02"},
		{"TAGS\x01TagA", "CLUSTER\x01c\x02", "TAGS\x01TagA\x02CLUSTER\x01c\x02"},
		{"TAGS\x01TagA\x02", "CLUSTER\x01c\x02", "TAGS\x01TagA\x02CLUSTER\x01c\x02"},
		{"\x02", "CLUSTER\x01c\x02", "\x02CLUSTER\x01c\x02"},
		{"TAGS\x01TagA", "", "TAGS\x01TagA\x02"},
	} {
		r := message.Record{Topic: "T", Properties: []byte(tc.client), BrokerProperties: []byte(tc.broker)}
		require.Equal(t, len(tc.want), r.PropertiesSize())
		buf := make([]byte, r.Size())
		r.Encode(buf, nil)
		var v message.View
		require.NoError(t, message.Parse(buf, &v))
		require.Equal(t, tc.want, string(v.Properties))
	}
}

func TestParseRefuses(t *testing.T) {
	good := unhex(t, golden["hello"].bytes)
	change := func(at int, b ...byte) []byte {
		out := bytes.Clone(good)
		copy(out[at:], b)
		return out
	}
	blank := make([]byte, 100)
	message.PutBlank(blank, 100)
	for name, tc := range map[string]struct {
		in   []byte
		want error
	}{
		"nothing":                  {nil, message.ErrShort},
		"seven bytes":              {good[:7], message.ErrShort},
		"cut":                      {good[:len(good)-1], message.ErrShort},
		"zeros":                    {make([]byte, 200), message.ErrMagic},
		"magic":                    {change(4, 1), message.ErrMagic},
		"size too small":           {change(0, 0, 0, 0, 90), message.ErrLength},
		"size negative":            {change(0, 0xff), message.ErrLength},
		"size one less":            {change(0, 0, 0, 0, 0x77), message.ErrLength},
		"size beyond":              {change(0, 0, 0, 1), message.ErrShort},
		"body negative":            {change(84, 0xff), message.ErrLength},
		"body too long":            {change(84, 0, 0, 0, 120), message.ErrLength},
		"body longer":              {change(84, 0, 0, 0, 6), message.ErrLength},
		"topic too long":           {change(93, 127), message.ErrLength},
		"topic negative":           {change(93, 128), message.ErrLength},
		"properties too long":      {change(96, 0, 0x17), message.ErrLength},
		"properties too short":     {change(96, 0, 0x15), message.ErrLength},
		"properties negative":      {change(96, 0xff), message.ErrLength},
		"IPv6 flags without bytes": {change(36, 0, 0, 0, 0x30), message.ErrLength},
		"blank":                    {blank, message.ErrBlank},
		"blank too small":          {append([]byte{0, 0, 0, 7}, blank[4:]...), message.ErrLength},
	} {
		t.Run(name, func(t *testing.T) {
			var v message.View
			require.ErrorIs(t, message.Parse(tc.in, &v), tc.want)
			if errors.Is(tc.want, message.ErrBlank) {
				require.Equal(t, int32(100), v.Size)
			}
		})
	}
	var v message.View
	require.NoError(t, message.Parse(change(88, 'j'), &v))
	require.ErrorIs(t, v.CheckBody(), message.ErrCRC)
}

func TestHosts(t *testing.T) {
	for _, s := range []string{"10.0.0.1:10911", "0.0.0.0:0", "255.255.255.255:65535", "[fd00::1]:1", "[::]:0"} {
		a := netip.MustParseAddrPort(s)
		h := message.HostOf(a)
		require.Equal(t, a, message.HostAddr(h.Bytes()))
		require.Equal(t, a.Addr().Is6(), h.Is6())
	}
	mapped := message.HostOf(netip.MustParseAddrPort("[::ffff:10.0.0.1]:5"))
	require.Equal(t, "10.0.0.1:5", message.HostAddr(mapped.Bytes()).String())
	require.False(t, message.HostAddr([]byte{1, 2, 3}).IsValid())
	zero := message.HostOf(netip.AddrPort{})
	require.Equal(t, make([]byte, 8), zero.Bytes())
}

// TestRandomRecords encodes and parses records of all shapes.
func TestRandomRecords(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	text := func(n int) []byte {
		b := make([]byte, rnd.IntN(n))
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		return b
	}
	hosts := []netip.AddrPort{{}, netip.MustParseAddrPort("1.2.3.4:5"), netip.MustParseAddrPort("[1::2]:3")}
	for range 2000 {
		r := message.Record{
			Topic: string(text(260)), QueueID: int32(rnd.Uint32()), Flag: int32(rnd.Uint32()), SysFlag: int32(rnd.Uint32()),
			BornTime: int64(rnd.Uint64()), ReconsumeTimes: int32(rnd.Uint32()), PreparedOffset: int64(rnd.Uint64()),
			Body: text(100), Properties: text(100), BrokerProperties: text(100),
			BornHost: message.HostOf(hosts[rnd.IntN(3)]), StoreHost: message.HostOf(hosts[rnd.IntN(3)]),
		}
		buf := make([]byte, r.Size())
		var enc, v message.View
		r.Encode(buf, &enc)
		at, off, ms := message.Position(rnd.Int64()), rnd.Int64(), rnd.Int64()
		message.Stamp(buf, at, off, ms)
		require.NoError(t, message.Parse(buf, &v))
		require.NoError(t, v.CheckBody())
		enc.TopicName, enc.Position, enc.QueueOffset, enc.StoreTime = "", at, off, ms
		require.Equal(t, enc, v)
		require.Equal(t, r.PreparedOffset, v.PreparedOffset)
		require.Equal(t, r.ReconsumeTimes, v.ReconsumeTimes)
		require.Equal(t, r.BornHost.Bytes(), v.BornHost)
		require.Equal(t, r.StoreHost.Bytes(), v.StoreHost)
	}
}

func TestPutBlank(t *testing.T) {
	b := make([]byte, 8)
	message.PutBlank(b, 0x01020304)
	require.Equal(t, uint32(0x01020304), binary.BigEndian.Uint32(b))
	require.Equal(t, unhex(t, "cbd43194"), b[4:])
}

func FuzzParse(f *testing.F) {
	for _, g := range golden {
		f.Add(unhex(f, g.bytes))
	}
	blank := make([]byte, 16)
	message.PutBlank(blank, 16)
	f.Add(blank)
	f.Fuzz(func(t *testing.T, b []byte) {
		var v message.View
		if message.Parse(b, &v) != nil {
			return
		}
		if int(v.Size) != len(v.Raw) || !bytes.Equal(v.Raw, b[:v.Size]) {
			t.Fatalf("size %d, %d raw bytes", v.Size, len(v.Raw))
		}
		sum := message.FixedSize + len(v.Body) + len(v.Topic) + len(v.Properties) + len(v.BornHost) + len(v.StoreHost) - 16
		if v.Magic == message.MagicV2 {
			sum++
		}
		if sum != int(v.Size) {
			t.Fatalf("the parts have %d bytes, the record %d", sum, v.Size)
		}
		if v.StoreTime != message.StoreTime(v.Raw) {
			t.Fatal("two readings of the store time")
		}
		// Nothing that is derived may depend on more than the bytes.
		d := message.NewDeriver(message.IndexRules{DelayLevels: message.DefaultDelayLevels()})
		units, keys := d.Derive(&v, nil, nil, nil)
		if len(units) > 1 {
			t.Fatalf("%d units", len(units))
		}
		for _, k := range keys {
			if k.Hash < 0 {
				t.Fatalf("negative hash %d", k.Hash)
			}
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	r := message.Record{
		Topic: "BenchmarkTest", Body: make([]byte, 1024), Properties: []byte("UNIQ_KEY\x010123456789ABCDEF0123456789ABCDEF\x02WAIT\x01true\x02"),
		BornHost: message.HostOf(netip.MustParseAddrPort("10.0.0.1:5555")), StoreHost: message.HostOf(netip.MustParseAddrPort("10.0.0.1:10911")),
	}
	dst := make([]byte, r.Size())
	var v message.View
	b.SetBytes(int64(len(dst)))
	b.ReportAllocs()
	for b.Loop() {
		r.Encode(dst, &v)
	}
}

func BenchmarkParse(b *testing.B) {
	rec := unhex(b, golden["orders"].bytes)
	var v message.View
	b.ReportAllocs()
	for b.Loop() {
		if err := message.Parse(rec, &v); err != nil {
			b.Fatal(err)
		}
	}
}
