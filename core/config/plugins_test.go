package config

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// A plugin's fault is blamed on the key that its text names, wherever that key
// stands, else on the key that chose the plugin.
func TestPluginError(t *testing.T) {
	file := write(t, "broker.conf", "storage=commitlog\nmaxHashSlotNum=500\nplugins.storage.commitlog.max=1\nplugins.storage.commitlog.maxIndexNumber=1\n")
	l, err := Load(Options{Mode: Broker, File: file})
	require.NoError(t, err)
	for text, want := range map[string]struct {
		key  string
		line int
	}{
		`unknown field "max"; known fields are maxIndexNum`: {"plugins.storage.commitlog.max", 3},
		`maxIndexNumber is odd, and above max`:              {"plugins.storage.commitlog.maxIndexNumber", 4},
		`maxHashSlotNum is 500, allowed are others`:         {"maxHashSlotNum", 2},
		`maximum exceeded`:                                  {"storage", 1},
	} {
		cause := errors.New(text)
		err := l.Config.PluginError("storage", "commitlog", cause)
		var p *PluginError
		require.ErrorAs(t, err, &p, text)
		require.Equal(t, want.key, p.Key, text)
		require.Equal(t, Source{Kind: FromFile, Name: file, Line: want.line}, p.Source, text)
		require.ErrorIs(t, err, cause)
		require.EqualError(t, err, p.Source.String()+": "+text)
	}
	file = write(t, "broker.yaml", "transport: acme\nmoreListeners: [mine://:1]\n")
	l, err = Load(Options{Mode: Broker, File: file})
	require.NoError(t, err)
	require.ErrorContains(t, l.Config.PluginError("transport", "acme", errors.New("x")), "broker.yaml:1: x")
	require.ErrorContains(t, l.Config.PluginError("transport", "mine", errors.New("x")), "broker.yaml:2: x")
	file = write(t, "table.yaml", "plugins:\n  storage:\n    memory:\n      other: 1\n      depth: {of: 1,\n              to: 2}\n")
	l, err = Load(Options{Mode: Broker, File: file})
	require.NoError(t, err)
	require.ErrorContains(t, l.Config.PluginError("storage", "memory", errors.New("depth is a table")), "table.yaml:5: depth")
	require.NoError(t, l.Config.PluginError("storage", "commitlog", nil))
	cause := errors.New("x")
	require.Equal(t, cause, (&Config{}).PluginError("storage", "commitlog", cause), "nothing is known of places")
}
