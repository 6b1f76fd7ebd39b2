package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rocketMQKey is a key of an Apache broker or name server.
type rocketMQKey struct{ class, versions, name string }

func rocketMQKeys(t *testing.T) []rocketMQKey {
	t.Helper()
	b, err := os.ReadFile("testdata/rocketmq-keys.txt")
	require.NoError(t, err)
	var keys []rocketMQKey
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 4 && f[0] != "#" {
			keys = append(keys, rocketMQKey{f[0], f[2], f[3]})
		}
	}
	return keys
}

// TestRocketMQKeysAreKnown: none is unknown.
func TestRocketMQKeysAreKnown(t *testing.T) {
	fields := map[string]int{}
	for _, k := range rocketMQKeys(t) {
		_, err := Explain(k.name)
		require.NoError(t, err)
		for v := range strings.SplitSeq(k.versions, "+") {
			fields[v+" "+k.class]++
		}
	}
	for what, n := range map[string]int{
		"5.3.3 BrokerConfig": 199, "5.3.3 MessageStoreConfig": 182, "5.3.3 NettyServerConfig": 18, "5.3.3 NettyClientConfig": 20, "5.3.3 NamesrvConfig": 22,
		"4.9.8 BrokerConfig": 81, "4.9.8 MessageStoreConfig": 78, "4.9.8 NettyServerConfig": 14, "4.9.8 NettyClientConfig": 14, "4.9.8 NamesrvConfig": 7,
	} {
		require.GreaterOrEqual(t, fields[what], n, what)
	}
}

// formed are values of keys whose text has a form.
var formed = map[string]string{"deleteWhen": "02", "metricsLabel": "az:z1,rack:r2", "metricsGrpcExporterTarget": "collector:4317", "metricsGrpcExporterHeader": "tenant:a"}

// otherValue is one that somebody may have written in a file of RocketMQ's: allowed
// there, and not the default.
func otherValue(k Key) string {
	switch {
	case formed[k.Name] != "":
		return formed[k.Name]
	case k.Type == Bool:
		return strconv.FormatBool(k.Default != "true")
	case len(k.Words) > 0 && (k.Type == Enum || k.Type == Int):
		i := slices.IndexFunc(k.Words, func(w string) bool { return w != k.Default && !slices.Contains(k.Harmless, w) })
		return k.Words[i]
	case slices.Contains([]Type{Int, Size, Duration, Float}, k.Type):
		n, err := strconv.ParseFloat(k.Default, 64)
		if err != nil {
			n = float64(k.Min) // the default has a unit of ours
		}
		if n++; k.limited() && int64(n) > k.Max {
			n -= 2
		}
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	switch k.Type {
	case Address:
		return "192.0.2.1"
	case Addresses:
		return "192.0.2.1:9876;192.0.2.2:9876"
	case Delays:
		return "1s 2s 3s"
	case Path:
		return "/var/lib/other"
	}
	return "other"
}

// TestEveryKeyOfABrokerConf: a file of an Apache broker or name server that sets every
// key there is to something else than its default is answered key by key: the value is
// taken, or it is said at its line why it has no effect, or it is refused at its line
// with the reason. Nothing is lost in silence.
func TestEveryKeyOfABrokerConf(t *testing.T) {
	for mode, classes := range map[Mode][]string{
		Broker:  {"BrokerConfig", "BrokerIdentity", "MessageStoreConfig", "NettyServerConfig", "NettyClientConfig", "AuthConfig", "-"},
		Namesrv: {"NamesrvConfig", "NettyServerConfig", "-"},
	} {
		t.Run(mode.String(), func(t *testing.T) {
			var text strings.Builder
			keys, seen := []Key{{}}, map[string]bool{} // by line, from 1
			for _, r := range rocketMQKeys(t) {
				k, err := Explain(r.name)
				require.NoError(t, err)
				if !slices.Contains(classes, r.class) || seen[k.Name] {
					continue
				}
				seen[k.Name] = true
				value := otherValue(k)
				if k.Name == keyTLSFile { // which is read
					value = filepath.ToSlash(write(t, "tls.properties", ""))
				}
				fmt.Fprintf(&text, "%s=%s\n", r.name, value)
				keys = append(keys, k)
			}
			require.Greater(t, len(keys), 50)

			refused := map[int]bool{}
			_, err := loadText(t, mode, "apache.conf", text.String())
			for _, e := range faults(t, err) {
				require.ErrorIs(t, e, ErrRefused, "%v", e)
				require.NotEmpty(t, e.Reason, e.Key)
				require.Equal(t, keys[e.Source.Line].Name, e.Key)
				require.Contains(t, e.Error(), fmt.Sprintf("apache.conf:%d: ", e.Source.Line))
				refused[e.Source.Line] = true
			}
			for line, k := range keys[1:] {
				if k.Status == Refused {
					require.True(t, refused[line+1], "%s is refused, and this value was not", k.Name)
				}
			}

			// Without those lines it loads. They stay as empty ones, so that numbers stay.
			var rest strings.Builder
			n := 0
			for line := range strings.Lines(text.String()) {
				if n++; refused[n] {
					line = "\n"
				}
				rest.WriteString(line)
			}
			l, err := loadText(t, mode, "apache.conf", rest.String())
			require.NoError(t, err)
			warned := map[int]bool{}
			for _, w := range l.Warnings {
				if w.Source.Kind == FromFile {
					require.NotEmpty(t, w.Text)
					warned[w.Source.Line] = true
				}
			}
			for i, k := range keys[1:] {
				line := i + 1
				if refused[line] {
					continue
				}
				if k.Status == Ignored || k.Applies&mode == 0 {
					require.True(t, warned[line], "%s has no effect, and nothing says so", k.Name)
					require.NotEmpty(t, k.Reason+k.Applies.String())
					continue
				}
				require.Equal(t, line, l.Origin(k.Name).Line, k.Name)
			}
		})
	}
}
