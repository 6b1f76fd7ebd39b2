package command

import "strconv"

// Request codes (RocketMQ's RequestCode). The same numbers mean something else in a response.
const (
	ReqSendMessage                          int32 = 10
	ReqPullMessage                          int32 = 11
	ReqQueryMessage                         int32 = 12
	ReqQueryBrokerOffset                    int32 = 13
	ReqQueryConsumerOffset                  int32 = 14
	ReqUpdateConsumerOffset                 int32 = 15
	ReqUpdateAndCreateTopic                 int32 = 17
	ReqUpdateAndCreateTopicList             int32 = 18
	ReqGetAllTopicConfig                    int32 = 21
	ReqGetTopicConfigList                   int32 = 22
	ReqGetTopicNameList                     int32 = 23
	ReqUpdateBrokerConfig                   int32 = 25
	ReqGetBrokerConfig                      int32 = 26
	ReqTriggerDeleteFiles                   int32 = 27
	ReqGetBrokerRuntimeInfo                 int32 = 28
	ReqSearchOffsetByTimestamp              int32 = 29
	ReqGetMaxOffset                         int32 = 30
	ReqGetMinOffset                         int32 = 31
	ReqGetEarliestMsgStoreTime              int32 = 32
	ReqViewMessageByID                      int32 = 33
	ReqHeartBeat                            int32 = 34
	ReqUnregisterClient                     int32 = 35
	ReqConsumerSendMsgBack                  int32 = 36
	ReqEndTransaction                       int32 = 37
	ReqGetConsumerListByGroup               int32 = 38
	ReqCheckTransactionState                int32 = 39
	ReqNotifyConsumerIDsChanged             int32 = 40
	ReqLockBatchMQ                          int32 = 41
	ReqUnlockBatchMQ                        int32 = 42
	ReqGetAllConsumerOffset                 int32 = 43
	ReqGetAllDelayOffset                    int32 = 45
	ReqCheckClientConfig                    int32 = 46
	ReqGetClientConfig                      int32 = 47
	ReqUpdateAndCreateACLConfig             int32 = 50
	ReqDeleteACLConfig                      int32 = 51
	ReqGetBrokerClusterACLInfo              int32 = 52
	ReqUpdateGlobalWhiteAddrsConfig         int32 = 53
	ReqGetBrokerClusterACLConfig            int32 = 54
	ReqGetTimerCheckPoint                   int32 = 60
	ReqGetTimerMetrics                      int32 = 61
	ReqPutKVConfig                          int32 = 100
	ReqGetKVConfig                          int32 = 101
	ReqDeleteKVConfig                       int32 = 102
	ReqRegisterBroker                       int32 = 103
	ReqUnregisterBroker                     int32 = 104
	ReqGetRouteInfoByTopic                  int32 = 105
	ReqGetBrokerClusterInfo                 int32 = 106
	ReqUpdateAndCreateSubscriptionGroup     int32 = 200
	ReqGetAllSubscriptionGroupConfig        int32 = 201
	ReqGetTopicStatsInfo                    int32 = 202
	ReqGetConsumerConnectionList            int32 = 203
	ReqGetProducerConnectionList            int32 = 204
	ReqWipeWritePermOfBroker                int32 = 205
	ReqGetAllTopicListFromNameserver        int32 = 206
	ReqDeleteSubscriptionGroup              int32 = 207
	ReqGetConsumeStats                      int32 = 208
	ReqDeleteTopicInBroker                  int32 = 215
	ReqDeleteTopicInNamesrv                 int32 = 216
	ReqRegisterTopicInNamesrv               int32 = 217
	ReqGetKVListByNamespace                 int32 = 219
	ReqResetConsumerClientOffset            int32 = 220
	ReqGetConsumerStatusFromClient          int32 = 221
	ReqInvokeBrokerToResetOffset            int32 = 222
	ReqInvokeBrokerToGetConsumerStatus      int32 = 223
	ReqGetTopicsByCluster                   int32 = 224
	ReqUpdateAndCreateSubscriptionGroupList int32 = 225
	ReqQueryTopicConsumeByWho               int32 = 300
	ReqRegisterFilterServer                 int32 = 301
	ReqRegisterMessageFilterClass           int32 = 302
	ReqQueryConsumeTimeSpan                 int32 = 303
	ReqGetSystemTopicListFromNS             int32 = 304
	ReqGetSystemTopicListFromBroker         int32 = 305
	ReqCleanExpiredConsumeQueue             int32 = 306
	ReqGetConsumerRunningInfo               int32 = 307
	ReqQueryCorrectionOffset                int32 = 308
	ReqConsumeMessageDirectly               int32 = 309
	ReqSendMessageV2                        int32 = 310
	ReqGetUnitTopicList                     int32 = 311
	ReqGetHasUnitSubTopicList               int32 = 312
	ReqGetHasUnitSubUnunitTopicList         int32 = 313
	ReqCloneGroupOffset                     int32 = 314
	ReqViewBrokerStatsData                  int32 = 315
	ReqCleanUnusedTopic                     int32 = 316
	ReqGetBrokerConsumeStats                int32 = 317
	ReqUpdateNamesrvConfig                  int32 = 318
	ReqGetNamesrvConfig                     int32 = 319
	ReqSendBatchMessage                     int32 = 320
	ReqQueryConsumeQueue                    int32 = 321
	ReqQueryDataVersion                     int32 = 322
	ReqResumeCheckHalfMessage               int32 = 323
	ReqSendReplyMessage                     int32 = 324
	ReqSendReplyMessageV2                   int32 = 325
	ReqPushReplyMessageToClient             int32 = 326
	ReqAddWritePermOfBroker                 int32 = 327
	ReqGetAllProducerInfo                   int32 = 328
	ReqDeleteExpiredCommitLog               int32 = 329
	ReqQueryTopicsByConsumer                int32 = 343
	ReqQuerySubscriptionByConsumer          int32 = 345
	ReqGetTopicConfig                       int32 = 351
	ReqGetSubscriptionGroupConfig           int32 = 352
	ReqUpdateAndGetGroupForbidden           int32 = 353
	ReqCheckRocksDBCQWriteProgress          int32 = 354
	ReqExportRocksDBConfigToJSON            int32 = 355
	ReqLitePullMessage                      int32 = 361
	ReqRecallMessage                        int32 = 370
	ReqQueryAssignment                      int32 = 400
	ReqSetMessageRequestMode                int32 = 401
	ReqGetAllMessageRequestMode             int32 = 402
	ReqUpdateAndCreateStaticTopic           int32 = 513
	ReqGetBrokerMemberGroup                 int32 = 901
	ReqAddBroker                            int32 = 902
	ReqRemoveBroker                         int32 = 903
	ReqBrokerHeartbeat                      int32 = 904
	ReqNotifyMinBrokerIDChange              int32 = 905
	ReqExchangeBrokerHAInfo                 int32 = 906
	ReqGetBrokerHAStatus                    int32 = 907
	ReqResetMasterFlushOffset               int32 = 908
	ReqGetBrokerEpochCache                  int32 = 1007
	ReqUpdateColdDataFlowCtrConfig          int32 = 2001
	ReqRemoveColdDataFlowCtrConfig          int32 = 2002
	ReqGetColdDataFlowCtrInfo               int32 = 2003
	ReqSetCommitLogReadMode                 int32 = 2004
	ReqAuthCreateUser                       int32 = 3001
	ReqAuthUpdateUser                       int32 = 3002
	ReqAuthDeleteUser                       int32 = 3003
	ReqAuthGetUser                          int32 = 3004
	ReqAuthListUser                         int32 = 3005
	ReqAuthCreateACL                        int32 = 3006
	ReqAuthUpdateACL                        int32 = 3007
	ReqAuthDeleteACL                        int32 = 3008
	ReqAuthGetACL                           int32 = 3009
	ReqAuthListACL                          int32 = 3010
	ReqPopMessage                           int32 = 200050
	ReqAckMessage                           int32 = 200051
	ReqPeekMessage                          int32 = 200052
	ReqChangeMessageInvisibleTime           int32 = 200053
	ReqNotification                         int32 = 200054
	ReqPollingInfo                          int32 = 200055
	ReqPopRollback                          int32 = 200056
	ReqBatchAckMessage                      int32 = 200151
)

// Response codes (RocketMQ's RemotingSysResponseCode and ResponseCode).
const (
	RespSuccess                    int32 = 0
	RespSystemError                int32 = 1
	RespSystemBusy                 int32 = 2
	RespRequestCodeNotSupported    int32 = 3
	RespTransactionFailed          int32 = 4
	RespFlushDiskTimeout           int32 = 10
	RespSlaveNotAvailable          int32 = 11
	RespFlushSlaveTimeout          int32 = 12
	RespMessageIllegal             int32 = 13
	RespServiceNotAvailable        int32 = 14
	RespVersionNotSupported        int32 = 15
	RespNoPermission               int32 = 16
	RespTopicNotExist              int32 = 17
	RespTopicExistAlready          int32 = 18
	RespPullNotFound               int32 = 19
	RespPullRetryImmediately       int32 = 20
	RespPullOffsetMoved            int32 = 21
	RespQueryNotFound              int32 = 22
	RespSubscriptionParseFailed    int32 = 23
	RespSubscriptionNotExist       int32 = 24
	RespSubscriptionNotLatest      int32 = 25
	RespSubscriptionGroupNotExist  int32 = 26
	RespFilterDataNotExist         int32 = 27
	RespFilterDataNotLatest        int32 = 28
	RespInvalidParameter           int32 = 29
	RespTransactionShouldCommit    int32 = 200
	RespTransactionShouldRollback  int32 = 201
	RespTransactionStateUnknow     int32 = 202
	RespTransactionStateGroupWrong int32 = 203
	RespNoBuyerID                  int32 = 204
	RespNotInCurrentUnit           int32 = 205
	RespConsumerNotOnline          int32 = 206
	RespConsumeMsgTimeout          int32 = 207
	RespNoMessage                  int32 = 208
	RespPollingFull                int32 = 209
	RespPollingTimeout             int32 = 210
	RespBrokerNotExist             int32 = 211
	RespBrokerDispatchNotComplete  int32 = 212
	RespBroadcastConsumption       int32 = 213
	RespFlowControl                int32 = 215
	RespNotLeaderForQueue          int32 = 501
	RespIllegalOperation           int32 = 604
	RespGoAway                     int32 = 1500
	RespUserNotExist               int32 = 3001
	RespPolicyNotExist             int32 = 3002
)

// RequestName is RocketMQ's name of a request code, or its number.
func RequestName(code int32) string {
	switch code {
	case ReqSendMessage:
		return "SEND_MESSAGE"
	case ReqPullMessage:
		return "PULL_MESSAGE"
	case ReqQueryMessage:
		return "QUERY_MESSAGE"
	case ReqQueryBrokerOffset:
		return "QUERY_BROKER_OFFSET"
	case ReqQueryConsumerOffset:
		return "QUERY_CONSUMER_OFFSET"
	case ReqUpdateConsumerOffset:
		return "UPDATE_CONSUMER_OFFSET"
	case ReqUpdateAndCreateTopic:
		return "UPDATE_AND_CREATE_TOPIC"
	case ReqUpdateAndCreateTopicList:
		return "UPDATE_AND_CREATE_TOPIC_LIST"
	case ReqGetAllTopicConfig:
		return "GET_ALL_TOPIC_CONFIG"
	case ReqGetTopicConfigList:
		return "GET_TOPIC_CONFIG_LIST"
	case ReqGetTopicNameList:
		return "GET_TOPIC_NAME_LIST"
	case ReqUpdateBrokerConfig:
		return "UPDATE_BROKER_CONFIG"
	case ReqGetBrokerConfig:
		return "GET_BROKER_CONFIG"
	case ReqTriggerDeleteFiles:
		return "TRIGGER_DELETE_FILES"
	case ReqGetBrokerRuntimeInfo:
		return "GET_BROKER_RUNTIME_INFO"
	case ReqSearchOffsetByTimestamp:
		return "SEARCH_OFFSET_BY_TIMESTAMP"
	case ReqGetMaxOffset:
		return "GET_MAX_OFFSET"
	case ReqGetMinOffset:
		return "GET_MIN_OFFSET"
	case ReqGetEarliestMsgStoreTime:
		return "GET_EARLIEST_MSG_STORETIME"
	case ReqViewMessageByID:
		return "VIEW_MESSAGE_BY_ID"
	case ReqHeartBeat:
		return "HEART_BEAT"
	case ReqUnregisterClient:
		return "UNREGISTER_CLIENT"
	case ReqConsumerSendMsgBack:
		return "CONSUMER_SEND_MSG_BACK"
	case ReqEndTransaction:
		return "END_TRANSACTION"
	case ReqGetConsumerListByGroup:
		return "GET_CONSUMER_LIST_BY_GROUP"
	case ReqCheckTransactionState:
		return "CHECK_TRANSACTION_STATE"
	case ReqNotifyConsumerIDsChanged:
		return "NOTIFY_CONSUMER_IDS_CHANGED"
	case ReqLockBatchMQ:
		return "LOCK_BATCH_MQ"
	case ReqUnlockBatchMQ:
		return "UNLOCK_BATCH_MQ"
	case ReqGetAllConsumerOffset:
		return "GET_ALL_CONSUMER_OFFSET"
	case ReqGetAllDelayOffset:
		return "GET_ALL_DELAY_OFFSET"
	case ReqCheckClientConfig:
		return "CHECK_CLIENT_CONFIG"
	case ReqGetClientConfig:
		return "GET_CLIENT_CONFIG"
	case ReqUpdateAndCreateACLConfig:
		return "UPDATE_AND_CREATE_ACL_CONFIG"
	case ReqDeleteACLConfig:
		return "DELETE_ACL_CONFIG"
	case ReqGetBrokerClusterACLInfo:
		return "GET_BROKER_CLUSTER_ACL_INFO"
	case ReqUpdateGlobalWhiteAddrsConfig:
		return "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG"
	case ReqGetBrokerClusterACLConfig:
		return "GET_BROKER_CLUSTER_ACL_CONFIG"
	case ReqGetTimerCheckPoint:
		return "GET_TIMER_CHECK_POINT"
	case ReqGetTimerMetrics:
		return "GET_TIMER_METRICS"
	case ReqPutKVConfig:
		return "PUT_KV_CONFIG"
	case ReqGetKVConfig:
		return "GET_KV_CONFIG"
	case ReqDeleteKVConfig:
		return "DELETE_KV_CONFIG"
	case ReqRegisterBroker:
		return "REGISTER_BROKER"
	case ReqUnregisterBroker:
		return "UNREGISTER_BROKER"
	case ReqGetRouteInfoByTopic:
		return "GET_ROUTEINFO_BY_TOPIC"
	case ReqGetBrokerClusterInfo:
		return "GET_BROKER_CLUSTER_INFO"
	case ReqUpdateAndCreateSubscriptionGroup:
		return "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP"
	case ReqGetAllSubscriptionGroupConfig:
		return "GET_ALL_SUBSCRIPTIONGROUP_CONFIG"
	case ReqGetTopicStatsInfo:
		return "GET_TOPIC_STATS_INFO"
	case ReqGetConsumerConnectionList:
		return "GET_CONSUMER_CONNECTION_LIST"
	case ReqGetProducerConnectionList:
		return "GET_PRODUCER_CONNECTION_LIST"
	case ReqWipeWritePermOfBroker:
		return "WIPE_WRITE_PERM_OF_BROKER"
	case ReqGetAllTopicListFromNameserver:
		return "GET_ALL_TOPIC_LIST_FROM_NAMESERVER"
	case ReqDeleteSubscriptionGroup:
		return "DELETE_SUBSCRIPTIONGROUP"
	case ReqGetConsumeStats:
		return "GET_CONSUME_STATS"
	case ReqDeleteTopicInBroker:
		return "DELETE_TOPIC_IN_BROKER"
	case ReqDeleteTopicInNamesrv:
		return "DELETE_TOPIC_IN_NAMESRV"
	case ReqRegisterTopicInNamesrv:
		return "REGISTER_TOPIC_IN_NAMESRV"
	case ReqGetKVListByNamespace:
		return "GET_KVLIST_BY_NAMESPACE"
	case ReqResetConsumerClientOffset:
		return "RESET_CONSUMER_CLIENT_OFFSET"
	case ReqGetConsumerStatusFromClient:
		return "GET_CONSUMER_STATUS_FROM_CLIENT"
	case ReqInvokeBrokerToResetOffset:
		return "INVOKE_BROKER_TO_RESET_OFFSET"
	case ReqInvokeBrokerToGetConsumerStatus:
		return "INVOKE_BROKER_TO_GET_CONSUMER_STATUS"
	case ReqGetTopicsByCluster:
		return "GET_TOPICS_BY_CLUSTER"
	case ReqUpdateAndCreateSubscriptionGroupList:
		return "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST"
	case ReqQueryTopicConsumeByWho:
		return "QUERY_TOPIC_CONSUME_BY_WHO"
	case ReqRegisterFilterServer:
		return "REGISTER_FILTER_SERVER"
	case ReqRegisterMessageFilterClass:
		return "REGISTER_MESSAGE_FILTER_CLASS"
	case ReqQueryConsumeTimeSpan:
		return "QUERY_CONSUME_TIME_SPAN"
	case ReqGetSystemTopicListFromNS:
		return "GET_SYSTEM_TOPIC_LIST_FROM_NS"
	case ReqGetSystemTopicListFromBroker:
		return "GET_SYSTEM_TOPIC_LIST_FROM_BROKER"
	case ReqCleanExpiredConsumeQueue:
		return "CLEAN_EXPIRED_CONSUMEQUEUE"
	case ReqGetConsumerRunningInfo:
		return "GET_CONSUMER_RUNNING_INFO"
	case ReqQueryCorrectionOffset:
		return "QUERY_CORRECTION_OFFSET"
	case ReqConsumeMessageDirectly:
		return "CONSUME_MESSAGE_DIRECTLY"
	case ReqSendMessageV2:
		return "SEND_MESSAGE_V2"
	case ReqGetUnitTopicList:
		return "GET_UNIT_TOPIC_LIST"
	case ReqGetHasUnitSubTopicList:
		return "GET_HAS_UNIT_SUB_TOPIC_LIST"
	case ReqGetHasUnitSubUnunitTopicList:
		return "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST"
	case ReqCloneGroupOffset:
		return "CLONE_GROUP_OFFSET"
	case ReqViewBrokerStatsData:
		return "VIEW_BROKER_STATS_DATA"
	case ReqCleanUnusedTopic:
		return "CLEAN_UNUSED_TOPIC"
	case ReqGetBrokerConsumeStats:
		return "GET_BROKER_CONSUME_STATS"
	case ReqUpdateNamesrvConfig:
		return "UPDATE_NAMESRV_CONFIG"
	case ReqGetNamesrvConfig:
		return "GET_NAMESRV_CONFIG"
	case ReqSendBatchMessage:
		return "SEND_BATCH_MESSAGE"
	case ReqQueryConsumeQueue:
		return "QUERY_CONSUME_QUEUE"
	case ReqQueryDataVersion:
		return "QUERY_DATA_VERSION"
	case ReqResumeCheckHalfMessage:
		return "RESUME_CHECK_HALF_MESSAGE"
	case ReqSendReplyMessage:
		return "SEND_REPLY_MESSAGE"
	case ReqSendReplyMessageV2:
		return "SEND_REPLY_MESSAGE_V2"
	case ReqPushReplyMessageToClient:
		return "PUSH_REPLY_MESSAGE_TO_CLIENT"
	case ReqAddWritePermOfBroker:
		return "ADD_WRITE_PERM_OF_BROKER"
	case ReqGetAllProducerInfo:
		return "GET_ALL_PRODUCER_INFO"
	case ReqDeleteExpiredCommitLog:
		return "DELETE_EXPIRED_COMMITLOG"
	case ReqQueryTopicsByConsumer:
		return "QUERY_TOPICS_BY_CONSUMER"
	case ReqQuerySubscriptionByConsumer:
		return "QUERY_SUBSCRIPTION_BY_CONSUMER"
	case ReqGetTopicConfig:
		return "GET_TOPIC_CONFIG"
	case ReqGetSubscriptionGroupConfig:
		return "GET_SUBSCRIPTIONGROUP_CONFIG"
	case ReqUpdateAndGetGroupForbidden:
		return "UPDATE_AND_GET_GROUP_FORBIDDEN"
	case ReqCheckRocksDBCQWriteProgress:
		return "CHECK_ROCKSDB_CQ_WRITE_PROGRESS"
	case ReqExportRocksDBConfigToJSON:
		return "EXPORT_ROCKSDB_CONFIG_TO_JSON"
	case ReqLitePullMessage:
		return "LITE_PULL_MESSAGE"
	case ReqRecallMessage:
		return "RECALL_MESSAGE"
	case ReqQueryAssignment:
		return "QUERY_ASSIGNMENT"
	case ReqSetMessageRequestMode:
		return "SET_MESSAGE_REQUEST_MODE"
	case ReqGetAllMessageRequestMode:
		return "GET_ALL_MESSAGE_REQUEST_MODE"
	case ReqUpdateAndCreateStaticTopic:
		return "UPDATE_AND_CREATE_STATIC_TOPIC"
	case ReqGetBrokerMemberGroup:
		return "GET_BROKER_MEMBER_GROUP"
	case ReqAddBroker:
		return "ADD_BROKER"
	case ReqRemoveBroker:
		return "REMOVE_BROKER"
	case ReqBrokerHeartbeat:
		return "BROKER_HEARTBEAT"
	case ReqNotifyMinBrokerIDChange:
		return "NOTIFY_MIN_BROKER_ID_CHANGE"
	case ReqExchangeBrokerHAInfo:
		return "EXCHANGE_BROKER_HA_INFO"
	case ReqGetBrokerHAStatus:
		return "GET_BROKER_HA_STATUS"
	case ReqResetMasterFlushOffset:
		return "RESET_MASTER_FLUSH_OFFSET"
	case ReqGetBrokerEpochCache:
		return "GET_BROKER_EPOCH_CACHE"
	case ReqUpdateColdDataFlowCtrConfig:
		return "UPDATE_COLD_DATA_FLOW_CTR_CONFIG"
	case ReqRemoveColdDataFlowCtrConfig:
		return "REMOVE_COLD_DATA_FLOW_CTR_CONFIG"
	case ReqGetColdDataFlowCtrInfo:
		return "GET_COLD_DATA_FLOW_CTR_INFO"
	case ReqSetCommitLogReadMode:
		return "SET_COMMITLOG_READ_MODE"
	case ReqAuthCreateUser:
		return "AUTH_CREATE_USER"
	case ReqAuthUpdateUser:
		return "AUTH_UPDATE_USER"
	case ReqAuthDeleteUser:
		return "AUTH_DELETE_USER"
	case ReqAuthGetUser:
		return "AUTH_GET_USER"
	case ReqAuthListUser:
		return "AUTH_LIST_USER"
	case ReqAuthCreateACL:
		return "AUTH_CREATE_ACL"
	case ReqAuthUpdateACL:
		return "AUTH_UPDATE_ACL"
	case ReqAuthDeleteACL:
		return "AUTH_DELETE_ACL"
	case ReqAuthGetACL:
		return "AUTH_GET_ACL"
	case ReqAuthListACL:
		return "AUTH_LIST_ACL"
	case ReqPopMessage:
		return "POP_MESSAGE"
	case ReqAckMessage:
		return "ACK_MESSAGE"
	case ReqPeekMessage:
		return "PEEK_MESSAGE"
	case ReqChangeMessageInvisibleTime:
		return "CHANGE_MESSAGE_INVISIBLETIME"
	case ReqNotification:
		return "NOTIFICATION"
	case ReqPollingInfo:
		return "POLLING_INFO"
	case ReqPopRollback:
		return "POP_ROLLBACK"
	case ReqBatchAckMessage:
		return "BATCH_ACK_MESSAGE"
	}
	return strconv.Itoa(int(code))
}

// ResponseName is RocketMQ's name of a response code, or its number.
func ResponseName(code int32) string {
	switch code {
	case RespSuccess:
		return "SUCCESS"
	case RespSystemError:
		return "SYSTEM_ERROR"
	case RespSystemBusy:
		return "SYSTEM_BUSY"
	case RespRequestCodeNotSupported:
		return "REQUEST_CODE_NOT_SUPPORTED"
	case RespTransactionFailed:
		return "TRANSACTION_FAILED"
	case RespFlushDiskTimeout:
		return "FLUSH_DISK_TIMEOUT"
	case RespSlaveNotAvailable:
		return "SLAVE_NOT_AVAILABLE"
	case RespFlushSlaveTimeout:
		return "FLUSH_SLAVE_TIMEOUT"
	case RespMessageIllegal:
		return "MESSAGE_ILLEGAL"
	case RespServiceNotAvailable:
		return "SERVICE_NOT_AVAILABLE"
	case RespVersionNotSupported:
		return "VERSION_NOT_SUPPORTED"
	case RespNoPermission:
		return "NO_PERMISSION"
	case RespTopicNotExist:
		return "TOPIC_NOT_EXIST"
	case RespTopicExistAlready:
		return "TOPIC_EXIST_ALREADY"
	case RespPullNotFound:
		return "PULL_NOT_FOUND"
	case RespPullRetryImmediately:
		return "PULL_RETRY_IMMEDIATELY"
	case RespPullOffsetMoved:
		return "PULL_OFFSET_MOVED"
	case RespQueryNotFound:
		return "QUERY_NOT_FOUND"
	case RespSubscriptionParseFailed:
		return "SUBSCRIPTION_PARSE_FAILED"
	case RespSubscriptionNotExist:
		return "SUBSCRIPTION_NOT_EXIST"
	case RespSubscriptionNotLatest:
		return "SUBSCRIPTION_NOT_LATEST"
	case RespSubscriptionGroupNotExist:
		return "SUBSCRIPTION_GROUP_NOT_EXIST"
	case RespFilterDataNotExist:
		return "FILTER_DATA_NOT_EXIST"
	case RespFilterDataNotLatest:
		return "FILTER_DATA_NOT_LATEST"
	case RespInvalidParameter:
		return "INVALID_PARAMETER"
	case RespTransactionShouldCommit:
		return "TRANSACTION_SHOULD_COMMIT"
	case RespTransactionShouldRollback:
		return "TRANSACTION_SHOULD_ROLLBACK"
	case RespTransactionStateUnknow:
		return "TRANSACTION_STATE_UNKNOW"
	case RespTransactionStateGroupWrong:
		return "TRANSACTION_STATE_GROUP_WRONG"
	case RespNoBuyerID:
		return "NO_BUYER_ID"
	case RespNotInCurrentUnit:
		return "NOT_IN_CURRENT_UNIT"
	case RespConsumerNotOnline:
		return "CONSUMER_NOT_ONLINE"
	case RespConsumeMsgTimeout:
		return "CONSUME_MSG_TIMEOUT"
	case RespNoMessage:
		return "NO_MESSAGE"
	case RespPollingFull:
		return "POLLING_FULL"
	case RespPollingTimeout:
		return "POLLING_TIMEOUT"
	case RespBrokerNotExist:
		return "BROKER_NOT_EXIST"
	case RespBrokerDispatchNotComplete:
		return "BROKER_DISPATCH_NOT_COMPLETE"
	case RespBroadcastConsumption:
		return "BROADCAST_CONSUMPTION"
	case RespFlowControl:
		return "FLOW_CONTROL"
	case RespNotLeaderForQueue:
		return "NOT_LEADER_FOR_QUEUE"
	case RespIllegalOperation:
		return "ILLEGAL_OPERATION"
	case RespGoAway:
		return "GO_AWAY"
	case RespUserNotExist:
		return "USER_NOT_EXIST"
	case RespPolicyNotExist:
		return "POLICY_NOT_EXIST"
	}
	return strconv.Itoa(int(code))
}
