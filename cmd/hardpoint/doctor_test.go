package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
)

// TestAddressFault: what a broker must not advertise is told without connecting to it.
func TestAddressFault(t *testing.T) {
	remote, local := []string{"10.0.0.9:9876"}, []string{"127.0.0.1:9876", "localhost:9876", "[::1]:9876"}
	for address, want := range map[string]string{
		"0.0.0.0:10911":       "the address on which it listens",
		"[::]:10911":          "the address on which it listens",
		"127.0.0.1:10911":     "reached from its own machine alone",
		"[::1]:10911":         "reached from its own machine alone",
		"fe80::1:10911":       "without brackets",
		"2001:db8::5:10911":   "without brackets",
		"[fe80::1]:10911":     "link-local",
		"169.254.3.4:10911":   "link-local",
		"224.0.0.1:10911":     "multicast",
		"10.0.0.1":            "no address",
		"10.0.0.1:0":          "its port is none",
		"10.0.0.1:70000":      "its port is none",
		"10.0.0.1:10911":      "",
		"172.17.0.2:10911":    "", // looked at when it is not reached
		"broker.example:1":    "",
		"[2001:db8::5]:10911": "",
	} {
		fault, do := addressFault(address, remote)
		if want == "" {
			require.Empty(t, fault, address)
			continue
		}
		require.Contains(t, fault, want, address)
		require.Contains(t, do, "brokerIP1", address)
	}
	fault, _ := addressFault("127.0.0.1:10911", local)
	require.Empty(t, fault, "all is on this machine")
	fault, _ = addressFault("127.0.0.1:10911", append(local, remote...))
	require.NotEmpty(t, fault)
}

func TestWhyUnreached(t *testing.T) {
	for want, x := range map[string]struct {
		address string
		err     error
	}{
		"name is not known": {"broker:1", fmt.Errorf("connecting: %w", &net.DNSError{Name: "broker", IsNotFound: true})},
		"nothing listens":   {"10.0.0.1:1", fmt.Errorf("connecting: %w", syscall.ECONNREFUSED)},
		"of a container":    {"172.17.0.2:1", fmt.Errorf("connecting: %w", os.ErrDeadlineExceeded)},
		"a firewall":        {"8.8.4.4:1", fmt.Errorf("connecting: %w", os.ErrDeadlineExceeded)},
		"let through":       {"8.8.4.4:1", errors.New("something else")},
	} {
		require.Contains(t, whyUnreached(x.address, x.err), want)
	}
}

// TestDisagreements: two name servers that tell not the same, and what they know together.
func TestDisagreements(t *testing.T) {
	knows := func(addrs map[string]map[int64]string) command.ClusterInfo {
		i := command.ClusterInfo{BrokerAddrTable: map[string]command.BrokerData{}}
		for name, a := range addrs {
			i.BrokerAddrTable[name] = command.BrokerData{Cluster: "C", BrokerName: name, BrokerAddrs: a}
		}
		return i
	}
	one := knows(map[string]map[int64]string{"a": {0: "a:0", 1: "a:1"}, "b": {0: "b:0"}})
	other := knows(map[string]map[int64]string{"a": {0: "a:9"}, "c": {0: "c:0"}})
	require.Equal(t, []string{
		"N1 has broker a (id 0) at a:0, N2 at a:9",
		"N1 knows broker a (id 1) at a:1, N2 does not",
		"N1 knows broker b (id 0) at b:0, N2 does not",
		"N2 knows broker c (id 0) at c:0, N1 does not",
	}, disagreements("N1", one, "N2", other))
	require.Empty(t, disagreements("N1", one, "N2", one))
	both := knows(nil)
	merge(&both, one)
	merge(&both, other)
	require.Len(t, both.BrokerAddrTable, 3)
	var none command.ClusterInfo
	merge(&none, other)
	require.Len(t, none.BrokerAddrTable, 2)
}

// TestPatients: what a broker tells leads to a verdict; what it does not tell is
// unknown, never well.
func TestPatients(t *testing.T) {
	told := func(info command.RuntimeInfoResponse, ours bool, table command.StringMap, config map[string]string) map[string]string {
		p := &patient{ours: ours, table: table, config: config}
		p.b.Name, p.b.Cluster = "a", "C"
		p.identity()
		p.permission()
		p.disk(&info)
		p.limits(&info)
		out := map[string]string{}
		for _, c := range p.checks {
			out[c.Check] = c.Verdict
			require.NotEmpty(t, c.Says)
			require.Equal(t, c.Verdict == verdictWarning || c.Verdict == verdictFailure, c.Do != "", "%+v", c)
		}
		return out
	}
	silent := command.RuntimeInfoResponse{FullInHours: -1, OpenFiles: -1, OpenFilesMax: -1, MemoryMaps: -1, MemoryMapsMax: -1}
	require.Equal(t, map[string]string{"permission": "unknown", "disk": "unknown", "limits": "unknown"}, told(silent, false, nil, nil))
	apache := map[string]string{"brokerName": "a", "brokerClusterName": "C", "brokerId": "0", "brokerPermission": "6", "maxMessageSize": "4194304"}
	require.Equal(t, map[string]string{"permission": "ok", "disk": "ok", "forecast": "unknown", "message size": "ok", "limits": "unknown"},
		told(silent, false, command.StringMap{"commitLogDiskRatio": "0.42"}, apache))
	require.Equal(t, map[string]string{"permission": "ok", "disk": "failure", "forecast": "unknown", "message size": "ok", "limits": "unknown"},
		told(silent, false, command.StringMap{"commitLogDiskRatio": "0.42", "consumeQueueDiskRatio": "0.91"}, apache))
	bad := map[string]string{"brokerName": "b", "brokerPermission": "4", "maxMessageSize": "65536", "diskSpaceWarningLevelRatio": "70", "diskSpaceCleanForciblyRatio": "60"}
	near := command.RuntimeInfoResponse{FullInHours: 3, OpenFiles: 81, OpenFilesMax: 100, MemoryMaps: 60000, MemoryMapsMax: 65530}
	require.Equal(t, map[string]string{"identity": "failure", "permission": "warning", "disk": "warning", "forecast": "warning", "message size": "warning", "open files": "warning", "memory maps": "warning"},
		told(near, true, command.StringMap{"commitLogDiskRatio": "0.65"}, bad))
	bad["brokerPermission"], bad["cleanFileForciblyEnable"] = "2", "false"
	got := told(silent, true, command.StringMap{"commitLogDiskRatio": "0.65"}, bad)
	require.Equal(t, "failure", got["permission"])
	require.Equal(t, "ok", got["disk"], "nothing is deleted before its time")
	require.Equal(t, "unknown", got["open files"])
}
