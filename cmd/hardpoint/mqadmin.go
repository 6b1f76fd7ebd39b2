package main

import "strings"

// counterparts says what stands here for a command of mqadmin, whose names its users type.
func counterparts(args []string) string {
	if args[0] == "mqadmin" {
		if len(args) == 1 {
			return "its commands have other names here, and Apache's mqadmin works as well: docs/cli.md lists both"
		}
		args = args[1:]
	}
	if args[0] == "send" {
		args = []string{"sendMessage"}
	}
	for name, commands := range ofMqadmin {
		if strings.EqualFold(name, args[0]) {
			return "what mqadmin calls " + name + " is here: hardpoint " + strings.Join(commands, ", hardpoint ")
		}
	}
	return ""
}

// ofMqadmin are the commands that stand for those of mqadmin, as docs/cli.md has them.
var ofMqadmin = map[string][]string{
	"addWritePerm":           {"broker add-write-perm"},
	"brokerConsumeStats":     {"offset list"},
	"brokerStatus":           {"broker status"},
	"cloneGroupOffset":       {"offset clone"},
	"clusterList":            {"cluster list"},
	"consumeMessage":         {"message query"},
	"consumerConnection":     {"group show"},
	"consumerProgress":       {"offset show", "offset list", "group explain"},
	"consumerStatus":         {"group explain"},
	"deleteSubGroup":         {"group delete"},
	"deleteTopic":            {"topic delete"},
	"getBrokerConfig":        {"broker config get"},
	"getConsumerConfig":      {"group show"},
	"haStatus":               {"broker status"},
	"printMsg":               {"message query"},
	"queryMsgById":           {"message query"},
	"queryMsgByKey":          {"message query"},
	"queryMsgByOffset":       {"message query"},
	"queryMsgByUniqueKey":    {"message query"},
	"resetOffsetByTime":      {"group reset"},
	"sendMessage":            {"bench produce --topic TOPIC --count 1"},
	"setConsumeMode":         {"group assign"},
	"skipAccumulatedMessage": {"group reset"},
	"statsAll":               {"cluster stats"},
	"topicClusterList":       {"topic list"},
	"topicList":              {"topic list"},
	"topicRoute":             {"topic show"},
	"topicStatus":            {"topic show"},
	"updateBrokerConfig":     {"broker config set"},
	"updateOrderConf":        {"topic update"},
	"updateSubGroup":         {"group create", "group update"},
	"updateTopic":            {"topic create", "topic update"},
	"updateTopicPerm":        {"topic update"},
	"wipeWritePerm":          {"broker wipe-write-perm"},
}
