package adminclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/internal/suggest"
)

// Broker is one broker of a cluster.
type Broker struct {
	Cluster string `json:"cluster"`
	Name    string `json:"broker"`
	ID      int64  `json:"brokerId"` // 0: master
	Address string `json:"address"`
}

// String names it for a person.
func (b Broker) String() string {
	if b.Name == "" {
		return b.Address
	}
	return b.Name + " (" + b.Address + ")"
}

// Selection says which brokers a question is for; the zero value: all masters that
// the name servers know.
type Selection struct {
	Cluster string
	// Broker is a name, or the address (host:port) of one, for which no name server
	// is asked.
	Broker string
	// Slaves: not only masters. A group without a master is told by its lowest id
	// in any case.
	Slaves bool
}

// NotFoundError: there is nothing of that name; Known are those that there are.
type NotFoundError struct {
	Kind, Name string
	Known      []string
	// Where it was looked for, as in "on 2 brokers"; may be empty.
	Where string
}

// maxListed is how many known names an error lists.
const maxListed = 10

// Error says what is meant perhaps.
func (e *NotFoundError) Error() string {
	text := fmt.Sprintf("there is no %s %q", e.Kind, e.Name)
	if e.Where != "" {
		text += " " + e.Where
	}
	if near := suggest.DidYouMean(e.Name, slices.Values(e.Known)); near != "" {
		return text + near
	}
	if n := len(e.Known); n > 0 && n <= maxListed {
		text += "; known are " + strings.Join(slices.Sorted(slices.Values(e.Known)), ", ")
	}
	return text
}

// Clusters asks a name server for all clusters and their brokers.
func (c *Client) Clusters(ctx context.Context) (command.ClusterInfo, error) {
	return GetFromNameServer[command.ClusterInfo](ctx, c, command.ReqGetBrokerClusterInfo, nil, nil)
}

// Route asks a name server where a topic is. A topic without a route is a
// *NotFoundError.
func (c *Client) Route(ctx context.Context, topic string) (command.TopicRouteData, error) {
	r, err := GetFromNameServer[command.TopicRouteData](ctx, c, command.ReqGetRouteInfoByTopic, &command.RouteRequest{Topic: topic, AcceptStandardJSONOnly: true}, nil)
	if code, _ := CodeOf(err); code == command.RespTopicNotExist {
		known, _ := c.TopicNames(ctx) // for the suggestion only
		return r, &NotFoundError{Kind: "topic", Name: topic, Known: known}
	}
	return r, err
}

// TopicNames asks a name server for the topics of all clusters, sorted.
func (c *Client) TopicNames(ctx context.Context) ([]string, error) {
	l, err := GetFromNameServer[command.TopicList](ctx, c, command.ReqGetAllTopicListFromNameserver, nil, nil)
	slices.Sort(l.Topics)
	return l.Topics, err
}

// Brokers are the brokers that s selects, by cluster, name and id. None is an error.
func (c *Client) Brokers(ctx context.Context, s Selection) ([]Broker, error) {
	if strings.Contains(s.Broker, ":") {
		b, err := c.brokerAt(ctx, s.Broker)
		if err == nil && s.Cluster != "" && b.Cluster != s.Cluster {
			err = fmt.Errorf("broker %s is of cluster %s, not of %s (--cluster)", b, b.Cluster, s.Cluster)
		}
		if err != nil {
			return nil, err
		}
		return []Broker{b}, nil
	}
	info, err := c.Clusters(ctx)
	if err != nil {
		return nil, err
	}
	return pick(&info, s)
}

// pick selects of what a name server knows.
func pick(info *command.ClusterInfo, s Selection) ([]Broker, error) {
	if _, ok := info.ClusterAddrTable[s.Cluster]; s.Cluster != "" && !ok {
		return nil, &NotFoundError{Kind: "cluster", Name: s.Cluster, Known: slices.Collect(maps.Keys(info.ClusterAddrTable))}
	}
	var out []Broker
	var names []string
	for name, d := range info.BrokerAddrTable {
		if s.Cluster != "" && !slices.Contains(info.ClusterAddrTable[s.Cluster], name) {
			continue
		}
		names = append(names, name)
		if s.Broker == "" || s.Broker == name {
			out = append(out, membersOf(&d, s.Slaves)...)
		}
	}
	slices.SortFunc(out, compare)
	switch {
	case len(out) > 0:
		return out, nil
	case s.Broker != "":
		return nil, &NotFoundError{Kind: "broker", Name: s.Broker, Known: names}
	default:
		return nil, errors.New("the name server knows no broker")
	}
}

// All are all brokers that a name server knows, by cluster, name and id.
func All(info *command.ClusterInfo) []Broker {
	var out []Broker
	for _, d := range info.BrokerAddrTable {
		out = append(out, membersOf(&d, true)...)
	}
	slices.SortFunc(out, compare)
	return out
}

// membersOf are the brokers of a group: all, or the one that leads.
func membersOf(d *command.BrokerData, all bool) []Broker {
	ids := slices.Sorted(maps.Keys(d.BrokerAddrs))
	if !all && len(ids) > 1 {
		ids = ids[:1]
	}
	out := make([]Broker, 0, len(ids))
	for _, id := range ids {
		out = append(out, Broker{d.Cluster, d.BrokerName, id, d.BrokerAddrs[id]})
	}
	return out
}

func compare(a, b Broker) int {
	return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
}

// BrokersOf are the brokers that have a topic, those that lead only, by name.
func BrokersOf(r *command.TopicRouteData) []Broker {
	var out []Broker
	for i := range r.BrokerDatas {
		out = append(out, membersOf(&r.BrokerDatas[i], false)...)
	}
	slices.SortFunc(out, compare)
	return out
}

// brokerAt asks the broker at an address who it is.
func (c *Client) brokerAt(ctx context.Context, address string) (Broker, error) {
	b := Broker{Address: address}
	config, err := c.Config(ctx, b)
	if code, ok := CodeOf(err); ok && code == command.RespRequestCodeNotSupported { // one that is embedded, or no broker
		if _, err = c.Runtime(ctx, b, false); err != nil {
			return b, err
		}
		if info, err := c.Clusters(ctx); err == nil { // else it has no name
			for _, m := range All(&info) {
				if m.Address == address {
					b = m
				}
			}
		}
		return b, nil
	}
	if err != nil {
		return b, err
	}
	b.Name, b.Cluster = config["brokerName"], config["brokerClusterName"]
	b.ID, _ = strconv.ParseInt(config["brokerId"], 10, 64) // what is no number is a master's
	return b, nil
}

// maxAtOnce bounds the brokers that are asked at the same time.
const maxAtOnce = 16

// Result is what came of asking one broker.
type Result[T any] struct {
	Broker Broker
	Value  T
	Err    error
}

// Each asks brokers, several at once, and returns their results in the order of
// brokers. ask is called by several goroutines.
func Each[T any](ctx context.Context, brokers []Broker, ask func(ctx context.Context, b Broker) (T, error)) []Result[T] {
	out := make([]Result[T], len(brokers))
	slots := make(chan struct{}, maxAtOnce)
	var wg sync.WaitGroup
	for i, b := range brokers {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			out[i].Broker = b
			out[i].Value, out[i].Err = ask(ctx, b)
		})
	}
	wg.Wait()
	return out
}

// GetEach asks brokers for JSON; see [Each].
func GetEach[T any](ctx context.Context, c *Client, brokers []Broker, code int32, f Fields, body []byte) []Result[T] {
	return Each(ctx, brokers, func(ctx context.Context, b Broker) (T, error) { return Get[T](ctx, c, b.Address, code, f, body) })
}

// Without drops the results of brokers that answered with one of the codes: they do not
// have what was asked for, which is no failure.
func Without[T any](results []Result[T], codes ...int32) []Result[T] {
	return slices.DeleteFunc(slices.Clone(results), func(r Result[T]) bool {
		code, ok := CodeOf(r.Err)
		return ok && slices.Contains(codes, code)
	})
}

// Failure is a broker that did not do what it was asked for.
type Failure struct {
	Broker
	Error string `json:"error"`

	err error
}

// PartialError: some brokers, or all, did not do what they were asked for.
type PartialError struct {
	Failures []Failure
	Asked    int
}

// Error names each of them with its reason.
func (e *PartialError) Error() string {
	text := fmt.Sprintf("%d of %d brokers failed", len(e.Failures), e.Asked)
	switch heard := !slices.ContainsFunc(e.Failures, func(f Failure) bool { return errors.Is(f.err, ErrUnheard) }); {
	case heard: // nothing is wrong with them: they, or what they have, said no
		text = fmt.Sprintf("not done on %d of %d brokers", len(e.Failures), e.Asked)
	case e.Asked == 1:
		text = "the broker failed"
	}
	for _, f := range e.Failures {
		text += "\n  " + f.Broker.String() + ": " + f.Error
	}
	return text
}

// Unwrap is the errors of the brokers.
func (e *PartialError) Unwrap() []error {
	out := make([]error, len(e.Failures))
	for i, f := range e.Failures {
		out[i] = f.err
	}
	return out
}

// Failed is a *PartialError with the brokers that failed, nil when none did.
func Failed[T any](results []Result[T]) error {
	e := &PartialError{Asked: len(results)}
	for _, r := range results {
		if r.Err != nil {
			e.Failures = append(e.Failures, Failure{r.Broker, r.Err.Error(), r.Err})
		}
	}
	if len(e.Failures) == 0 {
		return nil
	}
	return e
}

// FailuresOf are the failures of a *PartialError, none for other errors.
func FailuresOf(err error) []Failure {
	var e *PartialError
	if errors.As(err, &e) {
		return e.Failures
	}
	return nil
}
