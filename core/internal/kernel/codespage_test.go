package kernel

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
)

const codesPage = sources + "/docs/coming-from-rocketmq.md"

// found are the names of request codes that match in the sources below a folder.
func found(t *testing.T, dir, pattern string) map[string]bool {
	t.Helper()
	names, re, name := map[string]bool{}, regexp.MustCompile(pattern), regexp.MustCompile(`command\.(Req\w+)`)
	require.NoError(t, filepath.WalkDir(sources+dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, line := range re.FindAllString(string(b), -1) {
			for _, m := range name.FindAllStringSubmatch(line, -1) {
				names[m[1]] = true
			}
		}
		return err
	}))
	return names
}

// requests says which requests are served, by whom.
func requests(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(sources + "/core/command/codes.go")
	require.NoError(t, err)
	broker := found(t, "/core/internal", `\.Handle\(command\.Req\w+`)
	namesrv := found(t, "/core/internal/nameserver", `case command\.Req[^:]+:`)
	var lists [3][]string
	all := regexp.MustCompile(`(?m)^\t(Req\w+) +int32 = (\d+)$`).FindAllStringSubmatch(string(b), -1)
	require.Greater(t, len(all), 100)
	for _, m := range all {
		n, err := strconv.Atoi(m[2])
		require.NoError(t, err)
		code := int32(n)
		text := fmt.Sprintf("%d %s", code, command.RequestName(code))
		served := false
		for i, by := range []bool{broker[m[1]] || isSend(code), namesrv[m[1]]} {
			if by {
				lists[i], served = append(lists[i], text), true
			}
		}
		if !served && !toClients[code] {
			lists[2] = append(lists[2], text)
		}
	}
	require.True(t, slices.Contains(lists[0], "310 SEND_MESSAGE_V2"))
	require.True(t, slices.Contains(lists[1], "105 GET_ROUTEINFO_BY_TOPIC"))
	var out strings.Builder
	for i, title := range []string{"Served by a broker", "Served by a name server", "Not served: answered with 3 (REQUEST_CODE_NOT_SUPPORTED)"} {
		fmt.Fprintf(&out, "\n%s:\n%s.\n", title, strings.Join(lists[i], ",\n"))
	}
	return out.String()
}

// toClients are the requests that brokers send to clients.
var toClients = map[int32]bool{
	command.ReqCheckTransactionState: true, command.ReqNotifyConsumerIDsChanged: true, command.ReqResetConsumerClientOffset: true,
	command.ReqGetConsumerStatusFromClient: true, command.ReqPushReplyMessageToClient: true, command.ReqNotifyMinBrokerIDChange: true,
}

// TestGeneratedRequests: the page lists the requests that have a handler.
func TestGeneratedRequests(t *testing.T) {
	b, err := os.ReadFile(codesPage)
	require.NoError(t, err)
	const mark = "-run TestGenerated -update -->\n"
	page := strings.ReplaceAll(string(b), "\r\n", "\n")
	at := strings.Index(page, mark)
	require.Positive(t, at, "the mark of the generated part")
	text := page[:at+len(mark)] + requests(t)
	if *update {
		require.NoError(t, os.WriteFile(codesPage, []byte(text), 0o644))
		page = text
	}
	require.Equal(t, text, page, "run: go test ./core/internal/kernel -run TestGenerated -update")
}
