package config

const replicationLater = "replication arrives in a later version; this one runs a single ASYNC_MASTER with brokerId 0"

func brokerKeys() []Key {
	const g = GroupBroker
	return []Key{
		{Name: "brokerClusterName", Group: g, Type: Text, Default: "DefaultCluster", Applies: Broker, Desc: "Name of the cluster."},
		{Name: "brokerName", Group: g, Type: Text, Applies: Broker, Desc: "Name of the replica group; default is the host's name."},
		{Name: "brokerId", Group: g, Type: Int, Min: 0, Max: 1<<63 - 1, Default: "0", Applies: Broker, Desc: "Number in the replica group; 0 is the master."},
		{Name: "brokerRole", Group: g, Type: Enum, Words: []string{AsyncMaster, SyncMaster, Slave}, Default: AsyncMaster, Applies: Broker, Refuses: map[string]string{SyncMaster: replicationLater, Slave: replicationLater}, Desc: "Role in the replica group. A role that promises a second copy is refused as long as there is none."},
		{Name: "replication", Group: g, Type: Text, Default: "solo", Applies: Broker, Desc: "Name of the replication plugin."},
		{Name: "namesrvAddr", Group: g, Type: Addresses, Empty: true, Applies: Broker, Flag: "namesrv-addr", Desc: "Name servers to register with. Standalone: those beside the one in the process."},
		{Name: "brokerPermission", Group: g, Type: Int, Words: []string{"2", "4", "6"}, Default: "6", Applies: Broker, Reloadable: true, Desc: "What clients may do: 2 write, 4 read, 6 both."},
		{Name: "regionId", Group: g, Type: Text, Default: "DefaultRegion", Applies: Broker, Desc: "Region that is told to producers for traces."},
		{Name: "zoneName", Group: g, Type: Text, Empty: true, Applies: Broker, Desc: "Zone in which the broker is; the allocator zone prefers members in it. RocketMQ takes it from the environment (ROCKETMQ_ZONE)."},
		{Name: "registerNameServerPeriod", Group: g, Type: Duration, Unit: "ms", Min: 10_000, Max: 60_000, Default: "30000", Applies: Broker, Desc: "How often the broker registers with the name servers."},
		{Name: "registerBrokerTimeoutMills", Group: g, Type: Duration, Unit: "ms", Min: 100, Max: 600_000, Default: "24000", Applies: Broker, Desc: "How long a registration may take."},
		{Name: "channelExpiredTimeout", Group: g, Type: Duration, Unit: "ms", Min: 100, Max: 86_400_000, Default: "120000", Applies: Broker, Desc: "A client without heartbeat for this long is forgotten and its connection closed."},
		{Name: "maxMessageSize", Group: g, Type: Size, Min: 1, Max: 512 * mib, Default: "4MiB", Applies: Broker, Reloadable: true, Desc: "Largest body of a message."},
		{Name: "waitTimeMillsInSendQueue", Group: g, Type: Duration, Unit: "ms", Min: 1, Max: 600_000, Default: "200", Applies: Broker, Desc: "How long a send waits for room in the log before it is refused with a code that clients retry."},
		{Name: "rejectTransactionMessage", Group: g, Type: Bool, Default: "false", Applies: Broker, Reloadable: true, Desc: "Refuses transactional messages."},
		{Name: "traceOn", Group: g, Type: Bool, Default: "true", Applies: Broker, Reloadable: true, Desc: "Tells producers that they may trace."},
	}
}

func topicKeys() []Key {
	const g = GroupTopics
	return []Key{
		{Name: "autoCreateTopicEnable", Group: g, Type: Bool, Default: "true", Applies: Broker, Reloadable: true, Desc: "Creates a topic at its first message."},
		{Name: "defaultTopicQueueNums", Group: g, Type: Int, Min: 1, Max: 65535, Default: "8", Applies: Broker, Reloadable: true, Desc: "Queues of an auto-created topic; a client may ask for fewer."},
		{Name: "clusterTopicEnable", Group: g, Type: Bool, Default: "true", Applies: Broker, Desc: "Creates the topic that is named like the cluster."},
		{Name: "brokerTopicEnable", Group: g, Type: Bool, Default: "true", Applies: Broker, Desc: "Creates the topic that is named like the broker."},
		{Name: "autoCreateSubscriptionGroup", Group: g, Type: Bool, Default: "true", Applies: Broker, Reloadable: true, Desc: "Creates a group at its first use."},
		{Name: "traceTopicEnable", Group: g, Type: Bool, Default: "false", Applies: Broker, Desc: "Creates the topic for message traces."},
		{Name: "msgTraceTopicName", Group: g, Type: Text, Default: "RMQ_SYS_TRACE_TOPIC", Applies: Broker, Desc: "Name of the topic for message traces."},
	}
}

func consumeKeys() []Key {
	const g = GroupConsume
	return []Key{
		{Name: "longPollingEnable", Group: g, Type: Bool, Default: "true", Applies: Broker, Reloadable: true, Desc: "Parks a pull on an empty queue until a message or the client's time-out; otherwise shortPollingTimeMills holds."},
		{Name: "shortPollingTimeMills", Group: g, Type: Duration, Unit: "ms", Min: 1, Max: 60_000, Default: "1000", Applies: Broker, Reloadable: true, Desc: "How long a pull is parked when longPollingEnable is false."},
		{Name: "maxTransferBytesOnMessageInMemory", Group: g, Type: Size, Min: 1, Max: 1 * gib, Default: "256KiB", Applies: Broker, Reloadable: true, Desc: "Bytes of one pull answer from memory; the first message always goes."},
		{Name: "maxTransferCountOnMessageInMemory", Group: g, Type: Int, Min: 1, Max: 65535, Default: "32", Applies: Broker, Reloadable: true, Desc: "Messages of one pull answer from memory."},
		{Name: "maxTransferBytesOnMessageInDisk", Group: g, Type: Size, Min: 1, Max: 1 * gib, Default: "64KiB", Applies: Broker, Reloadable: true, Desc: "Bytes of one pull answer that must be read from disk; the first message always goes."},
		{Name: "maxTransferCountOnMessageInDisk", Group: g, Type: Int, Min: 1, Max: 65535, Default: "8", Applies: Broker, Reloadable: true, Desc: "Messages of one pull answer that must be read from disk."},
		{Name: "maxFilterMessageSize", Group: g, Type: Size, Min: 20, Max: 1 * gib, Default: "16000", Applies: Broker, Desc: "Bytes of the index, 20 an entry, that one pull examines for a message that passes its filter."},
		{Name: "flushConsumerOffsetInterval", Group: g, Type: Duration, Unit: "ms", Min: 100, Max: 600_000, Default: "5000", Applies: Broker, Desc: "How often the file of consumer offsets is written."},
		{Name: "notifyConsumerIdsChangedEnable", Group: g, Type: Bool, Default: "true", Applies: Broker, Reloadable: true, Desc: "Tells the members of a group at once when a member comes or goes."},
		{Name: "defaultQueryMaxNum", Group: g, Type: Int, Min: 1, Max: 65535, Default: "32", Applies: Broker, Reloadable: true, Desc: "Messages that a query by unique key returns at most."},
		{Name: "maxMsgsNumBatch", Group: g, Type: Int, Min: 1, Max: 65535, Default: "64", Applies: Broker, Reloadable: true, Desc: "Most messages that a query by key returns."},
	}
}

func storeKeys() []Key {
	const g = GroupStore
	cl, solo := []string{"storage.commitlog"}, []string{"replication.solo"}
	return []Key{
		{Name: "storage", Group: g, Type: Text, Default: "commitlog", Applies: Broker, Flag: "storage", Desc: "Name of the storage plugin: commitlog (RocketMQ's files), pebble, memory, or another one that the program contains."},
		{Name: "storageProcess", Group: g, Type: Bool, Default: "false", Applies: Broker, Flag: "storage-process", Desc: "Runs the storage plugin as a process of its own; the same as plugins.storage.NAME.process."},
		{Name: "storePathRootDir", Group: g, Type: Path, Empty: true, Applies: Broker, Desc: "Directory of the store; default is the folder store in data, where RocketMQ's is the one in the home directory."},
		{Name: "storePathCommitLog", Group: g, Type: Path, Empty: true, Applies: Broker, Plugins: cl, Desc: "Directory of the commit log; default is the folder commitlog in the store's. One directory; several are not supported."},
		{Name: "mappedFileSizeCommitLog", Aliases: []string{"mapedFileSizeCommitLog"}, Group: g, Type: Size, Min: 4 * kib, Max: maxInt32, Default: "1GiB", Applies: Broker, Desc: "Size of a segment of the log. A directory with another size is refused."},
		{Name: "mappedFileSizeConsumeQueue", Aliases: []string{"mapedFileSizeConsumeQueue"}, Group: g, Type: Size, Min: 20, Max: 1 * gib, Default: "6000000", Applies: Broker, Plugins: cl, Desc: "Size of a ConsumeQueue file, 20 bytes an entry."},
		{Name: "flushDiskType", Group: g, Type: Enum, Words: []string{AsyncFlush, SyncFlush}, Default: AsyncFlush, Applies: Broker, Plugins: solo, Desc: "SYNC_FLUSH answers a send when the message is on the disk; ASYNC_FLUSH when the operating system has it."},
		{Name: "syncFlushTimeout", Group: g, Type: Duration, Unit: "ms", Min: 1, Max: 600_000, Default: "5000", Applies: Broker, Plugins: solo, Desc: "How long a send waits for SYNC_FLUSH before it is answered FLUSH_DISK_TIMEOUT."},
		{Name: "flushIntervalCommitLog", Group: g, Type: Duration, Unit: "ms", Min: 1, Max: 600_000, Default: "500", Applies: Broker, Plugins: solo, Desc: "How often the log is flushed with ASYNC_FLUSH: what a power failure can lose."},
		{Name: "flushIntervalConsumeQueue", Group: g, Type: Duration, Unit: "ms", Min: 10, Max: 60_000, Default: "1000", Applies: Broker, Plugins: cl, Desc: "How often ConsumeQueues, key index and checkpoint are flushed: what must be rebuilt from the log after a power failure."},
		{Name: "commitLogWrite", Group: g, Type: Enum, Words: []string{WritePwrite, WriteMap}, Default: WritePwrite, Applies: Broker, Plugins: cl, Desc: "How the log is written: one pwrite for a batch, or through the mapping as RocketMQ does."},
		{Name: "warmMapedFileEnable", Group: g, Type: Bool, Default: "false", Applies: Broker, Plugins: cl, Desc: "Touches the pages of a new segment ahead of use, with commitLogWrite map."},
		{Name: "messageIndexEnable", Group: g, Type: Bool, Default: "true", Applies: Broker, Plugins: cl, Desc: "Keeps the index of message keys."},
		{Name: "maxHashSlotNum", Group: g, Type: Int, Min: 1, Max: 100_000_000, Default: "5000000", Applies: Broker, Plugins: cl, Desc: "Hash slots of an index file."},
		{Name: "maxIndexNum", Group: g, Type: Int, Min: 2, Max: 100_000_000, Default: "20000000", Applies: Broker, Plugins: cl, Desc: "Entries of an index file."},
		{Name: "checkCRCOnRecover", Group: g, Type: Bool, Default: "true", Applies: Broker, Plugins: cl, Desc: "Verifies bodies when the end of the log is looked for after an unclean end."},
		{Name: "maxMappedFiles", Group: g, Type: Int, Min: 16, Max: 60_000, Default: "8192", Applies: Broker, Plugins: cl, Desc: "ConsumeQueue files that are mapped at a time."},
		{Name: "messageDelayLevel", Group: g, Type: Delays, Default: "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", Applies: Broker, Desc: "The delay levels, from 1."},
		{Name: "autoMessageVersionOnTopicLen", Group: g, Type: Bool, Default: "true", Applies: Broker, Refuses: map[string]string{"false": "topics longer than 127 bytes need the second record version; it is used for them only"}, Desc: "Writes a message of a topic longer than 127 bytes in the second record version."},
	}
}
