package kernel

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/api"
)

var update = flag.Bool("update", false, "write docs/errors.md")

const (
	sources = "../../.."
	page    = sources + "/docs/errors.md"
)

// advice is what a person does about an error, by its identity.
var advice = map[api.ErrorID]struct{ means, do string }{
	api.SystemError: {"something failed inside, or a request asks for what cannot be",
		"read the text; when it tells of a fault of the broker, its log has more at the same time"},
	api.SystemBusy: {"too many requests of a kind are under way",
		"ask again later; in this version only requests for assignments get it"},
	api.NotSupported: {"a request that this version does not know",
		"[coming-from-rocketmq.md](coming-from-rocketmq.md) lists what is served"},
	api.MessageIllegal: {"a message that is too large, empty or malformed, or delayed",
		"change the message, or `maxMessageSize` (of clients, too: theirs is 4 MiB as well)"},
	api.ServiceNotAvailable: {"the log takes nothing now: the disk is full, a flush failed, the store or a plugin is away, the broker stops, or it is overloaded (`waitTimeMillsInSendQueue`)",
		"the text and `/readyz` say which; send again, to another broker when there is one. \"It is unknown whether\" means that the message may be there: send again and let consumers drop doubles"},
	api.NoPermission: {"broker, topic or group do not permit it, the topic is a reserved one, or the message is a transactional one",
		"the text names the permission; `mqadmin updateTopicPerm`, `updateSubGroup`, or the key `brokerPermission`"},
	api.TopicNotExist: {"there is no such topic, and it is not created by itself",
		"create it, or set `autoCreateTopicEnable=true`; clients create topics by sending, not by consuming"},
	api.NotFound: {"no such offset, message or key",
		"for a group's offset: it has none yet, clients begin by their consumeFromWhere; for a message: it was deleted by retention, or the key is not indexed"},
	api.SubscriptionParseFailed: {"an expression that cannot be read",
		"the text says where; `*`, or tags with `||` between them"},
	api.SubscriptionNotExist: {"the consumer pulls a topic that it did not subscribe to in its heartbeat",
		"clients heal it by their next heartbeat; if it stays, members of the group subscribe to different topics"},
	api.SubscriptionNotLatest: {"the consumer's heartbeat with its newer subscription has not arrived",
		"nothing: the next pull comes after the heartbeat"},
	api.GroupNotExist: {"there is no such group, and it is not created by itself",
		"create it (`mqadmin updateSubGroup`), or set `autoCreateSubscriptionGroup=true`"},
	api.InvalidParameter: {"a field of the request is missing or out of its range",
		"the text names it with its value"},
}

// otherCodes are the codes that tell of no error of this table.
var otherCodes = map[string]string{
	"RespSuccess":              "the message is stored, the request done",
	"RespFlushDiskTimeout":     "the message is in the log, its flush took longer than `syncFlushTimeout` (SYNC_FLUSH). Clients report a send with this status, they do not repeat it unless `retryAnotherBrokerWhenNotStoreOK` is set",
	"RespFlushSlaveTimeout":    "the message is stored here, and no replica said so in time; only with a replicator that waits for replicas",
	"RespSlaveNotAvailable":    "the message is stored here, and no replica is there; only with a replicator that waits for replicas",
	"RespPullNotFound":         "there is no message yet; the client asks again",
	"RespPullRetryImmediately": "nothing here passes the filter; the client goes on at the offset that the answer names",
	"RespPullOffsetMoved":      "the offset is not in the queue (deleted by retention, or beyond its end); the client goes on at the offset that the answer names",
	"RespConsumerNotOnline":    "asked about a consumer that is not connected",
	"RespConsumeMsgTimeout":    "a consumer that was asked through the broker did not answer in time",
	"RespFilterDataNotExist":   "filters of RocketMQ's kind are not kept here",
}

// Codes after which the producers of official clients send again by themselves,
// from their sources.
var (
	retryJava5  = []int32{1, 2, 14, 16, 17, 204, 205, 1500}
	retryJava49 = []int32{1, 14, 16, 17, 204, 205}
	retryGo     = []int32{1, 14, 16, 17}
)

// identities are the constants of core/api in their order.
func identities(t *testing.T) []api.ErrorID {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), sources+"/core/api/errors.go", nil, 0)
	require.NoError(t, err)
	var ids []api.ErrorID
	ast.Inspect(f, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && fmt.Sprint(v.Type) == "ErrorID" {
			id, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			ids = append(ids, api.ErrorID(id))
		}
		return true
	})
	return ids
}

// codesOf are the response codes by their names in core/command.
func codesOf(t *testing.T) map[string]int32 {
	t.Helper()
	b, err := os.ReadFile(sources + "/core/command/codes.go")
	require.NoError(t, err)
	out := map[string]int32{}
	for _, m := range regexp.MustCompile(`(?m)^\t(Resp\w+) +int32 = (\d+)$`).FindAllStringSubmatch(string(b), -1) {
		n, err := strconv.Atoi(m[2])
		require.NoError(t, err)
		out[m[1]] = int32(n)
	}
	return out
}

// answered are the names of the codes that broker and name server use.
func answered(t *testing.T) map[string]bool {
	t.Helper()
	use, found := regexp.MustCompile(`command\.(Resp[A-Z]\w+)`), map[string]bool{}
	require.NoError(t, filepath.WalkDir(sources+"/core", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range use.FindAllStringSubmatch(string(b), -1) {
			found[m[1]] = true
		}
		return err
	}))
	return found
}

func errorPage(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(`# Errors

<!-- Generated from core/api and core/internal/kernel; change it there and run: go test ./core/internal/kernel -run TestGenerated -update -->

Each error has a text, which says what is wrong with the value at hand, and an identity, which stays the same in later versions. Programs that
embed a broker get the identity (` + "`api.IDOf(err)`" + `); clients of the remoting protocol get RocketMQ's response code, with the text as its remark.

*Sent again* says whose producers send again by themselves after that code, as long as their number of attempts and their time-out allow it
(synchronous sends; the asynchronous ones of Java hand every code to the callback). Consumers go on after every code: they pull again after three
seconds.

| Identity | Code | Means | What to do | Sent again |
|---|---|---|---|---|
`)
	byCode := map[int32]bool{}
	for _, id := range identities(t) {
		code, ok := codes[id]
		require.True(t, ok, "%s has no code", id)
		a, ok := advice[id]
		require.True(t, ok, "%s has no advice", id)
		byCode[code] = true
		var who []string
		for _, r := range []struct {
			who   string
			codes []int32
		}{{"Java 5", retryJava5}, {"Java 4.9", retryJava49}, {"Go", retryGo}} {
			if slices.Contains(r.codes, code) {
				who = append(who, r.who)
			}
		}
		if who == nil {
			who = []string{"no"}
		}
		fmt.Fprintf(&b, "| `%s` | %d | %s | %s | %s |\n", id, code, a.means, a.do, strings.Join(who, ", "))
	}
	b.WriteString(`
Error 14 also stands for a store that is away for a moment (its process died and is started again).

Further codes:

| Code | Means |
|---|---|
`)
	known := codesOf(t)
	type row struct {
		code  int32
		means string
	}
	var rows []row
	for name := range answered(t) {
		code, ok := known[name]
		require.True(t, ok, name)
		if byCode[code] {
			continue
		}
		require.NotEmpty(t, otherCodes[name], "code %d, %s, is answered: say what it means", code, name)
		rows = append(rows, row{code, otherCodes[name]})
	}
	slices.SortFunc(rows, func(a, b row) int { return int(a.code - b.code) })
	for _, r := range rows {
		fmt.Fprintf(&b, "| %d | %s |\n", r.code, r.means)
	}
	b.WriteString(`
A frame that cannot be decoded closes its connection: nothing in it says whom to answer. The commands of ` + "`hardpoint`" + ` print the text and exit with 1,
or with 2 when the command line has to be changed.
`)
	return b.String()
}

// TestGeneratedErrors: the page says every identity and every code that is answered.
func TestGeneratedErrors(t *testing.T) {
	text := errorPage(t)
	require.Len(t, codes, len(identities(t)), "an identity was taken away")
	require.Len(t, advice, len(codes))
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(text), 0o644))
	}
	got, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, text, strings.ReplaceAll(string(got), "\r\n", "\n"), "run: go test ./core/internal/kernel -run TestGenerated -update")
}
