package config

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30

	maxInt32 = 1<<31 - 1
)

func nodeKeys() []Key {
	const g = GroupNode
	return []Key{
		{Name: "data", Group: g, Type: Path, Default: "./data", Applies: Standalone, Flag: "data", Desc: "Directory in which everything is kept."},
		{Name: "dev", Group: g, Type: Bool, Default: "false", Applies: Standalone, Flag: "dev", Desc: "Development mode: a loopback address may be advertised. Not for clients on other machines."},
		{Name: "adminListen", Group: g, Type: Address, Words: []string{wordOff}, Default: "127.0.0.1:10919", Applies: Standalone, Flag: "admin-listen", Desc: "Address of health, readiness, metrics and profiles; off: none. A name server alone has 127.0.0.1:9879 as default."},
		{Name: "drainTimeout", Group: g, Type: Duration, Unit: "ms", Min: 0, Max: 3_600_000, Default: "35s", Applies: Broker, Desc: "How long a broker that got SIGTERM goes on serving, without write permission in the routes of topics that other brokers take messages of, before it stops: the time in which clients ask for routes (30 s) and a little more. 0: it stops at once. Nothing is waited for when no other broker has a topic of clients that is here, see docs/operations.md."},
		{Name: "logLevel", Group: g, Type: Enum, Words: []string{"debug", "info", "warn", "error"}, Default: "info", Applies: Standalone, Flag: "log-level", Reloadable: true, Desc: "Least level that is logged."},
		{Name: "logFormat", Group: g, Type: Enum, Words: []string{"auto", "text", "json"}, Default: "auto", Applies: Standalone, Flag: "log-format", Desc: "Form of log lines; auto is text on a terminal and JSON elsewhere."},
	}
}

func networkKeys() []Key {
	const g = GroupNetwork
	return []Key{
		{Name: "listen", Group: g, Type: Address, Default: ":10911", Applies: Standalone, Flag: "listen", Desc: "Address on which the broker accepts clients. Without a host: every interface. For a name server alone it means namesrvListen."},
		{Name: "transport", Group: g, Type: Text, Default: "remoting", Applies: Standalone, Flag: "transport", Desc: "Name of the transport plugin of the client port (listen) and of a name server's (namesrvListen). The broker reaches name servers and other brokers through it, so all of a cluster have the same; it must have facet Dialer for that."},
		{Name: "moreListeners", Group: g, Type: Listeners, Empty: true, Applies: Broker, Desc: "Listeners beside the client port, each with its transport plugin, as in remoting://:10931 (TRANSPORT://ADDRESS). Clients learn of the client port alone from name servers. A transport that fails leaves the others as they are."},
		{Name: "listenPort", Group: g, Type: Int, Min: 1, Max: 65535, Default: "10911", Applies: Standalone, Sets: "listen", Desc: "RocketMQ's way to set the port of listen (in namesrv.conf: of namesrvListen)."},
		{Name: "bindAddress", Group: g, Type: Text, Default: "0.0.0.0", Applies: Standalone, Sets: "listen", Desc: "RocketMQ's way to set the host of listen (of namesrvListen for a name server)."},
		{Name: "advertise", Group: g, Type: Address, Words: []string{wordHost}, Empty: true, Applies: Broker, Flag: "advertise", Desc: "Address that clients are told to use. Empty: the listen address when it is a specific one, else the first suitable address of the machine. Never a wildcard; loopback only in development mode or when the broker listens on loopback."},
		{Name: "brokerIP1", Group: g, Type: Address, Words: []string{wordHost}, Applies: Broker, Sets: "advertise", Desc: "RocketMQ's name for the host of advertise."},
		{Name: "brokerIP2", Group: g, Type: Address, Words: []string{wordHost}, Empty: true, Applies: Broker, Desc: "Host that replicas are told to use. Empty: like advertise."},
		{Name: "vipChannel", Group: g, Type: Bool, Default: "true", Applies: Broker, Desc: "Second client port two below the first (10909 for 10911), which Java clients with the VIP channel use."},
		{Name: "maxConnections", Group: g, Type: Int, Min: 1, Max: 10_000_000, Default: "10000", Applies: Standalone, Desc: "Client connections of a port; further ones are closed at once."},
		{Name: "maxFrameSize", Aliases: []string{"com.rocketmq.remoting.frameMaxLength"}, Group: g, Type: Size, Min: 64 * kib, Max: 1 * gib, Default: "16MiB", Applies: Standalone, Desc: "Largest request; a longer one closes the connection. Must hold the largest message with its header."},
		{Name: "maxHeaderSize", Group: g, Type: Size, Min: 4 * kib, Max: 16 * mib, Default: "256KiB", Applies: Standalone, Desc: "Largest header of a request."},
		{Name: "maxBytesInFlight", Group: g, Type: Size, Min: 1 * mib, Max: 1 << 40, Default: "128MiB", Applies: Standalone, Desc: "Bytes of requests that are being read or not yet answered, over all connections of a port."},
		{Name: "maxPendingBytesPerPeer", Group: g, Type: Size, Min: 64 * kib, Max: 1 * gib, Default: "8MiB", Applies: Standalone, Desc: "Bytes of answers that wait for one slow reader before its connection is closed. One answer is sent whatever its size."},
		{Name: "maxPendingBytes", Group: g, Type: Size, Min: 1 * mib, Max: 1 << 40, Default: "128MiB", Applies: Standalone, Desc: "Bytes of answers that wait for slow readers, over all connections of a port. Must hold the largest message with its header."},
		{Name: "serverChannelMaxIdleTimeSeconds", Group: g, Type: Duration, Unit: "s", Min: 1, Max: 86400, Default: "120", Applies: Standalone, Desc: "A connection without any traffic for this long is closed."},
		{Name: "connectTimeoutMillis", Aliases: []string{"com.rocketmq.remoting.client.connect.timeout"}, Group: g, Type: Duration, Unit: "ms", Min: 10, Max: 600_000, Default: "3000", Applies: Broker, Desc: "How long the broker tries to connect to a name server."},
	}
}

func namesrvKeys() []Key {
	const g = GroupNamesrv
	return []Key{
		{Name: "namesrvListen", Group: g, Type: Address, Default: ":9876", Applies: Namesrv, Flag: "namesrv-listen", Desc: "Address on which the name server accepts brokers and clients."},
		{Name: "scanNotActiveBrokerInterval", Group: g, Type: Duration, Unit: "ms", Min: 10, Max: 600_000, Default: "5000", Applies: Namesrv, Reloadable: true, Desc: "How often the name server looks for brokers that went silent."},
		{Name: "brokerChannelExpiredTime", Group: g, Type: Duration, Unit: "ms", Min: 100, Max: 3_600_000, Default: "120000", Applies: Namesrv, Reloadable: true, Desc: "A broker silent for this long is taken out of the routes."},
		{Name: "orderMessageEnable", Group: g, Type: Bool, Default: "false", Applies: Namesrv, Reloadable: true, Desc: "Adds the configuration of ordered topics to route answers."},
		{Name: "enableAllTopicList", Group: g, Type: Bool, Default: "true", Applies: Namesrv, Reloadable: true, Desc: "Answers requests for the list of all topics."},
		{Name: "enableTopicList", Group: g, Type: Bool, Default: "true", Applies: Namesrv, Reloadable: true, Desc: "Answers requests for the topics of a cluster or unit."},
	}
}

func processKeys() []Key {
	const g = GroupProcess
	return []Key{
		{Name: "pluginStartTimeout", Group: g, Type: Duration, Unit: "ms", Min: 1000, Max: 3_600_000, Default: "30s", Applies: Standalone, Desc: "How long the process of a plugin may take from its launch to the answer to its first health call."},
		{Name: "pluginHealthInterval", Group: g, Type: Duration, Unit: "ms", Min: 0, Max: 3_600_000, Default: "5s", Applies: Standalone, Desc: "How often the process of a plugin is asked whether it is there; 0: never, and one that hangs is not noticed."},
		{Name: "pluginHealthTimeout", Group: g, Type: Duration, Unit: "ms", Min: 100, Max: 3_600_000, Default: "5s", Applies: Standalone, Desc: "How long it may take to answer. One that misses it is asked once more, and killed when it misses that, too."},
		{Name: "pluginCallTimeout", Group: g, Type: Duration, Unit: "ms", Min: 0, Max: 3_600_000, Default: "1m", Applies: Standalone, Desc: "How long a plugin may leave a call over its data socket unanswered without bringing anything there; then its process is killed and started again, although it answers health calls. It must be longer than the longest call, a slow disk included. The start of a store or transport is not bounded by it, nor what waits for replicas. 0: for ever."},
		{Name: "pluginStopTimeout", Group: g, Type: Duration, Unit: "ms", Min: 0, Max: 3_600_000, Default: "5s", Applies: Standalone, Desc: "How long the process of a plugin may leave its broker without an answer once that stops: to a health call, on its data socket, to the call that ends the plugin; then it is killed. The end of a store whose acknowledged messages do not survive its process is waited for as long as the stop takes, as long as it answers health calls. 0: as long as at other times."},
		{Name: "pluginBackoffFirst", Group: g, Type: Duration, Unit: "ms", Min: 1, Max: 3_600_000, Default: "100ms", Applies: Standalone, Desc: "The pause before the process of a plugin that died is started again; twice as long after each further death in a row, and at random down to half of that."},
		{Name: "pluginBackoffMost", Group: g, Type: Duration, Unit: "ms", Min: 1, Max: 3_600_000, Default: "30s", Applies: Standalone, Desc: "The longest such pause; at least pluginBackoffFirst."},
		{Name: "pluginBreakerDeaths", Group: g, Type: Int, Min: 0, Max: 1000, Default: "5", Applies: Standalone, Desc: "After so many deaths within pluginBreakerWindow the circuit breaker of the plugin opens; 0: it never does."},
		{Name: "pluginBreakerWindow", Group: g, Type: Duration, Unit: "ms", Min: 100, Max: 86_400_000, Default: "1m", Applies: Standalone, Desc: "See pluginBreakerDeaths. A process that lived for so long is well again: pause and circuit breaker begin anew."},
		{Name: "pluginBreakerOpen", Group: g, Type: Duration, Unit: "ms", Min: 100, Max: 86_400_000, Default: "30s", Applies: Standalone, Desc: "How long an open circuit breaker refuses every start; then there is one attempt."},
	}
}
