package config

import (
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// set gives a key a value that follows from src.
func (l *loader) set(name string, v any, src Source) {
	k, _ := l.table.lookup(name)
	l.merge(map[string]any{k.path(): v})
	if src != (Source{}) {
		l.origin[name] = src
	}
}

func (l *loader) get(name string) any {
	k, _ := l.table.lookup(name)
	return l.k.Get(k.path())
}

func (l *loader) getText(name string) string {
	s, _ := l.get(name).(string)
	return s
}

// derive applies RocketMQ's ways to set parts of our keys, and defaults that
// depend on other keys. A part overrides when its layer is above that of the
// whole; in the same layer the two must agree.
func (l *loader) derive() {
	target := "listen"
	if l.mode == Namesrv {
		target = "namesrvListen"
		l.whole("namesrvListen", "listen")
	}
	l.listenParts(target)
	l.advertisePart()
	l.deriveTLS()
	if l.mode&Broker != 0 {
		l.storePaths()
	}
	if l.getText("storePathRootDir") == "" {
		l.set("storePathRootDir", filepath.Join(l.getText("data"), "store"), Source{})
	}
}

// whole lets key by stand for target.
func (l *loader) whole(target, by string) {
	src, set := l.origin[by]
	if !set || src.Kind < l.origin[target].Kind {
		return
	}
	v := l.get(by)
	if src.Kind == l.origin[target].Kind {
		if v != l.get(target) {
			l.conflict(by, target)
		}
		return
	}
	l.set(target, v, src)
}

func (l *loader) conflict(key, other string) {
	k, _ := l.table.lookup(key)
	l.fail(&Error{Kind: ErrConflict, Key: key, Value: k.format(l.get(key)), Source: l.origin[key], Earlier: l.origin[other],
		Reason: fmt.Sprintf("%s at %s says %v; remove one", other, l.origin[other], l.get(other))})
}

func (l *loader) listenParts(target string) {
	host, port, err := net.SplitHostPort(l.getText(target))
	if err != nil {
		return
	}
	above := l.origin[target]
	changed := Source{}
	if src, set := l.origin["bindAddress"]; set && src.Kind >= above.Kind {
		bind := strings.TrimSuffix(strings.TrimPrefix(l.getText("bindAddress"), "["), "]")
		switch {
		case !validHost(bind):
			k, _ := l.table.lookup("bindAddress")
			l.bad(k, bind, src, fmt.Errorf("allowed is an IP address or a host name"))
		case src.Kind == above.Kind && bind != host && !(isWildcard(bind) && isWildcard(host)):
			l.conflict("bindAddress", target)
		case src.Kind > above.Kind:
			host, changed = bind, src
		}
	}
	if src, set := l.origin["listenPort"]; set && src.Kind >= above.Kind {
		n, _ := l.get("listenPort").(int64)
		p := strconv.FormatInt(n, 10)
		switch {
		case src.Kind == above.Kind && p != port:
			l.conflict("listenPort", target)
		case src.Kind > above.Kind:
			port, changed = p, src
		}
	}
	if changed != (Source{}) {
		l.set(target, net.JoinHostPort(host, port), changed)
	}
}

func (l *loader) advertisePart() {
	src, set := l.origin["brokerIP1"]
	if !set || src.Kind < l.origin["advertise"].Kind {
		return
	}
	ip := l.getText("brokerIP1")
	if src.Kind == l.origin["advertise"].Kind {
		if a := l.getText("advertise"); a != ip && hostOf(a) != hostOf(ip) {
			l.conflict("brokerIP1", "advertise")
		}
		return
	}
	l.set("advertise", ip, src)
}

// storePaths refuses a path of the store when a layer above names the directory
// around it: who says --data over a file gets neither the file's store in
// silence nor a new one beside it.
func (l *loader) storePaths() {
	for _, part := range []string{"storePathRootDir", "storePathCommitLog"} {
		src, set := l.origin[part]
		path := l.getText(part)
		if !set || path == "" {
			continue
		}
		for _, around := range []string{"data", "storePathRootDir"} {
			above := l.origin[around]
			dir := l.getText(around)
			if around == part || above.Kind <= src.Kind || within(dir, path) {
				continue
			}
			reason := fmt.Sprintf("%s at %s is %s, which does not hold it; give %s there, too, or remove one", around, above, dir, part)
			if around == "data" && src.Kind == FromFile {
				reason += fmt.Sprintf(", or write data = %s into %s, and the store stays where it is", dir, src.Name)
			}
			l.fail(&Error{Kind: ErrConflict, Key: part, Value: path, Source: src, Earlier: above, Reason: reason})
			break
		}
	}
}

// within tells whether path is dir or in it, as far as the names say.
func within(dir, path string) bool {
	d, err := filepath.Abs(dir)
	if err != nil {
		return false
	}
	p, err := filepath.Abs(path)
	if err != nil {
		return false
	}
	rel, err := filepath.Rel(d, p)
	return err == nil && filepath.IsLocal(rel)
}

var (
	entityName = regexp.MustCompile(`^[A-Za-z0-9_.%|-]{1,127}$`)
	// envelope is what a request needs beside the largest body: header,
	// properties (at most 32,767 bytes), topic.
	envelope int64 = 64 * kib
)

// check holds the rules between keys.
func (l *loader) check(c *Config) {
	refuse := func(kind error, key, format string, args ...any) {
		k, _ := l.table.lookup(key)
		l.fail(&Error{Kind: kind, Key: key, Value: k.format(l.get(key)), Source: l.origin[key], Reason: fmt.Sprintf(format, args...)})
	}
	for _, key := range []string{"brokerName", "brokerClusterName", "msgTraceTopicName"} {
		if v := l.getText(key); !entityName.MatchString(v) {
			refuse(ErrBadValue, key, "allowed are up to 127 letters, digits and _ . %% | -")
		}
	}
	for _, key := range []string{"storage", "replication", "transport"} {
		if !IsPluginName(l.getText(key)) {
			refuse(ErrBadValue, key, "a plugin's name has lower case letters, digits and underscores")
		}
	}
	n := c.Network
	if n.MaxHeaderSize > n.MaxFrameSize {
		refuse(ErrConflict, "maxHeaderSize", "must not exceed maxFrameSize, which is %s", formatSize(n.MaxFrameSize))
	}
	if p := c.PluginProcesses; p.BackoffFirst > p.BackoffMost {
		refuse(ErrConflict, "pluginBackoffFirst", "must not exceed pluginBackoffMost, which is %v", p.BackoffMost)
	}
	if n.MaxBytesInFlight < n.MaxFrameSize {
		refuse(ErrConflict, "maxBytesInFlight", "must be at least maxFrameSize, which is %s: a request of that size could never be read", formatSize(n.MaxFrameSize))
	}
	if l.mode&Broker != 0 {
		l.checkBroker(c, refuse)
	}
	l.checkMetrics(&c.Metrics, refuse)
	l.checkPorts(c)
	l.checkTLS(c, refuse)
	if h := hostOf(c.Node.AdminListen); c.Node.AdminListen != AdminOff && !isLoopbackHost(h) {
		l.warn("adminListen", l.origin["adminListen"], "whoever reaches %s can read metrics and profiles", c.Node.AdminListen)
	}
}

func (l *loader) checkBroker(c *Config, refuse func(kind error, key, format string, args ...any)) {
	if c.Broker.ID != 0 {
		refuse(ErrRefused, "brokerId", "%s", replicationLater)
	}
	if need := c.Broker.MaxMessageSize + envelope; need > c.Network.MaxFrameSize {
		refuse(ErrConflict, "maxMessageSize", "a message of that size needs maxFrameSize of at least %d; it is %s", need, formatSize(c.Network.MaxFrameSize))
	}
	if need := c.Broker.MaxMessageSize + envelope; need > c.Network.MaxPendingBytes {
		refuse(ErrConflict, "maxPendingBytes", "must be at least %d for messages of up to maxMessageSize, which is %s: an answer with one could never be sent", need, formatSize(c.Broker.MaxMessageSize))
	}
	if c.Broker.MaxMessageSize >= c.Store.SegmentSize && (l.origin["maxMessageSize"] != Source{} || l.origin["mappedFileSizeCommitLog"] != Source{}) {
		l.warn("mappedFileSizeCommitLog", l.origin["mappedFileSizeCommitLog"], "messages that do not fit into a segment of %s are refused, although maxMessageSize is %s",
			formatSize(c.Store.SegmentSize), formatSize(c.Broker.MaxMessageSize))
	}
	if strings.ContainsAny(c.Store.CommitLogDir, ",") {
		refuse(ErrRefused, "storePathCommitLog", "several directories for one log are not supported; name one")
	}
	if _, err := c.Retention.Hours(); err != nil {
		refuse(ErrBadValue, "deleteWhen", "%s", err)
	}
	if r := c.Retention; r.CleanForciblyRatio > r.WarningRatio {
		l.warn("diskSpaceCleanForciblyRatio", l.origin["diskSpaceCleanForciblyRatio"], "is %d, above diskSpaceWarningLevelRatio, which is %d and counts for both", r.CleanForciblyRatio, r.WarningRatio)
	}
	if c.Store.WarmMappedFile && c.Store.CommitLogWrite != WriteMap {
		l.warn("warmMapedFileEnable", l.origin["warmMapedFileEnable"], "has an effect only with commitLogWrite map")
	}
	if l.mode == Broker && len(c.Broker.NamesrvAddrs) == 0 {
		l.warn("namesrvAddr", Source{}, "no name server is given: clients will not find this broker")
	}
}

// checkPorts refuses two listeners on one port.
func (l *loader) checkPorts(c *Config) {
	ports := c.ports(l.mode)
	if c.Node.AdminListen != AdminOff {
		ports = append(ports, port{"adminListen", "", c.Node.AdminListen})
	}
	if a := c.Metrics.PromAddress(); a != "" {
		ports = append(ports, port{"metricsPromExporterPort", "", a})
	}
	for i, a := range ports {
		for _, b := range ports[:i] {
			if a.collides(b) {
				l.fail(&Error{Kind: ErrConflict, Key: a.key, Value: a.addr, Source: l.origin[a.key], Earlier: l.origin[b.key],
					Reason: fmt.Sprintf("the port is also that of %s (%s)", b.key, b.addr)})
			}
		}
	}
}

// port is one that the process listens on.
type port struct {
	key string
	// transport is the plugin that listens, for the number means a port of its kind;
	// empty: any.
	transport string
	addr      string
}

// ports are those of the parts of a process, without the admin port.
func (c *Config) ports(mode Mode) []port {
	var ports []port
	if mode&Broker != 0 {
		ports = append(ports, port{"listen", c.Network.Transport, c.Network.Listen})
		if p := portOf(c.Network.Listen); c.Network.VIPChannel && p > 2 {
			ports = append(ports, port{"vipChannel", c.Network.Transport, net.JoinHostPort(hostOf(c.Network.Listen), strconv.Itoa(p-2))})
		}
		for _, m := range c.Network.More() {
			ports = append(ports, port{"moreListeners", m.Transport, m.Address})
		}
	}
	if mode&Namesrv != 0 {
		ports = append(ports, port{"namesrvListen", c.Network.Transport, c.Namesrv.Listen})
	}
	return ports
}

// collides tells whether two listeners cannot be open at a time. Port 0 is any.
func (p port) collides(o port) bool {
	hp, ho := hostOf(p.addr), hostOf(o.addr)
	if p.transport != o.transport && p.transport != "" && o.transport != "" {
		return false
	}
	return portOf(p.addr) != 0 && portOf(p.addr) == portOf(o.addr) && (hp == ho || isWildcard(hp) || isWildcard(ho))
}
