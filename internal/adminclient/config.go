package adminclient

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/internal/suggest"
)

// Config asks a broker for its configuration.
func (c *Client) Config(ctx context.Context, b Broker) (map[string]string, error) {
	r, err := c.Ask(ctx, b.Address, command.ReqGetBrokerConfig, nil, nil)
	if err != nil {
		return nil, err
	}
	return properties(r.Body), nil
}

// properties reads key=value lines, which brokers write without escapes.
func properties(text []byte) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), "="); ok && !strings.HasPrefix(key, "#") {
			out[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return out
}

// ConfigChange is a key of a broker whose value is another one now.
type ConfigChange struct {
	Key string `json:"key"`
	Old string `json:"old"`
	New string `json:"new"`
}

// ConfigUpdate is what came of SetConfig.
type ConfigUpdate struct {
	Changes []ConfigChange `json:"changes"`
	// Said is what the broker told; Apache's brokers tell nothing.
	Said string `json:"said,omitempty"`
}

// UnknownKeyError: a broker has no such key.
type UnknownKeyError struct {
	Key  string
	near string
}

// Error says what is meant perhaps.
func (e *UnknownKeyError) Error() string {
	return fmt.Sprintf("it has no key %q%s", e.Key, e.near)
}

// SetConfig changes keys of a running broker, all or none. Apache's brokers take any key
// and any value and say that all is well: a key that the broker does not show is an
// *UnknownKeyError and nothing is sent, and what became of the others is read back.
func (c *Client) SetConfig(ctx context.Context, b Broker, set map[string]string) (u ConfigUpdate, err error) {
	before, err := c.Config(ctx, b)
	if err != nil {
		return u, err
	}
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(set)) {
		if _, ok := before[key]; !ok {
			return u, &UnknownKeyError{key, suggest.DidYouMean(key, maps.Keys(before))}
		}
		fmt.Fprintf(&text, "%s=%s\n", key, set[key])
	}
	r, err := c.Ask(ctx, b.Address, command.ReqUpdateBrokerConfig, nil, []byte(text.String()))
	if err != nil {
		return u, err
	}
	u.Said = string(r.Header.Remark())
	after, err := c.Config(ctx, b)
	if err != nil {
		return u, fmt.Errorf("it was sent, and reading it back failed: %w", err)
	}
	u.Changes = []ConfigChange{}
	var ignored []string
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if old := before[key]; old != after[key] {
			u.Changes = append(u.Changes, ConfigChange{key, old, after[key]})
		}
		// One that tells what it did has refused what it could not do.
		if value, asked := set[key]; asked && u.Said == "" && !strings.EqualFold(after[key], strings.TrimSpace(value)) {
			ignored = append(ignored, fmt.Sprintf("%s=%s, and goes on with %s", key, value, after[key]))
		}
	}
	if len(ignored) > 0 {
		return u, fmt.Errorf("%w %s", ErrIgnored, strings.Join(ignored, "; "))
	}
	return u, nil
}

// ErrIgnored: a broker said that it took a value, and did not. Test with errors.Is.
var ErrIgnored = errors.New("it says that it took")
