package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hardpointmq/hardpoint/core/api"
	"github.com/hardpointmq/hardpoint/core/command"
	"github.com/hardpointmq/hardpoint/core/internal/rarely"
	"github.com/hardpointmq/hardpoint/core/internal/spans"
	"github.com/hardpointmq/hardpoint/core/message"
	"github.com/hardpointmq/hardpoint/core/plugin"
	"github.com/hardpointmq/hardpoint/core/replication"
	"github.com/hardpointmq/hardpoint/core/storage"
)

// Kernel is made by core/broker, filled by the constructors of behaviours, and
// not changed after Start but for what says so.
type Kernel struct {
	Log   *slog.Logger
	Clock plugin.Clock
	Meter plugin.Meter

	Store      storage.Store
	Replicator replication.Replicator
	Sequencer  *storage.Sequencer
	Journal    Journal
	Topics     Topics
	Groups     Groups
	Offsets    Offsets
	Locks      Locks
	Values     Values
	// Images makes the catalog image that begins a segment; nil: none.
	Images ImageSource
	Hooks  Hooks

	others
	config atomic.Pointer[Config]
	tunable
	serving
	sender    Sender
	handlers  map[int32]HandlerFunc
	conns     sync.Map // peer id → *Conn
	opaque    atomic.Int32
	office    office
	malformed rarely.Line // headers

	// StoreHost is Advertise as it stands in records.
	StoreHost message.Host
}

// others do what the kernel cannot; nil: nobody does.
type others struct {
	// Announce waits, bounded by ctx, until the name servers that are up know
	// what topics there are now; nil: there are none.
	Announce func(ctx context.Context)
	// Ends raises the ends of all queues, as the store has them, to what the catalog
	// remembers; nil: nobody does.
	Ends func(ctx context.Context, a *storage.OffsetAnswers) error
	// Bury puts what is in the queues of some topics out of reach where the store
	// cannot drop queues, and lets the numbers go on; nil: the store can, or nobody
	// keeps floors.
	Bury func(ctx context.Context, of func(topic string) bool) error
}

// tunable is how tools see and change the configuration.
type tunable struct {
	// Update changes the configuration of the running broker by the text of
	// UPDATE_BROKER_CONFIG and says what it changed; nil: not offered.
	Update func(text []byte) (changed string, err error)

	// Properties is the effective configuration as the text of GET_BROKER_CONFIG, and
	// its version; nil: not offered.
	Properties func() ([]byte, command.DataVersion)
}

// serving is the time in which somebody is served, and how long requests took.
type serving struct {
	base   context.Context // ends when nobody is served any more
	cancel context.CancelFunc
	made   time.Time
	served served
	// Spans are those of requests; nil: there are none.
	Spans *spans.Spans
}

// office is what this node may do now.
type office struct {
	role     atomic.Pointer[replication.Role]
	writable atomic.Bool
	refuse   atomic.Pointer[string] // why nothing is accepted; nil: all is well
	full     atomic.Pointer[string] // why no messages are; nil: there is space
	fullIn   atomic.Uint64          // bits of FullInHours
}

// New makes a kernel with its store; behaviours fill in the rest.
func New(cfg Config, s plugin.Settings, store storage.Store) *Kernel {
	s = s.WithDefaults()
	k := &Kernel{
		Log: s.Logger, Clock: s.Clock, Meter: s.Meter, Store: store,
		handlers: map[int32]HandlerFunc{},
	}
	k.base, k.cancel = context.WithCancel(context.Background())
	k.made = k.Clock.Now()
	k.SetConfig(cfg)
	k.office.role.Store(&replication.Role{})
	k.Foresee(math.Inf(1))
	return k
}

// ErrNoOffice: this node may not write now; the text says why. Test with
// errors.Is.
var ErrNoOffice = errors.New("this broker takes no writes now")

// Role is the present office.
func (k *Kernel) Role() replication.Role { return *k.office.role.Load() }

// TakeOffice is the replicator's OnRole. The hooks run in order; when one fails
// the office is not taken.
func (k *Kernel) TakeOffice(ctx context.Context, r replication.Role) error {
	k.office.writable.Store(false)
	k.office.role.Store(&r)
	for _, h := range k.Hooks.role {
		if err := h(ctx, r); err != nil {
			return fmt.Errorf("taking office as %s of term %d: %w", r.Kind, r.Term, err)
		}
	}
	k.office.writable.Store(r.Kind == replication.RoleLeader && r.ReadOnly == "")
	return nil
}

// Writable returns nil when records of clients may be ordered, else an
// *api.Error whose identity clients retry.
func (k *Kernel) Writable() error {
	if why := k.office.refuse.Load(); why != nil {
		return &api.Error{ID: api.ServiceNotAvailable, Text: *why, Err: ErrNoOffice}
	}
	if !k.office.writable.Load() {
		r := k.Role()
		text := fmt.Sprintf("broker %s is %s of term %d", k.Config().BrokerName, r.Kind, r.Term)
		if r.ReadOnly != "" {
			text = "broker " + k.Config().BrokerName + " is read-only: " + r.ReadOnly
		}
		return &api.Error{ID: api.ServiceNotAvailable, Text: text, Err: ErrNoOffice}
	}
	return nil
}

// Refuse makes Writable fail with the text, "" ends that. Safe at any time.
func (k *Kernel) Refuse(why string) {
	if why == "" {
		k.office.refuse.Store(nil)
		return
	}
	k.office.refuse.Store(&why)
}

// Sendable is Writable for messages of clients, which a full disk refuses, too,
// while deletions and progress go on.
func (k *Kernel) Sendable() error {
	if why := k.office.full.Load(); why != nil {
		return &api.Error{ID: api.ServiceNotAvailable, Text: *why, Err: storage.ErrFull}
	}
	return k.Writable()
}

// RefuseSends makes Sendable fail with the text, "" ends that. Retention calls it;
// safe at any time.
func (k *Kernel) RefuseSends(why string) {
	if why == "" {
		k.office.full.Store(nil)
		return
	}
	k.office.full.Store(&why)
}

// Foresee tells in how many hours the disk will be full; +Inf: it does not fill, or
// nobody knows.
func (k *Kernel) Foresee(hours float64) { k.office.fullIn.Store(math.Float64bits(hours)) }

// FullInHours is what Foresee told last.
func (k *Kernel) FullInHours() float64 { return math.Float64frombits(k.office.fullIn.Load()) }

// maxWait bounds what one request waits for the log with the reader of its
// connection: clients give up by then.
const maxWait = 3 * time.Second

// Serving is the context of reads for clients: it ends when nobody is served any
// more, so that a store that hangs (the process of a plugin that was stopped) does
// not hang the broker's stop.
func (k *Kernel) Serving() context.Context { return k.base }

// Waiting is the context of a handler that waits for the log or a barrier.
func (k *Kernel) Waiting() (context.Context, context.CancelFunc) {
	return context.WithTimeout(k.base, maxWait)
}

// Barrier returns nil when everything that was acknowledged anywhere is published
// here; what names, for the client, what is not known otherwise. The error is an
// *api.Error that clients retry.
func (k *Kernel) Barrier(ctx context.Context, what string) error {
	if err := k.Replicator.Barrier(ctx); err != nil {
		return &api.Error{ID: api.ServiceNotAvailable, Text: what + " not known here now", Err: err}
	}
	return nil
}

// announceWait bounds how long the answer about a new topic waits for name
// servers.
const announceWait = time.Second

// TellNameServers waits a little until name servers know a new topic: whoever
// created it asks for its route next.
func (k *Kernel) TellNameServers() {
	if k.Announce == nil {
		return
	}
	ctx, cancel := context.WithTimeout(k.base, announceWait)
	defer cancel()
	k.Announce(ctx)
}

// Release ends all Waiting contexts and Serving: the broker stops, and a log that
// hangs must not hang the stop.
func (k *Kernel) Release() { k.cancel() }

// DerivedTopic is the configuration of a group's retry or dead-letter topic.
func DerivedTopic(name string, queues int32) command.TopicConfig {
	return command.TopicConfig{
		TopicName: name, ReadQueueNums: queues, WriteQueueNums: queues,
		Perm: command.PermRead | command.PermWrite, TopicFilterType: "SINGLE_TAG",
	}
}

// InvariantError is the value of a panic that no handler's recover may swallow:
// the state it leaves behind is broken for everybody.
type InvariantError string

// Error implements error.
func (e InvariantError) Error() string { return string(e) }

// Handle registers the handler of a request code; a code has one handler.
func (k *Kernel) Handle(code int32, h HandlerFunc) {
	if _, dup := k.handlers[code]; dup {
		panic(fmt.Sprintf("kernel: request code %d has two handlers", code))
	}
	k.handlers[code] = h
}

// SetSender registers the behaviour that takes sends; they are not dispatched
// one by one.
func (k *Kernel) SetSender(s Sender) { k.sender = s }

// Settle implements transport.Handler.
func (k *Kernel) Settle() { k.sender.Settle() }

// Placed tells where the records of one Write are.
type Placed struct {
	// Units are copies, in order of the records (those with units).
	Units   []message.Unit
	Outcome replication.Outcome
}

// Journal brings records into the log: the combining queue in front of the
// replicator. Safe for concurrent use.
type Journal interface {
	// Write orders the records as one group, all or none, and returns when
	// their promise is met and they are published, or with an error that says
	// what became of them. FlushDiskTimeout and the like are outcomes, not
	// errors. ctx bounds waiting, not the record; one that is over orders
	// nothing. It must not be called from a Published hook or a Submit callback.
	Write(ctx context.Context, recs ...*message.Record) (Placed, error)
	// Submit is Write without waiting: done is called exactly once, possibly
	// before Submit returns, and must not block.
	Submit(recs []*message.Record, done func(Placed, error))
	// Alone runs f while nobody writes to the log: with the turn of the log, as
	// the storage contract wants it for Expire and Drop. What was brought before
	// is in the log then, and what has yet to be brought looks its topics up
	// again. Everybody who sends waits
	// meanwhile, so f must be short; it must not write. It returns f's error, or why
	// f was not run: ctx, which f also gets, was over before its turn came, or the
	// journal stopped. It must not be called from a Published hook or by f.
	Alone(ctx context.Context, f func(ctx context.Context) error) error
}

// ImageSource makes catalog images; the journal asks it at each segment edge.
type ImageSource interface {
	// Image returns the records of a full image of the catalog as of everything
	// ordered so far; ends lists the next offset of every queue. It is called by
	// the holder of the turn of the log and must not write to the journal. No
	// records: no image is due in this segment. Otherwise settled is called once, with
	// whether they are known to be in the log. It does not block.
	Image(ends func(yield func(q message.Queue, next int64) bool)) (recs []*message.Record, settled func(stored bool))
}

// Topic is a topic as handlers see it: immutable, replaced whole on change.
type Topic struct {
	Config command.TopicConfig
	// System: reserved; Internal: never shown to clients.
	System, Internal bool
}

// Topics is the catalog's table of topics. Look-ups take no lock and allocate
// nothing. Changes return when they are published and in topics.json, which
// other brokers read; a new topic is found from then on. If that file cannot be
// written, being published is enough.
type Topics interface {
	// Lookup returns nil for an unknown topic.
	Lookup(name []byte) *Topic
	// Named is Lookup by string.
	Named(name string) *Topic
	// AutoCreate makes a topic from a template by RocketMQ's rules
	// (createTopicInSendMessageMethod). TopicNotExist when that is not allowed.
	AutoCreate(ctx context.Context, name, template string, queues int32, unit bool) (*Topic, error)
	// Ensure returns the topic, made with these settings when it is absent.
	Ensure(ctx context.Context, t command.TopicConfig) (*Topic, error)
	// Put creates or replaces topics. When it fails, some of them may be stored, in
	// their order.
	Put(ctx context.Context, ts ...command.TopicConfig) error
	// Remove deletes a topic; unknown ones are no error.
	Remove(ctx context.Context, name string) error
	// Touch moves the version although no topic changed: what is registered of
	// them did.
	Touch()
	// All lists topics that are not internal, sorted by name, and the version.
	All() ([]*Topic, command.DataVersion)
}

// Groups is the catalog's table of subscription groups.
type Groups interface {
	// Named returns nil for an unknown group.
	Named(name string) *command.SubscriptionGroupConfig
	// Ensure returns the group, auto-created with defaults when that is
	// allowed; GroupNotExist otherwise. While the log takes no writes the
	// defaults are returned without being stored, so that reading goes on.
	Ensure(ctx context.Context, name string) (*command.SubscriptionGroupConfig, error)
	Put(ctx context.Context, g command.SubscriptionGroupConfig) error
	Remove(ctx context.Context, name string, cleanOffsets bool) error
	All() ([]*command.SubscriptionGroupConfig, command.DataVersion)
}

// Offsets is the catalog's table of consumer progress.
type Offsets interface {
	// Committed is the next offset to consume.
	Committed(group string, q message.Queue) (int64, bool)
	// Commit remembers progress at once and makes it a record within
	// Config.OffsetInterval; false: the queue was reset, and what a consumer reports
	// that has not taken this in does not count. In a topic that is not there nothing is
	// remembered: it was deleted, and its progress with it.
	Commit(group string, q message.Queue, offset int64) bool
	// Reset sets the progress of a group in queues of a topic; it returns when that is
	// published. Until a consumer goes on there (Meets), or was told and reports
	// this very offset, Committed is this offset and Commit changes nothing: members
	// that live still work on what they fetched before. This outlives restarts.
	Reset(ctx context.Context, group, topic string, at map[int32]int64) error
	// Meets tells where a consumer that wants to read at an offset has to go on
	// instead, when the queue was reset and the offset is another one. A consumer that
	// does not obey when it was told eight times goes on as it likes.
	Meets(group string, q message.Queue, at int64) (int64, bool)
	// All is a copy: "topic@group" → queue id → offset.
	All() (map[string]map[int32]int64, command.DataVersion)
	// Of lists the topics for which a group has progress, In the groups that have
	// progress in a topic, sorted.
	Of(group string) []string
	In(topic string) []string
}

// Locks is the catalog's table of queues that orderly consumers hold.
type Locks interface {
	// Held reports whether a group holds any queue.
	Held(group string) bool
}

// ValueKey names what a behaviour remembers of a group in a topic. What has no topic
// is no group's: Group is then whatever the behaviour likes.
type ValueKey struct{ Kind, Group, Topic string }

// Values is the catalog's table of what behaviours remember. What is of a group or
// a topic goes with it.
type Values interface {
	// Value is what was put; nil: nothing. It is not to be changed.
	Value(k ValueKey) []byte
	// PutValue stores a value, empty removes one; it returns when that is
	// published.
	PutValue(ctx context.Context, k ValueKey, v []byte) error
	// Has reports whether there is any value of a kind that is mirrored to a file
	// (ValueForbidden, ValueRequestMode), without a lock: most brokers have none.
	Has(kind string) bool
	// OfKind calls yield for all of a kind, until it returns false, in no order.
	OfKind(kind string, yield func(k ValueKey, v []byte) bool)
}

// ValueForbidden is the kind of values that forbid a group to read a topic: RocketMQ's
// bits in decimal, of which ForbiddenRead is one. The catalog mirrors them to
// forbiddenTable in subscriptionGroup.json, where RocketMQ keeps them.
const ValueForbidden = "group-forbidden"

// ForbiddenRead is the bit that forbids a group to read a topic (RocketMQ's
// PermName.INDEX_PERM_READ).
const ForbiddenRead = 1 << 2

// Forbidden is what a group may not do with a topic, as bits.
func Forbidden(v Values, group, topic string) int32 {
	if !v.Has(ValueForbidden) {
		return 0
	}
	n, _ := strconv.ParseInt(string(v.Value(ValueKey{Kind: ValueForbidden, Group: group, Topic: topic})), 10, 32)
	return int32(n)
}

// ForbiddenTable is what groups may not do: group → topic → bits; nil when there is
// nothing.
func ForbiddenTable(v Values) map[string]map[string]int32 {
	var out map[string]map[string]int32
	v.OfKind(ValueForbidden, func(k ValueKey, b []byte) bool {
		if n, err := strconv.ParseInt(string(b), 10, 32); err == nil {
			if out == nil {
				out = map[string]map[string]int32{}
			}
			if out[k.Group] == nil {
				out[k.Group] = map[string]int32{}
			}
			out[k.Group][k.Topic] = int32(n)
		}
		return true
	})
	return out
}

// ValueRequestMode is the kind of values that say how a group reads a topic, in JSON
// of command.SetMessageRequestModeBody. The catalog mirrors them to
// messageRequestMode.json, where RocketMQ keeps them.
const ValueRequestMode = "request-mode"

// RequestModes are the request modes of all groups; one that cannot be read is left
// out.
func RequestModes(v Values) command.MessageRequestModes {
	out := command.MessageRequestModes{Modes: map[string]map[string]command.SetMessageRequestModeBody{}}
	v.OfKind(ValueRequestMode, func(k ValueKey, b []byte) bool {
		var m command.SetMessageRequestModeBody
		if command.DecodeBody(b, &m) == nil {
			if out.Modes[k.Topic] == nil {
				out.Modes[k.Topic] = map[string]command.SetMessageRequestModeBody{}
			}
			out.Modes[k.Topic][k.Group] = m
		}
		return true
	})
	return out
}
