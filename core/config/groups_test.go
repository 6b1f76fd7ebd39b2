package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hardpointmq/hardpoint/internal/hosttest"
)

// groupFiles writes files named a.conf, b.conf, … with these texts and returns their
// paths.
func groupFiles(t *testing.T, texts ...string) []string {
	t.Helper()
	dir := t.TempDir()
	paths := make([]string, len(texts))
	for i, text := range texts {
		paths[i] = filepath.Join(dir, string(rune('a'+i))+".conf")
		require.NoError(t, os.WriteFile(paths[i], []byte(text), 0o600))
	}
	return paths
}

const (
	groupA = "brokerName=a\nlistenPort=10911\nstorePathRootDir=/nowhere/a/store\ndata=/nowhere/a\n"
	groupB = "brokerName=b\nlistenPort=10931\nstorePathRootDir=/nowhere/b/store\ndata=/nowhere/b\n"
)

func TestGroups(t *testing.T) {
	files := groupFiles(t, groupA+"adminListen=off\n", groupB+"flushDiskType=SYNC_FLUSH\nlogLevel=debug\n")
	all, err := LoadGroups(Options{Mode: Broker, Env: []string{"HARDPOINT_FILE_RESERVED_TIME=12"}}, files...)
	require.NoError(t, err)
	require.Len(t, all, 2)
	for i, l := range all {
		c := l.Config
		require.Equal(t, files[i], l.File)
		require.Equal(t, string(rune('a'+i)), c.Broker.Name)
		require.Equal(t, AdminOff, c.Node.AdminListen, "of the process, wherever it is set")
		require.Equal(t, files[0]+":5", l.Origin("adminListen").String())
		require.Equal(t, "debug", c.Node.LogLevel)
		require.EqualValues(t, 12, c.Retention.FileReservedTime.Hours(), "the environment is all groups'")
	}
	require.Equal(t, AsyncFlush, all[0].Config.Store.FlushDiskType)
	require.Equal(t, SyncFlush, all[1].Config.Store.FlushDiskType)

	by := parseFlags(t, "--config", files[0], "--config", files[1])
	all, err = LoadGroups(Options{Mode: Standalone, Flags: by})
	require.NoError(t, err)
	require.Len(t, all, 2)
	_, err = Load(Options{Mode: Broker, Flags: by})
	require.ErrorContains(t, err, "one configuration file too many")
	_, err = LoadGroups(Options{Mode: Namesrv, Flags: by})
	require.ErrorContains(t, err, "a namesrv has none")
}

func TestGroupsOfOneFileOrNone(t *testing.T) {
	all, err := LoadGroups(Options{Mode: Broker, Hostname: "h"})
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Empty(t, all[0].File)
	file := groupFiles(t, groupA)[0]
	all, err = LoadGroups(Options{Mode: Broker, Env: []string{"HARDPOINT_CONFIG=" + file}})
	require.NoError(t, err)
	require.Equal(t, file, all[0].File)
}

// What two groups share is said with both places.
func TestGroupsThatContradict(t *testing.T) {
	for name, test := range map[string]struct {
		a, b string
		env  []string
		says []string // with A and B for the files
	}{
		"same port":        {groupA, "brokerName=b\ndata=/nowhere/b\nlistenPort=10911\n", nil, []string{`B:3: listen = ":10911": contradiction: it is also listen at A:2`}},
		"port of the VIP":  {groupA, "brokerName=b\ndata=/nowhere/b\nlistenPort=10909\n", nil, []string{`B:3: listen = ":10909": contradiction: it is also vipChannel of A, by default`}},
		"other listener":   {groupA + "moreListeners=remoting://:10931\n", groupB, nil, []string{`B:2: listen = ":10931": contradiction: it is also moreListeners at A:5`}},
		"same directory":   {groupA, "brokerName=b\nlistenPort=10931\ndata=/nowhere/x/../a\nstorePathRootDir=/nowhere/x/../a/s\n", nil, []string{`B:3: data = "/nowhere/x/../a": contradiction: it is also data at A:4`}},
		"same store":       {groupA, "brokerName=b\nlistenPort=10931\ndata=/nowhere/b\nstorePathRootDir=/nowhere/a/store\n", nil, []string{`B:4: storePathRootDir = "/nowhere/a/store": contradiction: it is also storePathRootDir at A:3`}},
		"default data":     {"brokerName=a\n", "brokerName=b\nlistenPort=10931\n", nil, []string{`B: data = "./data": contradiction: it is the default, of A as well`}},
		"same name":        {groupA, "brokerName=a\nlistenPort=10931\ndata=/nowhere/b\n", nil, []string{`B:1: brokerName = "a": contradiction: it is also brokerName at A:1`}},
		"by environment":   {"data=/nowhere/a\n", "listenPort=10931\ndata=/nowhere/b\n", []string{"HARDPOINT_BROKER_NAME=x"}, []string{`environment variable HARDPOINT_BROKER_NAME: brokerName = "x": contradiction: it holds for A and B`}},
		"the process's":    {groupA + "logLevel=info\n", groupB + "logLevel=debug\n", nil, []string{`B:5: logLevel = "debug": contradiction: at A:5 it is info, and it belongs to the whole process`}},
		"its default":      {groupA, "brokerName=b\nlistenPort=10921\ndata=/nowhere/b\n", nil, []string{`B: adminListen = "127.0.0.1:10919": contradiction: the port is also that of vipChannel`}},
		"admin port":       {groupA, groupB + "adminListen=127.0.0.1:10911\n", nil, []string{`B:5: adminListen = "127.0.0.1:10911": contradiction: the port is also that of listen`}},
		"faults of each":   {"brokerNam=a\n", "listenPort=x\n", []string{"HARDPOINT_BROKER_ID=x"}, []string{`A:1: unknown key`, `B:1: listenPort`, "HARDPOINT_BROKER_ID: brokerId"}},
		"the same spelled": {groupA + "logLevel=INFO\ndrainTimeout=10000\n", groupB + "logLevel=info\ndrainTimeout=10s\n", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			files := groupFiles(t, test.a, test.b)
			_, err := LoadGroups(Options{Mode: Broker, Hostname: "h", Env: test.env}, files...)
			if test.says == nil {
				require.NoError(t, err)
				return
			}
			require.Len(t, faults(t, err), len(test.says), "%v", err)
			for _, want := range test.says {
				require.Contains(t, placed(err.Error(), files), want)
			}
		})
	}
	t.Run("one file twice", func(t *testing.T) {
		files := groupFiles(t, groupA)
		_, err := LoadGroups(Options{Mode: Broker}, files[0], filepath.Join(filepath.Dir(files[0]), ".", "a.conf"))
		require.Contains(t, fault(t, err).Error(), "it is given twice")
	})
	t.Run("one directory by two names", func(t *testing.T) {
		dir := t.TempDir()
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(dir, link); err != nil {
			hosttest.Refused(t, "a symbolic link cannot be made here: %v", err)
		}
		files := groupFiles(t, "brokerName=a\ndata="+filepath.ToSlash(dir)+"\n", "brokerName=b\nlistenPort=10931\ndata="+filepath.ToSlash(link)+"\n")
		_, err := LoadGroups(Options{Mode: Broker}, files...)
		require.ErrorContains(t, err, "two broker groups cannot keep their data in one directory")
	})
	t.Run("name server beside them", func(t *testing.T) {
		files := groupFiles(t, groupA, groupB+"namesrvListen=:10911\n")
		_, err := LoadGroups(Options{Mode: Standalone}, files...)
		require.Contains(t, placed(fault(t, err).Error(), files), `B:5: namesrvListen = ":10911": contradiction: the port is also that of listen`)
	})
}

// placed is text with A and B for the two files.
func placed(text string, files []string) string {
	for i, f := range files {
		text = strings.ReplaceAll(text, f, string(rune('A'+i)))
	}
	return text
}
