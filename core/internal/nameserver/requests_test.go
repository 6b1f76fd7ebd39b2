package nameserver

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"context"
	"encoding/binary"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
	"github.com/hardpointmq/hardpoint/core/vfs/vfstest"
)

type recorded struct {
	Label    string `json:"label"`
	Code     int32  `json:"code"`
	Request  []byte `json:"request"`
	Response []byte `json:"response"`
}

// recordings are exchanges of official programs with Apache's name server 5.3.3.
func recordings(t testing.TB) []recorded {
	f, err := os.Open("testdata/recorded.jsonl")
	require.NoError(t, err)
	defer f.Close()
	var all []recorded
	for sc := bufio.NewReader(f); ; {
		line, err := sc.ReadBytes('\n')
		if len(line) > 0 {
			var r recorded
			require.NoError(t, json.Unmarshal(line, &r))
			all = append(all, r)
		}
		if err != nil {
			return all
		}
	}
}

// strict makes the dialect of Apache's bodies comparable.
func strict(t testing.TB, body string) string {
	if body == "" {
		return ""
	}
	b, err := command.LenientJSON([]byte(body))
	require.NoError(t, err)
	return string(b)
}

func isRegistration(t testing.TB, r recorded, brokerID string) bool {
	return r.Code == command.ReqRegisterBroker && decode(t, r.Request).ext["brokerId"] == brokerID
}

// Apache's broker and its slave register, clients ask, both unregister: each
// answer says what Apache's name server said.
func TestRecordedBrokers(t *testing.T) {
	s := newServer(t, nil)
	require.NoError(t, s.kv.set(orderNamespace, "adm_topic", "broker-a:4", false)) // an earlier mqadmin did it
	c := open(t, s)
	n := 0
	for _, r := range recordings(t) {
		if r.Label != "broker-5.3.3-master-and-slave" {
			continue
		}
		n++
		got, want := c.raw(r.Request), decode(t, r.Response)
		require.Len(t, got, 1)
		require.Equal(t, want.code, got[0].code, got[0].remark)
		require.Equal(t, want.opaque, got[0].opaque)
		require.Equal(t, want.ext, got[0].ext, "code %d", r.Code)
		if want.body == "" {
			require.Empty(t, got[0].body)
			continue
		}
		require.JSONEq(t, strict(t, want.body), got[0].body, "code %d", r.Code)
	}
	require.Equal(t, 10, n)
	require.Empty(t, *s.table.topics.Load())
	require.Empty(t, s.table.groups)
}

// What official clients and mqadmin asked, while that broker was registered.
func TestRecordedClients(t *testing.T) {
	all := recordings(t)
	s := newServer(t, nil)
	c, empty := open(t, s), open(t, newServer(t, nil))
	for _, r := range all {
		if isRegistration(t, r, "0") {
			c.raw(r.Request)
		}
	}
	topics := strconv.Itoa(len(*s.table.topics.Load()))
	seen := map[int32]int{}
	for _, r := range all {
		if r.Label == "broker-5.3.3-master-and-slave" {
			continue
		}
		want := decode(t, r.Response)
		to := c
		if want.code == command.RespTopicNotExist {
			to = empty // it was asked before the topic was made
		}
		got := to.raw(r.Request)
		require.Len(t, got, 1)
		require.Equal(t, want.code, got[0].code, "%s %d: %s", r.Label, r.Code, got[0].remark)
		require.Equal(t, want.remark, got[0].remark)
		seen[r.Code]++
		switch r.Code {
		case command.ReqWipeWritePermOfBroker:
			require.Equal(t, map[string]string{"wipeTopicCount": topics}, got[0].ext)
		case command.ReqAddWritePermOfBroker:
			require.Equal(t, map[string]string{"addTopicCount": topics}, got[0].ext)
		case command.ReqGetAllTopicListFromNameserver:
			var l, theirs command.TopicList
			require.NoError(t, json.Unmarshal([]byte(got[0].body), &l))
			require.NoError(t, json.Unmarshal([]byte(want.body), &theirs))
			require.Subset(t, l.Topics, theirs.Topics) // the registration is younger
		default:
			require.Equal(t, want.ext, got[0].ext, "code %d", r.Code)
			if want.body == "" {
				require.Empty(t, got[0].body)
			} else {
				require.JSONEq(t, strict(t, want.body), got[0].body, "%s %d", r.Label, r.Code)
			}
		}
	}
	require.Equal(t, map[int32]int{100: 2, 101: 1, 102: 2, 105: 16, 106: 2, 205: 1, 206: 2, 216: 2, 327: 1}, seen)
}

// compressed writes a registration as a broker with compressedRegister does.
func compressed(t testing.TB, version string, topics []string, filters string, mappings bool) []byte {
	var plain bytes.Buffer
	piece := func(s string) {
		require.NoError(t, binary.Write(&plain, binary.BigEndian, int32(len(s))))
		plain.WriteString(s)
	}
	piece(version)
	require.NoError(t, binary.Write(&plain, binary.BigEndian, int32(len(topics))))
	for _, s := range topics {
		piece(s)
	}
	piece(filters)
	if mappings {
		require.NoError(t, binary.Write(&plain, binary.BigEndian, int32(0)))
	}
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	_, err := w.Write(plain.Bytes())
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return z.Bytes()
}

func TestRegisterBodies(t *testing.T) {
	id := command.BrokerID{BrokerName: "a", BrokerAddr: "10.0.0.1:10911", ClusterName: "C"}
	packed := compressed(t, `{"counter":7,"stateVersion":0,"timestamp":9}`, []string{`T1 4 8 6 SINGLE_TAG {"message.type":"FIFO"}`, "T2 1 1 7 SINGLE_TAG"}, "[]", true)
	for _, tc := range []struct {
		name   string
		head   command.RegisterBrokerRequest
		body   []byte
		remark string // of a refusal
	}{
		{"compressed", command.RegisterBrokerRequest{Compressed: true, BodyCRC32: command.BodyCRC32(packed)}, packed, ""},
		{"compressed, unchecked", command.RegisterBrokerRequest{Compressed: true}, packed, ""},
		{"wrong CRC", command.RegisterBrokerRequest{Compressed: true, BodyCRC32: command.BodyCRC32(packed) ^ 1}, packed, "crc32 not match"},
		{"cut off", command.RegisterBrokerRequest{Compressed: true}, packed[:len(packed)/2], "malformed body"},
		{"not JSON", command.RegisterBrokerRequest{}, []byte("{{"), "malformed body"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := open(t, newServer(t, nil))
			tc.head.BrokerID = id
			a := c.call(command.ReqRegisterBroker, &tc.head, tc.body)
			if tc.remark != "" {
				require.Equal(t, command.RespSystemError, a.code)
				require.Contains(t, a.remark, tc.remark)
				require.Nil(t, c.route("T1"))
				return
			}
			require.Zero(t, a.code, a.remark)
			require.Equal(t, []command.QueueData{{BrokerName: "a", Perm: 6, ReadQueueNums: 4, WriteQueueNums: 8}}, c.route("T1").QueueDatas)
			require.Equal(t, map[string]string{"a": "7", "a/0": id.BrokerAddr}, c.addrs("T2"))
		})
	}
}

func TestAdmin(t *testing.T) {
	s := newServer(t, nil)
	c := open(t, s)
	c.register(masterA.with(func(r *reg) { r.topics = map[string]int32{"A": 6, "B": 7} }))
	open(t, s).register(masterB.with(func(r *reg) { r.cluster = "D"; r.topics = map[string]int32{"A": 6, "Z": 6} }))
	body := func(code int32, h appender) string {
		a := c.call(code, h, nil)
		require.Zero(t, a.code, a.remark)
		return a.body
	}
	require.JSONEq(t, `{"topicList":["A","B","Z"]}`, body(command.ReqGetAllTopicListFromNameserver, nil))
	require.JSONEq(t, `{"topicList":["A","B"]}`, body(command.ReqGetTopicsByCluster, ext{"cluster": "C"}))
	require.JSONEq(t, `{"topicList":[]}`, body(command.ReqGetTopicsByCluster, ext{"cluster": "none"}))
	require.JSONEq(t, `{"brokerAddr":"10.0.0.1:10911","topicList":["C","a","D","b"]}`, body(command.ReqGetSystemTopicListFromNS, nil))
	for _, code := range []int32{command.ReqGetUnitTopicList, command.ReqGetHasUnitSubTopicList, command.ReqGetHasUnitSubUnunitTopicList} {
		require.JSONEq(t, `{"topicList":[]}`, body(code, nil))
	}
	require.JSONEq(t, `{"brokerMemberGroup":{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"a","cluster":"C"}}`,
		body(command.ReqGetBrokerMemberGroup, ext{"clusterName": "C", "brokerName": "a"}))
	require.JSONEq(t, `{"brokerMemberGroup":{"brokerAddrs":{},"brokerName":"x","cluster":"C"}}`,
		body(command.ReqGetBrokerMemberGroup, ext{"clusterName": "C", "brokerName": "x"}))

	// Wiping holds until the data version changes.
	require.Equal(t, "2", c.call(command.ReqWipeWritePermOfBroker, ext{"brokerName": "a"}, nil).ext["wipeTopicCount"])
	require.Equal(t, "5", c.addrs("B")["a"])
	require.Equal(t, map[string]string{"a": "4", "a/0": masterA.addr, "b": "6", "b/0": masterB.addr}, c.addrs("A"))
	c.register(masterA)
	require.Equal(t, "4", c.addrs("A")["a"])
	c.register(masterA.with(func(r *reg) { r.version.Counter++ }))
	require.Equal(t, "6", c.addrs("A")["a"])
	c.call(command.ReqWipeWritePermOfBroker, ext{"brokerName": "a"}, nil)
	require.Equal(t, "2", c.call(command.ReqAddWritePermOfBroker, ext{"brokerName": "a"}, nil).ext["addTopicCount"])
	require.Equal(t, "6", c.addrs("A")["a"])
	require.Equal(t, "0", c.call(command.ReqAddWritePermOfBroker, ext{"brokerName": "x"}, nil).ext["addTopicCount"])

	require.Empty(t, body(command.ReqDeleteTopicInNamesrv, ext{"topic": "A", "clusterName": "D"}))
	require.Equal(t, map[string]string{"a": "6", "a/0": masterA.addr}, c.addrs("A"))
	body(command.ReqDeleteTopicInNamesrv, ext{"topic": "A"})
	require.Nil(t, c.route("A"))
	body(command.ReqDeleteTopicInNamesrv, ext{"topic": "A"})

	route, err := command.EncodeBody(command.TopicRouteData{QueueDatas: []command.QueueData{
		{BrokerName: "a", Perm: 6, ReadQueueNums: 1, WriteQueueNums: 1}, {BrokerName: "nobody", Perm: 6}}})
	require.NoError(t, err)
	require.Zero(t, c.call(command.ReqRegisterTopicInNamesrv, ext{"topic": "Single"}, route).code)
	require.Equal(t, map[string]string{"a": "6", "a/0": masterA.addr}, c.addrs("Single"))

	for _, code := range []int32{command.ReqGetBrokerConfig, 9999} {
		a := c.call(code, nil, nil)
		require.Equal(t, command.RespRequestCodeNotSupported, a.code)
		require.Equal(t, " request type "+strconv.Itoa(int(code))+" not supported", a.remark)
	}
	for _, code := range []int32{103, 104, 105, 322, 904, 901, 100, 101, 102, 219, 205, 327, 216, 217, 224} {
		a := c.call(code, nil, nil)
		require.Equal(t, command.RespSystemError, a.code, "code %d without fields", code)
		require.Contains(t, a.remark, "required and missing", "code %d", code)
	}
}

func TestListsCanBeDisabled(t *testing.T) {
	c := open(t, newServer(t, func(p *Params) { p.Config.EnableAllTopicList, p.Config.EnableTopicList = false, false }))
	for code, h := range map[int32]appender{206: nil, 224: ext{"cluster": "C"}, 311: nil} {
		a := c.call(code, h, nil)
		require.Equal(t, command.RespSystemError, a.code)
		require.Equal(t, "disable", a.remark)
	}
}

func TestDataVersion(t *testing.T) {
	c := open(t, newServer(t, nil))
	id := &command.BrokerID{BrokerName: "a", BrokerAddr: masterA.addr, ClusterName: "C"}
	a := c.call(command.ReqQueryDataVersion, id, []byte(`{"counter":1,"timestamp":5}`))
	require.Equal(t, "true", a.ext["changed"])
	require.Empty(t, a.body)
	c.register(masterA)
	require.Equal(t, "false", c.call(command.ReqQueryDataVersion, id, []byte(`{"counter":1,"timestamp":5}`)).ext["changed"])
	a = c.call(command.ReqQueryDataVersion, id, []byte(`{"counter":2,"timestamp":5}`))
	require.Equal(t, "true", a.ext["changed"])
	require.JSONEq(t, `{"counter":1,"stateVersion":0,"timestamp":5}`, a.body)
}

// Several requests of one read are answered in order and in their own header
// encoding, one-way ones and responses not at all.
func TestArrived(t *testing.T) {
	c := open(t, newServer(t, nil))
	topic := &command.RouteRequest{Topic: "A"}
	got := c.raw(
		request(command.RocketMQ, command.ReqGetRouteInfoByTopic, 0, topic, nil),
		request(command.JSON, command.ReqGetBrokerClusterInfo, 0, nil, nil),
		request(command.JSON, command.ReqGetBrokerClusterInfo, command.FlagOneway, nil, nil),
		request(command.JSON, command.ReqGetBrokerClusterInfo, command.FlagResponse, nil, nil),
		request(command.RocketMQ, command.ReqGetBrokerClusterInfo, 0, nil, nil),
	)
	require.Len(t, got, 3)
	require.Equal(t, command.RocketMQ, got[0].typ)
	require.Equal(t, command.RespTopicNotExist, got[0].code)
	require.Equal(t, command.JSON, got[1].typ)
	require.Equal(t, command.RocketMQ, got[2].typ)
	require.Equal(t, got[1].body, got[2].body)

	c.ses.Arrived([]command.Frame{{Type: command.JSON, Header: []byte("{")}})
	require.True(t, c.peer.isClosed())
}

// Whoever scans the port must not fill the disk.
func TestMalformedIsSaidRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := newServer(t, func(p *Params) { p.Settings.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		burst := func() {
			for range 100 {
				open(t, s).ses.Arrived([]command.Frame{{Type: command.JSON, Header: []byte("{")}})
				open(t, s).call(command.ReqRegisterBroker, &command.RegisterBrokerRequest{
					BrokerID: command.BrokerID{BrokerName: "b", BrokerAddr: "10.0.0.1:10911", ClusterName: "C"}}, []byte("[]"))
			}
		}
		burst()
		require.Equal(t, 1, strings.Count(log.String(), "malformed header"))
		require.Equal(t, 1, strings.Count(log.String(), "registration refused"))
		<-time.After(time.Second)
		burst()
		require.Equal(t, 2, strings.Count(log.String(), "malformed header"))
		require.Contains(t, log.String(), "such_since_last_said=100")
	})
}

// Addresses that no client can connect to never get into a route.
func TestBrokerAddresses(t *testing.T) {
	c := open(t, newServer(t, nil))
	for _, addr := range []string{
		"", "10.0.0.1", "10.0.0.1:", ":10911", "10.0.0.1:0", "10.0.0.1:-1", "10.0.0.1:65536", "10.0.0.1:+1", "10.0.0.1:http", "10.0.0.1:1:2",
		"a b:1", "a\x00:1", "a\x7f:1", "a\u0085\xff:1", "a,b:1", `a":1`, "{a}:1", "::1:1",
	} {
		a := c.register(reg{name: "b", addr: addr})
		require.Equal(t, command.RespSystemError, a.code, "%q", addr)
	}
	require.Empty(t, c.addrs("A"))
	for _, addr := range []string{"10.0.0.1:10911", "[fd00::1]:1", "broker-0.brokers:65535", "[fe80::1%eth0]:10911"} {
		require.Zero(t, c.register(reg{name: "b", addr: addr}).code, addr)
	}
}

// What JSON cannot hold would be something else after the next start.
func TestKVIsText(t *testing.T) {
	s := newServer(t, nil)
	c := open(t, s)
	put := func(namespace, key, value string) answerFrame {
		h := ext{"namespace": namespace, "key": key, "value": value}
		return c.raw(request(command.RocketMQ, command.ReqPutKVConfig, 0, h, nil))[0]
	}
	for _, x := range [][3]string{{"n\xff", "k", "v"}, {"n", "k\xff", "v"}, {"n", "k", "v\xff"}} {
		a := put(x[0], x[1], x[2])
		require.Equal(t, command.RespSystemError, a.code, "%q", x)
		require.Contains(t, a.remark, "not UTF-8")
	}
	require.Empty(t, *s.kv.data.Load(), "what is refused leaves nothing behind")
	require.Zero(t, put("../n\x00", "ключ", "\n").code)
}

func TestOrderConfig(t *testing.T) {
	put := func(c *conn, key, value string) {
		require.Zero(t, c.call(command.ReqPutKVConfig, ext{"namespace": orderNamespace, "key": key, "value": value}, nil).code)
	}
	for _, enabled := range []bool{false, true} {
		c := open(t, newServer(t, func(p *Params) { p.Config.OrderMessageEnable = enabled }))
		require.Empty(t, c.register(masterA).body)
		require.Empty(t, c.route("A").OrderTopicConf)
		put(c, "A", "a:4")
		want := ""
		if enabled {
			want = "a:4"
		}
		require.Equal(t, want, c.route("A").OrderTopicConf)
		require.JSONEq(t, `{"table":{"A":"a:4"}}`, c.register(masterA).body, "brokers are told in any case")
	}
}

// A header that does not fit must not put the frame's length at odds with what
// is sent: the peer would take the next frame's bytes for a body.
func TestAnswerThatDoesNotFit(t *testing.T) {
	s := newServer(t, nil)
	c := open(t, s)
	require.NoError(t, s.kv.set(orderNamespace, "A", "a:4", false))
	head := command.RegisterBrokerRequest{
		BrokerID:     command.BrokerID{BrokerName: "a", BrokerAddr: masterA.addr, ClusterName: "C"},
		HAServerAddr: strings.Repeat("\x01", 4<<20), // six times as long in JSON
	}
	out := c.raw(request(command.RocketMQ, command.ReqRegisterBroker, 0, &head, nil))
	require.Len(t, out, 1)
	require.Equal(t, command.RespSuccess, out[0].code, out[0].remark)
	slave := c.register(slaveA) // decode checks the length
	require.Equal(t, command.RespSystemError, slave.code)
	require.Contains(t, slave.remark, "header too large")
}

func TestKVIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "namesrv")
	kept := func(p *Params) { p.FS, p.Settings = vfs.OS{}, plugin.Settings{Dir: dir} }
	c := open(t, newServer(t, kept))
	kv := func(c *conn, code int32, h ext) answerFrame { return c.call(code, h, nil) }
	require.Equal(t, command.RespQueryNotFound, kv(c, command.ReqGetKVConfig, ext{"namespace": "n", "key": "k"}).code)
	require.Equal(t, command.RespQueryNotFound, kv(c, command.ReqGetKVListByNamespace, ext{"namespace": "n"}).code)
	for _, k := range []string{"k", "l"} {
		require.Zero(t, kv(c, command.ReqPutKVConfig, ext{"namespace": "n", "key": k, "value": "v-" + k}).code)
	}
	require.Zero(t, kv(c, command.ReqDeleteKVConfig, ext{"namespace": "n", "key": "k"}).code)
	require.Zero(t, kv(c, command.ReqDeleteKVConfig, ext{"namespace": "none", "key": "k"}).code)

	c = open(t, newServer(t, kept))
	require.Equal(t, "v-l", kv(c, command.ReqGetKVConfig, ext{"namespace": "n", "key": "l"}).ext["value"])
	require.JSONEq(t, `{"table":{"l":"v-l"}}`, kv(c, command.ReqGetKVListByNamespace, ext{"namespace": "n"}).body)
	b, err := os.ReadFile(filepath.Join(dir, kvFile))
	require.NoError(t, err)
	require.JSONEq(t, `{"configTable":{"n":{"l":"v-l"}}}`, string(b), "RocketMQ's text")
}

// BC-36 for the file of the name server: whatever becomes of it, its copy serves;
// without one the name server does not start, rather than with nothing.
func TestDamagedKV(t *testing.T) {
	const path, copied = "names/" + kvFile, "names/" + kvCopy
	for name, damage := range map[string]func(b []byte) []byte{
		"empty":     func([]byte) []byte { return nil },
		"half":      func(b []byte) []byte { return b[:len(b)/2] },
		"over-long": func(b []byte) []byte { return append(slices.Clone(b), b...) },
		"zeros":     func(b []byte) []byte { return make([]byte, len(b)) },
		"removed":   nil,
	} {
		t.Run(name, func(t *testing.T) {
			fsys := memfs.New(1)
			var log bytes.Buffer
			on := func(p *Params) {
				p.FS, p.Settings = fsys, plugin.Settings{Dir: "names", Logger: slog.New(slog.NewTextHandler(&log, nil))}
			}
			put := func(k string) {
				c := open(t, newServer(t, on))
				require.Zero(t, c.call(command.ReqPutKVConfig, ext{"namespace": "n", "key": k, "value": "v"}, nil).code)
			}
			list := func() string {
				return open(t, newServer(t, on)).call(command.ReqGetKVListByNamespace, ext{"namespace": "n"}, nil).body
			}
			put("k")
			put("l")
			harm := func(path string) {
				b, err := vfs.ReadFile(fsys, path)
				require.NoError(t, err)
				if damage == nil {
					require.NoError(t, fsys.Remove(path))
				} else {
					require.NoError(t, vfs.WriteFileAtomic(fsys, path, damage(b)))
				}
			}
			harm(path)
			require.JSONEq(t, `{"table":{"k":"v","l":"v"}}`, list())
			require.Contains(t, log.String(), "taking its copy")
			put("m")
			log.Reset()
			require.JSONEq(t, `{"table":{"k":"v","l":"v","m":"v"}}`, list())
			require.Empty(t, log.String(), "the file is whole again")

			faults := vfstest.NewFaults(fsys)
			faults.Fail(vfstest.OpWrite, "*/"+kvFile+"*", 1, vfs.ErrNoSpace)
			s := newServer(t, func(p *Params) { on(p); p.FS = faults })
			require.NotZero(t, open(t, s).call(command.ReqPutKVConfig, ext{"namespace": "n", "key": "z", "value": "v"}, nil).code)
			require.JSONEq(t, `{"table":{"k":"v","l":"v","m":"v"}}`, list(), "a full volume keeps what there was")

			if damage == nil {
				return // neither is there: a new name server
			}
			harm(path)
			harm(copied)
			p := Params{Config: NewDefaultConfig()}
			on(&p)
			s, err := New(p)
			require.NoError(t, err)
			require.ErrorContains(t, s.Start(t.Context()), kvCopy)
			require.NoError(t, s.Shutdown(context.Background()))
		})
	}
}

func TestLifeCycle(t *testing.T) {
	_, err := New(Params{})
	require.ErrorContains(t, err, "scanNotActiveBrokerInterval")
	require.ErrorContains(t, err, "brokerChannelExpiredTime")
	s, err := New(Params{Config: NewDefaultConfig()})
	require.NoError(t, err)
	require.NoError(t, s.Shutdown(t.Context()))
	require.NoError(t, s.Start(t.Context()))
	require.NoError(t, s.Shutdown(t.Context()))
	require.NoError(t, s.Shutdown(t.Context()))
}

// Queries run beside registrations and never see half of one.
func TestQueriesBesideChanges(t *testing.T) {
	s := newServer(t, nil)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 3 {
		wg.Go(func() {
			c := open(t, s)
			for {
				select {
				case <-stop:
					return
				default:
				}
				r := c.route("A")
				if r == nil {
					continue
				}
				for i, b := range r.BrokerDatas {
					if len(b.BrokerAddrs) == 0 || b.BrokerName != r.QueueDatas[i].BrokerName {
						t.Errorf("route without address: %+v", r)
						return
					}
				}
			}
		})
	}
	for i := range 200 {
		a, sl := open(t, s), open(t, s)
		a.register(masterA.with(func(r *reg) {
			r.version.Counter = int64(i)
			r.topics = map[string]int32{"A": 6, "T" + strconv.Itoa(i): 6}
		}))
		sl.register(slaveA)
		sl.close()
		a.close()
	}
	close(stop)
	wg.Wait()
	require.Nil(t, open(t, s).route("A"))
	require.Empty(t, *s.table.topics.Load())
}

// sink is a peer that drops what it is sent.
type sink struct{ peer }

func (*sink) Send(...command.Frame) error { return nil }

// A route that did not change costs no allocation per query.
func TestQueryAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector drops what sync.Pool keeps")
	}
	s := newServer(t, nil)
	open(t, s).register(masterA)
	ses := s.Handler().Opened(&sink{})
	in, _, _, err := command.Split(request(command.JSON, command.ReqGetRouteInfoByTopic, 0, &command.RouteRequest{Topic: "A"}, nil), nil, command.Limits{})
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(200, func() { ses.Arrived(in) }))
}

func BenchmarkRouteQuery(b *testing.B) {
	s := newServer(b, nil)
	open(b, s).register(masterA)
	ses := s.Handler().Opened(&sink{})
	in, _, _, err := command.Split(request(command.JSON, command.ReqGetRouteInfoByTopic, 0, &command.RouteRequest{Topic: "A"}, nil), nil, command.Limits{})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		ses.Arrived(in)
	}
}

func BenchmarkRegister(b *testing.B) {
	for _, topics := range []int{50, 5000} {
		b.Run(strconv.Itoa(topics), func(b *testing.B) {
			s := newServer(b, nil)
			ses := s.Handler().Opened(&sink{})
			body := command.RegisterBrokerBody{}
			body.Topics.TopicConfigTable = map[string]command.TopicConfig{}
			for i := range topics {
				name := "topic-" + strconv.Itoa(i)
				body.Topics.TopicConfigTable[name] = command.TopicConfig{TopicName: name, Perm: 6, ReadQueueNums: 4, WriteQueueNums: 4, TopicFilterType: "SINGLE_TAG"}
			}
			text, crc, err := body.Encode()
			require.NoError(b, err)
			in, _, _, err := command.Split(request(command.JSON, command.ReqRegisterBroker, 0, &command.RegisterBrokerRequest{
				BrokerID: command.BrokerID{BrokerName: "a", BrokerAddr: "h:1", ClusterName: "C"}, BodyCRC32: crc,
			}, text), nil, command.Limits{})
			require.NoError(b, err)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				ses.Arrived(in)
			}
		})
	}
}

// No request, whatever its fields and body hold, breaks the server.
func FuzzRequests(f *testing.F) {
	for _, r := range recordings(f) {
		f.Add(r.Request)
	}
	f.Add(request(command.RocketMQ, command.ReqRegisterBroker, 0, &command.RegisterBrokerRequest{
		BrokerID: command.BrokerID{BrokerName: "a", BrokerAddr: "h:1", ClusterName: "C"}, Compressed: true,
	}, compressed(f, "{}", []string{"T1 4 8 6 SINGLE_TAG", "T2 4 4 6 SINGLE_TAG"}, "[]", false)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		in, _, _, err := command.Split(raw, nil, command.Limits{Frame: 1 << 20})
		if err != nil || len(in) == 0 {
			t.Skip()
		}
		s, err := New(Params{Config: NewDefaultConfig()})
		require.NoError(t, err)
		c := open(t, s)
		c.ses.Arrived(in)
		for _, b := range c.peer.sent {
			decode(t, b)
		}
		for name := range *s.table.topics.Load() {
			if body := s.table.route([]byte(name)); !json.Valid(body) {
				t.Fatalf("route of %q is no JSON: %q", name, body)
			}
		}
		c.close()
		require.Empty(t, s.table.groups)
		require.Empty(t, *s.table.topics.Load())
	})
}
