package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Case BC-39 of public bug trackers: a trailing blank made "true " false and
// "168 " the default, a path was cut at its first blank, unknown keys vanished.
// Every row goes through every layer.
func TestBC39Values(t *testing.T) {
	rows := []struct {
		name, key, text string
		want            string // shown afterwards
		kind            error
		say             string
	}{
		{name: "blank behind a boolean", key: "traceTopicEnable", text: "true ", want: "true"},
		{name: "tab behind a boolean", key: "traceTopicEnable", text: "true\t", want: "true"},
		{name: "blank behind a number", key: "defaultTopicQueueNums", text: "16 ", want: "16"},
		{name: "tab behind a number", key: "defaultTopicQueueNums", text: "16 \t ", want: "16"},
		{name: "blank in front", key: "defaultTopicQueueNums", text: " 16", want: "16"},
		{name: "blank behind a path", key: "storePathRootDir", text: "/data/store ", want: "/data/store"},
		{name: "tab behind a path", key: "storePathRootDir", text: "/data/store\t", want: "/data/store"},
		{name: "blank inside a path", key: "storePathRootDir", text: "/my data/the store", want: "/my data/the store"},
		{name: "carriage return", key: "defaultTopicQueueNums", text: "16\r", want: "16"},
		{name: "TRUE", key: "traceTopicEnable", text: "TRUE", want: "true"},
		{name: "yes", key: "traceTopicEnable", text: "yes", kind: ErrBadValue, say: "true or false"},
		{name: "1 for a boolean", key: "traceTopicEnable", text: "1", kind: ErrBadValue, say: "true or false"},
		{name: "too long for an int", key: "defaultTopicQueueNums", text: "99999999999", kind: ErrBadValue, say: "from 1 to 65535"},
		{name: "too long for a long", key: "defaultTopicQueueNums", text: "99999999999999999999999", kind: ErrBadValue, say: "from 1 to 65535"},
		{name: "size overflows", key: "maxFrameSize", text: "9999999999GiB", kind: ErrBadValue, say: "from 64KiB to 1GiB"},
		{name: "duration overflows", key: "flushIntervalCommitLog", text: "9223372036854775807", kind: ErrBadValue, say: "from 1ms to 10m"},
		{name: "below the range", key: "defaultTopicQueueNums", text: "0", kind: ErrBadValue, say: "from 1 to 65535"},
		{name: "below the range of a duration", key: "registerNameServerPeriod", text: "9999", kind: ErrBadValue, say: "from 10s to 1m"},
		{name: "text for a number", key: "defaultTopicQueueNums", text: "eight", kind: ErrBadValue, say: "from 1 to 65535"},
		{name: "fraction", key: "defaultTopicQueueNums", text: "8.5", kind: ErrBadValue, say: "whole number"},
		{name: "empty number", key: "defaultTopicQueueNums", text: "", kind: ErrBadValue, say: "missing"},
		{name: "word of no list", key: "flushDiskType", text: "SYNC", kind: ErrBadValue, say: "ASYNC_FLUSH or SYNC_FLUSH"},
		{name: "word in lower case", key: "flushDiskType", text: "sync_flush", want: "SYNC_FLUSH"},
		{name: "address without port", key: "listen", text: "10.0.0.1", kind: ErrBadValue, say: "HOST:PORT"},
		{name: "not a port", key: "listen", text: ":70000", kind: ErrBadValue, say: "70000"},
		{name: "not an address", key: "listen", text: "10.0.0.300:1", kind: ErrBadValue, say: "10.0.0.300"},
		{name: "invalid UTF-8", key: "regionId", text: "a\xffb", kind: ErrEncoding, say: "UTF-8"},
		{name: "unknown, one letter wrong", key: "flushDiskTipe", text: "SYNC_FLUSH", kind: ErrUnknownKey, say: "flushDiskType"},
		{name: "unknown, two letters exchanged", key: "borkerName", text: "b", kind: ErrUnknownKey, say: "brokerName"},
	}
	layers := map[string]func(t *testing.T, key, text string) (*Loaded, error){
		"broker.conf": func(t *testing.T, key, text string) (*Loaded, error) {
			return loadText(t, Broker, "broker.conf", "# first\nbrokerName=b\n"+key+" = "+text+"\n")
		},
		"yaml": func(t *testing.T, key, text string) (*Loaded, error) {
			return loadText(t, Broker, "c.yaml", "# first\nbrokerName: b\n"+key+": "+yamlQuote(text)+"\n")
		},
		"toml": func(t *testing.T, key, text string) (*Loaded, error) {
			return loadText(t, Broker, "c.toml", "# first\nbrokerName = 'b'\n"+key+" = "+tomlQuote(text)+"\n")
		},
		"environment": func(_ *testing.T, key, text string) (*Loaded, error) {
			return Load(Options{Mode: Broker, Env: []string{"HARDPOINT_" + envName(key) + "=" + text}})
		},
		"flag --set": func(t *testing.T, key, text string) (*Loaded, error) {
			return Load(Options{Mode: Broker, Flags: parseFlags(t, "--set", key+"="+text)})
		},
	}
	for _, r := range rows {
		for layer, load := range layers {
			t.Run(r.name+"/"+layer, func(t *testing.T) {
				l, err := load(t, r.key, r.text)
				if r.kind == nil {
					require.NoError(t, err)
					require.Equal(t, r.want, shownValue(l, r.key))
					return
				}
				e := fault(t, err)
				require.ErrorIs(t, e, r.kind)
				if !(layer == "environment" && errors.Is(r.kind, ErrUnknownKey)) {
					require.ErrorContains(t, e, r.say)
				} else {
					require.ErrorContains(t, e, "HARDPOINT_"+envName(r.say), "the nearest variable")
				}
				switch layer {
				case "environment":
					require.ErrorContains(t, e, "environment variable HARDPOINT_"+envName(r.key))
				case "flag --set":
					require.ErrorContains(t, e, "flag --set "+r.key)
				default:
					require.Equal(t, 3, e.Source.Line, "%v", e)
				}
			})
		}
	}
}

func shownValue(l *Loaded, key string) string {
	for _, r := range l.Show() {
		if r.Key == key {
			return r.Value
		}
	}
	return "(not shown)"
}

// A quoted form of a text that holds anything, also invalid UTF-8.
func yamlQuote(s string) string {
	if s == "" {
		return ""
	}
	return `"` + strings.NewReplacer("\t", `\t`, "\r", `\r`).Replace(s) + `"`
}

func tomlQuote(s string) string {
	return `"` + strings.NewReplacer("\t", `\t`, "\r", `\r`).Replace(s) + `"`
}

// The same faults through an update of a running broker (updateBrokerConfig).
func TestBC39Update(t *testing.T) {
	l, err := Load(Options{Mode: Broker})
	require.NoError(t, err)
	n, changes, err := l.Update([]byte("autoCreateTopicEnable=false \t"))
	require.NoError(t, err)
	require.Equal(t, []Change{{"autoCreateTopicEnable", "true", "false"}}, changes)
	require.False(t, n.Config.Topics.AutoCreateTopic)
	for text, kind := range map[string]error{
		"autoCreateTopicEnable=yes":                   ErrBadValue,
		"defaultTopicQueueNums=99999999999":           ErrBadValue,
		"autoCreateTopicEnabel=false":                 ErrUnknownKey,
		"traceOn=true\ntraceOn=false":                 ErrDuplicateKey,
		"traceOn=tru\xff":                             ErrEncoding,
		"flushDiskType=SYNC_FLUSH":                    ErrNotReloadable,
		"just a text":                                 ErrUnknownKey,
		"autoCreateTopicEnable=\\u00":                 ErrSyntax,
		"brokerPermission=5":                          ErrBadValue,
		"maxTransferCountOnMessageInMemory=1 000":     ErrBadValue,
		"messageStorePlugIn=com.example.Wrapper\nx=1": ErrUnknownKey,
	} {
		_, _, err := l.Update([]byte(text))
		e := fault(t, err)
		require.ErrorIs(t, e, kind, text)
		require.Equal(t, FromRequest, e.Source.Kind)
		require.NotZero(t, e.Source.Line)
	}
}

// Trailing blanks without quotes, CRLF and a byte-order mark.
func TestBC39LineEnds(t *testing.T) {
	for name, text := range map[string]string{
		"broker.conf": "brokerName = b1 \r\ntraceTopicEnable=true \t\r\nstorePathRootDir=/my data/x \r\n",
		"c.yaml":      "brokerName: b1 \r\ntraceTopicEnable: true \t\r\nstorePathRootDir: /my data/x \r\n",
		"c.toml":      "brokerName = 'b1' \r\ntraceTopicEnable = true \t\r\nstorePathRootDir = '/my data/x ' \r\n",
	} {
		for _, mark := range []string{"", "\xEF\xBB\xBF"} {
			l, err := loadText(t, Broker, name, mark+text)
			require.NoError(t, err, name)
			require.Equal(t, "b1", l.Config.Broker.Name, name)
			require.True(t, l.Config.Topics.TraceTopic, name)
			require.Equal(t, "/my data/x", l.Config.Store.RootDir, name)
			require.Equal(t, 3, l.Origin("storePathRootDir").Line, name)
		}
	}
}

func TestBC39Duplicates(t *testing.T) {
	for name, text := range map[string]string{
		"broker.conf": "flushDiskType=SYNC_FLUSH\n\n# again\nflushDiskType=ASYNC_FLUSH\n",
		"c.yaml":      "flushDiskType: SYNC_FLUSH\n\n# again\nflushDiskType: ASYNC_FLUSH\n",
		"c.toml":      "flushDiskType = 'SYNC_FLUSH'\n\n# again\nflushDiskType = 'ASYNC_FLUSH'\n",
		"alias.conf":  "mappedFileSizeCommitLog=102400\n\n\nmapedFileSizeCommitLog=102400\n",
	} {
		_, err := loadText(t, Broker, name, text)
		e := fault(t, err)
		require.ErrorIs(t, e, ErrDuplicateKey, name)
		require.Equal(t, 4, e.Source.Line, name)
		require.Equal(t, 1, e.Earlier.Line, name)
		require.ErrorContains(t, e, name+":4")
		require.ErrorContains(t, e, name+":1")
	}
	_, err := Load(Options{Flags: parseFlags(t, "--listen", ":1000", "--set", "listen=:2000")})
	require.ErrorIs(t, fault(t, err), ErrDuplicateKey)
	_, err = Load(Options{Env: []string{"HARDPOINT_MAPED_FILE_SIZE_COMMIT_LOG=102400", "HARDPOINT_MAPPED_FILE_SIZE_COMMIT_LOG=102400"}})
	require.ErrorIs(t, fault(t, err), ErrDuplicateKey)
}

// One run reports everything, from all layers.
func TestAllErrorsAtOnce(t *testing.T) {
	file := write(t, "broker.conf", "brokerNam=b\nautoCreateTopicEnable=yes\naclEnable=true\nbrokerName=a\nbrokerName=b\ndefaultTopicQueueNums=99999999999\n")
	_, err := Load(Options{Mode: Broker, File: file, Env: []string{"HARDPOINT_LISTN=:1", "HARDPOINT_MAX_MESSAGE_SIZE=4MB"},
		Flags: parseFlags(t, "--listen", "nowhere", "--set", "novalue", "--storage-process=maybe")})
	list := faults(t, err)
	var kinds []error
	for _, e := range list {
		kinds = append(kinds, e.Kind)
		require.NotEqual(t, Source{}, e.Source, e.Error())
	}
	require.Equal(t, []error{ErrUnknownKey, ErrBadValue, ErrRefused, ErrDuplicateKey, ErrBadValue, ErrUnknownKey, ErrBadValue, ErrSyntax, ErrBadValue, ErrBadValue}, kinds, "%v", err)
	for _, want := range []string{"configuration has 10 errors", file + ":1: unknown key", file + ":5: brokerName is given twice; the first is at " + file + ":4",
		"HARDPOINT_LISTEN", "flag --listen: ", "flag --storage-process: ", "access control"} {
		require.ErrorContains(t, err, want)
	}
	for _, kind := range []error{ErrUnknownKey, ErrBadValue, ErrRefused, ErrDuplicateKey, ErrSyntax} {
		require.ErrorIs(t, err, kind)
	}
}
