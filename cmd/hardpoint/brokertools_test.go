//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asked runs a command in this process.
func asked(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(t.Context(), args, strings.NewReader(""), &out, &errs)
	require.Equal(t, want, code, "hardpoint %s\n%s%s", strings.Join(args, " "), &out, &errs)
	return out.String(), errs.String()
}

// TestBrokersThatRun: the configuration of running brokers, and what doctor says of
// good and bad ones. BC-39 for the command line: whatever a broker refuses, or one of two
// that is down, is an exit code that says so.
func TestBrokersThatRun(t *testing.T) {
	names := launch(t, "namesrv", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--admin-listen", "off")
	require.NotNil(t, names.ready, names.text())
	t.Setenv("NAMESRV_ADDR", names.addr("namesrv"))
	broker := func(name string, args ...string) *server {
		s := launch(t, append([]string{"broker", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--admin-listen", "off", "--namesrv-addr", names.addr("namesrv"),
			"--storage", "memory", "--set", "brokerName=" + name, "--set", "vipChannel=false"}, args...)...)
		require.NotNil(t, s.ready, s.text())
		require.Eventually(t, func() bool {
			var out, errs bytes.Buffer
			code := run(t.Context(), []string{"cluster", "list", "--broker", name}, strings.NewReader(""), &out, &errs)
			return code != exitUsage && strings.Contains(out.String(), name)
		}, patience, 50*time.Millisecond)
		return s
	}
	a, b := broker("broker-a"), broker("broker-b")

	out, _ := asked(t, exitOK, "doctor")
	require.Contains(t, out, "0 failures, 0 warnings")
	require.NotContains(t, out, "identity")

	out, _ = asked(t, exitOK, "broker", "config", "get", "brokerName", "traceOn")
	require.Regexp(t, `(?m)^brokerName +broker-b +broker-b$`, out)
	require.Regexp(t, `(?m)^traceOn +true +all$`, out)
	_, errs := asked(t, exitFailure, "broker", "config", "get", "tracOn")
	require.Contains(t, errs, `no broker shows a key "tracOn"; did you mean traceOn?`)
	out, _ = asked(t, exitOK, "broker", "config", "set", "traceOn=FALSE ", "--cluster", "DefaultCluster")
	require.Regexp(t, `(?m)^broker-a \(\S+\) +traceOn: true -> false$`, out)
	require.Regexp(t, `(?m)^broker-b \(\S+\) +traceOn: true -> false$`, out)
	require.Contains(t, out, "that holds until the broker stops")
	out, _ = asked(t, exitOK, "broker", "config", "set", "traceOn=false", "--broker", "broker-a")
	require.Regexp(t, `(?m)^broker-a \(\S+\) +nothing changed$`, out)
	for set, says := range map[string]string{
		"traceOn=yes":                  `traceOn = "yes"`,
		"tracOn=true":                  `it has no key "tracOn"; did you mean traceOn?`,
		"flushDiskType=SYNC_FLUSH":     "change the configuration and restart",
		"brokerPermission=99999999999": "brokerPermission",
	} {
		out, errs = asked(t, exitFailure, "broker", "config", "set", "autoCreateTopicEnable=false", set, "--broker", a.addr("broker"))
		require.Contains(t, errs, says)
		require.Empty(t, out)
	}
	out, _ = asked(t, exitOK, "broker", "config", "get", "autoCreateTopicEnable", "--output", "json", "--broker", "broker-a")
	var got configTable
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Equal(t, "true", got.Brokers[0].Config["autoCreateTopicEnable"], "all or none")

	// A broker that may only be read is a warning.
	asked(t, exitOK, "broker", "config", "set", "brokerPermission=4", "--broker", "broker-b")
	out, _ = asked(t, exitOK, "cluster", "list", "--broker", "broker-b")
	require.Contains(t, out, "read-only")
	out, _ = asked(t, exitWarned, "doctor")
	require.Regexp(t, `(?m)^warning +permission +broker-b +it is read-only \(brokerPermission=4\)`, out)
	require.Regexp(t, `(?m)^ok +send +broker-a `, out)
	require.NotRegexp(t, `(?m)^\w+ +send +broker-b `, out, "it takes none")
	asked(t, exitOK, "broker", "config", "set", "brokerPermission=6", "--broker", "broker-b")

	// One that advertises what leads to nobody, or to another one, is a failure.
	broker("broker-c", "--advertise", "127.0.0.1:1")
	broker("broker-d", "--advertise", b.addr("broker"))
	out, _ = asked(t, exitFailure, "doctor", "--no-send")
	require.Regexp(t, `(?m)^failure +reach +broker-c +connecting to 127.0.0.1:1`, out)
	require.Regexp(t, `(?m)^failure +identity +broker-d +\S+ is registered as broker broker-d, id 0, of cluster DefaultCluster, and says that it is broker-b`, out)
	require.Regexp(t, `(?m)^failure +address +.* brokers broker-b and broker-d advertise the same address$`, out)
	require.Regexp(t, `(?m)^ok +reach +broker-a `, out)

	// One of several is not reached: the others are shown, the exit code says it.
	for _, line := range []string{"cluster list", "broker status", "broker config get brokerName", "broker config set traceOn=true --cluster DefaultCluster"} {
		out, errs = asked(t, exitFailure, strings.Fields(line)...)
		require.Contains(t, errs, "1 of 4 brokers failed\n  broker-c (127.0.0.1:1): connecting to 127.0.0.1:1", line)
		require.Contains(t, out, "broker-a", line)
	}
	for line, says := range map[string]string{
		"cluster list --namesrv 127.0.0.1:1":      "no name server answers",
		"cluster list --broker 127.0.0.1:1":       "connecting to 127.0.0.1:1",
		"cluster list --cluster Other":            `there is no cluster "Other"`,
		"cluster stats Nothing --broker broker-b": `there is no topic "Nothing"`,
		"doctor --namesrv 127.0.0.1:1":            "",
		"message query --topic Nothing --key k":   `there is no topic "Nothing"`,
	} {
		_, errs = asked(t, exitFailure, strings.Fields(line)...)
		require.Contains(t, errs, says, line)
	}
}

// TestDoctorWrongServer: a broker that advertises the address of something else is told what
// to set.
func TestDoctorWrongServer(t *testing.T) {
	names := launch(t, "namesrv", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--admin-listen", "off")
	require.NotNil(t, names.ready, names.text())
	b := launch(t, "broker", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--admin-listen", "off", "--namesrv-addr", names.addr("namesrv"),
		"--storage", "memory", "--set", "vipChannel=false", "--advertise", names.addr("namesrv"))
	require.NotNil(t, b.ready, b.text())
	var out string
	require.Eventually(t, func() bool {
		var text, errs bytes.Buffer
		code := run(t.Context(), []string{"doctor", "--no-send", "--namesrv", names.addr("namesrv")}, strings.NewReader(""), &text, &errs)
		out = text.String()
		return code == exitFailure && strings.Contains(out, "knows 1 broker")
	}, patience, 50*time.Millisecond)
	require.Contains(t, out, "is no broker (a name server?): it answers to GET_BROKER_RUNTIME_INFO")
	require.Contains(t, out, "the broker advertises the address of another server: set brokerIP1")
}
