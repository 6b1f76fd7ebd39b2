package e2e

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/test/harness"
)

// exchange is a request and its answer, as mqadmin 5.3.3 and Apache's broker and name
// server 5.3.3 spoke. No frame is cut; of each kind there are three or four.
type exchange struct {
	To, By            string
	Request, Response struct {
		Code  int32
		Frame []byte
	}
}

const (
	recordedBroker  = "127.0.0.1:39911" // Apache's
	recordedNamesrv = "127.0.0.1:39876"
)

type leftOutRow struct {
	code      int32
	holds     string
	entirely  bool // no exchange of this code is compared
	becauseOf string
}

// leftOut are the exchanges that are not compared, by code and by what their request
// holds; everything else is.
var leftOut = []leftOutRow{
	{command.ReqNotifyConsumerIDsChanged, "", true, "the broker asks, and has no answer"},
	{command.ReqSetMessageRequestMode, "", true, "asks for POP, which is refused: it is not served yet"},
	{command.ReqViewBrokerStatsData, "RMQ_SYS_TRANS_HALF_TOPIC", false, "counts what transactions sent, which are not served yet"},
	{command.ReqQueryTopicConsumeByWho, "RMQ_SYS_TRANS_HALF_TOPIC", false, "tells the progress of transactions, which are not served yet"},
}

type pathRow struct {
	code      int32
	path      string
	becauseOf string
}

// masked are the values that are not compared, by code (0: any) and path; that they are
// there, and of which type, is.
var masked = []pathRow{
	{0, `(?i)timestamp$`, "time"},
	{0, `^/dataVersion/counter$`, "counts changes, of which there were others"},
	{command.ReqGetBrokerRuntimeInfo, `(?i)(tps|latency\d*|timemax|today\w*|yesterday\w*|total|averagesize|maxoffset|distributetime|runtime|behind|toflush)$`, "counts and sizes of what went before"},
	{command.ReqGetBrokerRuntimeInfo, `(DiskRatio(_.*)?|DirCapacity)$`, "of the disk"},
	{command.ReqGetBrokerHAStatus, `^/masterCommitLogMaxOffset$`, "size of what went before"},
	{command.ReqGetBrokerConfig, `^/(rocketmqHome|storePath\w+|brokerIP2|haListenPort|listenPort|bindAddress|namesrvAddr)$`, "addresses and paths"},
	{command.ReqGetBrokerConfig, `^/(cleanFileForciblyEnable|diskSpaceWarningLevelRatio|fileReservedTime)$`, "the harness sets them, so that the disk of the machine does not matter"},
	{command.ReqGetAllTopicConfig, `^/topicConfigTable/adm_topic/order$`, "Apache's broker takes it from the name server's order configuration; clients read that one"},
	{command.ReqGetBrokerConfig, `^version$`, "begins with a time"},
	{command.ReqGetBrokerConfig, `^/\w*Thread(s|PoolNums)$`, "0 for what Apache computes from the number of processors: there are no such pools"},
	{command.ReqGetBrokerConfig, `^/(enablePropertyFilter|bitMapLengthConsumeQueueExt)$`, "set when this was recorded, and computed from it: SQL92 is not served yet"},
	{command.ReqWipeWritePermOfBroker, `^wipeTopicCount$`, "Apache's has the three topics rmq_sys_ more"},
	{command.ReqAddWritePermOfBroker, `^addTopicCount$`, "Apache's has the three topics rmq_sys_ more"},
	{command.ReqGetNamesrvConfig, `^/(bindAddress|listenPort|rocketmqHome|configStorePath|kvConfigPath)$`, "addresses and paths"},
	{command.ReqGetNamesrvConfig, `^/configBlackList$`, "of names of paths: ours has others"},
	{command.ReqSendMessageV2, `^msgId$`, "address and position"},
	{command.ReqQueryMessage, `^indexLastUpdatePhyoffset$`, "position"},
	{command.ReqQueryConsumeQueue, `/(physicOffset|physicSize)$`, "position, and size of what stands for the message"},
	{command.ReqViewBrokerStatsData, `/(sum|tps|avgpt)$`, "counts since the start"},
	{command.ReqGetBrokerConsumeStats, `/(pullOffset|totalInflightDiff)$`, "Apache's does not set it and gives negative numbers of messages in flight; mqadmin does not print it"},
	{command.ReqGetBrokerConsumeStats, `/totalDiff$`, "includes transactions"},
}

// absent are fields of Apache's that need not be there.
var absent = []pathRow{
	{0, `^/topicQueueMapping\w+$`, "static topics: what is not there is empty to who reads it"},
	{0, `^/table/commitLogDiskRatio_`, "a path ends the name"},
	{command.ReqGetAllTopicConfig, `^/topicConfigTable/rmq_sys_`, "topics of services that are not there yet"},
	{0, `^/table/scheduleMessageOffset_`, "delays are not served yet"},
	{command.ReqGetBrokerConfig, `^/metricsGrpcExporterHeader$`, "a secret"},
	{command.ReqGetBrokerConsumeStats, `/CID_RMQ_SYS_TRANS/`, "progress of transactions, which are not served yet"},
}

// more are fields that Apache's does not have and ours may.
var more = []pathRow{
	{command.ReqGetBrokerRuntimeInfo, `^software$`, "what this is"},
	{command.ReqGetBrokerRuntimeInfo, `^/table/commitLogDiskRatio_`, "a path ends the name"},
	{command.ReqInvokeBrokerToResetOffset, `^/previousTable`, "where the group was, for hardpoint group reset"},
	{command.ReqGetBrokerConsumeStats, `/CID_RMQ_SYS_TRANS$`, "no progress of transactions, which are not served yet"},
	{command.ReqGetBrokerConfig, `^/`, "keys of ours and of other versions"},
	{command.ReqGetNamesrvConfig, `^/`, "keys of ours and of other versions"},
}

// TestRecordedTools asks a broker with the topics, groups, messages and progress that
// Apache's broker had what mqadmin asked that one, in the same order, and wants the same
// answers, value by value. It needs no Java. Of the texts that mqadmin printed meanwhile
// checkTexts looks at three. Java makes the others of these answers: their figures are
// fields that are compared here, or masked above, and what Java makes of them no broker
// changes; test/interop compares texts, where Java runs.
func TestRecordedTools(t *testing.T) {
	t.Parallel()
	n := harness.New(t, harness.Options{Set: []string{
		"mappedFileSizeCommitLog=1048576", "mappedFileSizeConsumeQueue=4000", "maxHashSlotNum=500", "maxIndexNum=1000", "maxMessageSize=524288",
	}})
	to := map[string]*harness.Conn{}
	for recorded, addr := range map[string]string{recordedBroker: n.Addr, recordedNamesrv: n.Namesrv} {
		c, err := harness.Dial(addr)
		require.NoError(t, err)
		defer c.Close()
		to[recorded] = c
	}
	all := recording(t)
	w := newTwin(t, to[recordedBroker])
	for _, e := range all {
		w.learn(&e)
	}
	w.make()
	for name := range w.topics.TopicConfigTable {
		if made(name) {
			awaitRoute(t, n.Namesrv, name)
		}
	}
	w.checkTexts(t)

	recorded, compared, skipped, used := map[int32]bool{}, map[int32]int{}, map[string]bool{}, map[pathRow]bool{}
	for _, e := range all {
		code := e.Request.Code
		recorded[code] = true
		what := command.RequestName(code) + " " + string(e.Request.Frame[8:min(len(e.Request.Frame), 300)])
		if i := slices.IndexFunc(leftOut, func(l leftOutRow) bool { return l.code == code && strings.Contains(what, l.holds) }); i >= 0 {
			skipped[fmt.Sprint(i)] = true
			continue
		}
		asked, body := frame(t, e.Request.Frame)
		wanted, wantedBody := frame(t, e.Response.Frame)
		got, err := to[e.To].Call(code, func(w *command.Writer) {
			asked.Fields(func(k, v []byte) bool { w.Ext(string(k), string(v)); return true })
		}, body)
		require.NoError(t, err, what)
		compared[code]++
		if !assert.Equal(t, wanted.Code, got.Header.Code, "%s: %s", what, got.Header.Remark()) {
			continue
		}
		theirs, ours := values(t, code, wanted, wantedBody), values(t, code, &got.Header, got.Body)
		for path, v := range ours {
			ours[path] = strings.NewReplacer(n.Addr, recordedBroker, n.Namesrv, recordedNamesrv).Replace(v)
		}
		if code == command.ReqQueryTopicConsumeByWho {
			// Apache's names a topic as a group of itself, which nobody made or used.
			own, _ := asked.Ext("topic")
			theirs["/groupList"] = strings.Replace(theirs["/groupList"], "["+string(own)+" ", "[", 1)
			theirs["/groupList"] = strings.Replace(theirs["/groupList"], " "+string(own)+"]", "]", 1)
		}
		compareValues(t, code, what, theirs, ours, used)
		w.after(code)
		if code == command.ReqUpdateAndCreateTopic {
			awaitRoute(t, n.Namesrv, "adm_topic")
		}
	}
	require.Len(t, skipped, len(leftOut), "an exchange that is left out is not in the recording")
	for _, r := range slices.Concat(masked, absent, more) {
		require.True(t, used[r], "nothing is excepted by %v", r)
	}
	var want []int32
	for code := range recorded {
		if !slices.ContainsFunc(leftOut, func(l leftOutRow) bool { return l.code == code && l.entirely }) {
			want = append(want, code)
		}
	}
	slices.Sort(want)
	require.Equal(t, want, slices.Sorted(maps.Keys(compared)))
	require.Len(t, recorded, 44, "kinds of requests that were recorded")
}

func recording(t *testing.T) []exchange {
	t.Helper()
	f, err := os.Open("testdata/mqadmin-5.3.3.jsonl.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<20)
	var all []exchange
	for lines.Scan() {
		var e exchange
		require.NoError(t, json.Unmarshal(lines.Bytes(), &e))
		all = append(all, e)
	}
	require.NoError(t, lines.Err())
	return all
}

func frame(t *testing.T, raw []byte) (*command.Header, []byte) {
	t.Helper()
	fs, _, _, err := command.Split(raw, nil, command.Limits{})
	require.NoError(t, err)
	require.Len(t, fs, 1, "a frame that was cut")
	var h command.Header
	require.NoError(t, h.Decode(&fs[0]))
	return &h, fs[0].Body
}

// values are the fields of an answer: those of its header by their names, those of its
// body by their paths, which begin with /.
func values(t *testing.T, code int32, h *command.Header, body []byte) map[string]string {
	t.Helper()
	all := map[string]string{}
	h.Fields(func(k, v []byte) bool { all[string(k)] = strconv.Quote(string(v)); return true })
	if h.Code != command.RespSuccess { // Apache's says of others that no code was set
		all["remark"] = strconv.Quote(string(h.Remark()))
	}
	switch {
	case len(body) == 0:
	case code == command.ReqPullMessage || code == command.ReqQueryMessage:
		for i := 0; len(body) > 0; i++ {
			var v message.View
			require.NoError(t, message.Parse(body, &v))
			require.NoError(t, v.CheckBody())
			props := strings.Split(strings.TrimSuffix(string(v.Properties), "\x02"), "\x02")
			slices.Sort(props)
			props = slices.DeleteFunc(props, func(p string) bool { return strings.HasPrefix(p, "DELAY\x01") }) // not served yet
			all[fmt.Sprint("/", i)] = fmt.Sprintf("%q queue %d offset %d flags %d %d again %d prepared %d %q %q",
				v.Topic, v.QueueID, v.QueueOffset, v.Flag, v.SysFlag, v.ReconsumeTimes, v.PreparedOffset, v.Body, props)
			body = body[v.Size:]
		}
	case body[0] == '{':
		strict, err := command.LenientJSON(body)
		require.NoError(t, err, "%s", body)
		var v any
		require.NoError(t, json.Unmarshal(strict, &v), "%s", body)
		flatten(v, "", all)
	default: // KEY=VALUE
		for line := range strings.Lines(string(body)) {
			k, v, ok := strings.Cut(strings.TrimSpace(line), "=")
			require.True(t, ok, "%s", body)
			all["/"+k] = strconv.Quote(v)
		}
	}
	return all
}

// flatten gives the leaves of JSON by their paths. Lists of objects whose order says
// nothing are sorted by what their elements have.
func flatten(v any, at string, into map[string]string) {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			into[at] = "{}"
		}
		for k, e := range v {
			flatten(e, at+"/"+k, into)
		}
	case []any:
		if len(v) == 0 || !object(v[0]) { // names, in any order
			names := make([]string, len(v))
			for i, e := range v {
				names[i] = fmt.Sprint(e)
			}
			// Apache's has topics of services that are not there yet.
			names = slices.DeleteFunc(names, func(n string) bool { return strings.HasPrefix(n, "rmq_sys_") })
			slices.Sort(names)
			into[at] = fmt.Sprint(names)
			return
		}
		slices.SortStableFunc(v, func(a, b any) int { return cmp.Compare(shape(a), shape(b)) })
		for i, e := range v {
			flatten(e, fmt.Sprint(at, "/", i), into)
		}
	default:
		b, _ := json.Marshal(v)
		into[at] = string(b)
	}
}

func object(v any) bool { _, ok := v.(map[string]any); return ok }

// shape is the paths in an object.
func shape(v any) string {
	leaves := map[string]string{}
	flatten(v, "", leaves)
	return strings.Join(slices.Sorted(maps.Keys(leaves)), " ")
}

// compareValues notes the rows that it used.
func compareValues(t *testing.T, code int32, what string, theirs, ours map[string]string, used map[pathRow]bool) {
	t.Helper()
	of := func(rows []pathRow, path string) bool {
		i := slices.IndexFunc(rows, func(r pathRow) bool {
			return (r.code == 0 || r.code == code) && regexp.MustCompile(r.path).MatchString(path)
		})
		if i >= 0 {
			used[rows[i]] = true
		}
		return i >= 0
	}
	for _, path := range slices.Sorted(maps.Keys(theirs)) {
		want := theirs[path]
		got, ok := ours[path]
		switch {
		case !ok && of(absent, path):
		case !ok:
			assert.Fail(t, "no field", "%s: the answer has no %s, which was %s", what, path, want)
		case of(masked, path):
			assert.Equal(t, kind(want), kind(got), "%s: %s is %s, was %s", what, path, got, want)
		default:
			if want != got {
				assert.Fail(t, "another value", "%s: %s is %s, was %s", what, path, got, want)
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(ours)) {
		if _, ok := theirs[path]; !ok && !of(more, path) {
			assert.Fail(t, "a field too many", "%s: %s is %s", what, path, ours[path])
		}
	}
}

// kind is what a tool reads a value as.
func kind(leaf string) string {
	switch {
	case strings.HasPrefix(leaf, "["):
		return "list"
	case leaf == "{}", leaf == "null":
		return leaf
	case leaf == "true", leaf == "false":
		return "bool"
	case strings.HasPrefix(leaf, `"`):
		return "text"
	}
	return "number"
}
