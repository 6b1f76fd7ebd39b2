package observe

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hardpointmq/hardpoint/core/internal/kernel"
	"github.com/hardpointmq/hardpoint/core/plugin"
)

// descs are the metrics; their labels are in the order of the alphabet.
type descs struct {
	permission, topics, groups                        *prometheus.Desc
	messagesIn, throughputIn, messageSize             *prometheus.Desc
	messagesOut, throughputOut, dead                  *prometheus.Desc
	topicCreation, groupCreation                      *prometheus.Desc
	consumers, producers                              *prometheus.Desc
	latency                                           *prometheus.Desc
	storageSize, flushBehind, dispatchBehind, reserve *prometheus.Desc
	lag, lagLatency, inflight, queueing, ready        *prometheus.Desc
}

func newDescs(c *kernel.Config, extra []plugin.Label) descs {
	own := prometheus.Labels{}
	for _, l := range extra {
		own[l.Name] = l.Value
	}
	own["cluster"], own["node_id"], own["node_type"] = c.ClusterName, c.BrokerName, "broker"
	of := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("rocketmq_"+name, help, labels, own)
	}
	in := []string{"is_system", "message_type", "topic"}
	out := []string{"consumer_group", "is_system", "topic"}
	lag := []string{"consumer_group", "is_retry", "is_system", "topic"}
	store := []string{"storage_medium", "storage_type"}
	return descs{
		permission: of("broker_permission", "What clients may do: 4 read, 2 write, 6 both."),
		topics:     of("topic_number", "Topics, those of the system included."),
		groups:     of("consumer_group_number", "Consumer groups, predefined ones included."),

		messagesIn:    of("messages_in_total", "Messages that clients sent and the log took.", in...),
		throughputIn:  of("throughput_in_total", "Bytes of these messages as they are stored.", in...),
		messageSize:   of("message_size", "Bytes of a message as it is stored; the messages of a batch count once, with their mean.", in...),
		messagesOut:   of("messages_out_total", "Messages that groups got, those of retry topics not counted.", out...),
		throughputOut: of("throughput_out_total", "Bytes of these messages as they are stored.", out...),
		dead:          of("send_to_dlq_messages_total", "Messages that went to the dead letters of their group.", out...),

		topicCreation: of("topic_create_execution_time_milliseconds", "Time that requests took which made or changed topics; a list of them counts once.", "invocation_status", "is_system"),
		groupCreation: of("consumer_group_create_execution_time_milliseconds", "Time that requests took which made or changed consumer groups; a list of them counts once.", "invocation_status"),

		consumers: of("consumer_connections", "Members of consumer groups.", "consume_mode", "consumer_group", "is_system", "language", "protocol_type", "version"),
		producers: of("producer_connections", "Members of producer groups.", "language", "protocol_type", "version"),

		latency: of("rpc_latency_milliseconds", "Time from the arrival of a request to its answer, the wait for a message included.",
			"is_long_polling", "protocol_type", "request_code", "response_code", "result"),

		storageSize:    of("storage_size_bytes", "Used bytes of the file system in which the store is, whoever uses them.", store...),
		flushBehind:    of("storage_flush_behind_bytes", "Bytes of the log that a power failure would take away.", store...),
		dispatchBehind: of("storage_dispatch_behind_bytes", "Bytes of the log that consumers cannot see yet.", store...),
		reserve:        of("storage_message_reserve_time_milliseconds", "Age of the oldest message.", store...),

		lag:        of("consumer_lag_messages", "Messages of a topic that the group has not acknowledged, those that its filter leaves out included.", lag...),
		lagLatency: of("consumer_lag_latency_milliseconds", "Age of the oldest of these messages.", lag...),
		inflight:   of("consumer_inflight_messages", "Messages that the group got and has not acknowledged.", lag...),
		queueing:   of("consumer_queueing_latency_milliseconds", "Age of the oldest message that the group did not get yet.", lag...),
		ready:      of("consumer_ready_messages", "Messages that the group did not get yet.", lag...),
	}
}
