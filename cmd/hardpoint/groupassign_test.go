//go:build unix

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
)

// TestGroupAssign asks a running broker what an allocator would do.
func TestGroupAssign(t *testing.T) {
	dir := t.TempDir()
	s := standalone(t, dir, "--storage", "memory", "--set", "brokerName=broker-a", "--set", "brokerClusterName=C")
	members := filepath.Join(dir, "members.json")
	require.NoError(t, os.WriteFile(members, []byte(`[{"clientId": "ben"}, {"clientId": "anna", "zone": "east", "weight": 3}]`), 0o600))
	broker, nameServer := s.addr("broker"), s.addr("namesrv")

	var plan command.AssignmentPlan
	tool(t, &plan, "group", "assign", "--dry-run", "G", "C", "--broker", broker, "--allocator", "sticky", "--members", members)
	require.Equal(t, "sticky", plan.Allocator)
	require.Equal(t, "broker-a", plan.Broker)
	require.Len(t, plan.Queues, 16)
	require.Equal(t, "had no owner", plan.Queues[0].Why)
	require.Equal(t, []command.PlanMember{{ClientID: "anna", Zone: "east", Weight: 3, After: 8}, {ClientID: "ben", Weight: 1, After: 8}}, plan.Members)
	tool(t, &plan, "group", "assign", "--dry-run", "G", "C", "--namesrv", nameServer, "--allocator", "zone", "--members", members)
	require.Equal(t, 12, plan.Members[0].After)

	text := func(args ...string) (int, string) {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append([]string{"group", "assign", "--dry-run"}, args...), nil, &stdout, &stderr)
		return code, stdout.String() + stderr.String()
	}
	code, out := text("G", "C", "--namesrv", nameServer, "--allocator", "AVG", "--members", members)
	require.Equal(t, exitOK, code, out)
	require.Regexp(t, `(?m)^anna +east +3 +0 +8$`, out)
	require.Regexp(t, `(?m)^broker-a/15 +- +- +ben`, out)
	require.Contains(t, out, "moved: 0 of 16 queues; without an owner: 0\n")
	for _, tc := range []struct {
		says string
		args []string
	}{
		{"group G has no member that this broker knows", []string{"G", "C", "--broker", broker}},
		{`there is no allocate plugin "stick"; known are averagely, circle, config, consistenthash, machineroom, sticky, zone`, []string{"G", "C", "--broker", broker, "--allocator", "stick"}},
		{"No topic route info", []string{"G", "nowhere", "--namesrv", nameServer}},
		{"topic nowhere: the topic is not known", []string{"G", "nowhere", "--broker", broker}},
		{"response code 3", []string{"G", "C", "--broker", nameServer, "--members", members}},
	} {
		code, out := text(tc.args...)
		require.Equal(t, exitFailure, code, out)
		require.Contains(t, out, tc.says)
	}
	require.Equal(t, exitOK, s.signal(t, syscall.SIGTERM), s.text())
}
