// Package client knows the producers and consumers that are connected: HEART_BEAT
// (34), UNREGISTER_CLIENT (35), GET_CONSUMER_LIST_BY_GROUP (38),
// CHECK_CLIENT_CONFIG (46), and the push NOTIFY_CONSUMER_IDS_CHANGED (40).
//
// A member is a client id in a group; it holds the connection of its last
// heartbeat. Members leave by unregistering, by their connection's close (Go
// clients never unregister), or when they were silent for
// Config.ChannelExpired. Nothing here survives a restart: clients introduce
// themselves again with their next heartbeat.
package client
