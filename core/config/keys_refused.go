package config

// refused makes keys of rows that must never be lost in silence. RocketMQ's
// default is harmless, and so is an empty value.
func refused(g Group, applies Mode, reason string, rows ...row) []Key {
	out := without(g, applies, reason, rows...)
	for i := range out {
		out[i].Status = Refused
		if out[i].Default != "" {
			out[i].Harmless = []string{out[i].Default}
		}
	}
	return out
}

const (
	noAccess     = "access control arrives in a later version; this one would let everybody in, so it does not start with a configuration that asks for it"
	noController = "controller mode is not supported"
	noDLedger    = "DLedger is not supported; replication by Raft arrives in a later version"
	noActing     = "a slave acting as master is not supported"
	noReplicas   = "it asks for more than one copy of a message; " + replicationLater
	noStoreType  = "only RocketMQ's default files are supported; for a key-value store see storage"
	noOtherPaths = "the store lies in one directory; messages in other ones would not be found"
)

// refusedKeys are those whose loss would weaken security or durability.
func refusedKeys() []Key {
	const b, s, n = GroupBroker, GroupStore, GroupNetwork
	keys := join(
		refused(b, Standalone, noAccess,
			row{"aclEnable", Bool, "false", "Access control of RocketMQ 4."},
			row{"authenticationEnabled", Bool, "false", "Authentication."},
			row{"authenticationProvider", Text, "", "Java class that authenticates."},
			row{"authenticationMetadataProvider", Text, "", "Java class that keeps users."},
			row{"authenticationStrategy", Text, "", "Java class that decides when to authenticate."},
			row{"authenticationWhitelist", Text, "", "Request codes that need no authentication."},
			row{"initAuthenticationUser", Text, "", "First user."},
			row{"innerClientAuthenticationCredentials", Text, "", "Account of the broker's own client."},
			row{"authorizationEnabled", Bool, "false", "Authorisation."},
			row{"authorizationProvider", Text, "", "Java class that authorises."},
			row{"authorizationMetadataProvider", Text, "", "Java class that keeps rights."},
			row{"authorizationStrategy", Text, "", "Java class that decides when to authorise."},
			row{"authorizationWhitelist", Text, "", "Request codes that need no authorisation."},
			row{"migrateAuthFromV1Enabled", Bool, "false", "Takes over the accounts of RocketMQ 4."},
			row{"authConfigPath", Path, "", "Directory of accounts and rights."},
		),
		[]Key{
			{Name: "storeType", Group: s, Type: Text, Default: "default", Harmless: []string{"default"}, Applies: Broker, Status: Refused, Reason: noStoreType, Desc: "Kind of RocketMQ's store."},
		},
		refused(s, Broker, noOtherPaths,
			row{"readOnlyCommitLogStorePaths", Path, "", "Further directories with segments to read."},
		),
		aliased(refused(s, Broker, noDLedger,
			row{"enableDLegerCommitLog", Bool, "false", "Replication by DLedger."},
			row{"dLegerGroup", Text, "", "Name of the DLedger group."},
			row{"dLegerPeers", Text, "", "Members of the DLedger group."},
			row{"dLegerSelfId", Text, "", "This member."},
			row{"preferredLeaderId", Text, "", "Member that should lead."},
			row{"enableBatchPush", Bool, "false", "Replicates in batches."},
			row{"storePathDLedgerCommitLog", Path, "", "Directory of DLedger's log."},
		), "enableBatchPush", "isEnableBatchPush"),
		refused(b, Standalone, noController,
			row{"enableControllerMode", Bool, "false", "Elects masters by a controller."},
			row{"controllerAddr", Text, "", "Addresses of the controllers."},
			row{"fetchControllerAddrByDnsLookup", Bool, "false", "Asks DNS for controllers."},
			row{"syncBrokerMetadataPeriod", Duration, "5000", "How often roles are asked for."},
			row{"checkSyncStateSetPeriod", Duration, "5000", "How often the in-sync set is checked."},
			row{"syncControllerMetadataPeriod", Duration, "10000", "How often the controllers' leader is asked for."},
			row{"controllerHeartBeatTimeoutMills", Duration, "10000", "Silence after which a broker is taken for gone."},
			row{"enableControllerInNamesrv", Bool, "false", "Runs a controller in the name server."},
			row{"controllerType", Text, "DLedger", "Kind of controller."},
			row{"controllerDLegerGroup", Text, "", "Name of the controllers' group."},
			row{"controllerDLegerPeers", Text, "", "Members of the controllers' group."},
			row{"controllerDLegerSelfId", Text, "", "This controller."},
			row{"controllerStorePath", Path, "", "Directory of the controller."},
			row{"controllerThreadPoolNums", Int, "16", "Threads of the controller."},
			row{"controllerRequestThreadPoolQueueCapacity", Int, "50000", "Requests to the controller that may wait."},
			row{"electMasterMaxRetryCount", Int, "3", "Attempts of an election."},
			row{"enableElectUncleanMaster", Bool, "false", "Elects a replica that lacks messages."},
			row{"isProcessReadEvent", Bool, "false", "Reads through the controllers' log."},
			row{"notifyBrokerRoleChanged", Bool, "true", "Tells brokers their new role."},
			row{"scanInactiveMasterInterval", Duration, "5000", "How often silent masters are looked for."},
			row{"storePathEpochFile", Path, "", "File of master epochs."},
			row{"storePathBrokerIdentity", Path, "", "File of the replica's identity."},
			row{"allAckInSyncStateSet", Bool, "false", "Waits for every replica of the in-sync set."},
			row{"enableAutoInSyncReplicas", Bool, "false", "Lowers the number of copies by itself."},
		),
		refused(b, Standalone, noActing,
			row{"enableSlaveActingMaster", Bool, "false", "Lets a slave do a gone master's duties."},
			row{"enableRemoteEscape", Bool, "false", "Sends to another group when no master is left."},
			row{"supportActingMaster", Bool, "false", "The name server's part of it."},
		),
		refused(s, Broker, noReplicas,
			row{"totalReplicas", Int, "1", "Members of the group."},
			row{"inSyncReplicas", Int, "1", "Copies that a send waits for."},
			row{"minInSyncReplicas", Int, "1", "Copies without which sends are refused."},
		),
	)
	for i := range keys {
		switch keys[i].Name {
		case "initAuthenticationUser", "innerClientAuthenticationCredentials":
			keys[i].Secret = true
		}
	}
	return join(keys, without(n, Standalone, "without access control there is nothing to cache",
		row{"userCacheMaxNum", Int, "1000", "Cached users."},
		row{"aclCacheMaxNum", Int, "1000", "Cached rights."},
		row{"statefulAuthenticationCacheMaxNum", Int, "10000", "Cached authentications."},
		row{"statefulAuthorizationCacheMaxNum", Int, "10000", "Cached authorisations."},
		row{"configName", Text, "", "Name of the access configuration."},
		row{"clusterName", Text, "", "Cluster of the access configuration."},
	), in("s", without(n, Standalone, "without access control there is nothing to cache",
		row{"userCacheExpiredSecond", Duration, "600", "When a cached user expires."},
		row{"userCacheRefreshSecond", Duration, "60", "When a cached user is read again."},
		row{"aclCacheExpiredSecond", Duration, "600", "When cached rights expire."},
		row{"aclCacheRefreshSecond", Duration, "60", "When cached rights are read again."},
		row{"statefulAuthenticationCacheExpiredSecond", Duration, "60", "When a cached authentication expires."},
		row{"statefulAuthorizationCacheExpiredSecond", Duration, "60", "When a cached authorisation expires."},
	)))
}
