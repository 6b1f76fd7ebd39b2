package message

import (
	"fmt"
	"slices"
	"strings"
)

// Limits of names in bytes (TopicValidator, Validators).
const (
	MaxTopic        = 127
	MaxDerivedTopic = 255 // %RETRY% and %DLQ% topics
	MaxGroup        = 120
)

// Topics with a meaning of their own (TopicValidator, TopicConfigManager).
const (
	AutoCreateTopic        = "TBW102"
	ScheduleTopic          = "SCHEDULE_TOPIC_XXXX"
	BenchmarkTopic         = "BenchmarkTest"
	HalfTopic              = "RMQ_SYS_TRANS_HALF_TOPIC"
	OpHalfTopic            = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
	TransCheckMaxTimeTopic = "TRANS_CHECK_MAX_TIME_TOPIC"
	TraceTopic             = "RMQ_SYS_TRACE_TOPIC"
	SelfTestTopic          = "SELF_TEST_TOPIC"
	OffsetMovedTopic       = "OFFSET_MOVED_EVENT"
	CheckpointTopic        = "CHECKPOINT_TOPIC"
	TimerTopic             = "rmq_sys_wheel_timer"

	// CatalogTopic carries the catalog: topics, groups, offsets as records.
	// Clients never see it.
	CatalogTopic = "rmq_sys_hardpoint_catalog"
	// RaftTopic carries the frames of a raft log.
	RaftTopic = "rmq_sys_hardpoint_raft"

	// SystemTopicPrefix starts the names of the broker's own topics.
	SystemTopicPrefix = "rmq_sys_"
	RetryPrefix       = "%RETRY%"
	DLQPrefix         = "%DLQ%"
	ReplyTopicSuffix  = "_REPLY_TOPIC"
	// hardpointPrefix starts the names of topics that are ours alone.
	hardpointPrefix = "rmq_sys_hardpoint_"
)

// IsInternal reports whether a topic is the broker's own bookkeeping: not
// listed, refused to clients on every path.
func IsInternal(topic string) bool { return strings.HasPrefix(topic, hardpointPrefix) }

// IsSystem reports whether a topic is reserved (TopicValidator's set, and
// everything that starts with SystemTopicPrefix).
func IsSystem(topic string) bool {
	return slices.Contains(systemTopics, topic) || strings.HasPrefix(topic, SystemTopicPrefix)
}

var systemTopics = []string{
	AutoCreateTopic, ScheduleTopic, BenchmarkTopic, HalfTopic, OpHalfTopic,
	TransCheckMaxTimeTopic, TraceTopic, SelfTestTopic, OffsetMovedTopic, CheckpointTopic,
}

// SystemTopics lists the reserved names, whether or not there is such a topic, but for
// those that SystemTopicPrefix starts. The slice is the caller's.
func SystemTopics() []string { return slices.Clone(systemTopics) }

// systemGroupPrefix starts the names of consumer groups of brokers and proxies.
const systemGroupPrefix = "CID_RMQ_SYS_"

// systemGroups exist on every broker (SubscriptionGroupManager.init).
var systemGroups = []string{
	"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY",
	"CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_RMQ_SYS_TRANS",
}

// SystemGroups lists the consumer groups that every broker has. The slice is the
// caller's.
func SystemGroups() []string { return slices.Clone(systemGroups) }

// IsSystemGroup reports whether a consumer group is of brokers and tools, not of an
// application.
func IsSystemGroup(group string) bool {
	return slices.Contains(systemGroups, group) || strings.HasPrefix(group, systemGroupPrefix)
}

// MaySend reports whether clients may send to a topic by name; the refused ones
// hold the broker's own state.
func MaySend(topic string) bool {
	switch topic {
	case ScheduleTopic, HalfTopic, OpHalfTopic, TransCheckMaxTimeTopic, SelfTestTopic, OffsetMovedTopic:
		return false
	}
	return !IsInternal(topic)
}

// CheckTopic returns nil for a legal topic name, else an error that says why:
// the characters % | a–z A–Z 0–9 _ - only, 1 to MaxTopic bytes (MaxDerivedTopic
// for retry and dead-letter topics).
func CheckTopic(name string) error {
	limit := MaxTopic
	if strings.HasPrefix(name, RetryPrefix) || strings.HasPrefix(name, DLQPrefix) {
		limit = MaxDerivedTopic
	}
	return checkName("topic", name, limit)
}

// CheckGroup returns nil for a legal group name, else an error that says why.
func CheckGroup(name string) error { return checkName("group", name, MaxGroup) }

func checkName(kind, name string, limit int) error {
	if name == "" {
		return fmt.Errorf("the name of the %s is empty", kind)
	}
	if len(name) > limit {
		return fmt.Errorf("the name of the %s has %d bytes, at most %d are allowed: %.40q…", kind, len(name), limit, name)
	}
	for i := range len(name) {
		c := name[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '%' || c == '|' {
			continue
		}
		return fmt.Errorf("the name of the %s %.80q holds %q; allowed are letters, digits and _ - %% |", kind, name, name[i:i+1])
	}
	return nil
}
