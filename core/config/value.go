package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// parse turns a value as written into the typed value that koanf holds. The
// error's text says what is allowed; it does not repeat the value.
func (k Key) parse(text string) (any, error) {
	text = strings.TrimSpace(text)
	if err := checkText(text); err != nil {
		return nil, err
	}
	if text == "" {
		if k.Empty || k.Status != Honoured && (k.Type == Text || k.Type == Path || k.list()) {
			return k.emptyValue(), nil
		}
		return nil, fmt.Errorf("the value is missing; allowed is %s", k.AllowedText())
	}
	switch k.Type {
	case Bool:
		switch {
		case strings.EqualFold(text, "true"):
			return true, nil
		case strings.EqualFold(text, "false"):
			return false, nil
		}
		return nil, fmt.Errorf("write true or false; other words for yes and no are not accepted")
	case Enum:
		for _, w := range k.Words {
			if strings.EqualFold(w, text) {
				return w, nil
			}
		}
		return nil, fmt.Errorf("allowed is %s", k.AllowedText())
	case Int:
		return k.parseInt(text)
	case Float:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("allowed is %s", k.AllowedText())
		}
		return f, nil
	case Size:
		return k.parseSize(text)
	case Duration:
		return k.parseDuration(text)
	case Address:
		return k.parseAddress(text)
	case Addresses:
		return k.parseAddresses(text)
	case Listeners:
		return k.parseListeners(text)
	case Delays:
		return parseDelays(text)
	default:
		return text, nil
	}
}

func (k Key) emptyValue() any {
	if k.list() {
		return []string{}
	}
	return ""
}

// list tells whether values are lists of texts.
func (k Key) list() bool { return k.Type == Addresses || k.Type == Listeners }

func checkText(text string) error {
	if !utf8.ValidString(text) {
		return ErrEncoding
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\t' }); i >= 0 {
		return fmt.Errorf("control character %q is not allowed in a value", []rune(text[i:])[0])
	}
	return nil
}

func (k Key) inRange(n int64) bool { return !k.limited() || n >= k.Min && n <= k.Max }

func (k Key) parseInt(text string) (any, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || !k.inRange(n) || len(k.Words) > 0 && !slices.Contains(k.Words, strconv.FormatInt(n, 10)) {
		return nil, fmt.Errorf("allowed is %s", k.AllowedText())
	}
	return n, nil
}

var sizeUnits = []struct {
	name string
	mul  int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

func (k Key) parseSize(text string) (any, error) {
	mul := int64(1)
	num := text
	for _, u := range sizeUnits {
		if len(text) > len(u.name) && strings.EqualFold(text[len(text)-len(u.name):], u.name) {
			num, mul = strings.TrimSpace(text[:len(text)-len(u.name)]), u.mul
			break
		}
	}
	n, err := strconv.ParseInt(num, 10, 64)
	if err != nil || n > math.MaxInt64/mul || n < math.MinInt64/mul || !k.inRange(n*mul) {
		return nil, fmt.Errorf("allowed is %s", k.AllowedText())
	}
	return n * mul, nil
}

// ParseSize reads a size as every key takes it: plain bytes, or with the unit KiB,
// MiB, GiB or TiB.
func ParseSize(text string) (int64, error) {
	v, err := Key{Type: Size}.parseSize(strings.TrimSpace(text))
	if err != nil {
		return 0, err
	}
	return v.(int64), nil
}

// ParseDuration reads a time as every key takes it, but only with its unit: ms, s,
// m, h or d, and those of time.ParseDuration.
func ParseDuration(text string) (time.Duration, error) {
	text = strings.TrimSpace(text)
	days, ok := strings.CutSuffix(text, "d")
	if !ok {
		if d, err := time.ParseDuration(text); err == nil {
			return d, nil
		}
	} else if n, err := strconv.ParseUint(days, 10, 16); err == nil {
		return time.Duration(n) * 24 * time.Hour, nil
	}
	return 0, errors.New("allowed is a time with its unit, as in 500ms, 30s, 5m, 1h, 2d")
}

func unitDuration(u string) time.Duration {
	switch u {
	case "s":
		return time.Second
	case "min":
		return time.Minute
	case "h":
		return time.Hour
	default:
		return time.Millisecond
	}
}

func (k Key) parseDuration(text string) (any, error) {
	bad := func() (any, error) { return nil, fmt.Errorf("allowed is %s", k.AllowedText()) }
	unit := unitDuration(k.Unit)
	var d time.Duration
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		if n > math.MaxInt64/int64(unit) || n < math.MinInt64/int64(unit) {
			return bad()
		}
		d = time.Duration(n) * unit
	} else if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseInt(strings.TrimSpace(days), 10, 64)
		if err != nil || n > 100_000 || n < 0 {
			return bad()
		}
		d = time.Duration(n) * 24 * time.Hour
	} else {
		if d, err = time.ParseDuration(text); err != nil {
			return bad()
		}
	}
	if d%unit != 0 {
		return nil, fmt.Errorf("must be a whole number of %s; allowed is %s", unitName(k.Unit), k.AllowedText())
	}
	if !k.inRange(int64(d / unit)) {
		return bad()
	}
	return d, nil
}

func (k Key) parseAddress(text string) (any, error) {
	if slices.Contains(k.Words, wordOff) && strings.EqualFold(text, wordOff) {
		return wordOff, nil
	}
	if slices.Contains(k.Words, wordHost) {
		if host := strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"); validHost(host) && !hasPort(text) {
			return text, nil
		}
	}
	if err := checkAddress(text, slices.Contains(k.Words, wordHost)); err != nil {
		return nil, fmt.Errorf("%w; allowed is %s", err, k.AllowedText())
	}
	return text, nil
}

// hasPort reports whether text reads as host:port rather than as a bare host
// or a bare IPv6 address.
func hasPort(text string) bool {
	if _, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")); err == nil {
		return false
	}
	return strings.Contains(text, ":")
}

func checkAddress(text string, needHost bool) error {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return fmt.Errorf("not an address")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return fmt.Errorf("%q is not a port", port)
	}
	if host == "" && needHost {
		return fmt.Errorf("the host is missing")
	}
	if host != "" && !validHost(host) {
		return fmt.Errorf("%q is neither an IP address nor a host name", host)
	}
	return nil
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?$`)

var dottedDigits = regexp.MustCompile(`^[0-9.]+$`)

// validHost accepts IP addresses and host names. Digits and dots alone must be
// an IPv4 address: "10.0.0.300" is a typing error, not a name.
func validHost(h string) bool {
	if _, err := netip.ParseAddr(h); err == nil {
		return true
	}
	return len(h) <= 253 && hostName.MatchString(h) && !dottedDigits.MatchString(h)
}

func (k Key) parseAddresses(text string) (any, error) {
	out := []string{}
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ';' }) {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		if strings.Contains(part, "://") {
			return nil, fmt.Errorf("%q: addresses served by HTTP are not supported; allowed is %s", part, k.AllowedText())
		}
		if err := checkAddress(part, true); err != nil {
			return nil, fmt.Errorf("%q: %w; allowed is %s", part, err, k.AllowedText())
		}
		if slices.Contains(out, part) {
			return nil, fmt.Errorf("%q is in the list twice", part)
		}
		out = append(out, part)
	}
	if len(out) == 0 && !k.Empty {
		return nil, fmt.Errorf("allowed is %s", k.AllowedText())
	}
	return out, nil
}

// betweenListener separates a transport from its address.
const betweenListener = "://"

func (k Key) parseListeners(text string) (any, error) {
	out := []string{}
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ';' }) {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		name, address, ok := strings.Cut(part, betweenListener)
		switch {
		case !ok || address == "":
			return nil, fmt.Errorf("%q is not of the form TRANSPORT://ADDRESS; allowed is %s", part, k.AllowedText())
		case !IsPluginName(name):
			return nil, fmt.Errorf("%q: %q is not a plugin's name: lower case letters, digits and underscores", part, name)
		case slices.Contains(out, part):
			return nil, fmt.Errorf("%q is in the list twice", part)
		}
		out = append(out, part)
	}
	return out, nil
}

var delayStep = regexp.MustCompile(`^([1-9][0-9]{0,8})([smhd])$`)

func parseDelays(text string) (any, error) {
	steps := strings.Fields(text)
	for _, s := range steps {
		if !delayStep.MatchString(s) {
			return nil, fmt.Errorf("step %q: allowed is a number with s, m, h or d, as in 1s 5s 10m 2h", s)
		}
	}
	if len(steps) > 64 {
		return nil, fmt.Errorf("%d steps; allowed are up to 64", len(steps))
	}
	return strings.Join(steps, " "), nil
}

// format writes a typed value so that parse reads the same value again.
func (k Key) format(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case bool:
		return strconv.FormatBool(v)
	case int64:
		if k.Type == Size {
			return formatSize(v)
		}
		return strconv.FormatInt(v, 10)
	case time.Duration:
		return formatDuration(int64(v/unitDuration(k.Unit)), k.Unit)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case []string:
		return strings.Join(v, ";")
	default:
		return fmt.Sprint(v)
	}
}

// plain writes a typed value as RocketMQ does: bytes and the key's own unit,
// without a suffix. Numbers stay numbers, for JSON.
func (k Key) plain(v any) any {
	switch v := v.(type) {
	case time.Duration:
		return int64(v / unitDuration(k.Unit))
	case []string:
		return strings.Join(v, ";")
	default:
		return v
	}
}

func formatSize(n int64) string {
	for _, u := range sizeUnits[:len(sizeUnits)-1] {
		if n != 0 && n%u.mul == 0 {
			return strconv.FormatInt(n/u.mul, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

func formatDuration(n int64, unit string) string {
	d := time.Duration(n) * unitDuration(unit)
	for _, u := range []struct {
		d time.Duration
		s string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if d != 0 && d%u.d == 0 {
			return strconv.FormatInt(int64(d/u.d), 10) + u.s
		}
	}
	if unit == "ms" || unit == "" {
		return strconv.FormatInt(n, 10) + "ms"
	}
	return d.String()
}
