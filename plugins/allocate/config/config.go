// Package config is the allocator CONFIG of RocketMQ's Java client
// (AllocateMessageQueueByConfig): the configuration says who gets which queues. In
// the Java client each consumer brings its own list; here all lists stand in one
// place, so that a queue cannot be given twice.
//
// What no rule gives to a member that is there gets no owner, and nobody reads it:
// a last rule {"client": "*", "queues": ["*/*"]} is for the rest.
package config

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/hardpointmq/hardpoint/core/allocate"
	"github.com/hardpointmq/hardpoint/core/allocate/allocatekit"
	"github.com/hardpointmq/hardpoint/core/plugin"
)

// Name is the name under which configuration selects the plugin.
const Name = "config"

// Config is the plugin's configuration.
type Config struct {
	// Rules are tried in order: a queue goes to the first that names it and has
	// a member.
	Rules []Rule `json:"rules"`
}

// Rule gives queues to clients.
type Rule struct {
	// Client is a client id, or a pattern of them: * stands for any characters
	// but "/", ? for one, [a-c] for one of these. Members that match share the
	// rule's queues in turn.
	Client string `json:"client"`
	// Queues are BROKER/ID or TOPIC/BROKER/ID. Topic and broker are names or
	// patterns, the id is a number, a range such as 0-3, or *.
	Queues []string `json:"queues"`
}

// NewDefaultConfig returns the defaults: no rules.
func NewDefaultConfig() Config { return Config{Rules: []Rule{}} }

// Validate implements plugin.Validator.
func (c Config) Validate() error {
	_, err := compile(c)
	return err
}

// NewFactory returns the plugin's factory.
func NewFactory() allocate.Factory {
	return allocate.NewFactory(Name, func(Config) plugin.Description { return plugin.Description{Version: "1.0.0"} }, NewDefaultConfig, New)
}

// New makes the allocator.
func New(_ context.Context, _ allocate.Params, c Config) (*Allocator, error) {
	rules, err := compile(c)
	if err != nil {
		return nil, err
	}
	return &Allocator{rules}, nil
}

// Allocator implements [allocate.Allocator].
type Allocator struct{ rules []rule }

type rule struct {
	client string
	queues []queues
}

// queues are what one text names: a topic, brokers, ids from to to.
type queues struct {
	topic, broker string
	from, to      int32
}

func (q queues) names(x allocate.Queue) bool {
	return x.ID >= q.from && x.ID <= q.to && allocatekit.Match(q.topic, x.Topic) && allocatekit.Match(q.broker, x.Broker)
}

func compile(c Config) ([]rule, error) {
	var errs []error
	rules := make([]rule, len(c.Rules))
	for i, r := range c.Rules {
		if allocatekit.CheckPattern(r.Client) != nil {
			errs = append(errs, fmt.Errorf("rules[%d].client: %q is neither a client id nor a pattern of them", i, r.Client))
		}
		if len(r.Queues) == 0 {
			errs = append(errs, fmt.Errorf("rules[%d].queues: the rule of client %q names no queues", i, r.Client))
		}
		rules[i].client = r.Client
		for k, text := range r.Queues {
			q, err := parse(text)
			if err != nil {
				errs = append(errs, fmt.Errorf("rules[%d].queues[%d]: %w", i, k, err))
			}
			rules[i].queues = append(rules[i].queues, q)
		}
	}
	return rules, errors.Join(errs...)
}

func parse(text string) (queues, error) {
	parts := strings.Split(text, "/")
	if len(parts) == 2 {
		parts = append([]string{"*"}, parts...)
	}
	bad := fmt.Errorf("%q must be BROKER/ID or TOPIC/BROKER/ID, with an id such as 3, 0-3 or *", text)
	if len(parts) != 3 {
		return queues{}, bad
	}
	q := queues{topic: parts[0], broker: parts[1]}
	for _, p := range parts[:2] {
		if allocatekit.CheckPattern(p) != nil {
			return queues{}, bad
		}
	}
	if parts[2] == "*" {
		q.to = 1<<31 - 1
		return q, nil
	}
	from, to, isRange := strings.Cut(parts[2], "-")
	if !isRange {
		to = from
	}
	a, errA := strconv.ParseUint(from, 10, 31)
	b, errB := strconv.ParseUint(to, 10, 31)
	if errA != nil || errB != nil || a > b {
		return queues{}, bad
	}
	q.from, q.to = int32(a), int32(b)
	return q, nil
}

// Allocate follows the rules.
func (c *Allocator) Allocate(_ context.Context, r *allocate.Request) (allocate.Assignment, error) {
	if err := r.Check(); err != nil {
		return allocate.Assignment{}, err
	}
	members := make([][]int, len(c.rules))
	for i := range c.rules {
		for m := range r.Members {
			if allocatekit.Match(c.rules[i].client, r.Members[m].ClientID) {
				members[i] = append(members[i], m)
			}
		}
	}
	turn := make([]int, len(c.rules))
	a := allocate.Assignment{Owner: make([]int, len(r.Queues)), Why: make([]string, len(r.Queues))}
	for i, q := range r.Queues {
		a.Owner[i], a.Why[i] = -1, "no rule names it"
		for n := range c.rules {
			if !c.rules[n].has(q) {
				continue
			}
			if len(members[n]) == 0 {
				a.Why[i] = fmt.Sprintf("rule %d: client %s is not there", n+1, c.rules[n].client)
				continue
			}
			a.Owner[i] = members[n][turn[n]%len(members[n])]
			a.Why[i] = fmt.Sprintf("rule %d: client %s", n+1, c.rules[n].client)
			turn[n]++
			break
		}
	}
	return a, nil
}

func (r *rule) has(q allocate.Queue) bool {
	for _, x := range r.queues {
		if x.names(q) {
			return true
		}
	}
	return false
}
