//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

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
	code, out = text("G", "C", "--broker", broker, "--allocator", "sticky")
	require.Equal(t, exitOK, code, out)
	require.Contains(t, out, "the group has no members now: nothing moves")
	for _, tc := range []struct {
		says string
		args []string
	}{
		{`there is no allocate plugin "stick"; known are averagely, circle, config, consistenthash, machineroom, sticky, zone; did you mean sticky?`, []string{"G", "C", "--broker", broker, "--allocator", "stick"}},
		{`there is no topic "nowhere"`, []string{"G", "nowhere", "--namesrv", nameServer}},
		{"topic nowhere: the topic is not known", []string{"G", "nowhere", "--broker", broker}},
		{"is no broker (a name server?): ", []string{"G", "C", "--broker", nameServer, "--members", members}},
	} {
		code, out := text(tc.args...)
		require.Equal(t, exitFailure, code, out)
		require.Contains(t, out, tc.says)
	}
	require.Equal(t, exitOK, s.signal(t, syscall.SIGTERM), s.text())
}

// TestNamesOfOthers: client ids are what clients say.
func TestNamesOfOthers(t *testing.T) {
	var out bytes.Buffer
	p := &command.AssignmentPlan{
		Members: []command.PlanMember{{ClientID: "größe 日本"}, {ClientID: "\x1b[2J\tx"}, {ClientID: "\xff"}, {}},
		Queues:  []command.PlanQueue{{BrokerName: "b", To: "\x1b[2J\tx"}},
	}
	g := newPage(&out)
	printPlan(g, p)
	require.NoError(t, g.end())
	require.Regexp(t, `(?m)^größe 日本 +- `, out.String())
	require.Regexp(t, `(?m)^"\\x1b\[2J\\tx" +- `, out.String())
	require.Regexp(t, `(?m)^"\\xff" +- `, out.String())
	require.Regexp(t, `(?m)^b/0 +- +- +"\\x1b\[2J\\tx"`, out.String())
	require.NotContains(t, out.String(), "\x1b")
	require.Equal(t, "no licence\n\tfor \uFFFD[31mTuesdays", harmless("no licence\n\tfor \x1b[31mTuesdays"))
}

// TestGroupAssignSets sets the allocator of a group on two brokers.
func TestGroupAssignSets(t *testing.T) {
	ns := launch(t, "namesrv", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--admin-listen", "off")
	require.NotNil(t, ns.ready, ns.text())
	brokers := map[string]*server{}
	for _, name := range []string{"broker-a", "broker-b"} {
		s := launch(t, "broker", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--admin-listen", "off", "--namesrv-addr", ns.addr("namesrv"), "--storage", "memory",
			"--set", "brokerName="+name, "--set", "brokerClusterName=C")
		require.NotNil(t, s.ready, s.text())
		brokers[name] = s
	}
	const group, topic = "SELF_TEST_C_GROUP", "C" // which every broker has
	members := filepath.Join(t.TempDir(), "members.json")
	require.NoError(t, os.WriteFile(members, []byte(`[{"clientId": "ben"}, {"clientId": "anna"}]`), 0o600))
	at := []string{"--namesrv", ns.addr("namesrv")}
	assign := func(args ...string) (code int, stdout, stderr string) {
		var out, errs bytes.Buffer
		code = run(t.Context(), slices.Concat([]string{"group", "assign"}, at, args), nil, &out, &errs)
		return code, out.String(), errs.String()
	}
	plan := func(args ...string) (p command.AssignmentPlan) {
		t.Helper()
		tool(t, &p, append([]string{"group", "assign", "--namesrv", ns.addr("namesrv"), "--dry-run", "--members", members, group, topic}, args...)...)
		return p
	}
	require.Eventually(t, func() bool { return len(plan().Brokers) == 2 }, patience, 100*time.Millisecond, "both brokers are registered")

	code, out, errs := assign(group, topic, "--allocator", "sticky", "--members", members)
	require.Equal(t, exitFailure, code)
	require.Contains(t, out, "what allocator sticky")
	require.Contains(t, out, "without an owner: 0")
	require.Equal(t, "hardpoint: nothing was changed; say --yes to set allocator sticky for group SELF_TEST_C_GROUP in topic C on broker-a, broker-b\n", errs)
	require.Equal(t, "averagely", plan().Allocator)

	code, out, errs = assign(group, topic, "--allocator", "sticky", "--yes")
	require.Equal(t, exitOK, code, errs)
	require.Contains(t, out, "the group has no members now: nothing moves")
	require.Regexp(t, `(?m)^broker-a +127.0.0.1:\d+ +set$`, out)
	require.Regexp(t, `(?m)^broker-b +127.0.0.1:\d+ +set$`, out)
	require.Equal(t, "sticky", plan().Allocator)
	var done assigned
	tool(t, &done, "group", "assign", "--namesrv", ns.addr("namesrv"), group, topic, "--weights", "anna=3", "--members", members, "--yes")
	require.Equal(t, "sticky", done.Plan.Allocator, "what is not named stays")
	require.Equal(t, []command.PlanBroker{done.Brokers[0].PlanBroker, done.Brokers[1].PlanBroker}, done.Plan.Brokers)
	require.True(t, done.Brokers[0].Set && done.Brokers[1].Set)
	require.Equal(t, 24, plan("--allocator", "zone").Members[0].After)

	code, _, errs = assign(group, topic, "--allocator", "config", "--members", members)
	require.Equal(t, exitFailure, code)
	require.Contains(t, errs, "hardpoint: with it nobody reads 32 of the 32 queues of topic C\n")

	// A group that is not there, an allocator that is not there.
	code, out, errs = assign("nobody", topic, "--allocator", "sticky", "--yes")
	require.Equal(t, exitFailure, code)
	require.Regexp(t, `(?m)^broker-b .* not set: .*subscription group \[nobody\] does not exist`, out)
	require.Contains(t, errs, "allocator sticky is not set on 2 of 2 brokers")
	code, out, errs = assign(group, topic, "--allocator", "stick", "--yes")
	require.Equal(t, exitFailure, code)
	require.Empty(t, out)
	require.Contains(t, errs, `there is no allocate plugin "stick"`)

	// One broker is gone: the other one has it, and the command says so.
	owner, gone := done.Plan.Broker, "broker-a"
	if owner == gone {
		gone = "broker-b"
	}
	require.NoError(t, brokers[gone].cmd.Process.Kill())
	brokers[gone].exit(t)
	at = []string{"--broker", brokers[owner].addr("broker")}
	code, out, errs = assign(group, topic, "--unset", "--members", members, "--yes", "--output", "json")
	require.Equal(t, exitFailure, code, errs)
	done = assigned{}
	require.NoError(t, json.Unmarshal([]byte(out), &done))
	require.Equal(t, "averagely", done.Plan.Allocator)
	for _, b := range done.Brokers {
		require.Equal(t, b.BrokerName == owner, b.Set, "%+v", b)
	}
	require.Contains(t, errs, "no allocator of its own is not set on 1 of 2 brokers")
}
