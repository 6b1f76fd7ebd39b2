package config

import "time"

// row is a key of RocketMQ that has no effect here: its type, RocketMQ's
// default and what it is for.
type row struct {
	name string
	typ  Type
	def  string
	desc string
}

// without makes keys of rows that share a group and a reason.
func without(g Group, applies Mode, reason string, rows ...row) []Key {
	out := make([]Key, 0, len(rows))
	for _, r := range rows {
		k := Key{Name: r.name, Group: g, Type: r.typ, Default: r.def, Desc: r.desc, Applies: applies, Status: Ignored, Reason: reason}
		switch r.typ {
		case Int:
			k.Min, k.Max = -maxInt32-1, maxInt32
		case Duration:
			k.Unit, k.Min, k.Max = "ms", -1, 10*365*24*3_600_000
		case Size:
			k.Min, k.Max = 0, 1<<50
		}
		out = append(out, k)
	}
	return out
}

// in gives keys another unit than milliseconds.
func in(unit string, keys []Key) []Key {
	for i := range keys {
		if keys[i].Type == Duration {
			keys[i].Unit = unit
			keys[i].Max /= int64(unitDuration(unit) / time.Millisecond)
		}
	}
	return keys
}

// aliased gives one of the keys a further spelling.
func aliased(keys []Key, name string, alias ...string) []Key {
	for i := range keys {
		if keys[i].Name == name {
			keys[i].Aliases = append(keys[i].Aliases, alias...)
		}
	}
	return keys
}

func join(parts ...[]Key) []Key {
	var out []Key
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

const (
	noThreads     = "there are no thread pools: the Go scheduler shares the processors"
	noQueues      = "there are no queues of requests by kind; overload is bounded by maxBytesInFlight and answered at once with a code that clients retry"
	noJava        = "it belongs to the Java implementation"
	noMetrics     = "metrics are not written to the log; they are served at adminListen under /metrics"
	noDelta       = "metrics are sums since the start; a collector makes differences of them (cumulativetodelta)"
	noContainer   = "several brokers in a container are not supported"
	popLater      = "POP consumption arrives in a later version"
	delayLater    = "delivery of delayed messages arrives in a later version"
	timerLater    = "timer messages arrive in a later version"
	txLater       = "checking of open transactions arrives in a later version"
	retainOwn     = "what belongs to a segment goes with it, and is tried again every cleanResourceInterval"
	retainAlone   = "the disk is looked at as df shows it, whoever fills it"
	compactLater  = "compacted topics arrive in a later version"
	filterLater   = "filtering by SQL92 arrives in a later version; until then such subscriptions are refused by name"
	coldNone      = "cold data is read with pread and needs no limit by group"
	replicasLater = "replication arrives in a later version"
	kvNone        = "it belongs to RocketMQ's RocksDB store, which is not supported"
	ownFlush      = "the store flushes by time and batch, not by pages"
	ownMap        = "the store bounds its mappings itself"
	ownRecovery   = "recovery is bounded by the checkpoint and always verifies checksums"
	ownLock       = "sends are combined by a lock of another design"
	registerNone  = "registrations are always sent whole"
	statsNone     = "statistics are metrics at adminListen"
)

func ignoredBrokerKeys() []Key {
	const g = GroupBroker
	return join(
		without(g, Standalone, noJava,
			row{"rocketmqHome", Path, "$ROCKETMQ_HOME", "Directory of the installation."},
			row{"brokerConfigPath", Path, "", "File from which the configuration was read."},
			row{"configBlackList", Text, "configBlackList;brokerConfigPath", "Keys that an update request may not change; here only keys marked as reloadable may."},
			row{"highSpeedMode", Bool, "false", "Reserved by RocketMQ."},
			row{"asyncSendEnable", Bool, "true", "Answers sends from another thread."},
			row{"isolateLogEnable", Bool, "false", "Log files per broker of a container."},
			row{"transferMsgByHeap", Bool, "true", "Copies messages through the heap instead of sending file ranges."},
			row{"configManagerVersion", Text, "v1", "Storage of the metadata."},
			row{"messageStorePlugIn", Text, "", "Java classes that wrap the store; here see storage."},
			row{"filterServerNums", Int, "0", "Filter server processes of RocketMQ 3 and 4."},
			row{"commercialEnable", Bool, "true", "Statistics of the commercial service."},
			row{"commercialTimerCount", Int, "1", "Statistics of the commercial service."},
			row{"commercialTransCount", Int, "1", "Statistics of the commercial service."},
			row{"commercialBigCount", Int, "1", "Statistics of the commercial service."},
			row{"commercialBaseCount", Int, "1", "Statistics of the commercial service."},
			row{"commercialSizePerMsg", Size, "4096", "Statistics of the commercial service."},
			row{"compatibleWithOldNameSrv", Bool, "true", "Talks to name servers of RocketMQ 4; always so here."},
			row{"validateSystemTopicWhenUpdateTopic", Bool, "true", "Refuses to change system topics; always so here."},
			row{"enableRegisterProducer", Bool, "true", "Remembers producers."},
			row{"enableCreateSysGroup", Bool, "true", "Creates the built-in groups; always so here."},
			row{"enableMixedMessageType", Bool, "false", "Creates topics of mixed type."},
			row{"clearRetryTopicWhenDeleteTopic", Bool, "true", "Deletes retry topics with their topic."},
		),
		aliased(without(g, Broker, noContainer,
			row{"isBrokerContainer", Bool, "false", "Whether this is a container of brokers."},
			row{"isInBrokerContainer", Bool, "false", "Whether the broker runs in a container of brokers."},
		), "isInBrokerContainer", "inBrokerContainer"),
		without(g, Broker, "name servers are given by address in namesrvAddr",
			row{"fetchNamesrvAddrByAddressServer", Bool, "false", "Asks an HTTP server for name servers."},
			row{"fetchNameSrvAddrByDnsLookup", Bool, "false", "Asks DNS for name servers."},
			row{"fetchNamesrvAddrInterval", Duration, "10000", "How often name servers are asked for."},
			row{"updateNameServerAddrPeriod", Duration, "120000", "How often the list of name servers is read again."},
		),
		without(g, Broker, "subscriptions are learnt from heartbeats only",
			row{"subscriptionExpiredTimeout", Duration, "600000", "How long a subscription learnt from a pull is remembered."},
		),
		without(g, Broker, registerNone,
			row{"compressedRegister", Bool, "false", "Compresses registrations."},
			row{"forceRegister", Bool, "true", "Registers even when nothing changed; always so here."},
			row{"enableSingleTopicRegister", Bool, "false", "Registers a changed topic alone."},
			row{"enableSplitRegistration", Bool, "false", "Registers in several parts."},
			row{"splitRegistrationSize", Int, "800", "Topics of a part of a registration."},
			row{"enableSplitMetadata", Bool, "true", "Sends metadata to slaves in parts."},
			row{"splitMetadataSize", Int, "2000", "Entries of a part of metadata."},
			row{"brokerHeartbeatInterval", Duration, "1000", "Light heartbeat to name servers, with a slave acting as master."},
			row{"sendHeartbeatTimeoutMillis", Duration, "1000", "Time-out of that heartbeat."},
			row{"brokerNotActiveTimeoutMillis", Duration, "10000", "Silence after which a broker is taken for gone, with a slave acting as master."},
		),
		without(g, Broker, noThreads,
			row{"sendMessageThreadPoolNums", Int, "min(cpu, 4)", "Threads for sends."},
			row{"putMessageFutureThreadPoolNums", Int, "min(cpu, 4)", "Threads that answer sends."},
			row{"pullMessageThreadPoolNums", Int, "16 + 2 cpu", "Threads for pulls."},
			row{"litePullMessageThreadPoolNums", Int, "16 + 2 cpu", "Threads for pulls of lite consumers."},
			row{"ackMessageThreadPoolNums", Int, "16", "Threads for acknowledgements."},
			row{"processReplyMessageThreadPoolNums", Int, "16 + 2 cpu", "Threads for replies."},
			row{"queryMessageThreadPoolNums", Int, "8 + cpu", "Threads for queries."},
			row{"adminBrokerThreadPoolNums", Int, "16", "Threads for administration."},
			row{"clientManageThreadPoolNums", Int, "32", "Threads for client management."},
			row{"consumerManageThreadPoolNums", Int, "32", "Threads for consumer management."},
			row{"loadBalanceProcessorThreadPoolNums", Int, "32", "Threads for assignment."},
			row{"heartbeatThreadPoolNums", Int, "min(32, cpu)", "Threads for heartbeats."},
			row{"recoverThreadPoolNums", Int, "32", "Threads for recovery."},
			row{"endTransactionThreadPoolNums", Int, "8 + 2 cpu", "Threads for ends of transactions."},
			row{"recoverConcurrently", Bool, "false", "Recovers queues in parallel."},
		),
		without(g, Broker, noQueues,
			row{"sendThreadPoolQueueCapacity", Int, "10000", "Sends that may wait."},
			row{"putThreadPoolQueueCapacity", Int, "10000", "Answers to sends that may wait."},
			row{"pullThreadPoolQueueCapacity", Int, "100000", "Pulls that may wait."},
			row{"litePullThreadPoolQueueCapacity", Int, "100000", "Pulls of lite consumers that may wait."},
			row{"ackThreadPoolQueueCapacity", Int, "100000", "Acknowledgements that may wait."},
			row{"replyThreadPoolQueueCapacity", Int, "10000", "Replies that may wait."},
			row{"queryThreadPoolQueueCapacity", Int, "20000", "Queries that may wait."},
			row{"clientManagerThreadPoolQueueCapacity", Int, "1000000", "Client management requests that may wait."},
			row{"consumerManagerThreadPoolQueueCapacity", Int, "1000000", "Consumer management requests that may wait."},
			row{"heartbeatThreadPoolQueueCapacity", Int, "50000", "Heartbeats that may wait."},
			row{"endTransactionPoolQueueCapacity", Int, "100000", "Ends of transactions that may wait."},
			row{"adminBrokerThreadPoolQueueCapacity", Int, "10000", "Administration requests that may wait."},
			row{"loadBalanceThreadPoolQueueCapacity", Int, "100000", "Assignment requests that may wait."},
			row{"brokerFastFailureEnable", Bool, "true", "Refuses requests that waited too long."},
			row{"waitTimeMillsInPullQueue", Duration, "5000", "Longest wait of a pull."},
			row{"waitTimeMillsInLitePullQueue", Duration, "5000", "Longest wait of a pull of a lite consumer."},
			row{"waitTimeMillsInHeartbeatQueue", Duration, "31000", "Longest wait of a heartbeat."},
			row{"waitTimeMillsInTransactionQueue", Duration, "3000", "Longest wait of an end of a transaction."},
			row{"waitTimeMillsInAckQueue", Duration, "3000", "Longest wait of an acknowledgement."},
			row{"waitTimeMillsInAdminBrokerQueue", Duration, "5000", "Longest wait of an administration request."},
			row{"enableNetWorkFlowControl", Bool, "false", "Reserved by RocketMQ."},
		),
		[]Key{{Name: "startAcceptSendRequestTimeStamp", Group: g, Type: Int, Default: "0", Applies: Broker, Status: Ignored, Reason: "sends are accepted from the start", Desc: "Time in milliseconds since 1970 before which sends are refused."}},
		without(g, Broker, statsNone,
			row{"accountStatsEnable", Bool, "true", "Statistics by account."},
			row{"accountStatsPrintZeroValues", Bool, "true", "Logs statistics without traffic."},
			row{"maxStatsIdleTimeInMinutes", Int, "-1", "When idle statistics are dropped."},
			row{"enableDetailStat", Bool, "true", "Statistics by queue."},
			row{"autoDeleteUnusedStats", Bool, "true", "Drops statistics of deleted topics and groups."},
			row{"enableScheduleMessageStats", Bool, "true", "Statistics of delayed messages."},
			row{"enableLmqStats", Bool, "false", "Statistics of light queues."},
			row{"estimateAccumulation", Bool, "true", "Estimates the backlog of a filtering group."},
			row{"printChannelGroups", Bool, "false", "Logs groups and their connections."},
			row{"printChannelGroupsMinNum", Int, "5", "Least number of connections for that log line."},
		),
		without(g, Broker, noMetrics,
			row{"metricLoggingExporterIntervalInMills", Duration, "10000", "How often metrics are logged."},
		),
		without(g, Broker, noDelta,
			row{"metricsInDelta", Bool, "false", "Exports differences."},
		),
		without(g, Broker, popLater,
			row{"enablePopMetrics", Bool, "true", "Metrics of POP."},
		),
		without(g, Broker, txLater,
			row{"enableTransactionMetrics", Bool, "true", "Metrics of transactions."},
			row{"transactionMetricFlushInterval", Duration, "3000", "How often transaction metrics are written."},
		),
		without(g, Broker, replicasLater,
			row{"syncBrokerMemberGroupPeriod", Duration, "1000", "How often the members of the replica group are asked for."},
			row{"forwardTimeout", Duration, "3000", "Time-out of a request forwarded to a member."},
			row{"slaveReadEnable", Bool, "false", "Sends readers of old data to a slave."},
			row{"skipPreOnline", Bool, "false", "Registers before the state is synchronised."},
			row{"brokerElectionPriority", Int, "2147483647", "Priority in an election; lower wins."},
		),
	)
}

func ignoredConsumeKeys() []Key {
	const g = GroupConsume
	return join(
		without(g, Broker, filterLater,
			row{"enablePropertyFilter", Bool, "false", "Allows subscriptions by SQL92."},
			row{"enableCalcFilterBitMap", Bool, "false", "Computes filters when a message is stored."},
			row{"expectConsumerNumUseFilter", Int, "32", "Expected number of filtering groups."},
			row{"maxErrorRateOfBloomFilter", Int, "20", "Error rate of stored filter bits, in percent."},
			row{"filterDataCleanTimeSpan", Duration, "86400000", "How long filters of absent groups are kept."},
			row{"filterSupportRetry", Bool, "false", "Filters retried messages, too."},
		),
		without(g, Broker, txLater,
			row{"transactionTimeOut", Duration, "6000", "Age at which an open transaction is first checked."},
			row{"transactionCheckMax", Int, "15", "Checks before an open transaction is given up."},
			row{"transactionCheckInterval", Duration, "30000", "How often open transactions are checked."},
			row{"transactionOpMsgMaxSize", Size, "4096", "Size of a record of ended transactions."},
			row{"transactionOpBatchInterval", Duration, "3000", "How often such records are written."},
		),
		in("s", without(g, Broker, popLater,
			row{"popPollingMapExpireTimeSeconds", Duration, "600", "When parked requests are forgotten."},
		)),
		without(g, Broker, popLater,
			row{"reviveQueueNum", Int, "8", "Queues of the revive topic."},
			row{"reviveInterval", Duration, "1000", "How often expired messages are looked for."},
			row{"reviveMaxSlow", Int, "3", "Lag at which revival slows down."},
			row{"reviveScanTime", Duration, "10000", "Longest run of revival."},
			row{"reviveAckWaitMs", Duration, "180000", "How long revival waits for an acknowledgement."},
			row{"enableSkipLongAwaitingAck", Bool, "false", "Skips acknowledgements that stay away."},
			row{"enablePopLog", Bool, "false", "Logs POP in detail."},
			row{"enablePopBufferMerge", Bool, "false", "Merges acknowledgements in memory."},
			row{"enablePopBatchAck", Bool, "false", "Writes acknowledgements in batches."},
			row{"popCkStayBufferTime", Duration, "10000", "How long a check point stays in memory."},
			row{"popCkStayBufferTimeOut", Duration, "3000", "When it is written before it expires."},
			row{"popCkMaxBufferSize", Int, "200000", "Check points in memory."},
			row{"popCkOffsetMaxQueueSize", Int, "20000", "Check points in memory for a queue."},
			row{"popPollingSize", Int, "1024", "Requests parked for a group and queue."},
			row{"popPollingMapSize", Int, "100000", "Groups and queues with parked requests."},
			row{"maxPopPollingSize", Int, "100000", "Requests parked in all."},
			row{"popLongPollingForceNotifyInterval", Duration, "800", "Least interval of forced wake-ups."},
			row{"popResponseReturnActualRetryTopic", Bool, "false", "Names the retry topic in answers."},
			row{"popFromRetryProbability", Int, "20", "How often retried messages go first, in percent."},
			row{"popReviveMaxReturnSizePerRead", Size, "16384", "Bytes that revival reads at once."},
			row{"popReviveMaxAttemptTimes", Int, "16", "Attempts of revival."},
			row{"popInflightMessageThreshold", Int, "10000", "Unacknowledged messages of a queue."},
			row{"enablePopMessageThreshold", Bool, "false", "Applies that limit."},
			row{"popConsumerFSServiceInit", Bool, "true", "Starts the older implementation."},
			row{"popConsumerKVServiceInit", Bool, "false", "Starts the newer implementation."},
			row{"popConsumerKVServiceEnable", Bool, "false", "Uses the newer implementation."},
			row{"popConsumerKVServiceLog", Bool, "false", "Logs the newer implementation."},
			row{"enableRetryTopicV2", Bool, "false", "Names retry topics in the newer way."},
			row{"retrieveMessageFromPopRetryTopicV1", Bool, "true", "Reads retry topics named in the older way, too."},
			row{"enableNotifyBeforePopCalculateLag", Bool, "true", "Wakes before it computes the lag."},
			row{"enableNotifyAfterPopOrderLockRelease", Bool, "true", "Wakes when an ordered queue is free."},
			row{"initPopOffsetByCheckMsgInMem", Bool, "true", "Chooses the first offset by what is in memory."},
			row{"skipWhenCKRePutReachMaxTimes", Bool, "false", "Gives a check point up after too many attempts."},
			row{"appendAckAsync", Bool, "false", "Writes acknowledgements without waiting."},
			row{"appendCkAsync", Bool, "false", "Writes check points without waiting."},
			row{"serverLoadBalancerEnable", Bool, "true", "Assigns queues in the broker."},
			row{"defaultMessageRequestMode", Text, "PULL", "Mode of groups that set none."},
			row{"defaultPopShareQueueNum", Int, "-1", "Queues that members share."},
			row{"loadBalancePollNameServerInterval", Duration, "30000", "How often assignment asks for routes."},
			row{"recallMessageEnable", Bool, "false", "Allows a delayed message to be taken back."},
			row{"allowRecallWhenBrokerNotWriteable", Bool, "true", "Allows it on a read-only broker."},
		),
		in("s", without(g, Broker, "offsets of broadcasting groups lie with the consumers",
			row{"broadcastOffsetExpireSecond", Duration, "120", "When they are forgotten."},
			row{"broadcastOffsetExpireMaxSecond", Duration, "300", "When they are forgotten at the latest."},
		)),
		without(g, Broker, "offsets of broadcasting groups lie with the consumers",
			row{"enableBroadcastOffsetStore", Bool, "true", "Keeps offsets of broadcasting groups that read through the proxy."},
		),
		without(g, Broker, coldNone,
			row{"coldCtrStrategyEnable", Bool, "false", "Limits readers of cold data."},
			row{"usePIDColdCtrStrategy", Bool, "true", "Adapts that limit."},
			row{"cgColdReadThreshold", Size, "3145728", "Limit of a group."},
			row{"globalColdReadThreshold", Size, "104857600", "Limit of all groups."},
			row{"disableConsumeIfConsumerReadSlowly", Bool, "false", "Stops groups that lag far behind; never done here."},
			row{"consumerFallbehindThreshold", Size, "17179869184", "The lag at which it does."},
		),
		without(g, Broker, "the engine does this in one way",
			row{"consumerOffsetUpdateVersionStep", Int, "500", "Commits between versions of the offset table."},
			row{"delayOffsetUpdateVersionStep", Int, "200", "Steps between versions of the delay table."},
			row{"flushConsumerOffsetHistoryInterval", Duration, "60000", "How often a second copy of the offsets was written."},
			row{"useServerSideResetOffset", Bool, "true", "Resets offsets in the broker; always so here."},
			row{"useStaticSubscription", Bool, "false", "Knows subscriptions from configuration only."},
			row{"lockInStrictMode", Bool, "false", "Locks queues for orderly consumers at their master only."},
			row{"storeReplyMessageEnable", Bool, "true", "Stores replies of request-reply."},
			row{"litePullMessageEnable", Bool, "true", "Serves lite consumers; always so here."},
			row{"rejectPullConsumerEnable", Bool, "false", "Refuses pull consumers without a group."},
			row{"realTimeNotifyConsumerChange", Bool, "true", "Tells changes of a group at once; see notifyConsumerIdsChangedEnable."},
			row{"pullBatchMaxMessageCount", Int, "160", "Messages of a pull that a POP read makes."},
			row{"enableFastChannelEventProcess", Bool, "false", "Finds the groups of a closed connection by an index; always so here."},
			row{"cleanOfflineBrokerInterval", Duration, "30000", "How often gone brokers are forgotten."},
		),
	)
}
