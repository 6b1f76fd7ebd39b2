package catalog_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/catalog"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/vfs"
	"github.com/hardpointmq/hardpoint/core/vfs/memfs"
)

type modes = map[string]map[string]command.SetMessageRequestModeBody

func modesOf(e *enginetest.Engine) modes { return kernel.RequestModes(e.K.Values).Modes }

// setMode is what request 401 does.
func setMode(t *testing.T, e *enginetest.Engine, m command.SetMessageRequestModeBody) {
	t.Helper()
	b, err := command.EncodeBody(m)
	require.NoError(t, err)
	require.NoError(t, e.K.Values.PutValue(t.Context(), kernel.ValueKey{Kind: kernel.ValueRequestMode, Group: m.ConsumerGroup, Topic: m.Topic}, b))
}

// inFile waits until the file holds the modes.
func inFile(t *testing.T, e *enginetest.Engine, want modes) {
	t.Helper()
	var got command.MessageRequestModes
	require.Eventually(t, func() bool {
		b, err := vfs.ReadFile(e.Disk.FS, e.File("messageRequestMode.json"))
		got = command.MessageRequestModes{}
		return err == nil && command.DecodeBody(b, &got) == nil && equal(want, got.Modes)
	}, enginetest.Patience, 5*time.Millisecond)
}

func equal(a, b modes) bool {
	x, _ := command.EncodeBody(a)
	y, _ := command.EncodeBody(b)
	return string(x) == string(y)
}

// TestApacheModes: the request modes that an Apache broker 5.3.3 wrote are taken
// over, once, and are in the log then.
func TestApacheModes(t *testing.T) {
	theirs, err := os.ReadFile("testdata/apache-5.3.3/messageRequestMode.json")
	require.NoError(t, err)
	want := modes{
		"orders": {
			"payers": {ConsumerGroup: "payers", Mode: command.ModePop, PopShareQueueNum: 3, Topic: "orders"},
			"audit":  {ConsumerGroup: "audit", Mode: command.ModePull, Topic: "orders"},
		},
		"bills_2": {"audit": {ConsumerGroup: "audit", Mode: command.ModePop, Topic: "bills_2"}},
	}
	d := enginetest.NewDisk()
	write(t, d, "store/config/messageRequestMode.json", theirs)
	e := enginetest.Start(t, enginetest.Options{Disk: d})
	require.Equal(t, want, modesOf(e))
	require.True(t, e.HasLog("level=WARN", "mode POP", "group=payers", "topic=orders"), e.Log.String())
	require.False(t, e.HasLog("mode POP", "topic=orders", "group=audit"), e.Log.String())
	require.NoError(t, e.K.Values.PutValue(t.Context(), kernel.ValueKey{Kind: kernel.ValueRequestMode, Group: "audit", Topic: "orders"}, nil))
	delete(want["orders"], "audit")
	e = e.Again(e.Kill(memfs.KeepNone))
	require.Equal(t, want, modesOf(e), "the file is not taken again over what came later")
	inFile(t, e, want)
	d = e.Kill(memfs.KeepNone)
	d.FS = memfs.New(7)
	require.Equal(t, want, modesOf(e.Again(d)), "the log has them")
}

// TestModesFile: the file follows the modes; an Apache broker that writes it drops
// what it does not know, and what it knows is authoritative.
func TestModesFile(t *testing.T) {
	e := enginetest.Start(t, enginetest.Options{})
	require.NoError(t, e.K.Topics.Put(t.Context(), topic("T", 4)))
	for _, g := range []string{"G", "H", "I"} {
		_, err := e.K.Groups.Ensure(t.Context(), g)
		require.NoError(t, err)
	}
	e = e.Again(nil)
	_, err := vfs.ReadFile(e.Disk.FS, e.File("messageRequestMode.json"))
	require.Error(t, err, "there is no file before there is a mode, as with RocketMQ")

	mode := func(group, allocator, weights string) command.SetMessageRequestModeBody {
		return command.SetMessageRequestModeBody{ConsumerGroup: group, Topic: "T", Mode: command.ModePull, Allocator: allocator, Weights: weights}
	}
	want := modes{"T": {"G": mode("G", "sticky", "big-*=4"), "H": mode("H", "zone", ""), "I": mode("I", "", "")}}
	for _, m := range want["T"] {
		setMode(t, e, m)
	}
	inFile(t, e, want)
	require.NoError(t, e.K.Groups.Remove(t.Context(), "I", false))
	delete(want["T"], "I")
	inFile(t, e, want)

	e.Stop()
	write(t, e.Disk, e.File("messageRequestMode.json"), []byte(`{"messageRequestModeMap":{"T":{
		"G":{"consumerGroup":"G","mode":"PULL","popShareQueueNum":8,"topic":"T"},
		"K":{"consumerGroup":null,"mode":null,"popShareQueueNum":0,"topic":null}, "":{}},"":{"L":{}}}}`))
	e = e.Again(e.Disk)
	g := mode("G", "sticky", "big-*=4")
	g.PopShareQueueNum = 8
	want = modes{"T": {"G": g, "K": mode("K", "", "")}}
	require.Equal(t, want, modesOf(e))

	// A damaged file is written again from the log.
	e.Stop()
	write(t, e.Disk, e.File("messageRequestMode.json"), []byte(`{"messageRequestModeMap":`))
	e = e.Again(e.Disk)
	require.Equal(t, want, modesOf(e))
	inFile(t, e, want)

	// Without a log to go by, nothing is lost in silence.
	d := enginetest.NewDisk()
	write(t, d, "store/config/messageRequestMode.json", []byte(`{"messageRequestModeMap":null}`))
	_, err = enginetest.TryStart(t, enginetest.Options{Disk: d})
	require.ErrorIs(t, err, catalog.ErrFiles)
	require.ErrorContains(t, err, "messageRequestMode.json")
}
