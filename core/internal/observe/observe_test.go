package observe_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/enginetest"
	"github.com/hardpointmq/hardpoint/core/internal/metrics"
	"github.com/hardpointmq/hardpoint/core/internal/observe"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// series is one line of a scrape: name, labels without le, value.
type series struct {
	name   string
	labels map[string]string
	value  float64
	le     []float64
}

func (s series) String() string {
	var l []string
	for k, v := range s.labels {
		l = append(l, k+"="+v)
	}
	slices.Sort(l)
	return s.name + "{" + strings.Join(l, ",") + "}"
}

// scraped is what a registry tells, RocketMQ's names only, by String.
func scraped(t testing.TB, reg *prometheus.Registry) map[string]series {
	t.Helper()
	all, err := reg.Gather()
	require.NoError(t, err)
	out := map[string]series{}
	for _, f := range all {
		if !strings.HasPrefix(f.GetName(), "rocketmq_") {
			continue
		}
		for _, m := range f.Metric {
			s := series{name: f.GetName(), labels: map[string]string{}}
			for _, l := range m.Label {
				s.labels[l.GetName()] = l.GetValue()
			}
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				s.value = m.Counter.GetValue()
			case dto.MetricType_GAUGE:
				s.value = m.Gauge.GetValue()
			default:
				for _, b := range m.Histogram.Bucket {
					s.le = append(s.le, b.GetUpperBound())
				}
				s.value = float64(m.Histogram.GetSampleCount())
				out[s.String()+" sum"] = series{value: m.Histogram.GetSampleSum()}
			}
			out[s.String()] = s
		}
	}
	return out
}

type setup struct {
	*enginetest.Engine
	reg *prometheus.Registry
	c   *enginetest.Client
}

func start(t testing.TB, o enginetest.Options) setup {
	reg := prometheus.NewRegistry()
	o.Meter = metrics.New(reg)
	e := enginetest.Start(t, o)
	c := e.Connect(t)
	return setup{e, reg, c}
}

func (s setup) topic(t testing.TB, name string, queues int32) {
	require.NoError(t, s.K.Topics.Put(t.Context(), command.TopicConfig{TopicName: name, ReadQueueNums: queues, WriteQueueNums: queues, Perm: 6}))
}

func (s setup) send(t testing.TB, topic string, queue int32, props ...string) {
	t.Helper()
	r := s.c.Send(enginetest.Message{Topic: topic, Queue: queue, Body: "hello", Properties: enginetest.Props(props...)})
	require.Zero(t, r.Code, r.Remark)
}

const base = "cluster=DefaultCluster,"

// lag is the name of a lag metric of group G in topic T.
func lag(name string) string {
	return "rocketmq_consumer_" + name + "{" + base + "consumer_group=G,is_retry=false,is_system=false,node_id=broker-a,node_type=broker,topic=T}"
}

func TestTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, enginetest.Options{Usage: func(string) (vfs.Usage, error) { return vfs.Usage{Total: 1000, Free: 400, Available: 400}, nil }})
		s.topic(t, "T", 2)
		for range 3 {
			s.send(t, "T", 0)
		}
		s.send(t, "T", 1, message.PropShardingKey, "k")
		<-time.After(2 * time.Second)
		s.send(t, "T", 0)
		require.NotZero(t, s.c.Send(enginetest.Message{Topic: "T", Queue: 9, Body: "x"}).Code)
		require.Zero(t, s.c.Do(command.ReqHeartBeat, nil, s.c.Body(enginetest.Heartbeat("id", "G", 1, "T"))).Code)
		require.Len(t, s.c.Pull(enginetest.Pull("G", "T", 0, 0)).Records(), 4)
		s.K.Offsets.Commit("G", message.Queue{Topic: "T"}, 2)
		<-time.After(3 * time.Second)

		m := scraped(t, s.reg)
		value := func(want float64, name string) {
			t.Helper()
			got, ok := m[name]
			require.True(t, ok, "%s is missing in %v", name, slices.Sorted(maps.Keys(m)))
			require.InDelta(t, want, got.value, 0, name)
		}
		in := func(name, kind string) string {
			return "rocketmq_" + name + "{" + base + "is_system=false,message_type=" + kind + ",node_id=broker-a,node_type=broker,topic=T}"
		}
		out := func(name string) string {
			return "rocketmq_" + name + "{" + base + "consumer_group=G,is_system=false,node_id=broker-a,node_type=broker,topic=T}"
		}
		value(4, in("messages_in_total", "normal"))
		value(1, in("messages_in_total", "fifo"))
		value(4, in("message_size", "normal"))
		require.InDelta(t, m[in("throughput_in_total", "normal")].value, m[in("message_size", "normal")+" sum"].value, 0)
		require.Greater(t, m[in("throughput_in_total", "normal")].value, 4*100.0, "as stored")
		value(4, out("messages_out_total"))
		require.InDelta(t, m[in("throughput_in_total", "normal")].value, m[out("throughput_out_total")].value, 0)

		// Queue 0: 2 of 4 acknowledged, all handed out. Queue 1: nothing acknowledged, and
		// RocketMQ takes that for everything.
		value(2, lag("lag_messages"))
		value(2, lag("inflight_messages"))
		value(0, lag("ready_messages"))
		value(5000, lag("lag_latency_milliseconds"))
		value(0, lag("queueing_latency_milliseconds"))
		s.K.Offsets.Commit("G", message.Queue{Topic: "T", ID: 1}, 0)
		s.K.Offsets.Commit("G", message.Queue{Topic: "T"}, 3)
		<-time.After(time.Second)
		m = scraped(t, s.reg)
		value(2, lag("lag_messages"))
		value(1, lag("inflight_messages"))
		value(1, lag("ready_messages"))
		value(6000, lag("lag_latency_milliseconds"))
		value(6000, lag("queueing_latency_milliseconds"))

		rpc := func(request, response, long string) string {
			return "rocketmq_rpc_latency_milliseconds{" + base + "is_long_polling=" + long + ",node_id=broker-a,node_type=broker,protocol_type=remoting,request_code=" + request + ",response_code=" + response + ",result=success}"
		}
		value(5, rpc("send_message_v2", "success", "false"))
		value(1, rpc("send_message_v2", "invalid_parameter", "false"))
		value(1, rpc("heart_beat", "success", "false"))
		value(1, rpc("pull_message", "success", "false"))
		value(600, "rocketmq_storage_size_bytes{"+base+"node_id=broker-a,node_type=broker,storage_medium=disk,storage_type=local}")
		value(6, "rocketmq_broker_permission{"+base+"node_id=broker-a,node_type=broker}")
		value(1, "rocketmq_consumer_connections{"+base+"consume_mode=push,consumer_group=G,is_system=false,language=go,node_id=broker-a,node_type=broker,protocol_type=remoting,version=v5_3_3}")

		// A pull that waits for a message, and a code that nobody serves.
		wait := enginetest.Pull("G", "T", 1, 1)
		wait.SysFlag |= command.PullSuspend
		wait.SuspendTimeoutMillis = 60_000
		n := s.c.Begin(command.ReqPullMessage, wait.Append, nil)
		synctest.Wait()
		<-time.After(1500 * time.Millisecond)
		s.send(t, "T", 1)
		require.Zero(t, s.c.Wait(n).Code)
		require.Equal(t, command.RespRequestCodeNotSupported, s.c.Do(31_999, nil, nil).Code)
		require.Equal(t, command.RespRequestCodeNotSupported, s.c.Do(32_000, nil, nil).Code)
		s.c.Oneway(command.ReqHeartBeat, nil, s.c.Body(enginetest.Heartbeat("id", "G", 1, "T")))
		m = scraped(t, s.reg)
		value(1, rpc("pull_message", "success", "true"))
		value(1500, rpc("pull_message", "success", "true")+" sum")
		value(2, rpc("unknown", "request_code_not_supported", "false"))
		value(1, strings.Replace(rpc("heart_beat", "success", "false"), "result=success", "result=oneway", 1))

		// What is gone is not shown.
		require.NoError(t, s.K.Topics.Remove(t.Context(), "T"))
		<-time.After(time.Second)
		for name := range scraped(t, s.reg) {
			require.NotContains(t, name, "topic=T}")
		}
	})
}

func TestDeadLetters(t *testing.T) {
	s := start(t, enginetest.Options{})
	s.topic(t, "T", 1)
	s.send(t, "T", 0)
	got := s.c.Pull(enginetest.Pull("G", "T", 0, 0)).Records()
	require.Len(t, got, 1)
	for _, level := range []int32{0, -1} {
		h := command.SendBackRequest{Group: []byte("G"), Offset: int64(got[0].Position), DelayLevel: level, MaxReconsumeTimes: 16}
		r := s.c.Do(command.ReqConsumerSendMsgBack, h.Append, nil)
		require.Zero(t, r.Code, r.Remark)
	}
	m := scraped(t, s.reg)
	require.InDelta(t, 1, m["rocketmq_send_to_dlq_messages_total{"+base+"consumer_group=G,is_system=false,node_id=broker-a,node_type=broker,topic=T}"].value, 0, m)
	for _, topic := range []string{"%RETRY%G", "%DLQ%G"} {
		require.InDelta(t, 1, m["rocketmq_messages_in_total{"+base+"is_system=false,message_type=normal,node_id=broker-a,node_type=broker,topic="+topic+"}"].value, 0, topic)
	}
}

var line = regexp.MustCompile(`^(\w+?)(_bucket|_count|_sum)?\{(.*)\} \S+$`)

// TestAsApache compares names, labels and buckets with what an Apache broker 5.3.3
// printed (metricsExporterType=PROM, metricsLabel=az:z1,rack:r2), every series once.
func TestAsApache(t *testing.T) {
	text, err := os.ReadFile("testdata/apache-5.3.3.prom")
	require.NoError(t, err)
	labels, les := map[string][]string{}, map[string][]string{}
	for l := range strings.Lines(string(text)) {
		f := line.FindStringSubmatch(strings.TrimSpace(l))
		require.NotNil(t, f, l)
		name := f[1]
		var names []string
		for _, x := range regexp.MustCompile(`(\w+)="([^"]*)"`).FindAllStringSubmatch(f[3], -1) {
			switch {
			case x[1] == "le" && x[2] != "+Inf" && !slices.Contains(les[name], x[2]):
				les[name] = append(les[name], x[2])
			case x[1] != "le" && x[1] != "otel_scope_name": // the exporter's own
				names = append(names, x[1])
			}
		}
		slices.Sort(names)
		labels[name] = names
	}
	s := start(t, enginetest.Options{
		Usage: func(string) (vfs.Usage, error) { return vfs.Usage{Total: 1000, Free: 400, Available: 400}, nil },
		Observe: func(p *observe.Params) {
			p.Labels = []plugin.Label{{Name: "az", Value: "z1"}, {Name: "rack", Value: "r2"}}
			p.Oldest = func() int64 { return 1 }
		},
	})
	require.Zero(t, s.c.Do(command.ReqUpdateAndCreateTopic, newTopic("T").Append, nil).Code)
	s.send(t, "T", 0)
	require.Zero(t, s.c.Do(command.ReqHeartBeat, nil, s.c.Body(enginetest.Heartbeat("id", "G", 1, "T"))).Code)
	require.Zero(t, s.c.Do(command.ReqHeartBeat, nil, s.c.Body(command.HeartbeatData{ClientID: "p", ProducerDataSet: []command.ProducerData{{GroupName: "P"}}})).Code)
	require.Len(t, s.c.Pull(enginetest.Pull("G", "T", 0, 0)).Records(), 1)
	seen := map[string]bool{}
	for full, x := range scraped(t, s.reg) {
		if strings.HasSuffix(full, " sum") {
			continue
		}
		seen[x.name] = true
		want := labels[x.name]
		require.NotNil(t, want, "Apache has no %s", x.name)
		require.Equal(t, want, slices.Sorted(maps.Keys(x.labels)), x.name)
		var le []string
		for _, b := range x.le {
			le = append(le, fmt.Sprintf("%.1f", b))
		}
		require.Equal(t, les[x.name], le, x.name)
	}
	for name := range labels {
		switch {
		case seen[name], strings.HasPrefix(name, "rocketmq_pop_"), strings.HasPrefix(name, "rocketmq_timer_"): // issues of their own
		case name == "rocketmq_processor_watermark": // docs/metrics.md says why
		default:
			t.Errorf("%s is not offered", name)
		}
	}
}

func newTopic(name string) *command.CreateTopicRequest {
	return &command.CreateTopicRequest{Topic: name, ReadQueueNums: 1, WriteQueueNums: 1, Perm: 6, TopicFilterType: "SINGLE_TAG"}
}

// TestCreations: what requests took that make topics and groups, by how they ended, in
// the buckets of an Apache broker (BrokerMetricsManager).
func TestCreations(t *testing.T) {
	s := start(t, enginetest.Options{})
	name := func(what, labels string) string {
		return "rocketmq_" + what + "_create_execution_time_milliseconds{" + base + labels + "node_id=broker-a,node_type=broker}"
	}
	m := scraped(t, s.reg)
	for full := range m {
		require.NotContains(t, full, "_create_execution_time")
	}
	require.Zero(t, s.c.Do(command.ReqUpdateAndCreateTopic, newTopic("T").Append, nil).Code)
	list := command.TopicConfigList{Topics: []command.TopicConfig{
		{TopicName: "U", ReadQueueNums: 1, WriteQueueNums: 1, Perm: 6}, {TopicName: "V", ReadQueueNums: 1, WriteQueueNums: 1, Perm: 6},
	}}
	require.Zero(t, s.c.Do(command.ReqUpdateAndCreateTopicList, nil, s.c.Body(list)).Code)
	require.NotZero(t, s.c.Do(command.ReqUpdateAndCreateTopic, newTopic("no name").Append, nil).Code)
	require.NotZero(t, s.c.Do(command.ReqUpdateAndCreateTopic, newTopic(message.ScheduleTopic).Append, nil).Code)
	require.Zero(t, s.c.Do(command.ReqUpdateAndCreateSubscriptionGroup, nil, s.c.Body(command.SubscriptionGroupConfig{GroupName: "G", ConsumeEnable: true})).Code)
	require.NotZero(t, s.c.Do(command.ReqUpdateAndCreateSubscriptionGroup, nil, s.c.Body(command.SubscriptionGroupConfig{GroupName: "no name"})).Code)
	m = scraped(t, s.reg)
	for full, want := range map[string]float64{
		name("topic", "invocation_status=success,is_system=false,"): 2,
		name("topic", "invocation_status=failure,is_system=false,"): 1,
		name("topic", "invocation_status=failure,is_system=true,"):  1,
		name("consumer_group", "invocation_status=success,"):        1,
		name("consumer_group", "invocation_status=failure,"):        1,
	} {
		x, ok := m[full]
		require.True(t, ok, "%s is missing in %v", full, slices.Sorted(maps.Keys(m)))
		require.InDelta(t, want, x.value, 0, full)
		require.Equal(t, []float64{10, 100, 1000, 3000, 5000}, x.le, full)
	}
}

// Clients choose their version; those for which there is but one word are one series,
// for Prometheus takes none twice.
func TestStrangeVersions(t *testing.T) {
	s := start(t, enginetest.Options{})
	for i, version := range []int32{700, 701, -1} {
		hb := enginetest.Heartbeat(fmt.Sprint("id", i), "G", 1, "T")
		hb.ProducerDataSet = []command.ProducerData{{GroupName: "P"}}
		require.Zero(t, s.c.Do(command.ReqHeartBeat, func(w *command.Writer) { w.Version = version }, s.c.Body(hb)).Code)
	}
	m := scraped(t, s.reg)
	own := base + "%slanguage=go,node_id=broker-a,node_type=broker,protocol_type=remoting,version=higher_version}"
	for name, labels := range map[string]string{"consumer": "consume_mode=push,consumer_group=G,is_system=false,", "producer": ""} {
		require.InDelta(t, 3, m["rocketmq_"+name+"_connections{"+fmt.Sprintf(own, labels)].value, 0, m)
	}
}

// What is more than the limit, or than there is time for, is left out and counted.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const topics = 40
		s := start(t, enginetest.Options{Observe: func(p *observe.Params) { p.Limit, p.Budget = topics-10, 0 }})
		var names []string
		for i := range topics {
			names = append(names, fmt.Sprintf("T%02d", i))
			s.topic(t, names[i], 2)
			s.send(t, names[i], 0)
		}
		require.Zero(t, s.c.Do(command.ReqHeartBeat, nil, s.c.Body(enginetest.Heartbeat("id", "G", 1, names...))).Code)
		count := func(name string) (n int) {
			for full := range scraped(t, s.reg) {
				if strings.HasPrefix(full, name+"{") {
					n++
				}
			}
			return n
		}
		left := func(reason string) float64 {
			all, err := s.reg.Gather()
			require.NoError(t, err)
			for _, f := range all {
				for _, m := range f.Metric {
					if f.GetName() == "hardpoint_metrics_left_out_series" && m.Label[0].GetValue() == reason {
						return m.Gauge.GetValue()
					}
				}
			}
			t.Fatal("hardpoint_metrics_left_out_series is missing")
			return 0
		}
		require.Equal(t, topics-10, count("rocketmq_messages_in_total"))
		// A budget that is over at once is enough for one pair a scrape.
		require.Equal(t, 1, count("rocketmq_consumer_lag_messages"), "those who scrape within a second share")
		require.InDelta(t, (topics-11)*5, left("time"), 0)
		require.InDelta(t, 10*3+10*5, left("cardinality"), 0)
		<-time.After(time.Second)
		require.Equal(t, 2, count("rocketmq_consumer_lag_messages"), "the next scrape goes on")
		for range topics {
			<-time.After(time.Second)
			scraped(t, s.reg)
		}
		require.Equal(t, topics-10, count("rocketmq_consumer_lag_messages"))
		scraped(t, s.reg)
		require.InDelta(t, 0, left("time"), 0)
	})
}

func TestHidden(t *testing.T) {
	s := start(t, enginetest.Options{Observe: func(p *observe.Params) {
		p.Hide = observe.Hidden{Remoting: true, Store: true, Connections: true, Stats: true, Requests: true, Lag: true}
	}})
	s.topic(t, "T", 1)
	s.send(t, "T", 0)
	require.Empty(t, scraped(t, s.reg))
}
