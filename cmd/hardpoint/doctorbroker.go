package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/internal/adminclient"
)

// patient is a broker that is looked at.
type patient struct {
	b       adminclient.Broker
	checks  []check
	up      bool
	ours    bool
	version string
	table   command.StringMap
	config  map[string]string
}

func (p *patient) say(verdict, of, do, format string, args ...any) {
	p.checks = append(p.checks, check{Check: of, Subject: p.b.Name, Verdict: verdict, Says: fmt.Sprintf(format, args...), Do: do})
}

// examine looks at one broker. It is called by several goroutines.
func (d *doctor) examine(ctx context.Context, b adminclient.Broker, here []string) *patient {
	p := &patient{b: b}
	fault, do := addressFault(b.Address, here)
	if fault != "" {
		p.say(verdictFailure, "address", do, "%s: %s", b.Address, fault)
	}
	began := time.Now()
	info, err := d.c.Runtime(ctx, b, true)
	took := time.Since(began)
	switch {
	case unheard(err) && fault != "":
		return p // that is why
	case unheard(err):
		p.say(verdictFailure, "reach", whyUnreached(b.Address, err), "%s", err)
		return p
	case err != nil:
		p.say(verdictFailure, "reach", whyRefused(err), "%s", err)
		return p
	}
	p.up, p.table, p.ours = true, info.Table, info.Ours()
	p.version = softwareText(p.ours) + " " + info.Table["brokerVersionDesc"]
	if fault == "" {
		p.say(verdictOK, "reach", "", "%s answers in %s", b.Address, shortText(took))
	}
	if p.config, err = d.c.Config(ctx, b); err != nil {
		p.say(verdictUnknown, "identity", "", "it does not show its configuration: %s", err)
	} else {
		p.identity()
		p.permission()
	}
	p.disk(&info.RuntimeInfoResponse)
	p.limits(&info.RuntimeInfoResponse)
	return p
}

// addressFault says what is wrong with an address that a broker advertises, for a client
// that has reached name servers.
func addressFault(address string, nameServers []string) (fault, do string) {
	const set = "set the address that clients reach at the broker: brokerIP1 (or advertise), and restart it"
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		if strings.Count(address, ":") > 1 && !strings.Contains(address, "[") {
			return "an IPv6 address without brackets; clients cannot tell its port", "write it as [ADDRESS] in brokerIP1, and restart the broker"
		}
		return "no address of the form HOST:PORT", set
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "its port is none", set
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return "", "" // a name, which connecting looks up
	}
	switch {
	case ip.IsUnspecified():
		return "the address on which it listens, not one to connect to: whoever does reaches the own machine", set
	case ip.IsMulticast():
		return "a multicast address, to which nobody connects", set
	case ip.IsLoopback() && !allLoopback(nameServers):
		return "reached from its own machine alone, and the name server is on another one", set
	case ip.IsLinkLocalUnicast():
		return "a link-local address, which differs by network card", set
	}
	return "", ""
}

// allLoopback tells that name servers were reached at this machine.
func allLoopback(addresses []string) bool {
	for _, a := range addresses {
		host, _, err := net.SplitHostPort(a)
		ip, perr := netip.ParseAddr(host)
		if err != nil || host != "localhost" && (perr != nil || !ip.IsLoopback()) {
			return false
		}
	}
	return true
}

// whyUnreached is what to do about an address that is not reached.
func whyUnreached(address string, err error) string {
	var no *net.DNSError
	if do := whyTLS(err); do != "" {
		return do
	}
	switch {
	case errors.As(err, &no):
		return "the name is not known here: set an address that clients can look up (brokerIP1, or advertise), or make the name known"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there: is the broker running? Name servers forget a broker two minutes after its last word"
	}
	host, _, _ := net.SplitHostPort(address)
	ip, perr := netip.ParseAddr(host)
	if perr == nil && ip.IsPrivate() {
		return "it is of a private network; of a container, or of another network than this one? Set the address that clients reach (brokerIP1, or advertise), or run this where clients run"
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return "no answer: a firewall on the way, an address that leads elsewhere, or a broker that hangs"
	}
	return "see whether the broker runs and its port is let through"
}

// whyRefused is what to do about an address at which something else than a broker answers.
func whyRefused(err error) string {
	if code, _ := adminclient.CodeOf(err); code == command.RespRequestCodeNotSupported {
		return "the broker advertises the address of another server: set brokerIP1 and listenPort (or advertise), and restart it"
	}
	return ""
}

// identity looks whether the broker is the one that the name server means.
func (p *patient) identity() {
	name, cluster, id := p.config["brokerName"], p.config["brokerClusterName"], p.config["brokerId"]
	if name != "" && name != p.b.Name || cluster != "" && cluster != p.b.Cluster || id != "" && id != strconv.FormatInt(p.b.ID, 10) {
		p.say(verdictFailure, "identity", "two brokers advertise one address, or it leads to another machine: set brokerIP1 and listenPort of each (or advertise)",
			"%s is registered as broker %s, id %d, of cluster %s, and says that it is %s, id %s, of %s", p.b.Address, p.b.Name, p.b.ID, p.b.Cluster, name, orDash(id), orDash(cluster))
	}
}

func (p *patient) permission() {
	perm, err := strconv.ParseInt(p.config["brokerPermission"], 10, 32)
	if err != nil {
		p.say(verdictUnknown, "permission", "", "it does not say what clients may do")
		return
	}
	do := "if that is not meant: hardpoint broker config set brokerPermission=6 --broker " + p.b.Name
	switch state := stateOf(perm); state {
	case stateUp:
		p.say(verdictOK, "permission", "", "it may be read and written")
	case stateReadOnly:
		p.say(verdictWarning, "permission", do, "it is read-only (brokerPermission=%d): producers go to others", perm)
	default:
		p.say(verdictFailure, "permission", do, "it is %s (brokerPermission=%d): consumers get nothing", state, perm)
	}
}

// Levels of disks, percent, as RocketMQ has them where a broker does not show its own.
const (
	defaultWarningLevel  = 90
	defaultForciblyLevel = 85
)

func (p *patient) disk(info *command.RuntimeInfoResponse) {
	const of = "disk"
	var used *float64
	for key, v := range p.table {
		if f := fraction(v); strings.HasSuffix(key, "DiskRatio") && f != nil && *f >= 0 && (used == nil || *f > *used) {
			used = f
		}
	}
	if used == nil {
		p.say(verdictUnknown, of, "", "it does not say how full its disk is")
		return
	}
	level := func(key string, def float64) float64 {
		if f := fraction(p.config[key]); f != nil && *f > 0 {
			return *f
		}
		return def
	}
	refused, forcibly := level("diskSpaceWarningLevelRatio", defaultWarningLevel), level("diskSpaceCleanForciblyRatio", defaultForciblyLevel)
	do := "make room, keep messages for less time (fileReservedTime), or give it a larger disk"
	room := diskSize(p.table)
	switch percent := 100 * *used; {
	case percent >= refused:
		p.say(verdictFailure, of, do, "%.0f%% used, from %.0f%% on messages are refused; %s", percent, refused, room)
	case percent >= forcibly && p.config["cleanFileForciblyEnable"] != "false":
		p.say(verdictWarning, of, do, "%.0f%% used, from %.0f%% on messages are deleted before their time; %s", percent, forcibly, room)
	default:
		p.say(verdictOK, of, "", "%.0f%% used; %s", percent, room)
	}
	switch hours := info.FullInHours; {
	case !p.ours:
		p.say(verdictUnknown, "forecast", "", "an Apache broker does not foresee when its disk is full")
	case hours < 0:
		p.say(verdictOK, "forecast", "", "the disk does not fill, or that is not known yet")
	case hours < 24:
		p.say(verdictWarning, "forecast", do, "full in about %s at the rate of the last hour", counted(int(hours), "hour"))
	default:
		p.say(verdictOK, "forecast", "", "full in about %s at the rate of the last hour", durationText(time.Duration(hours)*time.Hour))
	}
}

// clientMessageSize is what official clients send at most unless told otherwise.
const clientMessageSize = 4 << 20

func (p *patient) limits(info *command.RuntimeInfoResponse) {
	if size, err := strconv.ParseInt(p.config["maxMessageSize"], 10, 64); err == nil {
		if size < clientMessageSize {
			p.say(verdictWarning, "message size", "make maxMessageSize 4194304 or more, or that of the producers less", "it takes messages up to %s; official clients send up to %s unless told otherwise", sizeText(size), sizeText(clientMessageSize))
		} else {
			p.say(verdictOK, "message size", "", "it takes messages up to %s", sizeText(size))
		}
	}
	if !p.ours {
		p.say(verdictUnknown, "limits", "", "an Apache broker does not tell its limits of open files and memory maps: see /proc/PID/limits and vm.max_map_count on its machine")
		return
	}
	near := func(what, do string, have, most int64) {
		switch {
		case have < 0 || most <= 0:
			p.say(verdictUnknown, what, "", "its system does not tell")
		case have*10 > most*8:
			p.say(verdictWarning, what, do, "%d of at most %d", have, most)
		default:
			p.say(verdictOK, what, "", "%d of at most %d", have, most)
		}
	}
	near("open files", "raise the limit (LimitNOFILE of the systemd unit, ulimit -n), and restart the broker", info.OpenFiles, info.OpenFilesMax)
	near("memory maps", "raise vm.max_map_count of its machine (sysctl)", info.MemoryMaps, info.MemoryMapsMax)
}
