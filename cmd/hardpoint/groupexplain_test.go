package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/internal/adminclient"
)

// soundGroup is a group that nothing keeps from its messages: two members, two queues.
func soundGroup(now time.Time) *groupFacts {
	pulled := instant(now.Add(-10 * time.Second).UnixMilli())
	form := groupForm{Consume: true, Broadcast: true}
	return &groupFacts{
		Group: "G", Brokers: []groupOn{{Broker: adminclient.Broker{Name: "a", Address: "a:1"}, Has: true, groupForm: form}},
		ConsumeType: command.ConsumePassively, MessageModel: command.Clustering,
		Members: []groupMember{
			{ClientID: "anna", Brokers: []string{"a"}, Queues: 1, subscriptions: map[string]string{"T": "*"}},
			{ClientID: "ben", Brokers: []string{"a"}, Queues: 1, subscriptions: map[string]string{"T": "*"}},
		},
		Subscriptions: []groupSubscription{{"T", "TAG", "*"}},
		queues: []groupQueue{
			{Topic: "T", Broker: "a", Queue: 0, Max: 9, Committed: 4, Lag: 5, Owner: "anna", LastPull: pulled},
			{Topic: "T", Broker: "a", Queue: 1, Max: 3, Committed: 3, Owner: "ben", LastPull: pulled},
		},
		topics: map[string]*factTopic{"T": {on: map[string]int32{"a": 6}, routes: map[string]int32{"a": 6}, hasRoutes: true}},
	}
}

// TestExplain: each reason is found where it is, and nowhere else.
func TestExplain(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	for id, change := range map[string]func(*groupFacts){
		"":                  func(*groupFacts) {},
		"paused":            func(f *groupFacts) { f.Brokers[0].Consume = false },
		"forbidden":         func(f *groupFacts) { f.Brokers[0].Forbidden = []string{"T"} },
		"group-missing":     func(f *groupFacts) { f.Brokers[0].Has = false },
		"not-connected":     func(f *groupFacts) { f.Members[1].Brokers = nil },
		"no-topic":          func(f *groupFacts) { f.Subscriptions = append(f.Subscriptions, groupSubscription{"Tt", "TAG", "*"}) },
		"topic-unreadable":  func(f *groupFacts) { f.topics["T"].on["a"] = 2 },
		"broker-unreadable": func(f *groupFacts) { f.topics["T"].routes["a"] = 2 },
		"no-route":          func(f *groupFacts) { delete(f.topics["T"].routes, "a") },
		"subscriptions-differ": func(f *groupFacts) {
			f.Members[1].subscriptions = map[string]string{"T": "A"}
		},
		"owned-twice": func(f *groupFacts) { f.queues[0].others = []string{"ben"} },
		"unowned":     func(f *groupFacts) { f.queues[1].Owner = "" },
		"idle-members": func(f *groupFacts) {
			f.Members = append(f.Members, groupMember{ClientID: "carl", Brokers: []string{"a"}, subscriptions: map[string]string{"T": "*"}})
		},
		"beyond-end":    func(f *groupFacts) { f.queues[1].Committed = 4 },
		"expired":       func(f *groupFacts) { f.queues[0].Min = 6 },
		"stuck":         func(f *groupFacts) { f.queues[0].LastPull, f.queues[0].Cached = 1, 7 },
		"not-pulling":   func(f *groupFacts) { f.queues[0].LastPull = 1 },
		"silent-member": func(f *groupFacts) { f.Members[0].Queues, f.Members[0].Silence = -1, "why" },
		"dead-letters":  func(f *groupFacts) { f.dead = 2 },
		"retries": func(f *groupFacts) {
			f.queues = append(f.queues, groupQueue{Topic: "%RETRY%G", Broker: "a", Lag: 3})
		},
		"unsubscribed": func(f *groupFacts) { f.queues = append(f.queues, groupQueue{Topic: "U", Broker: "a", Lag: 3}) },
		"pop":          func(f *groupFacts) { f.ConsumeType = command.ConsumePop },
		"broadcasting": func(f *groupFacts) { f.MessageModel = command.Broadcasting },
	} {
		f := soundGroup(now)
		change(f)
		want := []string{"lag"}
		if id != "" {
			want = append(want, id)
		}
		require.ElementsMatch(t, want, idsOf(f.explain(now)), id)
	}

	f := soundGroup(now)
	f.Members, f.Subscriptions = nil, nil
	f.queues[0].Lag = 0
	found := f.explain(now)
	require.Equal(t, []string{"no-member", "nothing-waits"}, idsOf(found))
	require.Equal(t, levelProblem, found[0].Level)
	f.queues = nil
	require.Equal(t, []string{"no-member", "no-progress"}, idsOf(f.explain(now)))

	f = soundGroup(now)
	f.MessageModel, f.Brokers[0].Broadcast = command.Broadcasting, false
	require.Contains(t, idsOf(f.explain(now)), "no-broadcast")
}

func idsOf(found []groupFinding) []string {
	var out []string
	for _, f := range found {
		out = append(out, f.ID)
	}
	return out
}

// TestPageCells: what a terminal would not show as it is, is quoted; units are there.
func TestPageCells(t *testing.T) {
	var out bytes.Buffer
	g := newPage(&out)
	g.row("A", "B")
	g.row("x\x1b[2Jy\tz", "")
	g.row(true, 90*time.Second)
	require.NoError(t, g.end())
	require.Equal(t, "A               B\n\"x\\x1b[2Jy\\tz\"  -\nyes             1m30s\n", out.String())
	for want, d := range map[string]time.Duration{
		"0s": 0, "250ms": 250 * time.Millisecond, "12.3s": 12_300 * time.Millisecond, "4m": 4 * time.Minute, "4m5s": 4*time.Minute + 5*time.Second,
		"3h": 3 * time.Hour, "3h20m": 3*time.Hour + 20*time.Minute, "47h": 47 * time.Hour, "2d": 48 * time.Hour, "5d7h": 127 * time.Hour, "-1m": -time.Minute,
	} {
		require.Equal(t, want, durationText(d))
	}
}

func TestVersionText(t *testing.T) {
	for ordinal, want := range map[int32]string{479: "5.3.3", 413: "5.0.0", 399: "4.9.3", 401: "4.9.4", 412: "5.0.0-SNAPSHOT", 121: "protocol 121", 0: "protocol 0"} {
		require.Equal(t, want, versionText(ordinal))
	}
}

func TestMoments(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	m := momentFlag{now: func() time.Time { return now }}
	local := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local).UnixMilli()
	for text, want := range map[string]int64{
		"earliest": resetEarliest, "latest": resetLatest, "-2h": now.Add(-2 * time.Hour).UnixMilli(), "-3d": now.Add(-72 * time.Hour).UnixMilli(), "-900000h": resetEarliest,
		"1700000000001":        1_700_000_000_001,
		"2023-11-14T22:13:20Z": 1_700_000_000_000, "2023-11-14T22:13:20.5+00:00": 1_700_000_000_500, "2026-01-02 03:04:05": local, "2026-01-02T03:04:05": local,
	} {
		require.NoError(t, m.Set(text), text)
		require.Equal(t, want, m.ms, text)
	}
	for _, bad := range []string{"", "yesterday", "-2", "-", "--2h", "5", "2026-13-01", "1960-01-01T00:00:00Z"} {
		require.ErrorContains(t, m.Set(bad), "allowed are earliest, latest", bad)
	}
}
