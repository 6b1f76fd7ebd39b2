package wire

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	goplugin "github.com/hashicorp/go-plugin"
	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/storage"
	"github.com/hardpointmq/hardpoint/sdk/wire/pluginpb"
)

// TestPageForOtherLanguages: what the page says in numbers and names is so.
func TestPageForOtherLanguages(t *testing.T) {
	b, err := os.ReadFile("proto/README.md")
	require.NoError(t, err)
	page := string(b)
	h := Handshake()
	for _, want := range []string{
		fmt.Sprintf("| `%s` | must be `%s`;", h.MagicCookieKey, h.MagicCookieValue),
		fmt.Sprintf("| `%s` | when set", ControlEnv),
		fmt.Sprintf("this page is version `%d`", Version),
		fmt.Sprintf("\n%d|%d|unix|PATH|grpc|CERTIFICATE\n", goplugin.CoreProtocolVersion, Version),
		fmt.Sprintf("`Check` of the service `%s`", goplugin.GRPCServiceName),
		fmt.Sprintf("| `%s` |", pluginpb.Plugin_ServiceDesc.ServiceName),
		fmt.Sprintf("contract `%s`", allocate.Contract), fmt.Sprintf("contract `%s`", storage.Contract),
	} {
		require.Contains(t, page, want)
	}
	codes := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| (\\d+) \\| `([\\w.]+)` \\|").FindAllStringSubmatch(page, -1) {
		codes[m[2]] = m[1]
	}
	for _, s := range sentinels() {
		kind, _, _ := strings.Cut(s.name, ".")
		if _, ok := codes[s.name]; !ok && (kind == Replication || kind == Transport || kind == "io" || kind == "command" || s.name == "storage.ErrOrder") {
			continue // of kinds that other languages do not write, and of the engine
		}
		require.Equal(t, fmt.Sprint(s.code), codes[s.name], s.name)
		delete(codes, s.name)
	}
	require.Empty(t, codes)
}
