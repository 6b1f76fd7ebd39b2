package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDefaults(t *testing.T) {
	for _, mode := range []Mode{Broker, Namesrv, Standalone} {
		l, err := Load(Options{Mode: mode, Hostname: "host1"})
		require.NoError(t, err, mode)
		c := l.Config
		require.Equal(t, ":10911", c.Network.Listen)
		require.Equal(t, ":9876", c.Namesrv.Listen)
		require.Equal(t, "host1", c.Broker.Name)
		require.Equal(t, AsyncMaster, c.Broker.Role)
		require.Equal(t, AsyncFlush, c.Store.FlushDiskType)
		require.EqualValues(t, 1<<30, c.Store.SegmentSize)
		require.EqualValues(t, 4<<20, c.Broker.MaxMessageSize)
		require.Equal(t, 120*time.Second, c.Network.IdleTimeout)
		require.Equal(t, filepath.Join("data", "store"), c.Store.RootDir)
		require.Empty(t, c.StoreRaw())
		require.Empty(t, c.Broker.NamesrvAddrs)
		require.Equal(t, Source{}, l.Origin("listen"))
	}
}

// Every layer overrides the one before, and the origin says which one won.
func TestLayers(t *testing.T) {
	file := write(t, "broker.conf", "brokerName=fromFile\nbrokerClusterName=fromFile\nflushDiskType=SYNC_FLUSH\nregionId=fromFile\n")
	env := []string{"HARDPOINT_BROKER_NAME=fromEnv", "HARDPOINT_BROKER_CLUSTER_NAME=fromEnv", "PATH=/bin", "HARDPOINT_PLUGIN_COOKIE=x"}
	l, err := Load(Options{Mode: Broker, File: file, Env: env, Flags: parseFlags(t, "--set", "brokerName=fromFlag", "--listen", "10.0.0.1:20911")})
	require.NoError(t, err)
	require.Equal(t, "fromFlag", l.Config.Broker.Name)
	require.Equal(t, "fromEnv", l.Config.Broker.ClusterName)
	require.Equal(t, "fromFile", l.Config.Broker.RegionID)
	require.Equal(t, SyncFlush, l.Config.Store.FlushDiskType)
	require.Equal(t, "flag --set brokerName", l.Origin("brokerName").String())
	require.Equal(t, "environment variable HARDPOINT_BROKER_CLUSTER_NAME", l.Origin("brokerClusterName").String())
	require.Equal(t, file+":3", l.Origin("flushDiskType").String())
	require.Equal(t, "flag --listen", l.Origin("listen").String())
	require.Equal(t, "default", l.Origin("brokerRole").String())
}

func TestFileChoice(t *testing.T) {
	a, b := write(t, "a.yaml", "brokerName: a\n"), write(t, "b.yaml", "brokerName: b\n")
	env := []string{"HARDPOINT_CONFIG=" + a}
	l, err := Load(Options{Env: env})
	require.NoError(t, err)
	require.Equal(t, "a", l.Config.Broker.Name)
	l, err = Load(Options{Env: env, Flags: parseFlags(t, "--config", b)})
	require.NoError(t, err)
	require.Equal(t, "b", l.Config.Broker.Name)
	require.Equal(t, b, l.File)

	for name, want := range map[string]string{"missing.yaml": "does not exist", "broker.ini": "end of the name"} {
		_, err := Load(Options{File: filepath.Join(t.TempDir(), name)})
		e := fault(t, err)
		require.ErrorIs(t, e, ErrFile)
		require.ErrorContains(t, e, want)
		require.ErrorContains(t, e, name)
	}
	_, err = Load(Options{File: write(t, "big.conf", strings.Repeat("# comment\n", largestFile/8))})
	require.ErrorIs(t, fault(t, err), ErrFile)
}

// The same values in the three forms give the same configuration.
func TestForms(t *testing.T) {
	forms := map[string]string{
		"c.yaml": "# c\nlisten: 10.0.0.1:20911\nautoCreateTopicEnable: FALSE\nmappedFileSizeCommitLog: 64MiB\nflushIntervalCommitLog: 2s\n" +
			"namesrvAddr:\n  - a:9876\n  - '[::1]:9876'\nmoreListeners: ['acme://a b', remoting://:0]\nstorePathCommitLog: /a b/c\nmessageDelayLevel: 1s 5s\n" +
			"plugins:\n  storage:\n    commitlog:\n      process: true\n      depth: 7\n      name: '8'\n      list: [1, x]\n",
		"c.toml": "listen = '10.0.0.1:20911'\nautoCreateTopicEnable = false\nmappedFileSizeCommitLog = 67_108_864\nflushIntervalCommitLog = 2000\n" +
			"namesrvAddr = [\n 'a:9876', # one\n \"[::1]:9876\"]\nmoreListeners = ['acme://a b', 'remoting://:0']\nstorePathCommitLog = \"/a b/c\"\nmessageDelayLevel = '1s 5s'\n" +
			"[plugins.storage]\ncommitlog = { process = true, depth = 7, name = '8', list = [1, 'x'] }\n",
		"c.conf": "listen=10.0.0.1:20911\nautoCreateTopicEnable=false\nmappedFileSizeCommitLog=67108864\nflushIntervalCommitLog=2000\n" +
			"namesrvAddr=a:9876;[::1]:9876\nmoreListeners = acme://a b; remoting://:0;\nstorePathCommitLog = /a b/c\nmessageDelayLevel=1s 5s\n" +
			"plugins.storage.commitlog.process=true\nplugins.storage.commitlog.depth=7\nplugins.storage.commitlog.name=\"8\"\n",
	}
	for name, text := range forms {
		l, err := loadText(t, Broker, name, text)
		require.NoError(t, err, name)
		c := l.Config
		require.Equal(t, "10.0.0.1:20911", c.Network.Listen, name)
		require.False(t, c.Topics.AutoCreateTopic, name)
		require.EqualValues(t, 64<<20, c.Store.SegmentSize, name)
		require.Equal(t, 2*time.Second, c.Store.FlushInterval, name)
		require.Equal(t, []string{"a:9876", "[::1]:9876"}, c.Broker.NamesrvAddrs, name)
		require.Equal(t, []ListenerConfig{{"acme", "a b"}, {"remoting", ":0"}}, c.Network.More(), name)
		require.Equal(t, []string{"remoting", "acme"}, c.Network.Transports(), name)
		require.Equal(t, "/a b/c", c.Store.CommitLogDir, name)
		require.Equal(t, "1s 5s", c.Store.MessageDelayLevel, name)
		require.Equal(t, map[string]any{"storePathCommitLog": "/a b/c"}, c.StoreRaw(), name)
		solo, err := c.PluginRaw("replication", "solo")
		require.NoError(t, err)
		require.JSONEq(t, `{"flushIntervalCommitLog":2000}`, string(solo), name)
		require.True(t, c.PluginProcess("storage", "commitlog"), name)
		require.True(t, c.Store.Process, name)
		raw, err := c.PluginRaw("storage", "commitlog")
		require.NoError(t, err)
		var got map[string]any
		require.NoError(t, json.Unmarshal(raw, &got))
		if name != "c.conf" {
			require.Equal(t, []any{1.0, "x"}, got["list"], name)
			delete(got, "list")
		}
		require.Equal(t, map[string]any{"storePathCommitLog": "/a b/c", "depth": 7.0, "name": "8"}, got, name)
	}
}

func TestPlugins(t *testing.T) {
	l, err := Load(Options{Env: []string{"HARDPOINT_PLUGINS__STORAGE__PEBBLE__CACHE_SIZE=1024", "HARDPOINT_STORAGE=pebble", "HARDPOINT_PLUGINS__ALLOCATE__MY_ONE__maxDepth=3"},
		Flags: parseFlags(t, "--storage-process", "--set", "plugins.storage.pebble.walDir=/w")})
	require.NoError(t, err)
	raw, err := l.Config.PluginRaw("storage", "pebble")
	require.NoError(t, err)
	require.JSONEq(t, `{"cacheSize":1024,"walDir":"/w"}`, string(raw))
	raw, err = l.Config.PluginRaw("allocate", "my_one")
	require.NoError(t, err)
	require.JSONEq(t, `{"maxDepth":3}`, string(raw))
	raw, err = l.Config.PluginRaw("storage", "commitlog")
	require.NoError(t, err)
	require.Nil(t, raw)
	require.True(t, l.Config.PluginProcess("storage", "pebble"))
	require.False(t, l.Config.PluginProcess("storage", "commitlog"))

	for text, want := range map[string]error{
		"plugins:\n  storge:\n    x:\n      a: 1\n":                 ErrUnknownKey,
		"plugins:\n  storage:\n    X-Y:\n      a: 1\n":              ErrSyntax,
		"plugins:\n  storage: 7\n":                                  ErrSyntax,
		"plugins.storage.x.a: 1\nplugins.storage.x.a.b: 2\n":        ErrConflict,
		"plugins:\n  storage:\n    x:\n      process: maybe\n":      ErrBadValue,
		"plugins.storage.x.a: 1\nplugins: {storage: {x: {a: 2}}}\n": ErrDuplicateKey,
	} {
		_, err := loadText(t, Broker, "c.yaml", text)
		require.ErrorIs(t, fault(t, err), want, text)
	}
}

// RocketMQ's ways to set parts of our keys.
func TestParts(t *testing.T) {
	broker := func(text string, args ...string) *Loaded {
		l, err := Load(Options{Mode: Broker, File: write(t, "broker.conf", text), Flags: parseFlags(t, args...)})
		require.NoError(t, err, text)
		return l
	}
	l := broker("listenPort=20911\nbrokerIP1=10.1.1.1\n")
	require.Equal(t, ":20911", l.Config.Network.Listen)
	require.Equal(t, "10.1.1.1", l.Config.Network.Advertise)
	require.Contains(t, l.Origin("listen").String(), "broker.conf:1")
	l = broker("listenPort=20911\nbindAddress=10.0.0.9\nbrokerIP1=10.1.1.1\n", "--listen", ":30911", "--advertise", "10.2.2.2:1")
	require.Equal(t, ":30911", l.Config.Network.Listen)
	require.Equal(t, "10.2.2.2:1", l.Config.Network.Advertise)
	l = broker("listen=10.0.0.9:1234\n", "--set", "listenPort=30911")
	require.Equal(t, "10.0.0.9:30911", l.Config.Network.Listen)
	l = broker("listen=:20911\nlistenPort=20911\nbindAddress=0.0.0.0\n")
	require.Equal(t, ":20911", l.Config.Network.Listen)

	_, err := loadText(t, Broker, "broker.conf", "listen=:20911\nlistenPort=30911\n")
	require.ErrorIs(t, fault(t, err), ErrConflict)
	require.ErrorContains(t, err, "broker.conf:2")
	require.ErrorContains(t, err, "broker.conf:1")
	_, err = loadText(t, Broker, "broker.conf", "advertise=10.0.0.1\nbrokerIP1=10.0.0.2\n")
	require.ErrorIs(t, fault(t, err), ErrConflict)
	_, err = loadText(t, Broker, "broker.conf", "bindAddress=10.0.0.300\n")
	require.ErrorIs(t, fault(t, err), ErrBadValue)

	l, err = loadText(t, Namesrv, "namesrv.conf", "listenPort=9877\nbindAddress=127.0.0.1\n")
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:9877", l.Config.Namesrv.Listen)
	l, err = Load(Options{Mode: Namesrv, Flags: parseFlags(t, "--listen", ":9999")})
	require.NoError(t, err)
	require.Equal(t, ":9999", l.Config.Namesrv.Listen)
	l, err = loadText(t, Namesrv, "n.conf", "brokerName=x\n")
	require.NoError(t, err)
	require.True(t, warned(l, "brokerName"))
}

// Who names a directory above a file never gets the file's store in silence.
func TestStorePaths(t *testing.T) {
	load := func(text string, env []string, args ...string) (*Loaded, error) {
		return Load(Options{Mode: Broker, File: write(t, "broker.conf", text), Env: env, Flags: parseFlags(t, args...)})
	}
	const root, log = "storePathRootDir=/orig/store\n", "storePathCommitLog=/orig/store/commitlog\n"
	for name, x := range map[string]struct {
		text string
		env  []string
		args []string
		want []string
	}{
		"data over the root":         {root, nil, []string{"--data", "/new"}, []string{"broker.conf:1", "storePathRootDir", "flag --data", "or write data = /new into ", "broker.conf, and the store stays"}},
		"variable over the root":     {root, []string{"HARDPOINT_DATA=/new"}, nil, []string{"broker.conf:1", "HARDPOINT_DATA"}},
		"data over the log":          {log, nil, []string{"--data", "/new"}, []string{"storePathCommitLog", "flag --data"}},
		"root over the log":          {root + log, nil, []string{"--set", "storePathRootDir=/copy"}, []string{"broker.conf:2", "storePathCommitLog", "flag --set storePathRootDir"}},
		"a name that begins so":      {root, nil, []string{"--data", "/ori"}, []string{"storePathRootDir"}},
		"data and root over the log": {log, nil, []string{"--data", "/new", "--set", "storePathRootDir=/new/store"}, []string{"storePathCommitLog"}},
	} {
		_, err := load(x.text, x.env, x.args...)
		e := fault(t, err)
		require.ErrorIs(t, e, ErrConflict, name)
		for _, w := range x.want {
			require.ErrorContains(t, e, w, name)
		}
	}
	for name, x := range map[string]struct {
		text string
		args []string
		want string
	}{
		"both in the file":    {"data=/new\n" + root + log, nil, "/orig/store"},
		"said where data is":  {root, []string{"--data", "/new", "--set", "storePathRootDir=/orig/store"}, "/orig/store"},
		"inside of data":      {root + log, []string{"--data", "/orig"}, "/orig/store"},
		"data of the file":    {"data=/new\n", []string{"--set", "storePathRootDir=/copy"}, "/copy"},
		"nothing in the file": {"", []string{"--data", "/new"}, "/new/store"},
		"empty in the file":   {"storePathRootDir=\n", []string{"--data", "/new"}, "/new/store"},
	} {
		l, err := load(x.text, nil, x.args...)
		require.NoError(t, err, name)
		require.Equal(t, x.want, l.Config.Store.RootDir, name)
	}
}

// A broker.conf that names no directory means the home directory to RocketMQ: with a store
// there none is begun elsewhere in silence.
func TestApacheHome(t *testing.T) {
	home, empty := t.TempDir(), t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(home, "store", "commitlog"), 0o755))
	variable := "HOME="
	if runtime.GOOS == "windows" {
		variable = "USERPROFILE="
	}
	const text = "brokerName=a\n"
	for name, x := range map[string]struct {
		mode       Mode
		file, text string
		home       string
		args       []string
		refused    bool
	}{
		"a store is there":     {Broker, "broker.conf", text, home, nil, true},
		"of a standalone":      {Standalone, "broker.properties", text, home, nil, true},
		"empty in the file":    {Broker, "broker.conf", text + "storePathRootDir=\n", home, nil, true},
		"no store there":       {Broker, "broker.conf", text, empty, nil, false},
		"no home":              {Broker, "broker.conf", text, "", nil, false},
		"named":                {Broker, "broker.conf", text + "storePathRootDir=/x\n", home, nil, false},
		"named by a flag":      {Broker, "broker.conf", text, home, []string{"--set", "storePathRootDir=/x"}, false},
		"data is named":        {Broker, "broker.conf", text, home, []string{"--data", "/x"}, false},
		"another store":        {Broker, "broker.conf", text, home, []string{"--storage", "memory"}, false},
		"not a file of theirs": {Broker, "broker.yaml", "brokerName: a\n", home, nil, false},
		"of a name server":     {Namesrv, "namesrv.conf", "listenPort=9876\n", home, nil, false},
	} {
		l, err := Load(Options{Mode: x.mode, File: write(t, x.file, x.text), Env: []string{variable + x.home}, Flags: parseFlags(t, x.args...)})
		if !x.refused {
			require.NoError(t, err, name)
			continue
		}
		require.Nil(t, l, name)
		e := fault(t, err)
		require.ErrorIs(t, e, ErrRefused, name)
		require.ErrorContains(t, e, "set storePathRootDir="+filepath.Join(home, "store"), name)
		_, err = Load(Options{Mode: x.mode, File: write(t, x.file, x.text), Env: []string{variable + x.home}, Flags: parseFlags(t, x.args...), NoStore: true})
		require.NoError(t, err, name)
	}
}

// A pipe without a writer or a device without an end is no configuration.
func TestFileIsRegular(t *testing.T) {
	device := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.Symlink(os.DevNull, device))
	_, err := Load(Options{File: device})
	require.ErrorIs(t, fault(t, err), ErrFile)
	require.ErrorContains(t, err, "no regular file")
}

// What a configuration must never lose in silence.
func TestRefused(t *testing.T) {
	for _, text := range []string{
		"aclEnable=true", "authenticationEnabled=true", "authorizationEnabled = TRUE ", "authConfigPath=/x", "storeType=defaultRocksDB",
		"enableDLegerCommitLog=true", "dLegerGroup=g", "dLegerPeers=n0-a:1", "isEnableBatchPush=true", "enableControllerMode=true", "controllerAddr=a:9878",
		"controllerHeartBeatTimeoutMills=5000", "enableSlaveActingMaster=true", "enableRemoteEscape=true", "inSyncReplicas=2", "totalReplicas=3",
		"brokerRole=SYNC_MASTER", "brokerRole=SLAVE", "brokerId=1", "storePathCommitLog=/a,/b", "readOnlyCommitLogStorePaths=/a", "autoMessageVersionOnTopicLen=false",
	} {
		for name, l := range map[string]func() (*Loaded, error){
			"file": func() (*Loaded, error) { return loadText(t, Broker, "broker.conf", text+"\n") },
			"flag": func() (*Loaded, error) { return Load(Options{Mode: Broker, Flags: parseFlags(t, "--set", text)}) },
		} {
			_, err := l()
			e := fault(t, err)
			require.ErrorIs(t, e, ErrRefused, "%s %s", name, text)
			require.NotEmpty(t, e.Reason)
			require.NotEqual(t, Source{}, e.Source)
		}
	}
	l, err := loadText(t, Broker, "broker.conf", strings.Join([]string{"aclEnable=false", "storeType=default", "enableDLegerCommitLog=false", "enableControllerMode=false",
		"controllerAddr=", "dLegerGroup=", "controllerHeartBeatTimeoutMills=10000", "inSyncReplicas=1", "brokerRole=ASYNC_MASTER", "brokerId=0", "namesrvAddr=a:1",
		"tls.server.mode=disabled", "authenticationEnabled=false"}, "\n"))
	require.NoError(t, err)
	require.Empty(t, l.Warnings)

	_, err = loadText(t, Broker, "broker.conf", "initAuthenticationUser=hunter2\n")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hunter2")
}

func TestIgnoredKeysWarn(t *testing.T) {
	l, err := loadText(t, Broker, "broker.conf", "namesrvAddr=a:1\nsendMessageThreadPoolNums=4\nenablePropertyFilter=true\nredeleteHangedFileInterval=48\nmapedFileSizeCommitLog=102400\n")
	require.NoError(t, err)
	require.Len(t, l.Warnings, 5)
	for _, key := range []string{"sendMessageThreadPoolNums", "enablePropertyFilter", "redeleteHangedFileInterval", "mapedFileSizeCommitLog", "mappedFileSizeCommitLog"} {
		require.True(t, warned(l, key), key)
	}
	require.EqualValues(t, 102400, l.Config.Store.SegmentSize)
	require.Contains(t, l.Warnings[0].String(), "broker.conf:2: sendMessageThreadPoolNums: has no effect: ")

	_, err = loadText(t, Broker, "broker.conf", "sendMessageThreadPoolNums=four\n") // checked all the same
	require.ErrorIs(t, fault(t, err), ErrBadValue)
	l, err = loadText(t, Broker, "broker.conf", "storage=pebble\nmaxIndexNum=7\nmappedFileSizeCommitLog=64MiB\n")
	require.NoError(t, err)
	require.True(t, warned(l, "maxIndexNum"))
	require.False(t, warned(l, "mappedFileSizeCommitLog"))
	require.Empty(t, l.Config.StoreRaw())
}

func TestRulesBetweenKeys(t *testing.T) {
	for text, want := range map[string]string{
		"maxMessageSize=16MiB":                               "maxFrameSize",
		"maxBytesInFlight=1MiB":                              "could never be read",
		"maxPendingBytes=4MiB":                               "must be at least 4259840 for messages of up to maxMessageSize, which is 4MiB",
		"maxHeaderSize=16MiB\nmaxFrameSize=8MiB":             "maxHeaderSize",
		"pluginBackoffFirst=31s":                             "must not exceed pluginBackoffMost, which is 30s",
		"pluginBackoffMost=0":                                "pluginBackoffMost",
		"pluginBreakerDeaths=-1":                             "pluginBreakerDeaths",
		"pluginStartTimeout=999":                             "pluginStartTimeout",
		"listen=:9876":                                       "namesrvListen",
		"adminListen=:10911":                                 "adminListen",
		"listen=:9878":                                       "vipChannel",
		"brokerName=a b":                                     "brokerName",
		"storage=No-Store":                                   "storage",
		"brokerClusterName=" + strings.Repeat("x", 128) + "": "127",
	} {
		_, err := loadText(t, Standalone, "c.conf", text)
		require.ErrorContains(t, fault(t, err), want, text)
	}
	for _, text := range []string{"listen=127.0.0.1:9876\nnamesrvListen=127.0.0.2:9876", "listen=:0\nnamesrvListen=:0\nadminListen=off", "maxMessageSize=16MiB\nmaxFrameSize=32MiB"} {
		_, err := loadText(t, Standalone, "c.conf", text)
		require.NoError(t, err, text)
	}
	l, err := loadText(t, Standalone, "c.conf", "adminListen=0.0.0.0:8000\nwarmMapedFileEnable=true\nmappedFileSizeCommitLog=102400")
	require.NoError(t, err)
	require.True(t, warned(l, "adminListen"))
	require.True(t, warned(l, "warmMapedFileEnable"))
	require.True(t, warned(l, "mappedFileSizeCommitLog"))
}

func TestShow(t *testing.T) {
	l, err := loadText(t, Broker, "c.yaml", "flushDiskType: SYNC_FLUSH\naclEnable: false\nplugins: {storage: {x: {password: hunter2, process: true, peers: [{token: t0ken, at: a}]}}}\n")
	require.NoError(t, err)
	rows := map[string]Row{}
	for _, r := range l.Show() {
		require.NotContains(t, rows, r.Key)
		rows[r.Key] = r
	}
	require.Equal(t, "SYNC_FLUSH", rows["flushDiskType"].Value)
	require.False(t, rows["flushDiskType"].Default)
	require.Equal(t, 1, rows["flushDiskType"].Source.Line)
	require.Equal(t, Row{"mappedFileSizeCommitLog", "1GiB", true, Source{}}, rows["mappedFileSizeCommitLog"])
	require.Equal(t, "2m", rows["serverChannelMaxIdleTimeSeconds"].Value)
	require.Equal(t, redacted, rows["plugins.storage.x.password"].Value)
	require.Equal(t, "true", rows["plugins.storage.x.process"].Value)
	require.Equal(t, "[map[at:a token:(hidden)]]", rows["plugins.storage.x.peers"].Value)
	require.Contains(t, rows, "aclEnable")
	require.NotContains(t, rows, "listenPort")
	require.NotContains(t, rows, "namesrvListen")
}

// The parts of a standalone process have their own keys; a common one is of both.
func TestAs(t *testing.T) {
	l, err := Load(Options{Env: []string{"HARDPOINT_LISTEN=127.0.0.1:1", "HARDPOINT_NAMESRV_LISTEN=127.0.0.1:2"}})
	require.NoError(t, err)
	names, broker := l.As(Namesrv), l.As(Broker)
	for of, own := range map[*Loaded][3]string{names: {"listenPort=2\n", "orderMessageEnable=false\n", "flushDiskType"}, broker: {"listenPort=1\n", "flushDiskType=ASYNC_FLUSH\n", "orderMessageEnable"}} {
		text := string(of.Properties())
		require.Contains(t, text, own[0])
		require.Contains(t, text, own[1])
		require.NotContains(t, text, own[2])
		require.Contains(t, text, "logLevel=info\n")
		_, changes, err := of.Update([]byte(text))
		require.NoError(t, err)
		require.Empty(t, changes)
	}
	_, _, err = broker.Update([]byte("orderMessageEnable=true"))
	require.ErrorIs(t, fault(t, err), ErrNotReloadable)
	_, _, err = names.Update([]byte("traceOn=false"))
	require.ErrorIs(t, fault(t, err), ErrNotReloadable)
	next, changes, err := names.Update([]byte("orderMessageEnable=true"))
	require.NoError(t, err)
	require.Len(t, changes, 1)
	require.NotContains(t, string(next.Properties()), "flushDiskType", "still that part")
}

func TestUpdate(t *testing.T) {
	l, err := loadText(t, Broker, "broker.conf", "listenPort=20911\nautoCreateTopicEnable=true\n")
	require.NoError(t, err)
	n, changes, err := l.Update([]byte("autoCreateTopicEnable=false \nmaxMessageSize=1048576\nlistenPort=20911\nflushDiskType=ASYNC_FLUSH\nsendMessageThreadPoolNums=9\n"))
	require.NoError(t, err)
	require.Equal(t, []Change{{"maxMessageSize", "4MiB", "1MiB"}, {"autoCreateTopicEnable", "true", "false"}}, changes)
	require.False(t, n.Config.Topics.AutoCreateTopic)
	require.EqualValues(t, 1<<20, n.Config.Broker.MaxMessageSize)
	require.True(t, l.Config.Topics.AutoCreateTopic, "the old one stays")
	require.Equal(t, "update request line 1", n.Origin("autoCreateTopicEnable").String())
	require.Contains(t, n.Origin("listenPort").String(), "broker.conf:1")
	require.True(t, warned(n, "sendMessageThreadPoolNums"))
	require.Equal(t, ":20911", n.Config.Network.Listen)

	_, _, err = n.Update([]byte("flushDiskType=SYNC_FLUSH\nmaxMessageSize=none\nmaxMesageSize=1\nautoCreateTopicEnable=true\naclEnable=true\nlistenPort=1\nplugins.storage.x.a=1"))
	kinds := []error{ErrBadValue, ErrUnknownKey, ErrRefused, ErrNotReloadable, ErrNotReloadable, ErrNotReloadable}
	list := faults(t, err)
	require.Len(t, list, len(kinds))
	for i, k := range kinds {
		require.ErrorIs(t, list[i], k, list[i].Error())
	}
	require.False(t, n.Config.Topics.AutoCreateTopic, "all or nothing")
	_, _, err = n.Update([]byte("maxMessageSize=16MiB"))
	require.ErrorIs(t, fault(t, err), ErrConflict)

	props := string(n.Properties())
	require.Contains(t, props, "listenPort=20911\n")
	require.Contains(t, props, "maxMessageSize=1048576\n")
	require.Contains(t, props, "serverChannelMaxIdleTimeSeconds=120\n")
	require.Contains(t, props, "autoCreateTopicEnable=false\n")
	_, changes, err = n.Update(n.Properties())
	require.NoError(t, err, "its own output changes nothing")
	require.Empty(t, changes)
}

// Apache's broker and name server rewrite their files with every key at an
// update. Such files load, and what they say is kept.
func TestApacheFiles(t *testing.T) {
	l, err := Load(Options{Mode: Broker, File: "testdata/broker-5.3.3.conf"})
	require.NoError(t, err)
	require.Equal(t, "0.0.0.0:39911", l.Config.Network.Listen)
	require.Equal(t, "127.0.0.1", l.Config.Network.Advertise)
	require.Equal(t, "broker-a", l.Config.Broker.Name)
	require.Equal(t, "/var/lib/rocketmq/store", l.Config.Store.RootDir)
	require.Equal(t, []string{"127.0.0.1:39876"}, l.Config.Broker.NamesrvAddrs)
	require.Equal(t, 200*time.Millisecond, l.Config.Broker.SendWait)
	require.Equal(t, FromFile, l.Origin("maxMessageSize").Kind)
	require.NotEmpty(t, l.Warnings)

	l, err = Load(Options{Mode: Namesrv, File: "testdata/namesrv-5.3.3.conf"})
	require.NoError(t, err)
	require.Equal(t, "0.0.0.0:39876", l.Config.Namesrv.Listen)
	require.Equal(t, 5*time.Second, l.Config.Namesrv.ScanNotActiveBrokerInterval)
}

// Tools look for any of RocketMQ's keys.
func TestPropertiesHaveAllKeys(t *testing.T) {
	theirs, err := os.ReadFile("testdata/broker-5.3.3.conf")
	require.NoError(t, err)
	l, err := loadText(t, Broker, "broker.conf", "")
	require.NoError(t, err)
	ours := map[string]string{}
	for line := range strings.Lines(string(l.Properties())) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		require.True(t, ok, line)
		ours[name] = value
	}
	for line := range strings.Lines(string(theirs)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), "=")
		k, _ := keyTable().lookup(name)
		_, ok := ours[name]
		require.True(t, ok || k.Sets != "" || k.Secret, name) // parts of addresses that are not set
	}
	require.Equal(t, "104857600", ours["mappedFileSizeTimerLog"])
	require.Equal(t, "0", ours["pullMessageThreadPoolNums"], "there is no such pool")
	require.Equal(t, "permissive", ours["tls.server.mode"])
}
