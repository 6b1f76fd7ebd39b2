package e2e

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/internal/apachetest"
	"github.com/hardpointmq/hardpoint/test/harness"
)

// exchange is a request and its answer, as mqadmin 5.3.3 and Apache's broker and name
// server 5.3.3 spoke. Frames are cut at 16 KiB.
type exchange struct {
	To, By            string
	Request, Response struct {
		Code  int32
		Frame []byte
	}
}

// unlike are the codes whose answers are not compared here, with the reason.
var unlike = map[int32]string{
	command.ReqPullMessage: "another group has another begin", command.ReqHeartBeat: "of clients, not of tools",
	command.ReqGetAllSubscriptionGroupConfig: "frames are cut", command.ReqSendMessageV2: "of clients, not of tools",
	command.ReqViewBrokerStatsData: "counts begin with the process, and nothing was sent to this one",
}

// TestRecordedTools asks a broker with Apache's store what mqadmin asked Apache's broker
// with that store, and compares response codes, fields and the fields of bodies: what a
// tool would look for must be there. It needs no Java; what mqadmin prints is compared in
// test/interop.
func TestRecordedTools(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	apachetest.Unpack(t, filepath.Join(apacheStores, "5.3.3-clean.tar.gz"), filepath.Join(data, "store"))
	n := harness.New(t, harness.Options{Data: data, Set: []string{
		"mappedFileSizeCommitLog=1048576", "mappedFileSizeConsumeQueue=4000", "maxHashSlotNum=500", "maxIndexNum=1000", "maxMessageSize=524288",
	}})
	to := map[string]*harness.Conn{}
	for port, addr := range map[string]string{"39911": n.Addr, "39876": n.Namesrv} {
		c, err := harness.Dial(addr)
		require.NoError(t, err)
		defer c.Close()
		to[port] = c
	}
	awaitRoute(t, n.Namesrv, "golden_plain")

	f, err := os.Open("testdata/mqadmin-5.3.3.jsonl.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<20)
	compared := map[int32]int{}
	for lines.Scan() {
		var e exchange
		require.NoError(t, json.Unmarshal(lines.Bytes(), &e))
		code := e.Request.Code
		if e.By != "client" || unlike[code] != "" || len(e.Response.Frame) == 0 {
			continue
		}
		asked, body := frame(t, e.Request.Frame)
		if ofOthers(asked, body) {
			continue
		}
		wanted, wantedBody := frame(t, e.Response.Frame)
		c := to[e.To[strings.LastIndexByte(e.To, ':')+1:]]
		got, err := c.Call(code, func(w *command.Writer) {
			asked.Fields(func(k, v []byte) bool { w.Ext(string(k), string(v)); return true })
		}, body)
		require.NoError(t, err, command.RequestName(code))
		what := command.RequestName(code) + " " + string(e.Request.Frame[8:min(len(e.Request.Frame), 300)])
		compared[code]++
		if !assert.Equal(t, wanted.Code, got.Header.Code, "%s: %s", what, got.Header.Remark()) {
			continue
		}
		wanted.Fields(func(k, _ []byte) bool {
			_, ok := got.Header.Ext(string(k))
			assert.True(t, ok, "%s: the answer has no field %s", what, k)
			return true
		})
		compareShape(t, what, wantedBody, got.Body)
	}
	require.NoError(t, lines.Err())
	require.Greater(t, len(compared), 20, "%v", compared)
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

// ofOthers tells that a request is about topics and groups that came after the store.
func ofOthers(h *command.Header, body []byte) bool {
	of := func(s string) bool { return strings.Contains(s, "rec_") || strings.Contains(s, "probe_") }
	others := of(string(body))
	h.Fields(func(_, v []byte) bool { others = others || of(string(v)); return true })
	return others
}

// compareShape wants what JSON of Apache's has: each field, with its type.
func compareShape(t *testing.T, what string, wanted, got []byte) {
	t.Helper()
	if len(wanted) == 0 || wanted[0] != '{' {
		assert.Equal(t, len(wanted) == 0, len(got) == 0, what)
		return
	}
	shape := func(raw []byte) map[string]string {
		strict, err := command.LenientJSON(raw)
		require.NoError(t, err, "%s: %s", what, raw)
		var v any
		require.NoError(t, json.Unmarshal(strict, &v), "%s: %s", what, raw)
		all := map[string]string{}
		shapeOf(v, "", all)
		return all
	}
	theirs, ours := shape(wanted), shape(got)
	for _, path := range slices.Sorted(maps.Keys(theirs)) {
		switch {
		case strings.HasPrefix(path, ".topicQueueMapping"):
			continue // static topics: what is not there is empty to who reads it
		case strings.HasPrefix(path, ".table.commitLogDiskRatio_"):
			continue // a path ends the name
		case strings.HasPrefix(path, ".table.scheduleMessageOffset_"):
			continue // delays are not served yet
		}
		assert.Equal(t, theirs[path], ours[path], "%s: %s in %s", what, path, got)
	}
}

// named are objects whose keys are data.
var named = map[string]bool{
	"offsetTable": true, "topicConfigTable": true, "subscriptionGroupTable": true, "brokerAddrTable": true, "brokerAddrs": true,
	"clusterAddrTable": true, "consumeStatsList": true, "subscriptionTable": true, "attributes": true,
}

func shapeOf(v any, at string, into map[string]string) {
	switch v := v.(type) {
	case map[string]any:
		into[at] = "object"
		for k, e := range v {
			if named[at[strings.LastIndexByte(at, '.')+1:]] {
				k = "*"
			}
			shapeOf(e, at+"."+k, into)
		}
	case []any:
		into[at] = "list"
		for _, e := range v {
			shapeOf(e, at, into)
		}
	case string:
		into[at] = "text"
	case float64:
		into[at] = "number"
	case bool:
		into[at] = "bool"
	}
}
